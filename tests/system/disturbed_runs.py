"""Restart a Postgres server, or cut the way to it, again and again while runs work in it.

.ci/postgres python tests/system/disturbed_runs.py [--how restart] [--times 120] [--every 5]

With `--how drop`, packets are dropped by iptables; that needs root and is best done in a network
of its own: `unshare -n sh -c 'ip link set lo up; .ci/postgres python ... --how drop'`.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from multiprocessing.synchronize import Event
from pathlib import Path
from time import sleep

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import psycopg  # noqa: E402
from billing_server import BillingServer  # noqa: E402
from crash_runs import Provider  # noqa: E402
from paid_runs import ledger_in, run_paid, spent_from  # noqa: E402
from ports import free_port  # noqa: E402
from postgres_server import Server, started_server  # noqa: E402
from tcp_proxy import TIMEOUTS, network_to  # noqa: E402
from waiting import within  # noqa: E402
from warm import PROCESSES  # noqa: E402

from costada.store.outage import Patience, waiting_for_database  # noqa: E402

NUM_RUNS, PARALLEL = 2, 8
"""Runs at the same time, and calls of each in flight."""

ITERATIONS = 40
"""Of a run."""

LATENCY = 0.3
"""Seconds that an answer takes."""

MAX_WAIT = 600.0
"""Seconds that a run waits for its server, at most."""

REASONS = "stop-reasons"
"""File in which the runs of a process note why they have ended."""

Disturb = Callable[[int], None]


@dataclass
class Found:
    """What has happened, and the dollars that it cost by three accounts."""

    num_disturbances: int
    num_runs: int
    num_finished: int
    num_requests: int
    bill: Decimal
    ledger: Decimal
    spent: Decimal

    def __str__(self) -> str:
        counts = f"{self.num_disturbances} disturbances, {self.num_requests} requests"
        runs = f"{self.num_finished} of {self.num_runs} runs finished by themselves"
        return f"{counts}, {runs}: bill {self.bill}, ledger {self.ledger}, purse {self.spent}"


@contextmanager
def restarts(server: Server, _pause: float) -> Iterator[tuple[str, Disturb]]:
    """Yield the server's address and what restarts it, crashing it every other time."""

    def restart(number: int) -> None:
        server.control("stop", "--mode=fast" if number % 2 else "--mode=immediate")
        server.control("start")

    yield server.address, restart


@contextmanager
def cuts(server: Server, pause: float) -> Iterator[tuple[str, Disturb]]:
    """Yield the address of a network to the server, and what cuts it in one way after another."""
    with network_to(server) as network:

        def cut(number: int) -> None:
            first, then = (("hold", "forward"), ("refuse", "forward"), ("hold", "reset"))[
                number % 3
            ]
            network.let(first)
            sleep(pause)
            network.let(then)

        yield network.address, cut


@contextmanager
def drops(server: Server, pause: float) -> Iterator[tuple[str, Disturb]]:
    """Yield the server's address and what drops its packets: in a direction, the other, in both."""
    port = free_port()
    server.listen(port)

    def drop(number: int) -> None:
        ends = (("--dport",), ("--sport",), ("--dport", "--sport"))[number % 3]
        for each in ends:
            filter_packets("--insert", each, port)
        sleep(pause)
        for each in ends:
            filter_packets("--delete", each, port)

    yield f"{server.address}?{TIMEOUTS}", drop


def filter_packets(action: str, end: str, port: int) -> None:
    rule = f"iptables {action} INPUT --protocol tcp {end} {port} --jump DROP"
    subprocess.run(rule.split(), check=True)


KINDS = {"restart": restarts, "cut": cuts, "drop": drops}


def disturb_runs(kind: str, *, times: int, every: float, pause: float) -> Found:
    """Disturb runs that one purse pays for, until they have ended by themselves.

    Args:
        kind: One of `KINDS`.
        times: Number of disturbances; no run begins after the last one.
        every: Seconds before each of them.
        pause: Seconds that a cut lasts.
    """
    provider = Provider()
    provider.take_time = lambda _: sleep(LATENCY)
    with (
        tempfile.TemporaryDirectory() as work,
        BillingServer(default=provider.answer) as billing,
        started_server() as server,
        KINDS[kind](server, pause) as (database, disturb),
    ):
        is_over = PROCESSES.Event()
        processes = [
            PROCESSES.Process(
                target=run_in_turn,
                args=(Path(work, f"{name}"), billing.url, database, is_over),
                daemon=True,
            )
            for name in range(NUM_RUNS)
        ]
        for each in processes:
            each.start()
        within(60, lambda: provider.billed.total() >= NUM_RUNS)
        for number in range(times):
            sleep(every)
            disturb(number)
        is_over.set()
        for each in processes:
            each.join(MAX_WAIT)
        assert [each.exitcode for each in processes] == [0] * NUM_RUNS
        ledger, _ = ledger_in(server.address)
        with psycopg.connect(server.address) as connection:
            names = "SELECT count(*) FROM costada.costada_named"
            ((num_runs,),) = connection.execute(names).fetchall()
        spent = spent_from(server.address)
        reasons = "".join(file.read_text() for file in Path(work).glob(f"*/{REASONS}"))
        num_finished, billed = reasons.count("iterations"), provider.billed.total()
        return Found(times, num_runs, num_finished, billed, provider.bill, ledger, spent)


def run_in_turn(parent: Path, url: str, database: str, is_over: Event) -> None:
    """Begin one run after another until the disturbances are over, in this process."""
    for number in count():
        with waiting_for_database(Patience(MAX_WAIT)):
            own = {"parallel": PARALLEL, "gateway": False, "max_iterations": ITERATIONS}
            found = run_paid(parent / f"{parent.name}-{number}", url, database, **own)
        with (parent / REASONS).open("a") as reasons:
            reasons.write(f"{found.stop_reason}\n")
        if is_over.is_set():
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--how", choices=KINDS, default="restart")
    parser.add_argument("--times", type=int, default=120, help="number of disturbances")
    parser.add_argument("--every", type=float, default=5, help="seconds before each of them")
    parser.add_argument("--pause", type=float, default=3, help="seconds of a cut")
    given = parser.parse_args()
    found = disturb_runs(given.how, times=given.times, every=given.every, pause=given.pause)
    print(found, flush=True)
    if found.bill != found.ledger or found.num_finished != found.num_runs:
        sys.exit("the ledger differs from the bill, or a run has not finished")


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", os.pathsep.join(sys.path[:2]))
    main()

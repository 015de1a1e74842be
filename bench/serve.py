"""Many runs in the servers of one queue: their cost per iteration, and what random kills do to it.

    COSTADA_MAX_CONNECTIONS=600 .ci/postgres python bench/serve.py [--runs 1000] [--kills 100]

Servers as `costada serve` starts them execute the runs against a loopback server that answers after
10 seconds. The problem is judged in the process of its server, in no time. At random instants one
of the servers is killed with SIGKILL and another one started. The exit code is 1 if a run did not
end, or if the ledgers or the purse have less than what was billed.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import psycopg
from loopback import Call, Loopback, constant

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from crash_runs import PRICE_IN, PRICE_OUT
from fakes import rewrite
from new_database import new_database
from queue_servers import begun_server

from costada.agents.job_clients import add_jobs
from costada.agents.teams import Team
from costada.runs.shared_purse import PurseAddress
from costada.store.address import shown_address

TEAM, PURSE = "bench", 1_000_000
LOOK_SECONDS, SHOW_SECONDS = 1.0, 20.0
TICKS = os.sysconf("SC_CLK_TCK")
MEGABYTE = 1 << 20
GATEWAYS = b"costada.plugins.gateway.gateway_process"

PROGRESS = """
SELECT (SELECT count(*) FROM costada.costada_job WHERE ended <> ''),
    (SELECT count(*) FROM costada.costada_step),
    (SELECT count(*) FROM costada.costada_call WHERE status = 'started'),
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')
"""
TOTALS = "SELECT status, cost, bound FROM costada.costada_call"


def number(rng: random.Random) -> str:
    """A program that returns a number."""
    return rewrite(rng.random())


class Progress(NamedTuple):
    """How far the runs are."""

    seconds: float
    ended: int
    steps: int
    kills: int


@dataclass(slots=True)
class Peak:
    """The most that was seen at one time, over all servers, and their CPU."""

    connections: int = 0
    in_flight: int = 0
    megabytes: float = 0.0
    of_gateways: float = 0.0
    threads: int = 0
    cpu: dict[int, float] = field(default_factory=dict)

    def see(self, servers: list[BaseProcess], connections: int, in_flight: int) -> None:
        """Take a sample."""
        self.connections = max(self.connections, connections)
        self.in_flight = max(self.in_flight, in_flight)
        megabytes, threads = 0.0, 0
        for each in servers:
            with suppress(FileNotFoundError):
                words = Path(f"/proc/{each.pid}/stat").read_text().rpartition(")")[2].split()
                self.cpu[int(each.pid or 0)] = (int(words[11]) + int(words[12])) / TICKS
                threads += int(words[17])
                megabytes += int(words[21]) * os.sysconf("SC_PAGESIZE") / MEGABYTE
        self.of_gateways = max(self.of_gateways, gateway_megabytes())
        self.megabytes, self.threads = max(self.megabytes, megabytes), max(self.threads, threads)


def gateway_megabytes() -> float:
    """The memory of the processes of gateways on this machine."""
    pages = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if GATEWAYS in (process / "cmdline").read_bytes():
                pages += int((process / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / MEGABYTE


def followed(
    address: str, servers: list[BaseProcess], begin: object, given: argparse.Namespace, peak: Peak
) -> Iterator[Progress]:
    """Kill and replace servers until all jobs have ended; yields progress once a second."""
    rng, began = random.Random(given.seed), time.monotonic()
    num_kills, wanted = 0, 0
    with psycopg.connect(address, autocommit=True) as connection:
        while True:
            ended, steps, in_flight, connections = connection.execute(PROGRESS).fetchone()  # type: ignore[misc]
            peak.see(servers, connections, in_flight)
            yield Progress(time.monotonic() - began, ended, steps, num_kills)
            if ended == given.runs:
                return
            # Kills are spread over the iterations: as many have happened as this share says.
            wanted = int(given.kills * steps / (given.runs * given.iterations))
            while num_kills < wanted:
                time.sleep(rng.random() * LOOK_SECONDS / 2)
                place = rng.randrange(len(servers))
                servers[place].kill()
                servers[place].join()
                servers[place] = begin()
                num_kills += 1
            time.sleep(LOOK_SECONDS)


def bill_of(calls: Sequence[Call]) -> Decimal:
    """Dollars of all answers that were made."""
    taken = sum(each.input_tokens for each in calls)
    written = sum(each.output_tokens for each in calls)
    return (taken * PRICE_IN + written * PRICE_OUT) / 1_000_000


def show_totals(
    address: str, bill: Decimal, peak: Peak, progress: Progress, given: argparse.Namespace
) -> None:
    """Print what the runs cost; the exit code is 1 where a sum is wrong."""
    with psycopg.connect(address) as connection:
        calls = connection.execute(TOTALS).fetchall()
        ends = connection.execute("SELECT ended, count(*) FROM costada.costada_job GROUP BY 1")
        states = ", ".join(f"{count} {ended}" for ended, count in ends.fetchall())
    cost = sum((Decimal(each) for _, each, _ in calls), Decimal(0))
    bound = sum((Decimal(each) for *_, each in calls), Decimal(0))
    with PurseAddress(shown_address(address), TEAM).open() as purse:
        spent = purse.spent
    steps, cpu = progress.steps, sum(peak.cpu.values())
    at_once = min(given.runs, given.servers * given.jobs)
    print(f"jobs: {states}; {progress.kills} kills; {steps} iterations in {progress.seconds:.0f} s")
    print(f"requests: {dict(Counter(status for status, *_ in calls))}")
    print(f"bill ${bill:f}, ledger ${cost:f} and at most ${bound:f} in doubt, purse ${spent:f}")
    print(
        f"CPU of the servers per iteration {1000 * cpu / steps:.1f} ms; at once: {peak.in_flight}"
        f" requests in flight, {peak.connections} connections, {peak.threads} threads,"
        f" {peak.megabytes:.0f} MB, or {peak.megabytes / at_once:.1f} MB a run, and"
        f" {peak.of_gateways:.0f} MB in gateways"
    )
    if not cost <= bill <= cost + bound or spent != cost + bound:
        sys.exit("the sums are wrong")


def main() -> None:
    """Run all jobs and print what they cost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--postgres", default=os.environ.get("COSTADA_POSTGRES"), help="an address")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--parallel", type=int, default=8, help="steps in flight", metavar="K")
    parser.add_argument("--iterations", type=int, default=16, help="of each run")
    parser.add_argument("--servers", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=100, help="runs at once in a server")
    parser.add_argument("--latency", type=float, default=10.0, help="seconds of an answer")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the kills")
    parser.add_argument("--gateway", action="store_true", help="keep answers in gateways")
    parser.add_argument("--slice", type=float, help="dollars of each draw from the purse")
    given = parser.parse_args()
    if not given.postgres:
        parser.error("--postgres: got none, and COSTADA_POSTGRES is not set")
    os.environ["OPENAI_API_KEY"] = "none"
    with (
        TemporaryDirectory() as folder,
        new_database(given.postgres) as database,
        Loopback(constant(given.latency), number) as stub,
    ):
        address = shown_address(database)
        teams = {TEAM: Team(budget=PURSE)}
        PurseAddress(address, TEAM).create(PURSE, "crossing").close()
        add_jobs(address, TEAM, "toy", {"budget": 100.0}, range(given.runs), name="run")
        settings: dict[str, Any] = {"parallel": given.parallel, "gateway": given.gateway}
        settings["max_iterations"] = given.iterations
        if given.slice:
            settings["purse_slice"] = given.slice

        def begin() -> BaseProcess:
            return begun_server(address, stub.url, folder, teams, given.jobs, **settings)

        servers = [begin() for _ in range(given.servers)]
        peak, shown = Peak(), 0.0
        try:
            for progress in followed(database, servers, begin, given, peak):
                if progress.seconds >= shown:
                    shown += SHOW_SECONDS
                    print(
                        f"{progress.seconds:6.0f} s {progress.ended:6} runs ended"
                        f" {progress.steps:7} iterations {progress.kills:5} kills",
                        flush=True,
                    )
        finally:
            for each in servers:
                each.terminate()
            for each in servers:
                each.join()
        show_totals(database, bill_of(stub.take_calls()), peak, progress, given)


if __name__ == "__main__":
    main()

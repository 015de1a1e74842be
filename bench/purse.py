"""One purse in Postgres under many clients: draws per second, and what random kills do to it.

    COSTADA_FSYNC=on .ci/postgres python bench/purse.py [--draws 10000] [--kills 12]

A draw reserves the most that a call can cost and then puts what it did cost: two durable
transactions. The rate is measured for each number of clients. Then 32 clients, four threads in each
of eight processes, draw from a purse with the policy "hard" until it is empty. At random one
of the processes is killed with SIGKILL and another one started. A watcher reads all accounts and
entries in one snapshot, again and again; each client writes what the purse has confirmed to a file.
The exit code is 1 if anything was overdrawn, lost or counted wrongly.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Iterator
from decimal import Decimal
from itertools import count
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from time import monotonic, sleep

import psycopg

from costada.store.accounts import Entry, OverBudget
from costada.store.purse import Purse

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from new_database import new_database

PROCESSES, THREADS = 8, 4
BOUND = Decimal("0.003")
COSTS = [Decimal(f"0.00{tenth}") for tenth in range(11, 30)]
"""What a call costs, at random: 0.002 on average, never the bound."""

TEAMS = 4
"""Accounts below the purse, each of a fifth of its budget; every other thread draws from one.

A process that replaces a killed one draws from the same accounts, so that all of them are emptied.
"""

REFUSALS = 3
"""Refusals in a row after which a client takes its account to be empty."""

POLL_SECONDS = 0.03
PATIENCE_SECONDS = 600
CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(["costada.store.purse", "costada.store.postgres_engine"])

SNAPSHOT = """
SELECT name, budget::numeric, spent::numeric, committed::numeric,
    (SELECT count(*) FROM costada.costada_entry),
    (SELECT coalesce(sum(cost::numeric + bound::numeric), 0) FROM costada.costada_entry)
FROM costada.costada_account ORDER BY id
"""


def spend(
    address: str, budget: Decimal, log: Path, place: int, num_threads: int, seconds: float
) -> None:
    """Draw in several threads until nothing is left or the time is up; log what is confirmed."""
    end = monotonic() + seconds
    with (
        Purse(budget, policy="hard", dsn=address) as purse,
        log.open("ab", buffering=0) as confirmed,
    ):
        teams = [purse.child(f"team {number}", budget / (TEAMS + 1)) for number in range(TEAMS)]

        def draw(thread: int) -> None:
            account = teams[(place + thread) % TEAMS] if thread % 2 else purse
            refused = 0
            for number in count():
                if refused == REFUSALS or monotonic() > end:
                    return
                key, cost = f"{log.name} {thread} {number}", random.choice(COSTS)
                try:
                    account.begin(key, BOUND)
                except OverBudget:
                    refused += 1
                    continue
                refused = 0
                confirmed.write(f"{key},{BOUND}\n".encode())
                account.put(key, cost=cost)
                confirmed.write(f"{key},{cost}\n".encode())

        threads = [Thread(target=draw, args=(thread,)) for thread in range(num_threads)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()


class Watcher(Thread):
    """Polls the purse and records wrong sums."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.num_polls = self.num_entries = 0
        self.faults: list[str] = []
        self.stopping = Event()
        self._address = address

    def run(self) -> None:
        """Poll until stopped, and once more after that."""
        with psycopg.connect(self._address, autocommit=True) as connection:
            is_last = False
            while not is_last:
                is_last = self.stopping.wait(POLL_SECONDS)
                for row in connection.execute(SNAPSHOT).fetchall():
                    self._check(*row)
                self.num_polls += 1

    def _check(
        self,
        name: str,
        budget: Decimal,
        spent: Decimal,
        committed: Decimal,
        num_entries: int,
        total: Decimal,
    ) -> None:
        self.num_entries = num_entries
        if not spent <= committed <= budget:
            self.faults.append(f"{name}: spent ${spent}, committed ${committed} of ${budget}")
        if name == "purse" and not spent == total <= budget:
            self.faults.append(f"{name}: spent ${spent}, its entries are ${total} of ${budget}")


def started(*given: object) -> BaseProcess:
    """A process of clients."""
    process = CONTEXT.Process(target=spend, args=given)
    process.start()
    return process


def throughput(server: str, num_clients: int, seconds: float) -> float:
    """Draws per second of a number of clients."""
    num_processes = min(num_clients, PROCESSES)
    with new_database(server) as address, TemporaryDirectory() as folder:
        given = Decimal(10**6), num_clients // num_processes, seconds
        Purse(given[0], policy="hard", dsn=address).close()
        running = [
            started(address, given[0], Path(folder, f"client {number}"), number, *given[1:])
            for number in range(num_processes)
        ]
        for each in running:
            each.join(PATIENCE_SECONDS)
        lines = sum(len(log.read_bytes().splitlines()) for log in Path(folder).iterdir())
        return lines / 2 / seconds


def under_kills(address: str, num_draws: int, num_kills: int) -> list[str]:
    """Empty a purse under kills, print what happened, and return what is wrong."""
    # Random costs may exceed their mean; 5 % of it is five standard deviations of their sum.
    mean = sum(COSTS, Decimal(0)) / len(COSTS)
    budget = num_draws * mean * Decimal("1.05") + num_kills * THREADS * BOUND
    kills, began = 0, monotonic()
    with TemporaryDirectory() as folder, Purse(budget, policy="hard", dsn=address):
        watcher = Watcher(address)
        watcher.start()
        logs = (Path(folder, f"client {number}") for number in count())

        def begin(place: int) -> BaseProcess:
            return started(address, budget, next(logs), place, THREADS, PATIENCE_SECONDS)

        running = [begin(place) for place in range(PROCESSES)]
        while any(each.is_alive() for each in running) and not watcher.faults:
            sleep(POLL_SECONDS)
            if (
                kills < num_kills
                and watcher.num_entries > (kills + 1) * num_draws / num_kills / 1.2
            ):
                chosen = random.randrange(PROCESSES)
                running[chosen].kill()
                running[chosen].join()
                kills, running[chosen] = kills + 1, begin(chosen)
        for each in running:
            each.kill()
            each.join()
        seconds = monotonic() - began
        watcher.stopping.set()
        watcher.join()
        with Purse(budget, policy="hard", dsn=address) as purse:
            faults = [*watcher.faults, *audit(purse, Path(folder), kills * THREADS)]
            left = purse.remaining
        if kills < num_kills or watcher.num_entries < num_draws:
            faults.append(f"only {kills} kills and {watcher.num_entries} draws")
    print(
        f"{watcher.num_entries:,} draws by {PROCESSES * THREADS} clients in {seconds:.1f} s,"
        f" {kills} processes killed and replaced, {watcher.num_polls} polls"
    )
    print(f"budget ${budget:f}, left ${left:f}")
    return faults


def audit(purse: Purse, logs: Path, most_unknown: int) -> Iterator[str]:
    """What is wrong with the accounts by the sums of their entries, and with the entries."""
    accounts, entries = purse.accounts(), purse.calls()
    sums = dict.fromkeys((account.name for account in accounts), Decimal(0))
    for entry in entries:
        for name in entry.account.split("/"):
            sums[name] += entry.cost + entry.bound
    for account in accounts:
        if account.spent != sums[account.name]:
            yield f"{account.name}: spent ${account.spent}, its entries are ${sums[account.name]}"
    unknown = [entry for entry in entries if entry.bound]
    if len(unknown) > most_unknown or {entry.bound for entry in unknown} - {BOUND}:
        yield f"{len(unknown)} reservations of killed clients, expected at most {most_unknown}"
    kept = sum(entry.bound for entry in unknown)
    print(f"{len(unknown)} reservations of killed clients stay at their bound, ${kept}")
    yield from differences({entry.key: entry for entry in entries}, logs, most_unknown)


def differences(recorded: dict[str, Entry], logs: Path, most_unknown: int) -> Iterator[str]:
    """Where the entries are not what the purse has confirmed to its clients."""
    confirmed: dict[str, Decimal] = {}
    for log in logs.iterdir():
        for line in log.read_text().splitlines():
            key, _, number = line.partition(",")
            confirmed[key] = Decimal(number)
    for key, dollars in confirmed.items():
        found = recorded.get(key)
        # the last put of a killed client may have been carried out without an answer
        if found is None or (dollars != BOUND and (found.cost != dollars or found.bound)):
            yield f"{key}: ${dollars} was confirmed, recorded is {found}"
    if len(recorded) > len(confirmed) + most_unknown:
        yield f"{len(recorded)} entries, of which only {len(confirmed)} were confirmed"


def main() -> None:
    """Print the draws per second, and what is left of a purse after kills."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    words.add_argument("--draws", type=int, default=10_000, help="draws under kills, at least")
    words.add_argument("--kills", type=int, default=12)
    words.add_argument("--clients", type=int, nargs="*", default=[1, 8, 32])
    words.add_argument("--seconds", type=float, default=10.0, help="for each number of clients")
    words.add_argument("--keep", action="store_true", help="use the database that is named")
    given = words.parse_args()
    if not (server := os.environ.get("COSTADA_POSTGRES")):
        sys.exit("Start this with .ci/postgres python bench/purse.py")
    for num_clients in given.clients:
        rate = throughput(server, num_clients, given.seconds)
        print(f"{num_clients:2} clients: {rate:5.0f} draws/s", flush=True)
    if given.keep:
        faults = under_kills(server, given.draws, given.kills)
    else:
        with new_database(server) as address:
            faults = under_kills(address, given.draws, given.kills)
    print("\n".join(faults[:10]) or "never overdrawn, nothing lost, all sums exact")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()

"""How many runs one Postgres server serves: the traffic of a step, latencies, and the limit.

    COSTADA_FSYNC=on .ci/postgres python bench/scale.py [--runs 1,10,100,1000] [--every 10]

One search with the offline model runs on the server, and every call of its store and its saver is
recorded. Then many runs are replayed at the same time: each sends the recorded calls of a step
through the same classes, with new ids, waits as long as a model takes to answer, and sends the next
step. Two processes with several threads send them; each thread has a store and a saver. The last
line is a load without pauses: the most that the server and these two processes can do.

Latencies are those of the client; transactions of calls and checkpoints wait for the disk. CPU is
that of the server's processes, from /proc.
"""

from __future__ import annotations

import argparse
import heapq
import os
import random
import sys
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path
from queue import Queue
from threading import Condition, Thread
from typing import Any
from uuid import uuid4

import psycopg
from recorded_traffic import Recording, Replay, record

from costada.nodes.calls.purse_slice import SLICE, PurseSlice
from costada.store.postgres_checkpoints import PostgresRunSaver
from costada.store.postgres_engine import PostgresEngine
from costada.store.purse import Purse
from costada.store.run_store import RunStore

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from new_database import new_database

PROCESSES = 2
WARMING_SECONDS = 2.0
PERCENTILES = (50, 95, 99)
KINDS = ("transaction", "single write", "text", "checkpoint", "query")
SPENDERS = (1, 4, 16, 64)
BOUND, COST, ZERO = Decimal("0.01"), Decimal("0.002"), Decimal(0)
CONTEXT = get_context("spawn")

TRAFFIC = """
SELECT relname, n_tup_ins, n_tup_upd, n_tup_del, pg_total_relation_size(relid)
FROM pg_stat_user_tables WHERE schemaname = 'costada'
"""


@dataclass(slots=True)
class Load:
    """What some processes did: seconds by kind of transaction, of whole steps, and their number."""

    took: dict[str, list[float]] = field(default_factory=dict)
    seconds: float = 0.0
    client_cpu: float = 0.0

    def add(self, other: Load) -> None:
        """Add what another process did at the same time."""
        for kind, each in other.took.items():
            self.took.setdefault(kind, []).extend(each)
        self.seconds = max(self.seconds, other.seconds)
        self.client_cpu += other.client_cpu

    def percentiles(self, kind: str) -> list[float]:
        """The percentiles of a kind, in milliseconds."""
        ordered = sorted(self.took[kind])
        return [1000 * ordered[len(ordered) * each // 100] for each in PERCENTILES]


class Schedule:
    """When each run makes its next step; a thread takes the run that is due."""

    def __init__(self, runs: list[Replay], pause: float, end: float) -> None:
        self._due = [(time.monotonic() + pause * random.random(), n) for n in range(len(runs))]
        heapq.heapify(self._due)
        self._runs, self._pause, self._end = runs, pause, end
        self._changed = Condition()

    def take(self) -> tuple[float, int] | None:
        """Wait until a run is due; when it was, and its number; `None` at the end."""
        with self._changed:
            while (now := time.monotonic()) < self._end:
                if self._due and self._due[0][0] <= now:
                    return heapq.heappop(self._due)
                first = self._due[0][0] if self._due else self._end
                self._changed.wait(min(first, self._end) - now)
        return None

    def give(self, number: int) -> None:
        """Let a run make its next step after its pause."""
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + self._pause, number))
            self._changed.notify()


def send(schedule: Schedule, address: str, runs: list[Replay], since: float, load: Load) -> None:
    """Send steps of the runs that are due, in a thread with its own store and saver."""
    ignored: dict[str, list[float]] = {}
    with RunStore.postgres(address) as store, closing(PostgresRunSaver(address)) as saver:
        engine = store._db.engine
        assert isinstance(engine, PostgresEngine)
        while taken := schedule.take():
            due, number = taken
            counts = time.monotonic() >= since
            runs[number].step(engine, saver, load.took if counts else ignored)
            if counts:
                load.took.setdefault("step", []).append(time.monotonic() - due)
            schedule.give(number)


def carry_out(
    recording: Recording,
    address: str,
    number: int,
    pause: float,
    seconds: float,
    threads: int,
    ready: Barrier,
    results: Any,
) -> None:
    """Begin runs in this process and replay them for some time."""
    with RunStore.postgres(address) as store, closing(PostgresRunSaver(address)) as saver:
        engine = store._db.engine
        assert isinstance(engine, PostgresEngine)
        runs = [Replay(recording, f"run-{uuid4().hex}", store) for _ in range(number)]
        for run in runs:
            run.step(engine, saver, {})
        ready.wait()
        since = time.monotonic() + WARMING_SECONDS
        schedule = Schedule(runs, pause, since + seconds)
        loads = [Load() for _ in range(min(threads, number))]
        senders = [
            Thread(target=send, args=(schedule, address, runs, since, load)) for load in loads
        ]
        used = time.process_time()
        for each in senders:
            each.start()
        for each in senders:
            each.join()
        total = Load(client_cpu=time.process_time() - used)
        total.seconds = time.monotonic() - since
        for load in loads:
            total.add(load)
        results.put(total)
        for run in runs:
            run.release()


def replayed(
    recording: Recording, address: str, runs: int, pause: float, given: argparse.Namespace
) -> tuple[Load, float]:
    """Replay runs at the same time: what they did, and the CPU seconds that the server used."""
    processes = min(PROCESSES, runs)
    ready, results = CONTEXT.Barrier(processes + 1), CONTEXT.Queue()
    shares = [runs // processes + (n < runs % processes) for n in range(processes)]
    more = (pause, given.seconds, given.threads, ready, results)
    started = [
        CONTEXT.Process(target=carry_out, args=(recording, address, share, *more))
        for share in shares
    ]
    for process in started:
        process.start()
    with psycopg.connect(address, autocommit=True) as connection:
        ready.wait()
        time.sleep(WARMING_SECONDS)
        before = server_cpu(connection)
        time.sleep(given.seconds)
        after = server_cpu(connection)
    used = sum(after[each] - before[each] for each in after.keys() & before.keys())
    total = Load()
    for _ in started:
        total.add(results.get())
    for process in started:
        process.join()
    return total, used


def server_cpu(connection: psycopg.Connection[Any]) -> dict[int, float]:
    """CPU seconds of each process of the server, where it is on this machine."""
    found = {}
    for (number,) in connection.execute("SELECT pid FROM pg_stat_activity").fetchall():
        with suppress(FileNotFoundError):
            words = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
            found[number] = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    return found


def traffic(connection: psycopg.Connection[Any]) -> tuple[int, int, dict[str, list[int]]]:
    """Transactions, bytes of the log, and rows and bytes of each table."""
    time.sleep(1.5)  # sessions that have ended report what they did
    query = "SELECT xact_commit, pg_current_wal_lsn() - '0/0' FROM pg_stat_database"
    ((commits, log),) = connection.execute(f"{query} WHERE datname = current_database()").fetchall()
    tables = {name: [*numbers] for name, *numbers in connection.execute(TRAFFIC).fetchall()}
    return int(commits), int(log), tables


def show_traffic(address: str, iterations: int) -> Recording:
    """Print what a step of a real run writes and reads; returns its recording."""
    with closing(PostgresRunSaver(address)), RunStore.postgres(address):
        pass  # creates the tables
    with psycopg.connect(address, autocommit=True) as connection:
        commits, log, tables = traffic(connection)
        recording = record(address, iterations)
        commits_now, log_now, tables_now = traffic(connection)
    print(f"one step, mean of {iterations} of a run with the offline model")
    print(f"{'table':24} {'inserted':>9} {'updated':>9} {'deleted':>9} {'bytes':>9}")
    total = [0.0] * 4
    for name, numbers in sorted(tables_now.items()):
        before = tables.get(name, [0] * 4)
        shares = [(now - then) / iterations for now, then in zip(numbers, before, strict=True)]
        if any(shares):
            total = [a + b for a, b in zip(total, shares, strict=True)]
            print(f"{name:24} {shares[0]:9.2f} {shares[1]:9.2f} {shares[2]:9.2f} {shares[3]:9.0f}")
    print(f"{'all':24} {total[0]:9.2f} {total[1]:9.2f} {total[2]:9.2f} {total[3]:9.0f}")
    names = [action.name for step in recording.steps for action in step]
    print(
        f"transactions {(commits_now - commits) / iterations:.1f}, of them durable"
        f" {recording.num_commits / iterations:.1f};"
        f" calls of the store {len(names) / iterations:.1f};"
        f" log {(log_now - log) / iterations / 1024:.1f} KiB"
    )
    print(
        f"read: {recording.num_found / iterations:.1f} rows,"
        f" {recording.found_bytes / iterations:.0f} bytes; prompts and answers:"
        f" {recording.text_characters / iterations:.0f} characters;"
        f" connections of a run: {recording.most_connections}"
    )
    return recording


def show_levels(recording: Recording, address: str, given: argparse.Namespace) -> None:
    """Print a line for each number of runs, and one for a load without pauses."""
    levels = [(int(each), given.every) for each in given.runs.split(",")]
    levels.append((PROCESSES * given.threads, 0.0))
    kinds = "".join(f" {kind:>22}" for kind in KINDS)
    print(
        f"\n{'runs':>6} {'pause':>6} {'steps/s':>8} {'server':>7} {'client':>7} {'step':>22}{kinds}"
    )
    print(f"{'':>6} {'s':>6} {'':>8} {'CPU':>7} {'CPU':>7} {'p50/p95/p99 ms':>22}")
    for runs, pause in levels:
        load, used = replayed(recording, address, runs, pause, given)
        cells = []
        for kind in ("step", *KINDS):
            known = load.percentiles(kind) if load.took.get(kind) else []
            cells.append("/".join(f"{each:.1f}" for each in known))
        steps = len(load.took.get("step", ())) / load.seconds
        cpu = f"{used / given.seconds:7.2f} {load.client_cpu / load.seconds:7.2f}"
        print(
            f"{runs:6} {pause:6g} {steps:8.1f} {cpu}" + "".join(f" {each:>22}" for each in cells),
            flush=True,
        )


def spend(
    address: str, number: int, seconds: float, dollars: float, ready: Barrier, results: Any
) -> None:
    """Pay for calls from accounts of one purse, each account in a thread, perhaps by slices."""
    done: Queue[list[float]] = Queue()

    def pay() -> None:
        took = []
        with Purse(10**9, dsn=address) as purse:
            account = purse.child(uuid4().hex, 10**6)
            reserve = account.put_and_reserve({}, SLICE, dollars)
            own = PurseSlice(account, Decimal(str(dollars)), {}, reserve)
            ready.wait()
            end = time.monotonic() + seconds
            while (began := time.monotonic()) < end:
                key = uuid4().hex
                if dollars:
                    own.report(key, (ZERO, BOUND))
                    own.report(key, (COST, ZERO))
                else:
                    account.begin(key, BOUND)
                    account.put(key, cost=COST)
                took.append(time.monotonic() - began)
        done.put(took)

    threads = [Thread(target=pay) for _ in range(number)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    results.put([each for _ in threads for each in done.get()])


def show_purse(address: str, given: argparse.Namespace) -> None:
    """Print how many calls accounts of one purse pay for in a second, without and with slices."""
    with_slices = f"with slices of ${given.slice:g}"
    heading = f"{'calls/s':>8} {'p50/p95/p99 ms':>22} {with_slices:>22} ratio"
    print(f"\n{'spenders of one purse':24} {heading}")
    with Purse(10**9, dsn=address):
        pass
    for spenders in SPENDERS:
        loads = [paid_calls(address, spenders, each, given.seconds) for each in (0.0, given.slice)]
        shown = "/".join(f"{each:.1f}" for each in loads[0].percentiles("call"))
        plain, sliced = (len(each.took["call"]) / given.seconds for each in loads)
        print(
            f"{spenders:<24} {plain:8.1f} {shown:>22} {sliced:22,.0f} {sliced / plain:5.0f}",
            flush=True,
        )


def paid_calls(address: str, spenders: int, dollars: float, seconds: float) -> Load:
    """What accounts of one purse pay for, each in a thread, with slices of so many dollars."""
    processes = min(PROCESSES, spenders)
    ready, results = CONTEXT.Barrier(spenders), CONTEXT.Queue()
    more = (spenders // processes, seconds, dollars, ready, results)
    started = [CONTEXT.Process(target=spend, args=(address, *more)) for _ in range(processes)]
    for each in started:
        each.start()
    load = Load({"call": [took for _ in started for took in results.get()]})
    for each in started:
        each.join()
    return load


def show_server(address: str) -> None:
    """Print the server's version and settings, and how busy the machine is."""
    with psycopg.connect(address) as connection:
        ((fsync,),) = connection.execute("SHOW fsync").fetchall()
        ((version,),) = connection.execute("SHOW server_version").fetchall()
    print(f"Postgres {version}, fsync {fsync}, {os.cpu_count()} cores, load {os.getloadavg()}")


def main() -> None:
    """Print the traffic of a step, the latencies of many runs, and the rate of a purse."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--postgres", default=os.environ.get("COSTADA_POSTGRES"), help="an address")
    parser.add_argument("--runs", default="1,10,100,1000", help="'': only the purse")
    parser.add_argument("--slice", type=float, default=5.0, help="dollars of a purse's slice")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two steps")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each line")
    parser.add_argument("--threads", type=int, default=8, help="of each process")
    parser.add_argument("--steps", type=int, default=100, help="of the recorded run")
    given = parser.parse_args()
    if not given.postgres:
        parser.error("--postgres: got none, and COSTADA_POSTGRES is not set")
    with new_database(given.postgres) as address:
        show_server(address)
        if given.runs:
            show_levels(show_traffic(address, given.steps), address, given)
        show_purse(address, given)


if __name__ == "__main__":
    main()

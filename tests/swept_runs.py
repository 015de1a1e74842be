"""Sweeps of two runs on a cluster that can be hit in their middle, and what must be left then."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any

import pytest

from costada.experiments.sweep.sweep import last_step
from costada.runs.folder import RunFolder
from costada.store.address import RunAddress, StorePlace
from costada.store.purse import Purse
from costada.store.run_store import RunStore

FINISHED, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130
METHOD = "costada"
SEEDS = (0, 1)
ITERATIONS = 24
EVALUATION_SECONDS = 0.3
PATIENCE_SECONDS = 400
LOOK_SECONDS = 0.1
COMMAND = [sys.executable, "-c", "from costada.cli.main import main; main()"]


def write_slow_problem(near: Path, folder: Path) -> Path:
    """Write a problem whose evaluations take a while."""
    shutil.copytree(near, folder)
    evaluator = folder / "evaluator.py"
    wait = f"    __import__('time').sleep({EVALUATION_SECONDS})\n    value ="
    evaluator.write_text(evaluator.read_text().replace("    value =", wait))
    return folder


def words(problem: Path, out: Path, *more: object) -> list[object]:
    given = ("--max-iterations", ITERATIONS, "--lost-calls", "ignore", "--seeds", len(SEEDS))
    return ["sweep", "--problems", problem, "--methods", METHOD, "--out", out, *given, *more]


def begun(*arguments: object) -> subprocess.Popen[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )


def costada(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)


def wait_until(condition: Callable[[], object]) -> None:
    end = monotonic() + PATIENCE_SECONDS
    while not condition():
        assert monotonic() < end
        sleep(LOOK_SECONDS)


def run_name(seed: int) -> str:
    return f"slow/{METHOD}/seed-{seed}"


def steps(out: Path, seed: int) -> Path:
    return out / run_name(seed) / "steps.jsonl"


def wait_for_steps(out: Path) -> None:
    wait_until(lambda: all(last_step(steps(out, seed)) for seed in SEEDS))


def place_of(out: Path, seed: int, store: str | None) -> StorePlace:
    """Where a run is kept."""
    if store:
        return RunAddress(store, f"{out.name}/{run_name(seed)}")
    return RunFolder(out / run_name(seed)).database


def check_exact(out: Path, undisturbed: list[bytes], store: str | None = None) -> None:
    """Both runs are as if nothing had happened, and no call is on a ledger twice."""
    assert [steps(out, seed).read_bytes() for seed in SEEDS] == undisturbed
    for seed in SEEDS:
        with RunStore.at(place_of(out, seed, store), is_read_only=True) as opened:
            (run_id,) = opened.run_ids()
            keys = [(c.ticket, c.role, c.attempt) for c in opened.call_log.calls(run_id)]
            total = opened.ledger.spent(run_id, ITERATIONS)
            rows = opened.step_lines(run_id)
        assert len(set(keys)) == len(keys)
        assert rows == undisturbed[SEEDS.index(seed)].decode().splitlines()
        assert float(total) == pytest.approx(json.loads(rows[-1])["spent"], abs=1e-12)


def paid(place: StorePlace) -> Decimal:
    """What the calls of a run cost at most."""
    with RunStore.at(place, is_read_only=True) as store:
        calls = [call for each in store.run_ids() for call in store.call_log.calls(each)]
    return sum((call.cost + call.bound for call in calls), Decimal(0))


def check_purse(address: str, out: Path, total: float, seeds: range, store: str) -> Decimal:
    """The purse of a sweep says what the ledgers of its runs say, and the rest is free again."""
    ledgers = sum((paid(place_of(out, seed, store)) for seed in seeds), Decimal(0))
    with Purse.existing(out.name, dsn=address) as purse:
        assert purse.spent == ledgers > 0
        assert purse.remaining == Decimal(str(total)) - ledgers >= 0
    return ledgers


@contextmanager
def watched_purse(address: str, name: str) -> Iterator[list[Decimal]]:
    """What the runs of a purse have spent or hold, looked at all the time during the block."""
    seen: list[Decimal] = []
    is_over = Event()

    def look() -> None:
        while not is_over.wait(LOOK_SECONDS):
            with Purse.existing(name, dsn=address) as purse:
                root = purse.accounts()[0]
            seen.append(max(root.spent, root.committed))

    thread = Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        is_over.set()
        thread.join()


def statuses(result: Any) -> list[str]:
    """The states of the runs as a command has printed them with `--json`."""
    text = result if isinstance(result, str) else result.stdout
    return [run["status"] for run in json.loads(text)]


def process_of(out: Path, seed: int, store: str | None = None) -> int:
    """The process that works on a run."""
    if store is None:
        return int(json.loads((out / run_name(seed) / "run.lease").read_text())["pid"])
    name = f"thread '{out.name}/{run_name(seed)}'"
    with RunStore.postgres(store, is_read_only=True) as opened:
        return opened.holders(name)[name].pid


def parent_of(pid: int) -> int:
    """The worker that has started a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1])


def kill_with_worker(pid: int) -> None:
    """Kill a process and the worker that has started it, which cannot say so any more."""
    worker = parent_of(pid)
    os.kill(worker, signal.SIGSTOP)
    for each in (pid, worker):
        os.kill(each, signal.SIGKILL)


def budgets(undisturbed: list[bytes]) -> tuple[float, float]:
    """A budget that is spent in the middle of an undisturbed run, and a total that two can draw."""
    spent = json.loads(undisturbed[0].splitlines()[-1])["spent"]
    budget = round(0.7 * spent, 4)
    return budget, 2 * budget


def has_purse(address: str, name: str) -> bool:
    try:
        Purse.existing(name, dsn=address).close()
    except ValueError:
        return False
    return True

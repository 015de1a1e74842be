"""How many connections to Postgres one process with many runs has, and how fast they go.

    .ci/postgres python bench/connections.py [--runs 100] [--parallel 8] [--compare COMMIT]

Each run has a store and a saver of its own, an account of one purse, and some steps in flight with
a model that answers after some seconds. `--compare` measures the same with an earlier commit, in a
worktree of its own, and `--limits` with other numbers of connections.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psycopg
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatResult
from overhead import PROBLEM, InstantModel

from costada import Price, create_discovery_graph
from costada.store.postgres_checkpoints import PostgresRunSaver
from costada.store.purse import Purse
from costada.store.run_store import RunStore

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from new_database import new_database

ROOT = Path(__file__).parents[1]
SESSIONS = "SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = 'costada'"
POLL_SECONDS = 0.1

RUN_FROM_PATH = """
import runpy, sys
sys.meta_path[:] = [each for each in sys.meta_path if "__editable__" not in str(each)]
del sys.argv[0]
sys.path.insert(1, sys.argv[0].rpartition("/")[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a script with the package in PYTHONPATH, not the one that is installed for editing."""


class SlowModel(InstantModel):
    """Answers after some seconds."""

    seconds: float = 1.0

    def _generate(self, messages: list[BaseMessage], *given: Any, **named: Any) -> ChatResult:
        time.sleep(self.seconds)
        return super()._generate(messages, *given, **named)


class Counts:
    """The steps of all runs so far, and the most connections that were seen."""

    def __init__(self) -> None:
        self.steps = [0]
        self.connections = 0
        self.is_over = Event()

    def watch(self, address: str) -> None:
        """Look at the server until the runs are over."""
        with psycopg.connect(address, autocommit=True, application_name="observer") as connection:
            while not self.is_over.wait(POLL_SECONDS):
                ((number,),) = connection.execute(SESSIONS).fetchall()
                self.connections = max(self.connections, number)


def search(address: str, number: int, given: argparse.Namespace, counts: Counts) -> None:
    """One run, until its iterations have ended."""
    thread: Any = {"configurable": {"thread_id": f"run-{number}"}}
    with (
        RunStore.postgres(address) as store,
        closing(PostgresRunSaver(address)) as saver,
        Purse(1e6, dsn=address) as purse,
    ):
        graph = create_discovery_graph(
            PROBLEM,
            SlowModel(seconds=given.seconds),
            budget=1e3,
            price=Price(1, 2),
            max_iterations=given.iterations,
            checkpointer=saver,
            store=store,
            purse=purse.child(f"run-{number}", 1e3),
            parallel=given.parallel,
        )
        for update in graph.stream({}, thread, stream_mode="updates", durability="sync"):
            if "iterations" in update.get("gate_intervention", {}):
                counts.steps[number] += 1


def measure(given: argparse.Namespace) -> str:
    """The most connections, and steps per second from the first step to the last one."""
    counts = Counts()
    counts.steps = [0] * given.runs
    with new_database(os.environ["COSTADA_POSTGRES"]) as address:
        RunStore.postgres(address).close()
        watching = Thread(target=counts.watch, args=(address,))
        searching = [
            Thread(target=search, args=(address, each, given, counts)) for each in range(given.runs)
        ]
        watching.start()
        began = time.monotonic()
        for each in searching:
            each.start()
        for each in searching:
            each.join()
        seconds = time.monotonic() - began
        counts.is_over.set()
        watching.join()
    num_steps = sum(counts.steps)
    assert num_steps == given.runs * given.iterations, f"only {num_steps} steps"
    return f"{counts.connections:11}  {num_steps / seconds:7.2f}  {time.process_time():11.1f}"


@contextmanager
def package_of(commit: str) -> Iterator[str]:
    """A folder from which the package of a commit is imported."""
    git = "git", "-C", str(ROOT), "worktree"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "costada")
        subprocess.run([*git, "add", "--quiet", "--detach", path, commit], check=True)
        try:
            yield folder
        finally:
            subprocess.run([*git, "remove", "--force", path], check=True)


def main() -> None:
    """Print connections and steps per second."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--parallel", type=int, default=8, help="steps in flight of each run")
    parser.add_argument("--iterations", type=int, default=16, help="steps of each run")
    parser.add_argument("--seconds", type=float, default=1.0, help="until the model answers")
    parser.add_argument("--limits", type=int, nargs="*", default=[], help="numbers of connections")
    parser.add_argument("--compare", metavar="COMMIT", help="an earlier version")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.alone:
        for limit in given.limits:
            from costada.store import postgres_connections

            postgres_connections.MAX_CONNECTIONS = limit
        print(measure(given))
        return
    print(f"{'version':12}  connections  steps/s  CPU seconds", flush=True)
    words = [__file__, "--alone", *numbers_of(given)]
    if given.compare:
        with package_of(given.compare) as folder:
            show(given.compare[:12], words, folder)
    show("this one", words)
    for limit in given.limits:
        show(f"limit {limit}", [*words, "--limits", str(limit)])


def numbers_of(given: argparse.Namespace) -> list[str]:
    """The options of a measurement in a process of its own."""
    names = ("runs", "parallel", "iterations", "seconds")
    return [f"--{name}={getattr(given, name)}" for name in names]


def show(name: str, words: list[str], folder: Path | str = ROOT / ".types") -> None:
    """Measure in a new process, with the package in a folder."""
    print(f"{name:12}  ", end="", flush=True)
    environment = os.environ | {"PYTHONPATH": str(folder)}
    subprocess.run([sys.executable, "-c", RUN_FROM_PATH, *words], env=environment, check=True)


if __name__ == "__main__":
    main()

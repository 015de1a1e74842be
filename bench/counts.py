"""What one iteration of `costada run` asks of LangGraph, SQLite and the system, as counts.

Counts hold on a busy machine, where times do not. The run is one on circle packing against a
loopback server; its first iterations, its start and its end are left out.

    supersteps   of the graph, from the start on
    hand-offs    to thread pools of `concurrent.futures`, LangGraph's among them
    statements   of SQLite
    commits      of SQLite
    fsyncs       of all processes, seen by `strace` in a run of its own; left out without it
    threads      started
    switches     of contexts, voluntary, of the main process
    requests     to the provider, from the start on

    python bench/counts.py [--iterations 100] [--parallel 1,8] [--json]
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from loopback import Loopback, constant

from costada.store.checkpoints import RunSaver

FIRST = 5
"""Iterations that are left out."""

STEP_COST = 0.01
"""Dollars that no step costs."""

DELAY = 0.005
"""Seconds that an answer takes: with K > 1, calls are in flight together."""

RESUMED = " resumed>"
"""In the second line of `strace` about one call."""

TRACED = ("-f", "--seccomp-bpf", "-qq", "-ttt", "-e", "trace=fsync,fdatasync")
"""Stops a process at these system calls only, not at each one."""

COMMAND = Path(__file__).with_name("counted_command.py")
COUNTED = ("hand-offs", "statements", "commits", "threads", "switches")


@dataclass(frozen=True)
class Counted:
    """A run: its snapshots by iteration, the times of its fsyncs, its supersteps and requests."""

    snapshots: Sequence[dict[str, float]]
    fsyncs: Sequence[float]
    supersteps: int
    requests: int


def counted(iterations: int, parallel: int, *tracer: str) -> Counted:
    """Count in a run that ends by its iterations, and times of fsyncs if `strace` traces it."""
    with Loopback(constant(DELAY)) as server, tempfile.TemporaryDirectory() as scratch:
        out, file, trace = (Path(scratch, name) for name in ("run", "counts", "trace"))
        words = ["run", "circle_packing", "--model", "openai:stand-in", "--base-url", server.url]
        words += ["--price", "0.6,1.92", "--budget", str(STEP_COST * iterations), "--quiet"]
        words += ["--max-iterations", str(iterations), "--out", str(out)]
        words += ["--parallel", str(parallel)] if parallel > 1 else []
        command = [sys.executable, str(COMMAND), str(file), *words]
        if tracer:
            trace.touch()
            command = [*tracer, "-o", str(trace), *command]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        with closing(RunSaver(out / "run.sqlite")) as saver:
            supersteps = next(saver.list(None)).metadata["step"]
        lines = trace.read_text().splitlines() if tracer else []
        times = [float(line.split()[1]) for line in lines if RESUMED not in line]
        return Counted(json.loads(file.read_text()), times, supersteps, len(server.take_calls()))


def per_iteration(iterations: int, parallel: int) -> dict[str, float]:
    """The counts of one iteration."""
    run = counted(FIRST + iterations, parallel)
    before, after = run.snapshots[FIRST - 1], run.snapshots[-1]
    number = len(run.snapshots) - FIRST
    counts = {name: (after.get(name, 0) - before.get(name, 0)) / number for name in COUNTED}
    counts["supersteps"] = run.supersteps / len(run.snapshots)
    counts["requests"] = run.requests / len(run.snapshots)
    if strace := shutil.which("strace"):
        traced = counted(FIRST + iterations, parallel, strace, *TRACED)
        first, last = traced.snapshots[FIRST - 1]["time"], traced.snapshots[-1]["time"]
        counts["fsyncs"] = sum(first <= moment < last for moment in traced.fsyncs) / number
    return counts


def main() -> None:
    """Print a table with a row for each count and a column for each K."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=100, help="beyond the first ones")
    parser.add_argument("--parallel", default="1,8", help="values of K", metavar="K,K,...")
    parser.add_argument("--json", action="store_true", help="print an object by K instead")
    given = parser.parse_args()
    numbers = [int(number) for number in given.parallel.split(",")]
    columns = {number: per_iteration(given.iterations, number) for number in numbers}
    if given.json:
        print(json.dumps(columns))
        return
    print(f"{'per iteration':14}" + "".join(f"{f'K = {number}':>9}" for number in numbers))
    for name in columns[numbers[0]]:
        print(f"{name:14}" + "".join(f"{columns[number][name]:9.2f}" for number in numbers))


if __name__ == "__main__":
    main()

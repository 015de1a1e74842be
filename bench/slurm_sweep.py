"""A sweep of 32 runs on a Slurm cluster of two nodes, one of which is killed in the middle.

Needs no key and no network; `.ci/slurm` starts the cluster:

    .ci/slurm python bench/slurm_sweep.py
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, sleep

from costada.runs.folder import RunFolder
from costada.store.run_store import RunStore

COSTADA = shutil.which("costada", path=os.fspath(Path(sys.executable).parent)) or "costada"
KILL_NODE = Path(__file__).parents[1] / ".ci" / "slurm-kill-node"
SWEEP = (
    *("--problems", "circle_packing,heilbronn_convex", "--methods", "costada,uniform"),
    *("--seeds", "8", "--budget", "0.03", "--lost-calls", "ignore"),
)
NODE = "one"
KILLED_AFTER = 8
"""Finished runs after which the node is killed."""

RESTARTED = re.compile(r"Restarts=[1-9]")


def main() -> None:
    """Print what happened to the runs, and whether they are as in a sweep without a cluster."""
    if "COSTADA_SLURM" not in os.environ:
        sys.exit("Start this with .ci/slurm python bench/slurm_sweep.py")
    with TemporaryDirectory() as name:
        here, there = Path(name) / "here", Path(name) / "there"
        began = perf_counter()
        call(COSTADA, "sweep", *SWEEP, "--out", here, "--quiet")
        print(f"this machine, 2 runs at once: {perf_counter() - began:.0f} s")
        on_slurm(there)
        compare(here, there)


def on_slurm(out: Path) -> None:
    """Submit the sweep, kill a node, and wait for its end."""
    began = perf_counter()
    command = [COSTADA, "sweep", *SWEEP, "--out", str(out), "--on", "slurm"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sweep:
        while (found := statuses(out))["finished"] < KILLED_AFTER or not found["running"]:
            sleep(1)
        lost = queued_on(NODE)
        call(KILL_NODE, NODE)
        at = f"after {perf_counter() - began:.0f} s, {found['finished']} runs finished"
        print(f"node {NODE} killed with {lost} running jobs {at}")
        printed, _ = sweep.communicate()
    print(f"Slurm, 8 jobs at once: {perf_counter() - began:.0f} s, exit code {sweep.returncode}")
    print(printed.splitlines()[-2])
    restarted = RESTARTED.findall(call("scontrol", "show", "job"))
    print(f"jobs that Slurm has requeued: {len(restarted)}")
    again = call(*command)
    print(f"the same command again: {again.splitlines()[0]}")


def statuses(out: Path) -> Counter[str]:
    """How many runs of the sweep are in each state, once it is submitted."""
    if not (out / ".jobs" / "jobs.json").exists():
        return Counter()
    runs = json.loads(call(COSTADA, "sweep", "--out", out, "--status", "--json"))
    return Counter(run["status"] for run in runs)


def queued_on(node: str) -> int:
    """How many jobs run on a node."""
    options = ("--me", "--noheader", "--array", "--states=RUNNING", f"--nodelist={node}")
    return len(call("squeue", *options).splitlines())


def compare(here: Path, there: Path) -> None:
    """Print how many runs are the same, and whether every call is on the ledger once."""
    same = repeated = 0
    spent = Decimal(0)
    folders = sorted(path.parent for path in here.rglob("settings.json"))
    for folder in folders:
        other = RunFolder(there / folder.relative_to(here))
        same += RunFolder(folder).steps.read_bytes() == other.steps.read_bytes()
        with RunStore(other.database, is_read_only=True) as store:
            calls = list(store.call_log.calls(store.run_ids()[-1]))
        spent += sum(each.cost for each in calls)
        repeated += len(calls) - len({(c.ticket, c.role, c.attempt) for c in calls})
    print(f"{same} of {len(folders)} traces are byte for byte those of the runs without a cluster")
    print(f"ledgers: ${spent}, {repeated} calls twice")


def call(*command: object) -> str:
    """What a command prints; raises `CalledProcessError` if it fails."""
    words = [str(word) for word in command]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()

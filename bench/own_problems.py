"""Own problems of many kinds, from an empty folder to the first valid iteration.

    python bench/own_problems.py [--sandbox LAYER] [--only PART]

For each kind, the files that a user would write are put into an empty folder, and the commands
that a user would give are run, the last ones `costada check` and `costada run` with the offline
model. The table has their seconds, those of one core, the score of the start, and the score of the
first valid iteration, or the first refusal. Needs no key and no network. Exits with 1 if a kind is
refused.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from os import times
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from time import perf_counter

from own_kinds import KINDS, Kind

COSTADA = Path(sys.executable).with_name("costada")
MAX_ITERATIONS = 3
"""Iterations of a run, so that one of them is valid; an offline edit may fail."""


@dataclass
class Row:
    """What happened with a kind of problem."""

    kind: str
    commands: int = 0
    seconds: float = 0.0
    core_seconds: float = 0.0
    start: str = ""
    first_valid: str = ""
    refusal: str = ""


def main() -> None:
    """Try each kind in a folder of its own, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sandbox", default="auto", help="layer of the evaluations")
    parser.add_argument("--only", default="", help="part of a kind's name")
    options = parser.parse_args()
    print("| kind | commands | seconds | of one core | start | first valid iteration |")
    print("| --- | --- | --- | --- | --- | --- |")
    refused = 0
    for kind in KINDS:
        if options.only not in kind.name:
            continue
        row = Row(kind.name)
        if missing := [name for name in kind.programs if which(name) is None]:
            row.refusal = f"not tried: {', '.join(missing)} is not installed"
        else:
            with TemporaryDirectory() as place:
                carry_out(kind, Path(place), options.sandbox, row)
            refused += bool(row.refusal)
        seconds = f"{row.seconds:.1f}", f"{row.core_seconds:.1f}"
        cells = [row.kind, str(row.commands), *seconds, row.start, row.refusal or row.first_valid]
        print(f"| {' | '.join(cells)} |", flush=True)
    sys.exit(1 if refused else 0)


def carry_out(kind: Kind, place: Path, sandbox: str, row: Row) -> None:
    """Do what a user does for a kind of problem, until a command refuses."""
    for path, text in kind.files.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text)
    check = f"costada check problem --json --sandbox {sandbox}"
    run = (
        f"costada run problem --model offline --budget 1 --max-iterations {MAX_ITERATIONS}"
        f" --quiet --sandbox {sandbox} --out run"
    )
    for command in (*kind.setup, check, run):
        program, *words = shlex.split(command)
        begin, before = perf_counter(), times()
        done = subprocess.run(
            [str(COSTADA) if program == "costada" else program, *words],
            cwd=place,
            env={**os.environ, "NO_COLOR": "1"},
            capture_output=True,
            text=True,
        )
        row.commands += 1
        row.seconds += perf_counter() - begin
        after = times()
        row.core_seconds += after.children_user - before.children_user
        row.core_seconds += after.children_system - before.children_system
        if done.returncode:
            lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
            row.refusal = f"`{command}`: {' '.join(lines)[-600:]}"
            return
        if command == check:
            row.start = json.loads(done.stdout)["start"]
    row.first_valid = first_valid(place / "run" / "steps.jsonl")


def first_valid(trace: Path) -> str:
    """The number and score of the first iteration whose candidate is valid."""
    for line in trace.read_text().splitlines():
        step = json.loads(line)
        if step["failure"] is None:
            return f"{step['iteration']}: {step['score']:.4g}"
    return f"none in {MAX_ITERATIONS}"


if __name__ == "__main__":
    main()

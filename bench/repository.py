"""How long a candidate waits for its clean copy of a repository.

Copies are overlays, where Linux lets one be mounted; kept from one candidate to the next, where it
does not; or whole copies, made file by file, where that does not work either. Each way has a
process of its own, which refuses the system calls of the ways before it. They take turns, and run
evaluations right after one another: first of a command that changes nothing, then of one that
changes, deletes and adds 100 files each. Times are seconds of whole evaluations.

    python bench/repository.py [--files 10000] [--megabytes 500] [--rounds 3] [--evaluations 4]
"""

import argparse
import errno
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median

import pyseccomp  # type: ignore[import-untyped]

from costada.evaluators.original_folder import base_of
from costada.evaluators.repository_files import repository_files
from costada.evaluators.sandbox.candidate_runs import run_in_copy
from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import MEBIBYTE, Limits
from costada.evaluators.sandbox.slot import Pool
from costada.evaluators.sandbox.slot_kind import Original
from costada.values.candidate import Program

PER_FOLDER = 100
REFUSED = {
    "overlay": (),
    "kept copy": ("unshare",),
    "whole copy": ("unshare", "timerfd_create"),
}
"""Each way, and the system calls without which the sandbox takes it."""

CHANGES_NOTHING = "pass\n"
CHANGES_FILES = """
import os
for number in range(100):
    with open(f"folder{number}/file{100 * number}.txt", "r+") as file:
        file.write("y")
    os.unlink(f"folder{number}/file{100 * number + 1}.txt")
    open(f"folder{number}/new.txt", "w").close()
"""


def main() -> None:
    """Have every way measured in every round, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=10_000, help="at least 10,000")
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--evaluations", type=int, default=4)
    parser.add_argument("--way", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way:
        measure(*given.way, given.evaluations)
        return
    times: dict[str, list[list[float]]] = {way: [[], [], []] for way in REFUSED}
    with tempfile.TemporaryDirectory() as folder:
        original = made_original(Path(folder), given.files, given.megabytes)
        for _ in range(given.rounds):
            for way, columns in times.items():
                layer = chosen_layer(Layer.AUTO) if way == "overlay" else Layer.LANDLOCK
                words = [way, layer, json.dumps(asdict(original))]
                count = ["--evaluations", str(given.evaluations)]
                done = subprocess.run(
                    [sys.executable, __file__, *count, "--way", *words],
                    check=True,
                    stdout=subprocess.PIPE,
                )
                for column, found in zip(columns, json.loads(done.stdout), strict=True):
                    column += found
    print(f"{given.files} files of {given.megabytes} MiB; seconds, median (least)")
    print(f"{'':12}{'first':>16}{'unchanged':>16}{'300 changed':>16}")
    for way, columns in times.items():
        cells = [f"{median(each):.2f} ({min(each):.2f})" for each in columns]
        print(f"{way:12}" + "".join(f"{cell:>16}" for cell in cells))


def made_original(folder: Path, number: int, megabytes: int) -> Original:
    """What copies of so many files are made of."""
    root = folder.resolve() / "repository"
    for index in range(number):
        place = root / f"folder{index // PER_FOLDER}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"file{index}.txt").write_text("x" * (megabytes * MEBIBYTE // number))
    problem = folder / "problem"
    problem.mkdir()
    return base_of(repository_files(root, folder / "none"), ()).original(problem)


def measure(way: str, layer: str, original: str, evaluations: int) -> None:
    """Print the seconds of the first evaluation, and of those after each program."""
    if REFUSED[way]:
        rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
        for name in REFUSED[way]:
            rules.add_rule(pyseccomp.ERRNO(errno.EPERM), name)
        rules.load()
    copied = Original(**json.loads(original))
    slots = Pool(1)
    columns = [[evaluated(slots, layer, copied, CHANGES_NOTHING)]]
    for text in (CHANGES_NOTHING, CHANGES_FILES):
        found = [evaluated(slots, layer, copied, text) for _ in range(evaluations + 1)]
        columns.append(found[1:])  # each waits for what the one before has left
    slots.close()
    print(json.dumps(columns))


def evaluated(slots: Pool, layer: str, original: Original, text: str) -> float:
    """Seconds of one evaluation."""
    limits = Limits(600, processes=4)
    begun = time.perf_counter()
    found = run_in_copy(
        Program.of({"new.py": text}),
        original,
        {"command": ["python", "-S", "new.py"]},
        limits,
        layer=Layer(layer),
        slots=slots,
    )
    spent = time.perf_counter() - begun
    if not isinstance(found.output, dict) or found.output["status"] != 0:
        raise SystemExit(f"the command failed: {found}")
    return spent


if __name__ == "__main__":
    main()

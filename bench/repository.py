"""How long a candidate waits for its clean copy of a repository, by the number of files.

Each evaluation runs the command `true` in its copy. Copies of 10 files and of many take turns, for
overlays and for copies made file by file, as where nothing can be mounted. Times are in
milliseconds: the whole evaluation right after another one, when the next copy must first be made,
and after a pause, in which it is made ahead.

    python bench/repository.py [--files 10000] [--rounds 5] [--evaluate-on 10]
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from costada.evaluators.original_folder import base_of
from costada.evaluators.repository_files import repository_files
from costada.evaluators.sandbox.candidate_runs import run_in_copy
from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.slot import Slot
from costada.evaluators.sandbox.slot_kind import Original, SlotKind
from costada.values.candidate import Program

FEW = 10
FILE_BYTES = 2000
PER_FOLDER = 100
PAUSE_SECONDS = 0.05
COMMANDS = {"command": ["true"]}
PROGRAM = Program.of({"new.py": "x = 1\n"})


class OneSlot:
    """A slot in place of a pool."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot

    @contextmanager
    def acquire(self, kind: SlotKind) -> Iterator[Slot]:
        """The slot, whatever the kind."""
        yield self._slot


def main() -> None:
    """Measure every way in every round, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--evaluate-on", type=int, default=10)
    given = parser.parse_args()
    layer = chosen_layer(Layer.AUTO)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as slots:
        places = {number: made_original(Path(folder), number) for number in (FEW, given.files)}
        ways = {
            (name, number): slots.enter_context(started(layer, original, is_single_use=is_copy))
            for number, original in places.items()
            for name, is_copy in (("overlay", False), ("file by file", True))
        }
        times: dict[tuple[str, int, float], list[float]] = {}
        for _ in range(given.rounds):
            for (name, number), slot in ways.items():
                for pause in (0.0, PAUSE_SECONDS):
                    for _ in range(given.evaluations if name == "overlay" else 2):
                        time.sleep(pause)
                        spent = evaluated(slot, places[number])
                        times.setdefault((name, number, pause), []).append(spent)
    print(f"layer {layer}; milliseconds of an evaluation, median (least)")
    print(f"{'copies':14}{'files':>8}{'at once':>20}{'after 50 ms':>20}")
    for name, number in ways:
        shown = [times[name, number, pause] for pause in (0.0, PAUSE_SECONDS)]
        cells = [f"{1000 * median(each):.1f} ({1000 * min(each):.1f})" for each in shown]
        print(f"{name:14}{number:8}" + "".join(f"{cell:>20}" for cell in cells))


def made_original(folder: Path, number: int) -> Original:
    """What copies of so many files are made of."""
    root = folder.resolve() / f"repository-{number}"
    for index in range(number):
        place = root / f"folder{index // PER_FOLDER}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"file{index}.txt").write_text("x" * FILE_BYTES)
    begun = time.perf_counter()
    base = base_of(repository_files(root, folder / "none"), ())
    listed = time.perf_counter()
    problem = folder / f"problem-{number}"
    problem.mkdir()
    original = base.original(problem)
    made = time.perf_counter()
    print(f"{number} files: hashed in {listed - begun:.2f} s, copied once in {made - listed:.2f} s")
    return original


@contextmanager
def started(layer: Layer, original: Original, *, is_single_use: bool) -> Iterator[Slot]:
    """A slot; one whose interpreters are used once makes copies file by file."""
    chosen = Layer.PROCESS if is_single_use else layer
    slot = Slot(SlotKind(chosen, (), is_single_use=is_single_use, original=original))
    try:
        yield slot
    finally:
        slot.close()


def evaluated(slot: Slot, original: Original) -> float:
    """Seconds of one evaluation."""
    limits = Limits(60, processes=4)
    begun = time.perf_counter()
    slots = OneSlot(slot)
    found = run_in_copy(PROGRAM, original, COMMANDS, limits, slots=slots)  # type: ignore[arg-type]
    spent = time.perf_counter() - begun
    if not isinstance(found.output, dict) or found.output["status"] != 0:
        raise SystemExit(f"the command failed: {found}")
    return spent


if __name__ == "__main__":
    main()

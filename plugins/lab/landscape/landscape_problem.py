"""The problem "landscape": its programs are evaluated as text and never executed."""

import re
from dataclasses import dataclass
from random import Random

from costada.evaluators.problem import Problem
from costada.plugins.lab.landscape.landscape import (
    Attempt,
    Landscape,
    Outcome,
    draw_outcome,
    generation_tokens,
)
from costada.values.evaluation import Evaluation, failed
from costada.values.usage import Usage

SEED_QUALITY = 0.3642
"""Score of the initial program: that of the circle packing benchmark."""

ENTRY_POINT = "solution"

_FRAME = '''"""A program of the simulated landscape: it is read, never executed."""

# EVOLVE-BLOCK-START
def search():
    """Return what an approach brings when it is carried this far."""
    return landscape.approach_<approach>(quality=<quality>, variant=<variant>)
# EVOLVE-BLOCK-END


def solution():
    """Return what the evaluator scores."""
    return search()
'''

_HEAD, _MIDDLE, _LATER, _TAIL = re.split(r"<\w+>", _FRAME)

PROGRAM = re.compile(
    rf"{re.escape(_HEAD)}\d{{1,2}}{re.escape(_MIDDLE)}(?P<quality>[^,\n]*)"
    rf"{re.escape(_LATER)}\d{{1,9}}{re.escape(_TAIL)}",
    re.ASCII,
)
"""The only form a program may have; its three numbers are all that varies."""

QUALITY = re.compile(r"0\.\d{4}", re.ASCII)

TASK = """A simulated landscape with several approaches. A program names one approach and how far \
it is carried: its quality, from 0.0000 to 0.9999, with four decimals. The quality is the score. \
The variant only tells programs apart. Every approach has a quality that it cannot exceed. \
Nothing is executed: a program has the form of the initial one, other numbers apart."""


def landscape() -> Problem:
    """The problem of the simulated landscape; `SimulatedModel` proposes its programs."""
    return Problem(
        name="landscape",
        task=TASK,
        initial_program=program_text(0, f"{SEED_QUALITY:.4f}", 0),
        evaluate=evaluate,
        entry_point=ENTRY_POINT,
        reference=1.0,
        seed_objective=SEED_QUALITY,
        source="simulated; distributions in docs/understand/landscape.md",
    )


def evaluate(code: str) -> Evaluation:
    """Return the quality that a program names, or what is wrong with its text."""
    match = PROGRAM.fullmatch(code)
    if match is None:
        return failed("program: expected the initial one with nothing changed but its numbers")
    quality = match["quality"]
    if not QUALITY.fullmatch(quality):
        return failed(f"quality: got {quality[:40]!r}, expected 0.0000 to 0.9999, four decimals")
    score = float(quality)
    return Evaluation(score=score, objective=score, is_valid=True)


def program_text(approach: int, quality: str, variant: int) -> str:
    """The program with these numbers; whether they are allowed is for `evaluate` to say."""
    return f"{_HEAD}{approach}{_MIDDLE}{quality}{_LATER}{variant}{_TAIL}"


CALL = re.compile(
    r"landscape\.approach_(?P<approach>\d{1,2})\(quality=(?P<quality>\d\.\d{4}), variant=\d+\)",
    re.ASCII,
)

BROKEN = "broken"
"""The quality of a program that fails."""

MAX_VARIANT = 1_000_000


@dataclass(frozen=True, slots=True)
class SeenProgram:
    """The approach and the quality that a program names."""

    approach: int
    quality: float


def read_program(code: str) -> SeenProgram | None:
    """The approach and quality of a program, None if it is not a program of the landscape."""
    match = CALL.search(code)
    return SeenProgram(int(match["approach"]), float(match["quality"])) if match else None


def with_outcome(code: str, outcome: Outcome, variant: int) -> str:
    """The parent's text with the numbers of an outcome."""
    quality = BROKEN if outcome.quality is None else f"{outcome.quality:.4f}"
    call = f"landscape.approach_{outcome.approach}(quality={quality}, variant={variant})"
    return CALL.sub(call, code, count=1)


def proposed_program(
    code: str, attempt: Attempt, num_others: int, landscape: Landscape, rng: Random
) -> tuple[str, Usage]:
    """The program that an attempt makes of a parent's text, and the tokens of its call."""
    outcome = draw_outcome(attempt, landscape, rng)
    factor = landscape.approaches[outcome.approach].cost_factor
    program = with_outcome(code, outcome, rng.randrange(1, MAX_VARIANT))
    return program, generation_tokens(num_others, factor, rng)

"""The problem "landscape": programs of a simulated landscape, judged as text and never executed."""

import re

from costada.evaluators.problem import Problem
from costada.values.evaluation import Evaluation, failed

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
    """Return the problem of the simulated landscape; `models.simulated` proposes its programs."""
    return Problem(
        name="landscape",
        task=TASK,
        initial_program=program_text(0, f"{SEED_QUALITY:.4f}", 0),
        evaluate=evaluate,
        entry_point=ENTRY_POINT,
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
    """Return the program with these numbers; whether they are allowed is for `evaluate` to say."""
    return f"{_HEAD}{approach}{_MIDDLE}{quality}{_LATER}{variant}{_TAIL}"

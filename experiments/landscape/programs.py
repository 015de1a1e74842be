"""The one line of a landscape program that says what it is: read, and written anew."""

import re
from dataclasses import dataclass
from random import Random

from costada.experiments.landscape.landscape import Landscape
from costada.experiments.landscape.proposals import Attempt, Outcome, attempted
from costada.experiments.landscape.tokens import Tokens, generation_tokens

CALL = re.compile(
    r"landscape\.approach_(?P<approach>\d{1,2})\(quality=(?P<quality>\d\.\d{4}), variant=\d+\)",
    re.ASCII,
)

BROKEN = "broken"
"""What a program that fails gives as its quality."""

MAX_VARIANT = 1_000_000


@dataclass(frozen=True, slots=True)
class SeenProgram:
    """What a program says of itself."""

    approach: int
    quality: float


def read_program(code: str) -> SeenProgram | None:
    """Return what a program says of itself, None if it is no program of the landscape."""
    match = CALL.search(code)
    return SeenProgram(int(match["approach"]), float(match["quality"])) if match else None


def with_outcome(code: str, outcome: Outcome, variant: int) -> str:
    """Return the parent's text with the numbers of an outcome."""
    quality = BROKEN if outcome.quality is None else f"{outcome.quality:.4f}"
    call = f"landscape.approach_{outcome.approach}(quality={quality}, variant={variant})"
    return CALL.sub(call, code, count=1)


def proposed_program(
    code: str, attempt: Attempt, num_others: int, landscape: Landscape, rng: Random
) -> tuple[str, Tokens]:
    """Return the program that an attempt brings, and the tokens that its call is billed for.

    Args:
        code: Text of the parent.
        attempt: What the answer starts from.
        num_others: Programs shown beside the parent.
        landscape: The instance.
        rng: Source of randomness.
    """
    outcome = attempted(attempt, landscape, rng)
    factor = landscape.approaches[outcome.approach].cost_factor
    program = with_outcome(code, outcome, rng.randrange(1, MAX_VARIANT))
    return program, generation_tokens(num_others, factor, rng)

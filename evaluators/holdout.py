"""A second look at a program, with inputs that it cannot know."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from secrets import token_hex
from typing import Protocol

from costada.evaluators.sandbox.result import CandidateResult
from costada.values.evaluation import Evaluation


class HeldOutScore(Protocol):
    """Judges the results of the calls that were drawn from a seed."""

    def __call__(
        self, results: Sequence[CandidateResult], /, *, seed: int, published: Evaluation
    ) -> Evaluation:
        """Verdict on the results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdout:
    """Inputs drawn for each program by itself, which distinguish a method from remembered answers.

    The score of a program stays the one on the published inputs. A program whose score on inputs
    of the same kind is lower by more than the margin is rejected.

    Attributes:
        calls: Draws the keyword arguments of each call from a seed.
        score: Judges the results of those calls; it is given the same `seed` by name, and the
            `published` verdict. It must count calls that fail, or a program could answer the easy
            ones only.
        margin: How far the score may fall, in units of the score.
    """

    calls: Callable[[int], Sequence[Mapping[str, object]]]
    score: HeldOutScore
    margin: float


def new_key() -> str:
    """A fresh secret that decides which inputs programs are given."""
    return token_hex(16)


def holdout_seed(key: str, code: str) -> int:
    """The seed of a program's inputs: a keyed hash, so that no program can compute it.

    Args:
        key: The secret, kept outside of the sandbox.
        code: The program.
    """
    text = code.encode("utf-8", "replace")
    return int.from_bytes(blake2b(text, key=key.encode(), digest_size=8).digest())

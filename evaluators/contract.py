"""What an evaluator is, how an objective becomes a score, and inputs held out from programs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import isfinite
from secrets import token_hex
from typing import Any, Protocol

from costada.evaluators.sandbox.candidate_results import CandidateResult
from costada.values.evaluation import Direction, Evaluation

Evaluator = Callable[[Any], Evaluation]
"""Program in, verdict out (F, Sec. 3). Deterministic, never a model.

It is given the source text of a program of one text, else the text of each file by path.
"""

Score = Callable[[Any], Evaluation]
"""Judges the plain data that a candidate returned."""


def normalize(objective: float, reference: float | None, direction: Direction) -> float:
    """Normalised score of an objective; higher is better (f_t, Sec. 3, App. H).

    The score is the objective's share of the reference, so reaching the reference scores 1
    and passing it scores more. A minimised objective is a positive quantity: its share is
    inverted, and values at or below 0 score 0.

    Args:
        objective: Value in benchmark units.
        reference: Positive objective that counts as 1; None leaves a maximised objective as is.
        direction: Which way the objective improves.

    Returns:
        A finite number; 0 for an objective or a share that is not finite.

    Raises:
        ValueError: If a minimised objective comes without a reference.
    """
    if direction is Direction.MINIMIZE:
        if reference is None:
            raise ValueError("reference is None; expected a number to divide by the objective")
        score = reference / objective if objective > 0 else 0.0
    else:
        score = objective if reference is None else objective / reference
    return float(score) if isfinite(objective) and isfinite(score) else 0.0


class HeldOutScore(Protocol):
    """Judges the results of the calls that were drawn from a seed."""

    def __call__(
        self, results: Sequence[CandidateResult], /, *, seed: int, published: Evaluation
    ) -> Evaluation:
        """Verdict on the results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdout:
    """Inputs drawn for each program, to detect programs that remember published answers.

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
    """Seed of a program's held-out inputs: a hash keyed by a secret that no program can read."""
    text = code.encode("utf-8", "replace")
    return int.from_bytes(blake2b(text, key=key.encode(), digest_size=8).digest())

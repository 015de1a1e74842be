"""What the simulated model reads in a prompt about a program of the landscape."""

from dataclasses import dataclass

from costada.experiments.landscape.advice import named_approach
from costada.experiments.landscape.programs import read_program
from costada.experiments.landscape.proposals import Attempt, Wording
from costada.models.offline.reading import GenerationView, GuideView

_EXPLORING = ("unlike the rest", "DIVERGE: take")
_EXPLOITING = ("among the best so far", "REFINE: keep")
_REFINING = "builds on a recent success"


@dataclass(frozen=True, slots=True)
class AdviceView:
    """A prompt that asks a guide for tactics.

    Attributes:
        approach: Number of the best program's approach.
        quality: Score of the best program.
        is_refining: Whether tactics are to keep the approach.
    """

    approach: int
    quality: float
    is_refining: bool


def advice_view(view: GuideView) -> AdviceView | None:
    """Return what a guide is asked for, None where it sees no program of the landscape."""
    seen = read_program(view.program)
    return AdviceView(seen.approach, seen.quality, view.keeps_algorithm) if seen else None


def attempt_of(text: str, view: GenerationView) -> Attempt | None:
    """Return what an answer starts from, None where it sees no program of the landscape.

    Args:
        text: The prompt.
        view: What is read in it already.
    """
    seen = read_program(view.program)
    if seen is None:
        return None
    wording = _wording(text, view)
    named = named_approach(view.tactic.approach) if view.tactic else None
    is_moving = wording is Wording.BREAKTHROUGH
    return Attempt(seen.approach, seen.quality, wording, named if is_moving else None)


def _wording(text: str, view: GenerationView) -> Wording:
    if view.tactic is not None:
        return Wording.REFINEMENT if _REFINING in text else Wording.BREAKTHROUGH
    if any(words in text for words in _EXPLORING):
        return Wording.EXPLORATION
    is_exploiting = any(words in text for words in _EXPLOITING)
    return Wording.EXPLOITATION if is_exploiting else Wording.BALANCED

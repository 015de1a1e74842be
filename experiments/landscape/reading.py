"""What the simulated model reads beside a prompt about a program of the landscape."""

from costada.experiments.landscape.advice import named_approach
from costada.experiments.landscape.programs import read_program
from costada.experiments.landscape.proposals import Attempt, Wording
from costada.values.prompt_data import PromptData


def attempt_of(asked: PromptData) -> Attempt | None:
    """Return what an answer starts from, None where it sees no program of the landscape."""
    seen = read_program(asked.program)
    if seen is None:
        return None
    wording = Wording(asked.mode or asked.action)
    is_moving = wording is Wording.BREAKTHROUGH
    named = named_approach(asked.approach) if is_moving else None
    return Attempt(seen.approach, seen.quality, wording, named)

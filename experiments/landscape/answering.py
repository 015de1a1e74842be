"""From a prompt to an answer of the simulated model and its tokens."""

from random import Random

from costada.experiments.landscape.advice import (
    breakthrough_reply,
    named_approaches,
    refinement_reply,
)
from costada.experiments.landscape.landscape import drawn_landscape
from costada.experiments.landscape.programs import proposed_program, read_program
from costada.experiments.landscape.reading import attempt_of
from costada.experiments.landscape.tokens import (
    GUIDE,
    INSIGHT,
    LABELS,
    STRATEGY,
    Tokens,
    call_tokens,
    generation_tokens,
)
from costada.models.offline.strategizing import insight_reply, label_reply, strategy_reply
from costada.values.prompt_data import PromptData

NO_LANDSCAPE = "I see no program of the simulated landscape here."


def answered(asked: PromptData | None, seed: int, rng: Random) -> tuple[str, Tokens]:
    """Return the answer to a prompt and what it is billed for.

    Args:
        asked: Data of the prompt.
        seed: Chooses the landscape.
        rng: Source of all other randomness.
    """
    if asked is None:
        return NO_LANDSCAPE, generation_tokens(0, 1.0, rng)
    match asked.kind:
        case "generation":
            return _program_answer(asked, seed, rng)
        case "guide":
            return _guide_answer(asked, seed, rng), call_tokens(GUIDE, rng)
        case "labels":
            return label_reply(rng), call_tokens(LABELS, rng)
        case "insight":
            return insight_reply(asked), call_tokens(INSIGHT, rng)
        case "strategy":
            return strategy_reply(asked, rng), call_tokens(STRATEGY, rng)
    return NO_LANDSCAPE, generation_tokens(0, 1.0, rng)


def _program_answer(asked: PromptData, seed: int, rng: Random) -> tuple[str, Tokens]:
    attempt = attempt_of(asked)
    if attempt is None:
        return NO_LANDSCAPE, generation_tokens(len(asked.others), 1.0, rng)
    landscape = drawn_landscape(seed)
    program = asked.program.strip("\n") + "\n"
    code, tokens = proposed_program(program, attempt, len(asked.others), landscape, rng)
    return f"Simulated answer.\n\n```python\n{code}```\n", tokens


def _guide_answer(asked: PromptData, seed: int, rng: Random) -> str:
    seen = read_program(asked.program)
    if seen is None:
        return NO_LANDSCAPE
    if asked.mode == "refinement":
        return refinement_reply()
    landscape = drawn_landscape(seed)
    return breakthrough_reply(named_approaches(landscape, seen.approach, seen.quality, rng))

"""From a prompt to an answer of the simulated model and its tokens."""

from random import Random

from costada.experiments.landscape.advice import (
    breakthrough_reply,
    named_approaches,
    refinement_reply,
)
from costada.experiments.landscape.landscape import drawn_landscape
from costada.experiments.landscape.programs import proposed_program
from costada.experiments.landscape.reading import advice_view, attempt_of
from costada.experiments.landscape.tokens import (
    GUIDE,
    INSIGHT,
    LABELS,
    STRATEGY,
    Tokens,
    call_tokens,
    generation_tokens,
)
from costada.models.offline.reading import (
    GenerationView,
    GuideView,
    InsightView,
    LabelView,
    StrategyView,
    read_prompt,
)
from costada.models.offline.strategizing import insight_reply, label_reply, strategy_reply

NO_LANDSCAPE = "I see no program of the simulated landscape here."


def answered(prompt: str, seed: int, rng: Random) -> tuple[str, Tokens]:
    """Return the answer to a prompt and what it is billed for.

    Args:
        prompt: Text of the last message.
        seed: Chooses the landscape.
        rng: Source of all other randomness.
    """
    match read_prompt(prompt):
        case GenerationView() as view:
            return _program_answer(prompt, view, seed, rng)
        case GuideView() as view:
            return _guide_answer(view, seed, rng), call_tokens(GUIDE, rng)
        case LabelView():
            return label_reply(rng), call_tokens(LABELS, rng)
        case InsightView() as view:
            return insight_reply(view), call_tokens(INSIGHT, rng)
        case StrategyView() as view:
            return strategy_reply(view, rng), call_tokens(STRATEGY, rng)
    return NO_LANDSCAPE, generation_tokens(0, 1.0, rng)


def _program_answer(
    prompt: str, view: GenerationView, seed: int, rng: Random
) -> tuple[str, Tokens]:
    attempt = attempt_of(prompt, view)
    if attempt is None:
        return NO_LANDSCAPE, generation_tokens(len(view.others), 1.0, rng)
    landscape = drawn_landscape(seed)
    code, tokens = proposed_program(view.program, attempt, len(view.others), landscape, rng)
    return f"Simulated answer.\n\n```python\n{code}```\n", tokens


def _guide_answer(view: GuideView, seed: int, rng: Random) -> str:
    advice = advice_view(view)
    if advice is None:
        return NO_LANDSCAPE
    if advice.is_refining:
        return refinement_reply()
    landscape = drawn_landscape(seed)
    return breakthrough_reply(named_approaches(landscape, advice.approach, advice.quality, rng))

"""From a prompt to an answer: which edit is made and how it is written down."""

from random import Random

from costada.models.offline.blocks import fenced, replace_blocks
from costada.models.offline.constructor import with_fresh_functions
from costada.models.offline.crossover import take_function, take_numbers
from costada.models.offline.expressions import disturb_array, shift_index, swap_operator
from costada.models.offline.failures import FAILURE_RATE, spoilt_answer
from costada.models.offline.guiding import guide_reply
from costada.models.offline.ideas import find_idea
from costada.models.offline.literals import change_literals, new_seed
from costada.models.offline.loops import change_evaluations, reverse_order
from costada.models.offline.reading import (
    GenerationView,
    GuideView,
    InsightView,
    LabelView,
    SeenTactic,
    StrategyView,
    read_prompt,
)
from costada.models.offline.scene import EditKind, Scene
from costada.models.offline.searches import shrink_step
from costada.models.offline.source import Edit, Program, read_program
from costada.models.offline.strategizing import insight_reply, label_reply, strategy_reply

REWRITE_RATE = 0.1
"""Share of answers that write the whole program although blocks would do."""

VARIATION_RATE = 0.35
"""Share of tactics carried out with other random numbers than the program had."""

USUAL_EDITS: tuple[tuple[EditKind, float], ...] = (
    (change_literals, 10.0),
    (change_evaluations, 4.0),
    (new_seed, 3.0),
    (take_function, 2.0),
    (take_numbers, 2.0),
    (shift_index, 1.5),
    (reverse_order, 1.0),
    (shrink_step, 0.5),
    (disturb_array, 0.5),
    (swap_operator, 0.5),
)
"""How often each kind of edit is tried first when no tactic is given, relative to the others."""

_INTRODUCTION = "Offline model: rule-based edits for demos and tests, no language model behind it."


def answer(prompt: str, rng: Random) -> str:
    """Return the answer to a prompt; all chance in it comes from the generator."""
    view = read_prompt(prompt)
    try:
        if isinstance(view, GuideView):
            return f"{_INTRODUCTION}\n\n```json\n{guide_reply(view, rng)}\n```\n"
        if view is not None and not isinstance(view, GenerationView):
            return _design_answer(view, rng)
        program = read_program(view.program) if view else None
        if view is not None and program is not None:
            return _generation_answer(view, program, rng)
    except RecursionError:
        return f"{_INTRODUCTION} This program is nested too deeply for me to change it."
    return f"{_INTRODUCTION} I see no Python program here that I could change."


def _design_answer(view: LabelView | InsightView | StrategyView, rng: Random) -> str:
    """Return the answer to one of the prompts about the search itself."""
    match view:
        case LabelView():
            return f"{_INTRODUCTION}\n\n{label_reply(rng)}\n"
        case InsightView():
            return f"{_INTRODUCTION}\n\n{insight_reply(view)}\n"
        case StrategyView():
            return f"{_INTRODUCTION}\n\n{strategy_reply(view, rng)}\n"


def _generation_answer(view: GenerationView, program: Program, rng: Random) -> str:
    others = tuple(each for text in view.others if (each := read_program(text)))
    edit = _edit(Scene(program, others, view.is_bold), view.tactic, rng)
    if edit is None:
        return f"{_INTRODUCTION} I find nothing to change in this program."
    is_spoilt = rng.random() < FAILURE_RATE and not view.has_failure
    takes_blocks = rng.random() >= REWRITE_RATE and view.takes_blocks
    if is_spoilt:
        body = spoilt_answer(program, edit.code, rng)
    else:
        body = (takes_blocks and replace_blocks(program.text, edit.code)) or fenced(edit.code)
    return f"{_INTRODUCTION} {edit.summary}\n\n{body}\n"


def _edit(scene: Scene, tactic: SeenTactic | None, rng: Random) -> Edit | None:
    """Return the edit the tactic asks for, else one of the usual ones that fits."""
    idea = find_idea(tactic.approach, f"{tactic.idea} {tactic.how}") if tactic else None
    carried_out = idea.edit(scene, rng) if idea else None
    if carried_out is not None:
        return _consistent(_varied(carried_out, rng))
    edits = (kind(scene, rng) for kind in _shuffled(rng))
    unchanged = scene.program.text.strip()
    edit = next((each for each in edits if each and each.code.strip() != unchanged), None)
    return _consistent(edit) if edit else None


def _consistent(edit: Edit) -> Edit:
    return Edit(with_fresh_functions(edit.code), edit.summary)


def _varied(edit: Edit, rng: Random) -> Edit:
    """Return the edit, at times with other random numbers for its searches.

    A tactic is used more than once on the same program; so its uses differ.
    """
    program = read_program(edit.code)
    seed = new_seed(Scene(program), rng) if program and rng.random() < VARIATION_RATE else None
    return Edit(seed.code, f"{edit.summary} {seed.summary}") if seed else edit


def _shuffled(rng: Random) -> list[EditKind]:
    """Return all kinds of edits, likelier ones tending to come first."""
    keys = {kind: rng.expovariate(1.0) / odds for kind, odds in USUAL_EDITS}
    return sorted(keys, key=keys.__getitem__)

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
from costada.models.offline.reading import shown_text
from costada.models.offline.scene import EditKind, Scene
from costada.models.offline.searches import shrink_step
from costada.models.offline.source import Edit, Program, read_program
from costada.models.offline.strategizing import insight_reply, label_reply, strategy_reply
from costada.values.prompt_data import KEY, PromptData

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


def answer(asked: PromptData | None, rng: Random) -> str:
    """Return the answer to a prompt; all chance in it comes from the generator."""
    if asked is None:
        return (
            f"{_INTRODUCTION} I see no Python program here that I could change: expected the data"
            f" of a CostAda prompt in additional_kwargs[{KEY!r}] of a message."
        )
    try:
        if asked.kind == "guide":
            return f"{_INTRODUCTION}\n\n```json\n{guide_reply(asked, rng)}\n```\n"
        if asked.kind != "generation":
            return f"{_INTRODUCTION}\n\n{_design_answer(asked, rng)}\n"
        program = read_program(shown_text(asked.program))
        if program is not None:
            return _generation_answer(asked, program, rng)
    except RecursionError:
        return f"{_INTRODUCTION} This program is nested too deeply for me to change it."
    return f"{_INTRODUCTION} I see no Python program here that I could change."


def _design_answer(asked: PromptData, rng: Random) -> str:
    if asked.kind == "labels":
        return label_reply(rng)
    return insight_reply(asked) if asked.kind == "insight" else strategy_reply(asked, rng)


def _generation_answer(asked: PromptData, program: Program, rng: Random) -> str:
    others = tuple(each for text in asked.others if (each := read_program(shown_text(text))))
    is_bold = asked.action == "exploration"
    edit = _edit(Scene(program, others, is_bold), asked, rng)
    if edit is None:
        return f"{_INTRODUCTION} I find nothing to change in this program."
    is_spoilt = rng.random() < FAILURE_RATE and not asked.has_failure
    takes_blocks = rng.random() >= REWRITE_RATE
    if is_spoilt:
        body = spoilt_answer(program, edit.code, rng)
    else:
        body = (takes_blocks and replace_blocks(program.text, edit.code)) or fenced(edit.code)
    return f"{_INTRODUCTION} {edit.summary}\n\n{body}\n"


def _edit(scene: Scene, asked: PromptData, rng: Random) -> Edit | None:
    """Return the edit the tactic asks for, else one of the usual ones that fits."""
    idea = find_idea(asked.approach, asked.idea) if asked.approach else None
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

"""From what a prompt was made of to an answer: programs, tactics, labels, insights, strategies."""

import ast
import json
import re
from difflib import SequenceMatcher
from importlib.resources import files
from random import Random

from costada.models.offline.constructor import find_constructor, with_fresh_functions
from costada.models.offline.ideas import IDEAS, Idea, find_idea
from costada.models.offline.program import Edit, EditContext, EditKind, Program, read_program
from costada.models.offline.search_edits import change_evaluations, shrink_step
from costada.models.offline.small_edits import (
    change_literals,
    disturb_array,
    new_seed,
    reverse_order,
    shift_index,
    swap_operator,
    take_function,
    take_numbers,
)
from costada.values.prompt_data import KEY, PromptData

FAILURE_RATE = 0.1
"""Share of generated programs that are spoilt on purpose."""

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

IDEAS_PER_ANSWER = 3
POINTS_PER_LABEL = 4

STRATEGIES = ("tournament", "best_quarter", "patient", "refine_best", "rarely_used")
"""Files of the folder `strategies`: general ways to choose parent and context."""

_INTRODUCTION = "Offline model: rule-based edits for demos and tests, no language model behind it."

_CONTEXTS = (1, 2, 4, 8)
"""Unchanged lines around a change that are tried in turn."""

_SELECT = "    def select(self, n_context, rng):\n"

Block = tuple[list[str], list[str]]
"""Lines to look for and lines to put in their place."""


def answer(asked: PromptData | None, rng: Random) -> str:
    """The answer to a prompt; all chance in it comes from the generator."""
    if asked is None:
        return (
            f"{_INTRODUCTION} I see no Python program here that I could change: expected the data"
            f" of a CostAda prompt in additional_kwargs[{KEY!r}] of a message."
        )
    try:
        match asked.kind:
            case "generation":
                return f"{_INTRODUCTION} {_generation_reply(asked, rng)}"
            case "guide":
                return f"{_INTRODUCTION}\n\n```json\n{_guide_reply(asked, rng)}\n```\n"
            case "labels":
                return f"{_INTRODUCTION}\n\n{label_reply(rng)}\n"
            case "insight":
                return f"{_INTRODUCTION}\n\n{insight_reply(asked)}\n"
            case "strategy":
                return f"{_INTRODUCTION}\n\n{strategy_reply(asked, rng)}\n"
    except RecursionError:
        return f"{_INTRODUCTION} This program is nested too deeply for me to change it."
    raise ValueError(f"kind: got {asked.kind!r}, expected one that a prompt of CostAda has")


def _shown_program(code: str) -> Program | None:
    """A program as a prompt shows it: without blank lines at its ends."""
    return read_program(code.strip("\n"))


def _generation_reply(asked: PromptData, rng: Random) -> str:
    program = _shown_program(asked.program)
    if program is None:
        return "I see no Python program here that I could change."
    others = tuple(each for text in asked.others if (each := _shown_program(text)))
    edit = _edit(EditContext(program, others, asked.action == "exploration"), asked, rng)
    if edit is None:
        return "I find nothing to change in this program."
    code = with_fresh_functions(edit.code)
    is_spoilt = rng.random() < FAILURE_RATE and not asked.has_failure
    takes_blocks = rng.random() >= REWRITE_RATE
    if is_spoilt:
        body = _spoilt_program(program, code, rng)
    else:
        body = (takes_blocks and replace_blocks(program.text, code)) or fenced(code)
    return f"{edit.summary}\n\n{body}\n"


def _edit(context: EditContext, asked: PromptData, rng: Random) -> Edit | None:
    """The edit the tactic asks for, else one of the usual ones that fits.

    A tactic is used more than once on the same program; at times it gets other random numbers.
    """
    idea = find_idea(asked.approach, asked.idea) if asked.approach else None
    edit = idea.edit(context, rng) if idea else None
    if edit is not None:
        program = read_program(edit.code)
        seed = (
            new_seed(EditContext(program), rng)
            if program and rng.random() < VARIATION_RATE
            else None
        )
        return Edit(seed.code, f"{edit.summary} {seed.summary}") if seed else edit
    keys = {kind: rng.expovariate(1.0) / odds for kind, odds in USUAL_EDITS}
    edits = (kind(context, rng) for kind in sorted(keys, key=keys.__getitem__))
    unchanged = context.program.text.strip()
    return next((each for each in edits if each and each.code.strip() != unchanged), None)


def _spoilt_program(current: Program, code: str, rng: Random) -> str:
    """An answer that fails to bring a changed program across, in one of five ways.

    A forgiving reader can save one of them, the answer that holds only the editable functions.
    """
    prose = "I would apply this change and keep everything else as it is."
    changed = read_program(code)
    functions = changed.functions() if changed else []
    if changed is None or not functions:
        return prose
    match rng.choice(("prose", "mismatch", "syntax", "functions only", "result")):
        case "mismatch":  # quotes a line the program does not have
            blocks, marker = replace_blocks(current.text, changed.text) or "", "<<<<<<< SEARCH\n"
            return blocks.replace(marker, f"{marker}earlier_attempts = []\n")
        case "syntax":  # loses the colon behind the head of a function
            head = f"def {functions[-1].name}("
            lines = changed.text.split("\n")
            return fenced("\n".join(each.rstrip(":") if head in each else each for each in lines))
        case "functions only":  # loses the rest of the file
            return fenced("\n\n\n".join(changed.source(each) for each in functions))
        case "result":  # returns one entry less than was asked for
            last = functions[0].body[-1]
            result = last.value if isinstance(last, ast.Return) else None
            first = result.elts[0] if isinstance(result, ast.Tuple) and result.elts else result
            if first is not None:
                cut = changed.replacing(first, f"{changed.source(first)}[:-1]")
                return fenced(changed.changed([cut]))
    return prose


def replace_blocks(old: str, new: str) -> str | None:
    """SEARCH/REPLACE blocks that turn one program into the other when applied in order.

    A block shows as many unchanged lines around its change as it takes to find its place. None
    where eight are not enough.
    """
    before, after = old.rstrip().split("\n"), new.rstrip().split("\n")
    for context in _CONTEXTS:
        matcher = SequenceMatcher(None, before, after, autojunk=False)
        blocks: list[Block] = []
        for group in matcher.get_grouped_opcodes(context):
            search = before[group[0][1] : group[-1][2]]
            replacement = after[group[0][3] : group[-1][4]]
            for edge in (0, -1):  # without blank lines at the edges that both sides have
                while search and replacement and not (search[edge] + replacement[edge]).strip():
                    del search[edge], replacement[edge]
            blocks.append((search, replacement))
        if blocks and _applied(before, blocks) == after:
            parts = [("\n".join(search), "\n".join(put)) for search, put in blocks]
            texts = [f"<<<<<<< SEARCH\n{a}\n=======\n{b}\n>>>>>>> REPLACE" for a, b in parts]
            return "\n\n".join(texts)
    return None


def _applied(lines: list[str], blocks: list[Block]) -> list[str]:
    """The lines after all blocks, each put where its search occurs first.

    Nothing is returned if that would depend on blank lines at the edge of a block.
    """
    for search, replacement in blocks:
        for side in (search, replacement):
            if not side or not side[0].strip() or not side[-1].strip():
                return []
        places = range(len(lines) - len(search) + 1)
        place = next((k for k in places if lines[k : k + len(search)] == search), None)
        if place is None:
            return []
        lines = [*lines[:place], *replacement, *lines[place + len(search) :]]
    return lines


def fenced(code: str) -> str:
    """A whole program in a fence longer than any run of backticks in it."""
    ticks = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", code))])
    return f"{ticks}python\n{code.strip()}\n{ticks}"


def _guide_reply(asked: PromptData, rng: Random) -> str:
    """Three ideas of different approaches as one JSON object.

    Refining prompts get ideas that make what is there better, the others get new searches, as far
    as the program offers a place for them. What has failed before comes after what has not.
    """
    program = _shown_program(asked.program)
    context = EditContext(program) if program else None
    constructor = find_constructor(program) if program and asked.mode == "refinement" else None
    is_refining = constructor is not None and bool(constructor.searches)

    def drawback(idea: Idea) -> float:
        is_unfit = context is None or not idea.fits(context)
        is_other_kind = idea.is_search == is_refining
        return list(asked.failed).count(idea.approach) + 0.5 * is_other_kind + 100.0 * is_unfit

    ranked = sorted(IDEAS, key=lambda each: (drawback(each), rng.expovariate(each.merit)))
    fields = ("idea", "description", "what_to_optimize", "cautions", "approach_type")
    values = ((e.idea, e.steps, "score", e.cautions, e.approach) for e in ranked[:IDEAS_PER_ANSWER])
    records = [dict(zip(fields, each, strict=True)) for each in values]
    return json.dumps({"ideas": records}, indent=2)


def label_reply(rng: Random) -> str:
    """A few general ideas below each of the two headings."""
    parts = []
    for heading, is_search in (("DIVERGE", True), ("REFINE", False)):
        ideas = [each for each in IDEAS if each.is_search == is_search]
        drawn = rng.sample(ideas, min(POINTS_PER_LABEL, len(ideas)))
        points = "\n".join(f"- {each.idea} Use `{each.approach}`." for each in drawn)
        parts.append(f"## {heading}\n\n{points}")
    return "\n\n".join(parts)


def insight_reply(asked: PromptData) -> str:
    """The numbers of a prompt that matter for the next strategy, in sentences."""
    sentences = [f"{name.capitalize()}: {value}." for name, value in asked.facts.items()]
    parts = ["\n".join(["## Population", "", *sentences])]
    parts += [f"## Strategy {k}\n\n{line}" for k, line in enumerate(asked.standings, start=1)]
    return "\n\n".join(parts)


def strategy_text(name: str) -> str:
    """The program of one of the `STRATEGIES`."""
    folder = files("costada.models.offline") / "strategies"
    return (folder / f"{name}.txt").read_text(encoding="utf-8")


def strategy_reply(asked: PromptData, rng: Random) -> str:
    """One of the known strategies other than the one shown, spoilt once in a while.

    As with programs, the answer after a failed attempt is not spoilt.
    """
    texts = [strategy_text(name) for name in STRATEGIES]
    source = rng.choice([text for text in texts if text.strip() != asked.program.strip()])
    if rng.random() >= FAILURE_RATE or asked.has_failure:
        summary = source.split('"""')[1]
        return f"{summary}\n\n{fenced(source)}"
    spoilt = rng.choice(
        (
            None,
            source.replace("class Strategy:", "class Search:"),
            source.replace("class Strategy:", "class Strategy"),
            source.replace(_SELECT, f"{_SELECT}        return self.records[0]['id']\n"),
            source.replace(_SELECT, f"{_SELECT}        return 'best', '', []\n"),
        )
    )
    if spoilt is None:
        return "I would choose among the better candidates, and now and then among all."
    return fenced(spoilt)

"""From what a prompt was made of to an answer: programs, tactics, labels, insights, strategies."""

import ast
import json
from collections.abc import Mapping
from importlib.resources import files
from random import Random

from costada.plugins.offline.blocks import fenced, replace_blocks
from costada.plugins.offline.constructor import find_constructor, with_fresh_functions
from costada.plugins.offline.general_ideas import IDEAS, Idea, find_idea
from costada.plugins.offline.program import Edit, EditContext, EditKind, Program, read_program
from costada.plugins.offline.search_edits import change_evaluations, shrink_step
from costada.plugins.offline.small_edits import (
    change_literals,
    disturb_array,
    new_seed,
    reverse_order,
    shift_index,
    swap_operator,
    take_function,
    take_numbers,
)
from costada.plugins.offline.text_edits import TEXT_IDEAS, TextContext, text_edit
from costada.prompts.requests import KEY, PromptData, Source
from costada.values.program_form import PYTHON, language_of

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

PYTHON_EDIT_RATE = 0.5
"""Share of edits of a Python file that are made by its syntax, not by its lines."""

IDEAS_PER_ANSWER = 3
POINTS_PER_LABEL = 4

STRATEGIES = ("tournament", "best_quarter", "patient", "refine_best", "rarely_used")
"""Files of the folder `strategies`: general ways to choose parent and context."""

_INTRODUCTION = "Offline model: rule-based edits for demos and tests, no language model behind it."

_SELECT = "    def select(self, n_context, rng):\n"


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
            case _:
                return f"{_INTRODUCTION}\n\n{population_reply(asked, rng)}\n"
    except RecursionError:
        return f"{_INTRODUCTION} This program is nested too deeply for me to change it."


def population_reply(asked: PromptData, rng: Random) -> str:
    """The answer to a prompt about the candidates of a run: labels, an insight, or a strategy."""
    match asked.kind:
        case "labels":
            return label_reply(rng)
        case "insight":
            return insight_reply(asked)
        case "strategy":
            return strategy_reply(asked, rng)
    raise ValueError(f"kind: got {asked.kind!r}, expected one that a prompt of CostAda has")


def _shown_program(code: str) -> Program | None:
    """A program as a prompt shows it: without blank lines at its ends."""
    return read_program(code.strip("\n"))


def _generation_reply(asked: PromptData, rng: Random) -> str:
    if not isinstance(asked.program, str):
        return _files_reply(asked.program, asked, rng)
    texts = [each for each in asked.others if isinstance(each, str)]
    if asked.language != PYTHON.fence:
        return _text_reply(asked.program, texts, asked, rng)
    program = _shown_program(asked.program)
    if program is None:
        return "I see no Python program here that I could change."
    others = tuple(each for text in texts if (each := _shown_program(text)))
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


def _text_reply(text: str, others: list[str], asked: PromptData, rng: Random) -> str:
    """An edit of one text in any language but Python."""
    context = TextContext(text.strip("\n"), others, asked.action == "exploration")
    edit = text_edit(context, asked.approach, rng)
    if edit is None:
        return "I find nothing to change in this program."
    return f"{edit.summary}\n\n{_text_body(context.text, edit.code, asked, asked.language, rng)}\n"


def _files_reply(files: Mapping[str, str], asked: PromptData, rng: Random) -> str:
    """An edit of one of several files, each in its own language."""
    is_exploration = asked.action == "exploration"
    for path in sorted(files, key=lambda _: rng.random()):
        others = [each[path] for each in asked.others if isinstance(each, Mapping) and path in each]
        language, text = language_of(path), files[path].strip("\n")
        program = read_program(text) if language == PYTHON else None
        edit = None
        if program and rng.random() < PYTHON_EDIT_RATE:
            shown = tuple(each for other in others if (each := _shown_program(other)))
            edit = _edit(EditContext(program, shown, is_exploration), asked, rng)
        edit = edit or text_edit(TextContext(text, others, is_exploration), asked.approach, rng)
        if edit is not None:
            body = _text_body(text, edit.code, asked, language.fence, rng)
            return f"{edit.summary}\n\nFILE: {path}\n{body}\n"
    return "I find nothing to change in these files."


def _text_body(old: str, new: str, asked: PromptData, language: str, rng: Random) -> str:
    """What carries a change across; once in a while a block that quotes a line wrongly."""
    is_spoilt = rng.random() < FAILURE_RATE and not asked.has_failure
    takes_blocks = is_spoilt or rng.random() >= REWRITE_RATE
    body = (takes_blocks and replace_blocks(old, new)) or fenced(new, language)
    marker = "<<<<<<< SEARCH\n"
    return body.replace(marker, f"{marker}a line that is not there\n") if is_spoilt else body


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


def _guide_reply(asked: PromptData, rng: Random) -> str:
    """Three ideas of different approaches as one JSON object.

    Refining prompts get ideas that make what is there better, the others get new searches, as far
    as the program offers a place for them. What has failed before comes after what has not.
    """
    if asked.language != PYTHON.fence or not _python_text(asked.program):
        return _text_ideas(asked, rng)
    program = _shown_program(_python_text(asked.program))
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


def _python_text(program: Source) -> str:
    """A Python text, or the longest Python file of several; empty if there is none."""
    if isinstance(program, str):
        return program
    texts = [text for path, text in program.items() if language_of(path) == PYTHON]
    return max(texts, key=len, default="")


def _text_ideas(asked: PromptData, rng: Random) -> str:
    """Ideas for programs that are not in Python, those that have failed last."""
    failed = list(asked.failed)
    ranked = sorted(TEXT_IDEAS, key=lambda each: (failed.count(each), rng.random()))
    records = [
        {
            "idea": TEXT_IDEAS[approach][1],
            "description": TEXT_IDEAS[approach][2],
            "what_to_optimize": "score",
            "cautions": "",
            "approach_type": approach,
        }
        for approach in ranked[:IDEAS_PER_ANSWER]
    ]
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
    folder = files("costada.plugins.offline") / "strategies"
    return (folder / f"{name}.txt").read_text(encoding="utf-8")


def strategy_reply(asked: PromptData, rng: Random) -> str:
    """One of the known strategies other than the one shown, spoilt once in a while.

    As with programs, the answer after a failed attempt is not spoilt.
    """
    texts = [strategy_text(name) for name in STRATEGIES]
    source = rng.choice(
        [text for text in texts if text.strip() != _python_text(asked.program).strip()]
    )
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

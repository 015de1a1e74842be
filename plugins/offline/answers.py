"""From what a prompt was made of to an answer: programs, tactics, labels, insights, strategies."""

import json
import re
from collections.abc import Mapping
from difflib import SequenceMatcher
from importlib.resources import files
from random import Random

from costada.plugins.offline.edits import (
    Edit,
    EditContext,
    EditKind,
    change_numbers,
    drop_line,
    spread_zeros,
    swap_lines,
    take_lines,
)
from costada.plugins.offline.ideas import IDEAS, LABELS, LINES, SEARCH, Idea, find_idea
from costada.plugins.offline.loop_edits import tabulate_distances, use_slack
from costada.plugins.offline.searches import (
    another_search,
    complete,
    find_constructor,
    more_evaluations,
)
from costada.prompts.requests import PromptData, Source
from costada.values.program_form import language_of

FAILURE_RATE = 0.1
"""Share of generated programs that are spoilt on purpose."""

REWRITE_RATE = 0.1
"""Share of answers that write the whole program although blocks would do."""

USUAL_EDITS: tuple[tuple[EditKind, float], ...] = (
    (change_numbers, 10.0),
    (more_evaluations, 4.0),
    (another_search, 3.0),
    (tabulate_distances, 4.0),
    (use_slack, 3.0),
    (take_lines, 1.0),
    (spread_zeros, 4.0),
    (swap_lines, 0.5),
    (drop_line, 0.5),
)
"""How often each kind of edit is tried first when no tactic is given, relative to the others."""

IDEAS_PER_ANSWER = 3
POINTS_PER_LABEL = 4

STRATEGIES = ("tournament", "best_quarter", "patient", "refine_best", "rarely_used")
"""Files of the folder `strategies`: general ways to choose parent and context."""

_CONTEXTS = (1, 2, 4, 8)
"""Unchanged lines around a change that are tried in turn."""

Block = tuple[list[str], list[str]]
"""Lines to look for and lines to put in their place."""

_INTRODUCTION = "Offline model: rule-based edits for demos and tests, no language model behind it."

_SELECT = "    def select(self, n_context, rng):\n"


def answer(asked: PromptData, rng: Random) -> str:
    """The answer to a prompt; all chance in it comes from the generator."""
    match asked.kind:
        case "generation":
            return f"{_INTRODUCTION} {_generation_reply(asked, rng)}"
        case "guide":
            return f"{_INTRODUCTION}\n\n```json\n{_guide_reply(asked, rng)}\n```\n"
        case _:
            return f"{_INTRODUCTION}\n\n{population_reply(asked, rng)}\n"


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


def _generation_reply(asked: PromptData, rng: Random) -> str:
    """An edit of the program, or of one of its files."""
    is_exploration = asked.action == "exploration"
    for path, text in sorted(_files(asked.program).items(), key=lambda _: rng.random()):
        others = [each[path] for each in map(_files, asked.others) if path in each]
        shown = [each.strip("\n") for each in others]
        context = EditContext(text.strip("\n"), shown, is_exploration)
        if edit := _edit(context, asked, rng):
            language = language_of(path).fence if path else asked.language
            body = _body(context.text, complete(edit.code), asked, language, rng)
            head = f"FILE: {path}\n" if path else ""
            return f"{edit.summary}\n\n{head}{body}\n"
    return "I find nothing to change in this program."


def _files(program: Source) -> Mapping[str, str]:
    """The text of each file by path; a program of one text has an empty path."""
    return {"": program} if isinstance(program, str) else program


def _edit(context: EditContext, asked: PromptData, rng: Random) -> Edit | None:
    """The edit the tactic asks for, else one of the usual ones that fits and changes the text."""
    idea = find_idea(asked.approach, asked.idea) if asked.approach else None
    keys = {kind: rng.expovariate(odds) for kind, odds in USUAL_EDITS}
    kinds = [*([idea.edit] if idea else []), *sorted(keys, key=keys.__getitem__)]
    edits = (kind(context, rng) for kind in kinds)
    unchanged = context.text.strip()
    return next((each for each in edits if each and each.code.strip() != unchanged), None)


def _body(old: str, new: str, asked: PromptData, language: str, rng: Random) -> str:
    """What carries a change across; once in a while a block that quotes a line wrongly."""
    is_spoilt = rng.random() < FAILURE_RATE and not asked.has_failure
    takes_blocks = is_spoilt or rng.random() >= REWRITE_RATE
    body = (takes_blocks and replace_blocks(old, new)) or fenced(new, language)
    marker = "<<<<<<< SEARCH\n"
    return body.replace(marker, f"{marker}a line that is not there\n") if is_spoilt else body


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


def fenced(code: str, language: str = "python") -> str:
    """A whole program in a fence longer than any run of backticks in it."""
    ticks = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", code))])
    return f"{ticks}{language}\n{code.strip()}\n{ticks}"


def _guide_reply(asked: PromptData, rng: Random) -> str:
    """Three ideas of different approaches as one JSON object.

    Refining prompts get ideas that make what is there better, the others get new searches, as far
    as the program offers a place for them. What has failed before comes after what has not.
    """
    context = EditContext(max(_files(asked.program).values(), key=len).strip("\n"))
    constructor = find_constructor(context) if asked.mode == "refinement" else None
    is_refining = constructor is not None and constructor.search is not None

    def drawback(idea: Idea) -> float:
        is_other_kind = (idea.kind == SEARCH) == is_refining
        odd = 0.5 * is_other_kind + (idea.kind == LINES) + 100.0 * (not idea.fits(context))
        return odd + list(asked.failed).count(idea.approach)

    ranked = sorted(IDEAS, key=lambda each: (drawback(each), rng.expovariate(each.merit)))
    fields = ("idea", "description", "what_to_optimize", "cautions", "approach_type")
    values = ((e.idea, e.steps, "score", e.cautions, e.approach) for e in ranked[:IDEAS_PER_ANSWER])
    records = [dict(zip(fields, each, strict=True)) for each in values]
    return json.dumps({"ideas": records}, indent=2)


def label_reply(rng: Random) -> str:
    """A few general ideas below each of the two headings."""
    parts = []
    for heading, ideas in LABELS.items():
        drawn = rng.sample(ideas, min(POINTS_PER_LABEL, len(ideas)))
        parts.append("\n".join([f"## {heading}", "", *(f"- {each}" for each in drawn)]))
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
    shown = "".join(_files(asked.program).values()).strip()
    source = rng.choice([text for text in texts if text.strip() != shown])
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

"""The ideas the offline model knows: what it proposes as a guide and carries out as a generator.

All are general searches and program changes. Each is known by its approach, most often the name of
a library function, which is how a tactic finds its way back to the edit that carries it out. Their
words are in `ideas.toml`.
"""

import re
import tomllib
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from random import Random
from typing import Any

from costada.plugins.offline.edits import (
    EditContext,
    EditKind,
    change_numbers,
    spread_zeros,
    swap_lines,
    take_lines,
)
from costada.plugins.offline.loop_edits import tabulate_distances, use_slack
from costada.plugins.offline.searches import METHODS, more_evaluations, search_with

SEARCH, REFINEMENT, LINES = "search", "refinement", "lines"
"""Kinds of ideas: a new search, a better Python program, and what fits any language."""

_EDITS: dict[str, EditKind] = {
    each.__name__: each
    for each in (
        *(tabulate_distances, use_slack, more_evaluations, spread_zeros),
        *(change_numbers, take_lines, swap_lines),
    )
}


@dataclass(frozen=True, slots=True)
class Idea:
    """One thing to try.

    Attributes:
        kind: `SEARCH`, `REFINEMENT` or `LINES`.
        approach: What it rests on; no two ideas share one.
        idea: The idea in a sentence.
        steps: How to carry it out, in sentences.
        cautions: What can go wrong.
        words: A pattern that finds the idea in the words of a tactic by another model.
        merit: How readily it is proposed, relative to the others.
        edit: What carries it out.
    """

    kind: str
    approach: str
    idea: str
    steps: str
    cautions: str
    words: str
    merit: float
    edit: EditKind

    def fits(self, context: EditContext) -> bool:
        """Whether a program offers a place for the idea."""
        return self.kind == LINES or self.edit(context, Random(0)) is not None


def _ideas(known: dict[str, Any]) -> tuple[Idea, ...]:
    ideas = []
    for each in known[SEARCH]:
        method = METHODS[each.pop("name")]
        steps = known["search_steps"].format(move=each.pop("move"))
        edit = partial(search_with, method)
        told = {"steps": steps, "cautions": known["search_cautions"], "merit": method.merit}
        ideas.append(Idea(SEARCH, method.approach, edit=edit, **told, **each))
    for kind in (REFINEMENT, LINES):
        ideas += [Idea(kind, edit=_EDITS[each.pop("edit")], **each) for each in known[kind]]
    return tuple(ideas)


_KNOWN = tomllib.loads(
    (files("costada.plugins.offline") / "ideas.toml").read_text(encoding="utf-8")
)
IDEAS = _ideas(_KNOWN)
LABELS: dict[str, list[str]] = _KNOWN["labels"]
"""General ideas for strategies that choose among candidates, by heading."""


def find_idea(approach: str, text: str) -> Idea | None:
    """The idea of that approach, else the first whose words occur in the text."""
    for idea in IDEAS:
        if idea.approach == approach.strip().rstrip("()"):
            return idea
    text = " ".join(text.split())
    return next((idea for idea in IDEAS if re.search(idea.words, text, re.IGNORECASE)), None)

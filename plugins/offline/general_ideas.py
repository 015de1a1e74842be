"""The ideas the offline model knows: what it proposes as a guide and carries out as a generator.

All are general searches and program changes. Each is known by its approach, the name of a library
function, which is how a tactic finds its way back to the edit that carries it out. Their words are
in `ideas.toml`.
"""

import re
import tomllib
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from random import Random

from costada.plugins.offline.loop_edits import repeat_corrections, use_slack
from costada.plugins.offline.program import EditContext, EditKind
from costada.plugins.offline.search_edits import (
    METHODS,
    cheaper_scoring,
    more_evaluations,
    polish,
    search_with,
    shrink_step,
)
from costada.plugins.offline.small_edits import disturb_array


@dataclass(frozen=True, slots=True)
class Idea:
    """One thing to try.

    Attributes:
        approach: The library function it rests on; no two ideas share one.
        idea: The idea in a sentence.
        steps: How to carry it out, in sentences.
        cautions: What can go wrong.
        words: A pattern that finds the idea in the words of a tactic by another model.
        merit: How readily it is proposed, relative to the others.
        edit: What carries it out.
        is_search: Whether it makes a new search of a program, not a better one.
    """

    approach: str
    idea: str
    steps: str
    cautions: str
    words: str
    merit: float
    edit: EditKind
    is_search: bool = False

    def fits(self, context: EditContext) -> bool:
        """Whether a program offers a place for the idea."""
        return self.edit(context, Random(0)) is not None


_EDITS: dict[str, EditKind] = {
    "cheaper_scoring": cheaper_scoring,
    "use_slack": use_slack,
    "repeat_corrections": repeat_corrections,
    "shrink_step": shrink_step,
    "more_evaluations": partial(more_evaluations, 2.0),
    "polish": polish,
    "disturb_array": disturb_array,
}


def _ideas() -> tuple[Idea, ...]:
    text = (files("costada.plugins.offline") / "ideas.toml").read_text(encoding="utf-8")
    known = tomllib.loads(text)
    ideas = []
    for each in known["search"]:
        method = METHODS[each.pop("name")]
        steps = known["search_steps"].format(move=each.pop("move"))
        words = {"approach": method.approach, "steps": steps, "cautions": known["search_cautions"]}
        ideas.append(Idea(**words, **each, edit=partial(search_with, method), is_search=True))
    for each in known["refinement"]:
        ideas.append(Idea(edit=_EDITS[each.pop("edit")], **each))
    return tuple(ideas)


IDEAS = _ideas()


def find_idea(approach: str, text: str) -> Idea | None:
    """The idea of that approach, else the first whose words occur in the text."""
    for idea in IDEAS:
        if idea.approach == approach.strip().rstrip("()"):
            return idea
    text = " ".join(text.split())
    return next((idea for idea in IDEAS if re.search(idea.words, text, re.IGNORECASE)), None)

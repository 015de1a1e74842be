"""The offline model as a designer of searches: labels, insights and strategies."""

from collections.abc import Callable
from importlib.resources import files
from random import Random

from costada.models.offline.blocks import fenced
from costada.models.offline.failures import FAILURE_RATE
from costada.models.offline.ideas import IDEAS
from costada.values.prompt_data import PromptData

POINTS_PER_LABEL = 4

STRATEGIES = ("tournament", "best_quarter", "patient", "refine_best", "rarely_used")
"""Files of the folder `strategies`: general ways to choose parent and context."""

_SELECT = "    def select(self, n_context, rng):\n"


def strategy_text(name: str) -> str:
    """Return the program of one of the `STRATEGIES`."""
    folder = files("costada.models.offline") / "strategies"
    return (folder / f"{name}.txt").read_text(encoding="utf-8")


def label_reply(rng: Random) -> str:
    """Return a few general ideas below each of the two headings."""
    searches = [each for each in IDEAS if each.is_search]
    refinements = [each for each in IDEAS if not each.is_search]
    parts = []
    for heading, ideas in (("DIVERGE", searches), ("REFINE", refinements)):
        drawn = rng.sample(ideas, min(POINTS_PER_LABEL, len(ideas)))
        points = "\n".join(f"- {each.idea} Use `{each.approach}`." for each in drawn)
        parts.append(f"## {heading}\n\n{points}")
    return "\n\n".join(parts)


def insight_reply(view: PromptData) -> str:
    """Return the numbers of a prompt that matter for the next strategy, in sentences."""
    sentences = [f"{name.capitalize()}: {value}." for name, value in view.facts.items()]
    parts = ["\n".join(["## Population", "", *sentences])]
    parts += [f"## Strategy {k}\n\n{line}" for k, line in enumerate(view.standings, start=1)]
    return "\n\n".join(parts)


def strategy_reply(view: PromptData, rng: Random) -> str:
    """Return one of the known strategies other than the one shown, spoilt once in a while.

    As with programs, the answer after a failed attempt is not spoilt.
    """
    texts = [strategy_text(name) for name in STRATEGIES]
    source = rng.choice([text for text in texts if text.strip() != view.program.strip()])
    summary = source.split('"""')[1]
    if rng.random() < FAILURE_RATE and not view.has_failure:
        return rng.choice(_SPOILINGS)(source)
    return f"{summary}\n\n{fenced(source)}"


def _prose_only(source: str) -> str:
    return "I would choose among the better candidates, and now and then among all."


def _other_class(source: str) -> str:
    return fenced(source.replace("class Strategy:", "class Search:"))


def _syntax_error(source: str) -> str:
    return fenced(source.replace("class Strategy:", "class Strategy"))


def _parent_only(source: str) -> str:
    return fenced(source.replace(_SELECT, f"{_SELECT}        return self.records[0]['id']\n"))


def _unknown_parent(source: str) -> str:
    return fenced(source.replace(_SELECT, f"{_SELECT}        return 'best', '', []\n"))


_SPOILINGS: tuple[Callable[[str], str], ...] = (
    _prose_only,
    _other_class,
    _syntax_error,
    _parent_only,
    _unknown_parent,
)

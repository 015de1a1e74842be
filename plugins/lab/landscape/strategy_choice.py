"""What a packaged EvoX strategy chooses from the population of a simulated run."""

from collections.abc import Sequence
from functools import lru_cache
from random import Random
from typing import Protocol, cast

from costada.nodes.evox.strategies import StrategyRecord, initial_strategy
from costada.plugins.lab.landscape.answers import Request, packaged_strategies
from costada.plugins.lab.landscape.landscape import Wording
from costada.values.candidate import LandedCandidate

LABEL_WORDING = {
    "": Wording.BALANCED,
    "diverge": Wording.EXPLORATION,
    "refine": Wording.EXPLOITATION,
}
"""What the labels of an EvoX strategy ask for, in the words of the landscape."""


def chosen_by_strategy(
    strategy: str, population: Sequence[LandedCandidate], num_shown: int, rng: Random
) -> Request:
    """The parent, and how many programs beside it, that a strategy chooses at the launch.

    Args:
        strategy: Name of a packaged strategy, "" for the initial one.
        population: Every valid candidate, in the order of landing.
        num_shown: Most programs beside the parent.
        rng: Draws what the strategy draws.
    """
    searcher = _strategy_class(strategy)()
    for landed in population:
        candidate = landed.candidate
        searcher.add(
            StrategyRecord(
                id=candidate.id,
                code=candidate.program.text,
                score=candidate.score,
                metrics=dict(candidate.metrics),
                error=candidate.error,
                parent_id=candidate.parent_id,
                iteration=landed.iteration,
                generation=candidate.generation,
            )
        )
    parent_id, label, others = searcher.select(num_shown, rng)
    parent = next(each.candidate for each in population if each.candidate.id == parent_id)
    return Request(parent, len(others), LABEL_WORDING[label])


class Strategy(Protocol):
    """What the class in the text of an EvoX strategy offers."""

    def add(self, record: StrategyRecord) -> None:
        """Add a candidate to the population."""

    def select(self, n_context: int, rng: Random) -> tuple[str, str, list[str]]:
        """The id of the parent, a label and the ids of the context."""


@lru_cache(maxsize=16)
def _strategy_class(name: str) -> type[Strategy]:
    """The class in a packaged strategy, the initial one for ""; a model's text never runs here."""
    namespace: dict[str, object] = {}
    text = packaged_strategies()[name] if name else initial_strategy()
    exec(text, namespace)  # noqa: S102  a text of this package
    return cast(type[Strategy], namespace["Strategy"])

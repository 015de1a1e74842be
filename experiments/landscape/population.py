"""EvoX in a fast simulation: the population of a run, and strategies that choose from it.

Only texts that come with the package run here, in this process; what a model writes never does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from random import Random
from typing import Protocol, cast

from costada.controller.archive import Candidate
from costada.evaluators.strategies import Selection, StrategyRecord, initial_strategy

_STRATEGIES = files("costada.models") / "offline" / "strategies"


class Strategy(Protocol):
    """What the class in a strategy's text offers."""

    def add(self, record: StrategyRecord) -> None:
        """Learn of a candidate."""
        ...

    def select(self, n_context: int, rng: Random) -> tuple[str, str, list[str]]:
        """Return the id of the parent, a label and the ids of the context."""
        ...


@lru_cache(maxsize=1)
def packaged_strategies() -> Mapping[str, str]:
    """Return the texts that an evolution may bring, by name."""
    texts = (file for file in _STRATEGIES.iterdir() if file.name.endswith(".txt"))
    return {file.name: file.read_text(encoding="utf-8") for file in sorted(texts, key=str)}


def chosen_sources(
    strategy: str, population: Sequence[Candidate], count: int, rng: Random
) -> Selection:
    """Return what a strategy chooses from the candidates of a run.

    Args:
        strategy: Name of a packaged strategy; "" for the initial one.
        population: The candidates, in the order of their iterations.
        count: Most candidates the context may hold.
        rng: Source of randomness.
    """
    searcher = _strategy_class(strategy)()
    for candidate in population:
        searcher.add(_record(candidate))
    parent_id, label, context_ids = searcher.select(count, rng)
    return Selection(parent_id, label, tuple(context_ids))


def _record(candidate: Candidate) -> StrategyRecord:
    return StrategyRecord(
        id=candidate.id,
        code=candidate.code,
        score=candidate.score,
        metrics=dict(candidate.metrics),
        error=candidate.error,
        parent_id=candidate.parent_id,
        iteration=candidate.iteration,
        generation=candidate.generation,
    )


@lru_cache(maxsize=16)
def _strategy_class(name: str) -> type[Strategy]:
    namespace: dict[str, object] = {}
    text = packaged_strategies()[name] if name else initial_strategy()
    exec(text, namespace)  # noqa: S102  a text of this package
    return cast(type[Strategy], namespace["Strategy"])

"""What a packaged EvoX strategy chooses from the population of a simulated run."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from random import Random
from typing import Protocol, Self, cast

from costada.controller.constants import Constants
from costada.controller.method import Controller
from costada.controller.methods import ENTRY_POINTS
from costada.plugins.lab.landscape.landscape import Wording
from costada.plugins.lab.landscape.landscape_answers import Request, packaged_strategies
from costada.values.candidate import LandedCandidate
from costada.values.plugins import plugins_of

LABEL_WORDING = {
    "": Wording.BALANCED,
    "diverge": Wording.EXPLORATION,
    "refine": Wording.EXPLOITATION,
}
"""What the labels of an EvoX strategy ask for, in the words of the landscape."""


def choose_by_strategy(
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
            {
                "id": candidate.id,
                "code": candidate.program.text,
                "score": candidate.score,
                "metrics": dict(candidate.metrics),
                "error": candidate.error,
                "parent_id": candidate.parent_id,
                "iteration": landed.iteration,
                "generation": candidate.generation,
            }
        )
    parent_id, label, others = searcher.select(num_shown, rng)
    parent = next(each.candidate for each in population if each.candidate.id == parent_id)
    scores = {each.candidate.id: each.candidate.score for each in population}
    return Request(parent, tuple(scores[name] for name in others), LABEL_WORDING[label])


class DrawnStrategy(Protocol):
    """A strategy that an evolution improves on."""

    @property
    def strategy(self) -> str:
        """Name of its text."""


class Evolving(Controller, Protocol):
    """What the controller of EvoX offers, which another plug-in holds."""

    @property
    def strategy(self) -> str:
        """Name of the strategy in use."""

    def with_labels(self) -> Self:
        """The controller after the label call."""

    def review(self, score: float | None, constants: Constants) -> Self:
        """The controller before a step is told, which may ask for an evolution."""

    def draw_strategies(
        self, rng: Random, constants: Constants
    ) -> tuple[DrawnStrategy, tuple[DrawnStrategy, ...]]:
        """The strategy to improve on, and those shown beside it."""

    def adopt(self, strategy: str, constants: Constants) -> Self:
        """The controller with a new strategy in use."""

    def keep_strategy(self, constants: Constants) -> Self:
        """The controller after an evolution that brought no valid strategy."""


def as_evolving(controller: Controller) -> Evolving | None:
    """A controller whose strategy chooses the parents; None for any other."""
    is_evolving = hasattr(controller, "draw_strategies")
    return cast(Evolving, controller) if is_evolving else None


def initial_strategy() -> str:
    """The strategy that a run of EvoX begins with."""
    plugin = plugins_of(ENTRY_POINTS)["evox"]
    return str(import_module(f"{plugin.module}.strategies").initial_strategy())


class Strategy(Protocol):
    """What the class in the text of an EvoX strategy offers."""

    def add(self, record: Mapping[str, object]) -> None:
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

"""What a run lends its nodes, and the randomness each of them may use."""

from dataclasses import dataclass

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable

from costada.controller.constants import Constants
from costada.controller.methods import METHODS, Method
from costada.controller.money import Balance
from costada.evaluators.problem import Problem
from costada.models.prices import PriceBook
from costada.nodes.settings import Settings
from costada.nodes.state import SearchState
from costada.store.purse import Purse
from costada.store.run_store import RunStore

ChatModel = Runnable[LanguageModelInput, AIMessage]


@dataclass(frozen=True, slots=True)
class RunContext:
    """The models, the problem, the prices and the store of a compiled graph.

    `budget` is dollars (B); a run may have been extended beyond it, or have drawn less from the
    purse in `purse`, see `budget_of`. `prices` knows every model that may answer.
    `is_saved_by_time` tells that the saver takes the latest time for the newest checkpoint.
    """

    name: str
    problem: Problem
    model: ChatModel
    guide_model: ChatModel
    budget: float
    settings: Settings
    prices: PriceBook
    store: RunStore
    purse: Purse | None = None
    is_saved_by_time: bool = True

    @property
    def method(self) -> Method:
        """How the budget is spent."""
        return METHODS[self.settings.method]

    @property
    def constants(self) -> Constants:
        """The method's constants."""
        return self.method.adjusted(self.settings.constants)


def budget_of(state: SearchState, context: RunContext) -> float:
    """Return the dollars the run may spend (B): the graph's, or what the run was extended to.

    Of a run that draws from a purse it is what it was granted.

    Raises:
        ValueError: The run draws from a purse, and the graph has none.
    """
    granted = state.get("granted_budget")
    if granted is not None and context.purse is None:
        raise ValueError(
            "purse: got None for a run that draws from a purse; expected the purse it began with"
        )
    own = context.budget if granted is None else granted
    return max(own, state.get("extended_budget", 0.0))


def balance_of(state: SearchState, context: RunContext) -> Balance:
    """Budget and spending of a run, in dollars, as of the last charge."""
    return Balance(budget_of(state, context), state.get("spent", 0.0))

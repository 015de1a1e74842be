"""What a run lends its nodes, and the randomness each of them may use."""

from dataclasses import dataclass

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable

from costada.controller.method import Controller
from costada.controller.methods import METHODS, Method
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
        """Return how the budget is spent."""
        return METHODS[self.settings.method]


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


def controller_of(state: SearchState, context: RunContext) -> Controller:
    """Return the controller as the state has it, with the budget as it is now."""
    saved = context.method.load(state["controller"], context.settings.constants)
    return saved.with_budget(budget_of(state, context))

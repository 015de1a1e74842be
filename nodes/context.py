"""What a run lends its nodes, and the randomness each of them may use."""

from dataclasses import dataclass
from random import Random

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable

from costada.evaluators.problem import Problem
from costada.nodes.pricing import PriceBook
from costada.nodes.settings import Settings
from costada.store.run_store import RunStore

ChatModel = Runnable[LanguageModelInput, AIMessage]


@dataclass(frozen=True, slots=True)
class RunContext:
    """The models, the problem, the prices and the store of a compiled graph.

    `budget` is dollars (B). `prices` knows every model that may answer.
    """

    name: str
    problem: Problem
    model: ChatModel
    guide_model: ChatModel
    budget: float
    settings: Settings
    prices: PriceBook
    store: RunStore


def draws(seed: int, iteration: int, purpose: str) -> Random:
    """Return the random numbers for one purpose in one iteration, the same on every execution."""
    return Random(f"{seed}/{iteration}/{purpose}")

"""A node that buys something before a step begins, in parts that others may come between."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from langchain_core.runnables import RunnableConfig

from costada.nodes.context import RunContext, SearchRuntime
from costada.nodes.state import SearchState
from costada.prompts.render import Prompt
from costada.values.numbering import TicketNumber

Bought = TypeVar("Bought")


@dataclass(frozen=True, slots=True)
class PaidNode(Generic[Bought]):
    """A node whose call belongs to the step that follows.

    Attributes:
        prompt: Writes the prompt; the same prompt is asked whenever the call is repeated.
        buy: Asks for it under the number of a ticket; changes nothing but the journal.
        accept: The update of the state with what was bought, as it is when that arrives.
    """

    prompt: Callable[[SearchState, RunContext], Prompt]
    buy: Callable[[Prompt, TicketNumber, SearchState, RunnableConfig, RunContext], Bought]
    accept: Callable[[Bought, SearchState, RunContext], SearchState]

    def __call__(
        self, state: SearchState, runtime: SearchRuntime, config: RunnableConfig
    ) -> SearchState:
        """Buy it at once."""
        context, ticket = runtime.context, next_ticket(state)
        bought = self.buy(self.prompt(state, context), ticket, state, config, context)
        return self.accept(bought, state, context)


def next_ticket(state: SearchState) -> TicketNumber:
    """The number of the next ticket."""
    return TicketNumber(state["flight"].last_ticket + 1)

"""How an agent's requests are paid from a purse."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from time import time
from typing import Any
from uuid import uuid4

from langchain_core.language_models import BaseChatModel, LanguageModelInput

from costada.models.capping import HeldBack, announcement, limits
from costada.models.metering import CallMeter, MeteredCall, SentCall
from costada.nodes.affordable import affordable_answer
from costada.nodes.bounds import check_told_cost, sent_bound
from costada.nodes.pricing import PriceBook
from costada.store.purse import Ledger, OverBudget


@dataclass(slots=True)
class Payment:
    """Charges the requests of one model call of an agent, retries and fallbacks included.

    Attributes:
        ledger: Who pays.
        prices: Of every model that may be asked.
        name: What the calls are known by in the purse.
        counts_lost: Whether requests whose bill is unknown count at their upper bound.
    """

    ledger: Ledger
    prices: PriceBook
    name: str
    counts_lost: bool
    _refused: SentCall | None = None
    _sent: dict[int, tuple[str, Decimal]] = field(default_factory=dict)

    def meter(self) -> CallMeter:
        """Return a meter that charges what it hears of."""
        return CallMeter(self.finish, on_start=self.begin)

    def cap(
        self, model: BaseChatModel, given: LanguageModelInput, bound: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the limit of an answer, by every name that the model has for it.

        It is lowered to what can be bought where the purse is hard; else nothing is limited.

        Args:
            model: The chat model that is to be asked.
            given: The prompt.
            bound: What is bound to the model for this request.

        Raises:
            HeldBack: Nothing is left, or a hard purse cannot buy an answer worth having.
            ValueError: The model that is asked has no price.
        """
        left = self.ledger.remaining
        if left <= 0:
            raise HeldBack("not asked: nothing is left")
        if self.ledger.policy != "hard":
            return {}
        asked = announcement(model, given, bound)
        if self._refused and self._refused.model == asked.model:
            longer = max(asked.input_bound, self._refused.input_bound)
            asked = asked._replace(input_bound=longer)
        return limits(model, bound, affordable_answer(asked, left, self.prices))

    def begin(self, sent: SentCall) -> None:
        """Reserve the most that a request can cost, before it leaves.

        Raises:
            OverBudget: The purse refuses it.
            ValueError: The model that is asked has no price.
        """
        key, bound = f"{self.name} {uuid4().hex}", sent_bound(sent, self.prices)
        try:
            self.ledger.begin(key, bound, agent=self.name, model=sent.model)
        except OverBudget:
            self._refused = sent
            raise
        self._sent[sent.number] = key, bound

    def finish(self, call: MeteredCall) -> None:
        """Charge a request that has ended with its tokens, or with its bound if they are unknown.

        Raises:
            ValueError: The provider says that it cost what it cannot have cost.
        """
        key, bound = self._sent.pop(call.number)
        quote = self.prices.quote(call)
        cost = quote.cost(call.input_tokens, call.output_tokens, call.cached_tokens)
        is_in_doubt = call.may_be_billed and self.counts_lost
        self.ledger.put(
            key,
            cost=cost,
            bound=max(bound - cost, Decimal(0)) if is_in_doubt else 0,
            agent=self.name,
            model=call.model,
            input_tokens=call.input_tokens,
            output_tokens=call.output_tokens,
            cached_tokens=call.cached_tokens,
            cache_write_tokens=call.cache_write_tokens,
            cache_write_1h_tokens=call.cache_write_1h_tokens,
            reasoning_tokens=call.reasoning_tokens,
            price_source=quote.source,
            is_estimated=call.is_estimated,
            error=call.error,
            seconds=call.duration,
            ended_at=time(),
        )
        check_told_cost(call.model, quote, bound)

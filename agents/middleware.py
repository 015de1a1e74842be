"""LangChain middleware: an agent whose model calls are paid from a purse."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from functools import partial
from time import time
from typing import Any, get_args
from uuid import uuid4

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables.base import RunnableBindingBase
from tenacity import AsyncRetrying, Retrying

from costada.models.deadline import CallTimeout, run_with_deadline
from costada.models.metering import CallMeter, MeteredCall
from costada.models.prices import PriceBook, price_book
from costada.models.replies import encodable_message
from costada.models.requests import (
    OutgoingRequest,
    RequestNotSent,
    bounded_request,
    limit_parameters,
)
from costada.models.retries import retry_options, without_hidden_retries
from costada.models.retry_policy import RetryPolicy
from costada.models.runnable_tree import model_identity
from costada.nodes.calls.budget import affordable_answer, check_reported_cost, sent_bound
from costada.nodes.settings import LostCalls, check_lost_calls
from costada.store.purse import OverBudget, Purse
from costada.values.prices import Price


@dataclass(slots=True)
class Payment:
    """Charges the requests of one model call of an agent, retries and fallbacks included.

    Attributes:
        purse: Who pays.
        prices: Of every model that may be asked.
        name: What the calls are known by in the purse.
        counts_lost: Whether requests whose bill is unknown count at their upper bound.
    """

    purse: Purse
    prices: PriceBook
    name: str
    counts_lost: bool
    _refused: OutgoingRequest | None = None
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
            RequestNotSent: Nothing is left, or a hard purse cannot buy an answer worth having.
            ValueError: The model that is asked has no price.
        """
        left = self.purse.remaining
        if left <= 0:
            raise RequestNotSent("not asked: nothing is left")
        if self.purse.policy != "hard":
            return {}
        asked = bounded_request(model, given, bound)
        if self._refused and self._refused.model == asked.model:
            longer = max(asked.input_bound, self._refused.input_bound)
            asked = asked._replace(input_bound=longer)
        return limit_parameters(model, bound, affordable_answer(asked, left, self.prices))

    def begin(self, sent: OutgoingRequest) -> None:
        """Reserve the most that a request can cost, before it leaves.

        Raises:
            OverBudget: The purse refuses it.
            ValueError: The model that is asked has no price.
        """
        key, bound = f"{self.name} {uuid4().hex}", sent_bound(sent, self.prices)
        try:
            self.purse.begin(key, bound, agent=self.name, model=sent.model)
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
        cost = quote.cost(call.usage)
        is_in_doubt = call.may_be_billed and self.counts_lost
        self.purse.put(
            key,
            cost=cost,
            bound=max(bound - cost, Decimal(0)) if is_in_doubt else 0,
            agent=self.name,
            model=call.model,
            **asdict(call.usage),
            price_source=quote.source,
            is_estimated=call.is_estimated,
            error=call.error,
            seconds=call.duration,
            ended_at=time(),
        )
        check_reported_cost(call.model, quote, bound)


try:
    from langchain.agents.middleware import (
        AgentMiddleware,
        AgentState,
        ModelRequest,
        ModelResponse,
        hook_config,
    )
except ImportError as error:
    raise ImportError('agents: needs LangChain, run `pip install "costada[agents]"`') from error

OUT_OF_BUDGET = "budget"
"""The finish reason of the message with which an agent ends at its limit."""

Request = ModelRequest[Any]
Answer = ModelResponse[Any]
Refusal = (RequestNotSent, OverBudget)


class BudgetMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Pays an agent's model calls from a purse, and ends the agent politely at its limit.

    `create_agent(model, tools, middleware=[BudgetMiddleware(Purse(0.50))])`: every request, also
    a streamed, repeated or failed one, is reserved before it leaves and charged when it ended.
    Where the purse does not pay for another, the agent's last message says so and what was spent;
    nothing is raised. With a hard purse the answer is limited to what can be bought, so that not
    even the last one exceeds it; else the call that crosses the budget completes.

    Retries hidden in a provider's client become requests of their own. Put it first, and calls
    that other middleware makes around the agent's are paid as well, which is retries and fallbacks;
    models that they or tools ask by themselves need a purse of their own.
    """

    def __init__(
        self,
        purse: Purse,
        *,
        price: Price | None = None,
        other_prices: Mapping[str, Price] | None = None,
        name: str = "agent",
        lost_calls: LostCalls = "count",
        retry_policy: RetryPolicy | None = None,
    ) -> None:
        """Create the middleware of one agent; several may share a purse or draw from one.

        Args:
            purse: Who pays.
            price: The price of the agent's model, the first that is asked; where it is not given
                the packaged price holds.
            other_prices: Those of further models by name.
            name: What the calls are known by in the purse, and the middleware in the agent.
            lost_calls: Whether a call whose bill is unknown counts at its upper bound, as it must
                with a hard purse.
            retry_policy: How long a model call and the waits between its requests may take.

        Raises:
            ValueError: An argument is not what it should be.
        """
        super().__init__()
        if not isinstance(purse, Purse):
            raise ValueError(f"purse: got {purse!r}, expected Purse(BUDGET)")
        if lost_calls not in get_args(LostCalls):
            raise ValueError(f"lost_calls: got {lost_calls!r}, expected 'count' or 'ignore'")
        check_lost_calls(lost_calls, is_hard=purse.policy == "hard")
        self.purse = purse
        self._price, self._other_prices = price, dict(other_prices or {})
        self._name, self._counts_lost = name, lost_calls == "count"
        self._policy = retry_policy or RetryPolicy()
        self._latest: tuple[BaseChatModel, BaseChatModel, int] | None = None
        self._prices = PriceBook({})

    @property
    def name(self) -> str:
        """Return what tells it apart from other middleware of the same agent."""
        return f"BudgetMiddleware[{self._name}]"

    def wrap_model_call(
        self, request: Request, handler: Callable[[Request], Answer]
    ) -> Answer | AIMessage:
        """Return the model's answer, or the agent's last words where the purse does not pay.

        Raises:
            ValueError: The model has no price, or retries by itself where nobody could see it.
            UnmeteredCall: An answer came without token counts.
            CallTimeout: The call has not ended by its deadline.
        """
        request, retries = self._quiet(request)
        payment = self._payment()

        def ask() -> Answer:
            try:
                return _as_read(handler(_limited(request, payment)))
            except OverBudget:  # more is sent than could be seen: the limit takes that in now
                return _as_read(handler(_limited(request, payment)))

        try:
            with payment.meter():
                retrying = Retrying(**self._patience(retries))
                return run_with_deadline(self._policy.call_timeout, partial(retrying, ask))
        except Refusal:
            return self._last_words()

    async def awrap_model_call(
        self, request: Request, handler: Callable[[Request], Awaitable[Answer]]
    ) -> Answer | AIMessage:
        """Return what `wrap_model_call` returns, without blocking the event loop."""
        request, retries = self._quiet(request)
        payment = self._payment()

        async def ask() -> Answer:
            try:
                return _as_read(await handler(_limited(request, payment)))
            except OverBudget:
                return _as_read(await handler(_limited(request, payment)))

        try:
            with payment.meter():
                async with asyncio.timeout(self._policy.call_timeout) as deadline:
                    return await AsyncRetrying(**self._patience(retries))(ask)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise CallTimeout(self._policy.call_timeout) from None
        except Refusal:
            return self._last_words()

    @hook_config(can_jump_to=["end"])
    def after_model(self, state: AgentState[Any], runtime: Any) -> dict[str, Any] | None:
        """Return the way to the end after the agent's last words, nothing otherwise."""
        said = state["messages"][-1]
        is_over = said.response_metadata.get("finish_reason") == OUT_OF_BUDGET
        return {"jump_to": "end"} if isinstance(said, AIMessage) and is_over else None

    def _payment(self) -> Payment:
        return Payment(self.purse, self._prices, self._name, self._counts_lost)

    def _quiet(self, request: Request) -> tuple[Request, int]:
        """Return the request to a model that hides nothing and has a price, and its retries."""
        given, latest = request.model, self._latest
        if latest is None or latest[0] is not given:
            self._price_model(given)
            self._latest = latest = (given, *without_hidden_retries(given))
        _, quiet, retries = latest
        return request.override(model=quiet), retries

    def _price_model(self, model: BaseChatModel) -> None:
        """Look a model's price up if it is new; the price given is that of the first."""
        known = self._prices.quotes
        if model_identity(model).name not in known:
            book = price_book([(model, None if known else self._price)], self._other_prices)
            self._prices = PriceBook({**known, **book.quotes})

    def _patience(self, retries: int) -> dict[str, Any]:
        policy = self._policy
        options = retry_options(1 + retries, policy.retry_wait, policy.longest_wait)
        return {**options, "reraise": True}

    def _last_words(self) -> AIMessage:
        left = max(self.purse.remaining, Decimal(0))
        return AIMessage(
            f"I stop here: my budget of ${self.purse.budget:.4f} does not pay for another answer"
            f" (spent: ${self.purse.spent:.4f}, left: ${left:.4f}).",
            response_metadata={"finish_reason": OUT_OF_BUDGET},
        )


def _limited(request: Request, payment: Payment) -> Request:
    """Return the request with the limit that the purse sets to its answer."""
    messages = list(request.messages)
    if request.system_message:
        messages.insert(0, request.system_message)
    cap = payment.cap(request.model, messages, _bound(request))
    return request.override(model_settings={**request.model_settings, **cap}) if cap else request


def _as_read(answer: Answer) -> Answer:
    """Return an answer that the agent's next request can hold."""
    told = [
        encodable_message(each) if isinstance(each, AIMessage) else each for each in answer.result
    ]
    return replace(answer, result=told)


def _bound(request: Request) -> Mapping[str, Any]:
    """Return what the agent binds to its model, as far as a middleware can see it."""
    if not request.tools:
        return request.model_settings
    bound = request.model.bind_tools(
        request.tools, tool_choice=request.tool_choice, **request.model_settings
    )
    return bound.kwargs if isinstance(bound, RunnableBindingBase) else request.model_settings

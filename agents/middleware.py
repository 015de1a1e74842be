"""LangChain middleware that pays an agent's model calls from a purse."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from time import time
from typing import Any, get_args
from uuid import uuid4

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables.base import RunnableBindingBase

from costada.models.asking import RequestNotSent, limit_parameters
from costada.models.event_loop import deadline, run
from costada.models.metering import CallMeter, MeteredCall
from costada.models.prices import PriceBook, price_book
from costada.models.providers import RetryPolicy
from costada.models.rate_limits import request_queue
from costada.models.reply_content import encodable_message
from costada.models.retries import Retries, without_hidden_retries
from costada.models.runnable_tree import AskedModel, OutgoingRequest, bounded_request
from costada.nodes.calls.bounds import check_reported_cost, check_service_tier, sent_bound
from costada.nodes.calls.budget import affordable_answer
from costada.nodes.settings import LostCalls, check_lost_calls
from costada.store.accounts import OverBudget
from costada.store.purse import Purse
from costada.values.usage import Price, exactly

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


@dataclass(slots=True)
class Payment:
    """Charges the requests of one model call of an agent, including retries and fallbacks.

    Attributes:
        purse: Pays for the requests.
        prices: The prices of all models of the agent.
        name: The name of the calls in the purse.
        counts_lost: Whether requests with an unknown outcome count at their upper bound.
        refused: The last request that the purse refused because of its upper bound.
    """

    purse: Purse
    prices: PriceBook
    name: str
    counts_lost: bool
    refused: OutgoingRequest | None = None
    _reserved: dict[int, tuple[str, Decimal]] = field(default_factory=dict)

    def limited(self, request: Request) -> Request:
        """The request with the limit that the purse sets to its answer.

        A hard purse limits the answer to what it can pay for; others do not limit it.

        Raises:
            RequestNotSent: Nothing is left, or a hard purse cannot pay for a useful answer.
            ValueError: The model has no price.
        """
        left = self.purse.remaining
        if left <= 0:
            raise RequestNotSent("not asked: nothing is left")
        if self.purse.policy != "hard":
            return request
        prompt = list(request.messages)
        if request.system_message:
            prompt.insert(0, request.system_message)
        # What the agent binds to its model, as far as a middleware can see it.
        bound: Mapping[str, Any] = request.model_settings
        if request.tools:
            binding = request.model.bind_tools(
                request.tools, tool_choice=request.tool_choice, **request.model_settings
            )
            bound = binding.kwargs if isinstance(binding, RunnableBindingBase) else bound
        asked = bounded_request(request.model, prompt, bound)
        if self.refused and self.refused.model == asked.model:
            longer = max(asked.input_bound, self.refused.input_bound)
            asked = asked._replace(input_bound=longer)
        cap = limit_parameters(request.model, bound, affordable_answer(asked, left, self.prices))
        return request.override(model_settings={**request.model_settings, **cap})

    def begin(self, sent: OutgoingRequest) -> None:
        """Reserve the upper bound of a request before it leaves.

        Raises:
            OverBudget: The purse refuses it.
            ValueError: The model has no price.
        """
        key, bound = f"{self.name} {uuid4().hex}", sent_bound(sent, self.prices)
        try:
            self.purse.begin(key, bound, agent=self.name, model=sent.model)
        except OverBudget:
            self.refused = sent
            raise
        self._reserved[sent.number] = key, bound

    @exactly
    def finish(self, call: MeteredCall) -> None:
        """Charge an ended request for its tokens, or at its bound if they are unknown.

        Raises:
            ValueError: The provider reports a cost above the bound.
        """
        key, bound = self._reserved.pop(call.request.number)
        quote = self.prices.quote(call)
        cost = quote.cost(call.usage)
        is_in_doubt = call.may_be_billed and self.counts_lost
        self.purse.put(
            key,
            cost=cost,
            bound=max(bound - cost, Decimal(0)) if is_in_doubt else 0,
            agent=self.name,
            model=call.request.model,
            **asdict(call.usage),
            price_source=quote.source,
            is_estimated=call.is_estimated,
            error=call.error,
            seconds=call.duration,
            ended_at=time(),
        )
        check_reported_cost(call.request.model, quote, bound)
        check_service_tier(call, self.prices, cost, bound)


class BudgetMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Pays an agent's model calls from a purse, and ends the agent with a message at its limit.

    `create_agent(model, tools, middleware=[BudgetMiddleware(Purse(0.50))])`: every request, also a
    streamed, repeated or failed one, is reserved before it leaves and charged when it has ended.
    When the purse does not pay for another one, the agent's last message says so and what was
    spent; nothing is raised. With a hard purse each answer is limited to what the purse can pay
    for, so that even the last one stays within the budget; otherwise the call that crosses the
    budget completes.

    Retries hidden in a provider's client become separate requests. Put it first: then calls that
    other middleware makes around the agent's are paid as well, which are retries and fallbacks.
    Models that middleware or tools call on their own need a separate purse.
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
        """Create the middleware of one agent; several agents may share a purse.

        Args:
            purse: Pays for the calls.
            price: The price of the agent's model, the first that is called; by default the list
                price.
            other_prices: Prices of further models by name.
            name: The name of the calls in the purse, and of the middleware in the agent.
            lost_calls: Whether a call with an unknown outcome counts at its upper bound; a hard
                purse requires it.
            retry_policy: How long a model call and the waits between its requests may take.

        Raises:
            ValueError: An argument is wrong.
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
        """The name of this middleware in its agent."""
        return f"BudgetMiddleware[{self._name}]"

    def wrap_model_call(
        self, request: Request, handler: Callable[[Request], Answer]
    ) -> Answer | AIMessage:
        """The model's answer, or the agent's last message if the purse does not pay.

        Raises:
            ValueError: The model has no price, or hides its retries.
            UnmeteredCall: A response has no token counts.
            CallTimeout: The call has not ended by its deadline.
        """

        async def in_thread(request: Request) -> Answer:
            return await asyncio.to_thread(handler, request)

        return run(self.awrap_model_call(request, in_thread))

    async def awrap_model_call(
        self, request: Request, handler: Callable[[Request], Awaitable[Answer]]
    ) -> Answer | AIMessage:
        """`wrap_model_call` without blocking the event loop."""
        request, payment, retries = self._prepare(request)
        queue = request_queue(request.model, self._policy, request.model_settings)

        async def send() -> Answer:
            return _encodable(await handler(await asyncio.to_thread(payment.limited, request)))

        async def attempt() -> Answer:
            try:
                return await queue.send(send)
            except OverBudget:  # the request was longer than it seemed: now its length is known
                return await queue.send(send)

        try:
            with CallMeter(payment.finish, on_start=payment.begin):
                async with deadline(self._policy.call_timeout):
                    return await retries.send(attempt)
        except Refusal as refusal:
            return self._last_message(payment, refusal)

    @hook_config(can_jump_to=["end"])
    def after_model(self, state: AgentState[Any], runtime: Any) -> dict[str, Any] | None:
        """Jump to the end after the agent's last message."""
        last = state["messages"][-1]
        is_over = isinstance(last, AIMessage) and (
            last.response_metadata.get("finish_reason") == OUT_OF_BUDGET
        )
        return {"jump_to": "end"} if is_over else None

    def _prepare(self, request: Request) -> tuple[Request, Payment, Retries]:
        """The request to a model without hidden retries, its payment, and how it is retried."""
        given, latest = request.model, self._latest
        if latest is None or latest[0] is not given:
            known = self._prices.prices
            if AskedModel(given).name not in known:
                # The price given is that of the first model.
                book = price_book([(given, None if known else self._price)], self._other_prices)
                self._prices = PriceBook({**known, **book.prices})
            self._latest = latest = (given, *without_hidden_retries(given))
        _, model, hidden = latest
        payment = Payment(self.purse, self._prices, self._name, self._counts_lost)
        retries = Retries(1 + hidden, self._policy.retry_wait, self._policy.longest_wait)
        return request.override(model=model), payment, retries

    def _last_message(self, payment: Payment, refusal: Exception) -> AIMessage:
        left = max(self.purse.remaining, Decimal(0))
        most = ""
        if isinstance(refusal, OverBudget) and payment.refused:
            most = f", which can cost up to ${sent_bound(payment.refused, self._prices):.4f}"
        return AIMessage(
            f"I stop here: my budget of ${self.purse.budget:.4f} does not pay for another answer"
            f"{most} (spent: ${self.purse.spent:.4f}, left: ${left:.4f}).",
            response_metadata={"finish_reason": OUT_OF_BUDGET},
        )


def _encodable(answer: Answer) -> Answer:
    """An answer that the agent's next request can contain."""
    messages = [
        encodable_message(each) if isinstance(each, AIMessage) else each for each in answer.result
    ]
    return replace(answer, result=messages)

"""Ways of asking a model, through the real `ask_model`, against a server with its own bill."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from functools import reduce
from operator import add
from typing import Any

import pytest
from billing_server import Bill, BillingServer
from fakes import toy_problem
from impatience import PATIENCE
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr

from costada.models import asking
from costada.models.asking import ModelFailure
from costada.models.event_loop import run
from costada.models.menu import ModelEntry
from costada.models.metering import MeteredCall
from costada.models.prices import PriceBook, packaged_price, price_book
from costada.models.providers import RetryPolicy
from costada.models.retries import with_visible_requests
from costada.nodes.calls.paid_calls import ask_model
from costada.nodes.context import PricedModel, RunContext
from costada.nodes.settings import Settings
from costada.prompts.render import Prompt
from costada.store.call_log import CallKey
from costada.store.rows import CallRow
from costada.store.run_store import RunStore
from costada.values.usage import NO_TOKENS, Price

CAP = 1000
PRICE = Price(1, 2, "0.25")
KEY = CallKey("run", 1, "generation", 1)
PROMPT = Prompt("be brief", "improve it")
INPUT_BOUND = len("be brief" + "improve it") + 64


class Point(BaseModel):
    """A point on a line, at a whole number of steps from its start."""

    x: int


Way = Callable[[BillingServer], Any]


def client(server: BillingServer, **options: Any) -> ChatOpenAI:
    settings: dict[str, Any] = {
        "model": "stand-in",
        "base_url": server.url,
        "max_retries": 0,
        "max_tokens": CAP,
        "timeout": PATIENCE,
        "stream_usage": True,
        "api_key": SecretStr("none"),
        "default_headers": {"Connection": "close"},
    }
    return ChatOpenAI(**{**settings, **options})


def context_for(
    model: Any,
    *,
    is_listed: bool = False,
    prices: PriceBook | None = None,
    on_missing_usage: Any = "raise",
) -> RunContext:
    """A context whose prices were given, or are those of a list."""
    listed = packaged_price("gpt-5.4-mini", "openai", None)
    assert listed is not None
    given = prices or price_book([(model, PRICE)], {"second": PRICE})
    return RunContext(
        name="metered",
        problem=toy_problem(),
        menu=(
            PricedModel(
                ModelEntry(name="model", model="stand-in"),
                model,
                PriceBook({"stand-in": listed}) if is_listed else given,
            ),
        ),
        budget=1.0,
        settings=Settings(on_missing_usage=on_missing_usage),
        store=RunStore(),
    )


def ask(model: Any, messages: Any, config: Any, *policy: RetryPolicy) -> AIMessage | ModelFailure:
    """Ask a model in the loop of paid calls, and wait for its answer."""
    return run(asking.ask(model, messages, config, *policy))


def asked(context: RunContext, config: RunnableConfig | None = None) -> AIMessage | ModelFailure:
    return ask_model(context.menu[0], PROMPT, KEY, config or {}, context)


def rows_of(context: RunContext) -> list[CallRow]:
    return list(context.store.call_log.calls(KEY.run_id))


def charged(context: RunContext) -> Decimal:
    return context.store.ledger.charge(KEY.run_id, 1, [1]).spent


def dollars(entry: Bill) -> Decimal:
    """What an entry of the bill costs, worked out without our code."""
    if entry.cost is not None:
        return Decimal(str(entry.cost))
    fresh, cached = entry.input_tokens - entry.cached_tokens, Decimal(entry.cached_tokens)
    return (fresh + cached / 4 + Decimal(entry.output_tokens) * 2) / 1_000_000


def billed(server: BillingServer) -> Decimal:
    return sum(map(dollars, server.bill), Decimal(0))


def assert_exact(context: RunContext, server: BillingServer) -> None:
    """Rows and bill are the same, and the rows say they are sure."""
    rows = rows_of(context)
    assert sorted(row.cost for row in rows if row.cost) == sorted(map(dollars, server.bill))
    assert not any(row.bound or row.is_in_doubt or row.is_estimated for row in rows)
    assert charged(context) == billed(server)


def assert_in_doubt(context: RunContext, server: BillingServer) -> None:
    """Only exact rows say they are sure, and what is charged covers the bill."""
    rows, entries = rows_of(context), [dollars(entry) for entry in server.bill]
    assert any(row.is_in_doubt for row in rows)
    assert all(row.is_in_doubt or row.cost in (0, *entries) for row in rows)
    assert charged(context) >= billed(server)


def as_billed(calls: list[MeteredCall]) -> list[Bill]:
    """What a meter reports as what a server bills, to compare the two."""
    used = [(call.request.model, call.usage) for call in calls if call.usage != NO_TOKENS]
    return [
        Bill(
            model,
            usage.input_tokens,
            usage.output_tokens,
            usage.cached_tokens,
            usage.reasoning_tokens,
        )
        for model, usage in used
    ]


def through(how: Callable[..., Any], **options: Any) -> Way:
    """A way that passes the client to a function of it, the prompt and the config."""

    def way(server: BillingServer) -> Any:
        model = client(server, **options)
        return RunnableLambda(lambda prompt, config: how(model, prompt, config))

    return way


def plain(**options: Any) -> Way:
    return lambda server: client(server, **options)


def without_client_retries(**options: Any) -> Way:
    policy = RetryPolicy(retry_wait=1e-9)
    return lambda server: with_visible_requests(client(server, **options), policy)


def structured(schema: Any, *, options: Any = None, **how: Any) -> Way:
    return lambda server: (
        client(server, **(options or {})).with_structured_output(schema, **how)
        | RunnableLambda(lambda found: AIMessage(str(found)))
    )


def first_then_second(server: BillingServer) -> Any:
    return client(server).with_fallbacks([client(server, model="second")])


def retried(server: BillingServer) -> Any:
    return client(server).with_retry(stop_after_attempt=3, wait_exponential_jitter=False)


def streamed(model: Any, prompt: Any, config: Any) -> Any:
    return reduce(add, model.stream(prompt, config))


def streamed_asynchronously(model: Any, prompt: Any, config: Any) -> Any:
    async def read() -> Any:
        return reduce(add, [chunk async for chunk in model.astream(prompt, config)])

    return asyncio.run(read())


def left_early(model: Any, prompt: Any, config: Any) -> Any:
    return next(model.stream(prompt, config))


async def given_up(server: BillingServer, asking: Coroutine[Any, Any, Any]) -> Any:
    """Cancel what asks once its request has arrived; raises `TimeoutError`."""
    task = asyncio.ensure_future(asking)
    while not server.requests:
        await asyncio.sleep(0.01)
    task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        raise TimeoutError from None


def cancelled(server: BillingServer) -> Any:
    model = client(server)
    return RunnableLambda(
        lambda prompt, config: asyncio.run(given_up(server, model.ainvoke(prompt, config)))
    )


def in_other_threads(model: Any, prompt: Any, config: Any) -> Any:
    with ThreadPoolExecutor() as pool:
        return pool.submit(model.invoke, prompt).result()


def asked_twice(model: Any, prompt: Any, config: Any) -> Any:
    return [model.invoke(prompt, config) for _ in range(2)][-1]


def agent_loop(model: Any, prompt: Any, config: Any) -> Any:
    agents = pytest.importorskip(
        "langchain.agents", reason="langchain is not installed: pip install 'costada[agents]'"
    )

    def shout(text: str) -> str:
        """Return the text in capitals."""
        return text.upper()

    agent = agents.create_agent(model, [shout])
    return agent.invoke({"messages": prompt}, config)["messages"][-1]

"""Asks through the real `ask_model` and sets the rows it leaves against the server's own bill."""

from decimal import Decimal
from typing import Any

from billing_server import Bill, BillingServer
from fakes import toy_problem
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from costada.models.asking import ModelFailure
from costada.models.prices import PriceBook, packaged_price, price_book
from costada.nodes.calls.asking import ask_model
from costada.nodes.context import RunContext
from costada.nodes.settings import Settings
from costada.prompts.render import Prompt
from costada.store.call_log import CallKey
from costada.store.rows import CallRow
from costada.store.run_store import RunStore
from costada.values.prices import Price

CAP = 1000
PRICE = Price(1, 2, "0.25")
KEY = CallKey("run", 1, "generation", 1)
PROMPT = Prompt("be brief", "improve it")
INPUT_BOUND = len("be brief" + "improve it") + 64


def client(server: BillingServer, **options: Any) -> ChatOpenAI:
    settings: dict[str, Any] = {
        "model": "stand-in",
        "base_url": server.url,
        "max_retries": 0,
        "max_tokens": CAP,
        "timeout": 5.0,
        "stream_usage": True,
    }
    return ChatOpenAI(
        **{**settings, **options},
        api_key=SecretStr("none"),
        default_headers={"Connection": "close"},
    )


def desk(model: Any, *, is_listed: bool = False, on_missing_usage: Any = "raise") -> RunContext:
    """Return a context whose prices were given, or are those of a list."""
    listed = packaged_price("gpt-5.4-mini", "openai", None)
    assert listed is not None
    given = price_book([(model, PRICE)], {"second": PRICE})
    return RunContext(
        name="desk",
        problem=toy_problem(),
        model=model,
        guide_model=model,
        budget=1.0,
        settings=Settings(on_missing_usage=on_missing_usage),
        prices=PriceBook({"stand-in": listed}) if is_listed else given,
        store=RunStore(),
    )


def asked(context: RunContext, config: RunnableConfig | None = None) -> AIMessage | ModelFailure:
    return ask_model(context.model, PROMPT, KEY, config or {}, context)


def rows_of(context: RunContext) -> list[CallRow]:
    return list(context.store.call_log.calls(KEY.run_id))


def dollars(entry: Bill) -> Decimal:
    """Return what an entry of the bill costs, worked out without our code."""
    if entry.cost is not None:
        return Decimal(str(entry.cost))
    tokens = (
        Decimal(entry.input_tokens - entry.cached_tokens)
        + Decimal(entry.cached_tokens) / 4
        + Decimal(entry.output_tokens) * 2
    )
    return tokens / 1_000_000


def billed(server: BillingServer) -> Decimal:
    return sum(map(dollars, server.bill), Decimal(0))


def assert_exact(context: RunContext, server: BillingServer) -> None:
    """Check that rows and bill are the same, and that the rows say they are sure."""
    rows = rows_of(context)
    assert sorted(row.cost for row in rows if row.cost) == sorted(map(dollars, server.bill))
    assert not any(row.bound or row.is_in_doubt or row.is_estimated for row in rows)
    assert context.store.call_log.charge(KEY.run_id, 1).spent == billed(server)


def assert_in_doubt(context: RunContext, server: BillingServer) -> None:
    """Check that only exact rows say they are sure, and that what is charged covers the bill."""
    rows, entries = rows_of(context), [dollars(entry) for entry in server.bill]
    assert any(row.is_in_doubt for row in rows)
    assert all(row.is_in_doubt or row.cost in (0, *entries) for row in rows)
    assert context.store.call_log.charge(KEY.run_id, 1).spent >= billed(server)

"""What is written to a provider's prompt cache, from LangChain's metadata to the ledger."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from asking_desk import KEY, asked, desk
from fakes import ScriptedModel, hashed_answer

from costada.models.metering import CallMeter, MeteredCall
from costada.models.prices import price_book
from costada.values.prices import Price


class Caching(ScriptedModel):
    """Tells its counts as langchain-anthropic does: those of the cache are part of the input."""

    input_tokens: int = 1000
    output_tokens: int = 10
    details: dict[str, int]

    def _get_ls_params(self, stop: Any = None, **kwargs: Any) -> Any:
        return {"ls_provider": "anthropic", "ls_model_name": "claude-sonnet-4-5"}

    def _usage(self) -> Any:
        return super()._usage() | {"input_token_details": self.details}


def caching(**details: int) -> Caching:
    return Caching(answer=hashed_answer, details=details)


WRITTEN = {"cache_creation": 1000, "ephemeral_5m_input_tokens": 1000}
FOR_AN_HOUR = {"cache_creation": 0, "ephemeral_1h_input_tokens": 1000}


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_meter_reports_what_was_written(calls: list[MeteredCall], is_streamed: bool) -> None:
    model, config = caching(**FOR_AN_HOUR, cache_read=0), {"callbacks": [CallMeter(calls.append)]}
    list(model.stream("hi", config)) if is_streamed else model.invoke("hi", config)
    (call,) = calls
    counts = (
        call.usage.input_tokens,
        call.usage.cache_write_tokens,
        call.usage.cache_write_1h_tokens,
    )
    assert counts == (1000, 1000, 1000)


@pytest.mark.parametrize(
    ("details", "price", "dollars"),
    [
        (WRITTEN, None, "0.0039"),
        (FOR_AN_HOUR, None, "0.00615"),
        (WRITTEN, Price(3, 15, "0.3"), "0.00315"),
    ],
    ids=["listed", "listed, for an hour", "given"],
)
def test_a_call_is_charged_what_its_cache_writes_cost(
    details: dict[str, int], price: Price | None, dollars: str
) -> None:
    model = caching(**details)
    context = replace(desk(model), prices=price_book([(model, price)], {}))
    asked(context)
    assert context.store.call_log.charge(KEY.run_id, 1).spent == Decimal(dollars)

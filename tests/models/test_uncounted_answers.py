"""Answers whose tokens no server counted, or counted impossibly: paid for once, and kept."""

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from billing_server import BillingServer, Reply
from langchain_core.messages import AIMessage
from metered_calls import CAP, INPUT_BOUND, asked, charged, client, context_for, rows_of

from costada.models.errors import UnmeteredCall
from costada.nodes.context import RunContext
from costada.nodes.settings import Settings
from costada.store.purse import Purse
from costada.store.rows import CallStatus
from costada.values.usage import Usage

TEXT = "eighteen characters"
ESTIMATE = Decimal(-(-len("be briefimprove it") // 3) + 2 * -(-len(TEXT) // 3)) / 1_000_000
BOUND = Decimal(INPUT_BOUND + 2 * CAP) / 1_000_000
UNUSABLE: list[Any] = [
    None,
    {},
    {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    {"prompt_tokens": -5, "completion_tokens": 3, "total_tokens": -2},
    {"prompt_tokens": 40.0, "completion_tokens": 10.0},
    {"prompt_tokens": "40", "completion_tokens": "10"},
]


def body_with(usage: object) -> bytes:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": TEXT},
        "finish_reason": "stop",
    }
    facts = {"id": "one", "object": "chat.completion", "created": 1, "model": "stand-in"}
    return json.dumps({**facts, "choices": [choice], "usage": usage}).encode()


def with_settings(context: RunContext, **settings: Any) -> RunContext:
    return replace(context, settings=Settings(**settings))


@pytest.mark.filterwarnings("ignore:Unexpected type for token usage:UserWarning")
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")
@pytest.mark.parametrize("usage", UNUSABLE, ids=json.dumps)
def test_an_answer_without_counts_is_asked_for_once_and_used_when_estimates_are_allowed(
    server: BillingServer, usage: object
):
    server.default = Reply(body=body_with(usage))
    context = context_for(client(server))
    for _ in range(3):
        with pytest.raises(UnmeteredCall, match="--on-missing-usage estimate"):
            asked(context)
    (row,) = rows_of(context)
    assert (row.status, row.cost + row.bound) == (CallStatus.UNCOUNTED, BOUND)
    answer = asked(with_settings(context, on_missing_usage="estimate"))
    assert isinstance(answer, AIMessage)
    assert answer.text == TEXT
    (row,) = rows_of(context)
    assert (row.status, row.is_estimated, row.error) == (CallStatus.DONE, True, None)
    assert charged(context) == row.cost == ESTIMATE
    assert len(server.requests) == 1


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_hard_budget_charges_an_answer_without_counts_the_most_that_it_can_have_cost(
    server: BillingServer, is_resumed: bool
):
    server.default = Reply(TEXT, reports_usage=False)
    context = context_for(client(server))
    if is_resumed:
        with pytest.raises(UnmeteredCall):
            asked(with_settings(context, budget_policy="hard"))
    context = with_settings(context, budget_policy="hard", on_missing_usage="estimate")
    assert isinstance(asked(context), AIMessage)
    (row,) = rows_of(context)
    assert (row.cost, row.is_in_doubt) == (ESTIMATE, True)
    assert charged(context) == BOUND
    assert len(server.requests) == 1


def test_the_purse_pays_the_estimate_of_a_stored_answer_once(server: BillingServer):
    server.default = Reply(TEXT, reports_usage=False)
    purse = Purse(1)
    context = replace(context_for(client(server)), purse=purse)
    with pytest.raises(UnmeteredCall):
        asked(context)
    assert purse.child("run", 1.0).spent == BOUND
    asked(with_settings(context, on_missing_usage="estimate"))
    assert purse.child("run", 1.0).spent == ESTIMATE


def test_an_answer_without_choices_is_a_failed_attempt_that_is_kept(server: BillingServer):
    usage = b'{"prompt_tokens": 70, "completion_tokens": 20}'
    server.default = Reply(body=b'{"choices": [], "usage": %s}' % usage)
    context = context_for(client(server))
    assert asked(context) == asked(context)
    (row,) = rows_of(context)
    assert (row.status, row.usage) == (CallStatus.DONE, Usage(70, 20))
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("details", "counted"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 90}}, Usage(130, 10, 90)),
        (
            {"completion_tokens_details": {"reasoning_tokens": 500}},
            Usage(40, 510, reasoning_tokens=500),
        ),
    ],
)
def test_a_part_that_exceeds_its_whole_is_charged_on_top_of_it(
    server: BillingServer, details: dict[str, Any], counted: Usage
):
    usage = {"prompt_tokens": 40, "completion_tokens": 10, "total_tokens": 50}
    server.default = Reply(body=body_with(usage | details))
    context = context_for(client(server))
    asked(context)
    assert [row.usage for row in rows_of(context)] == [counted]


@pytest.mark.parametrize(
    "details",
    [
        {"prompt_tokens_details": {"cached_tokens": 9000}},
        {"completion_tokens_details": {"reasoning_tokens": CAP}},
    ],
)
def test_a_part_that_the_request_cannot_have_caused_ends_the_run(
    server: BillingServer, details: dict[str, Any]
):
    usage = {"prompt_tokens": 40, "completion_tokens": 10, "total_tokens": 50}
    server.default = Reply(body=body_with(usage | details))
    with pytest.raises(UnmeteredCall, match="the server miscounts"):
        asked(context_for(client(server)))

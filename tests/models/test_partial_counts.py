"""Answers whose provider tells their counts in part: real client, server with a bill of its own."""

import json
from typing import Any

import pytest
from asking_desk import (
    CAP,
    INPUT_BOUND,
    asked,
    assert_exact,
    assert_in_doubt,
    client,
    desk,
    rows_of,
)
from billing_server import BillingServer, Reply
from pydantic import BaseModel

from costada.models.errors import UnmeteredCall

CALL = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
TEXT = {"content": "twelve bytes"}
ONLY_PROMPT = {"prompt_tokens": 70, "total_tokens": 70}
NO_OUTPUT = {**ONLY_PROMPT, "completion_tokens": 0}


class Point(BaseModel):
    x: int


def telling(usage: dict[str, int], message: dict[str, Any], outputs: int = CAP) -> Reply:
    """Return an answer that is billed with `outputs` tokens and tells a usage of its own."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    body = {"id": "1", "object": "chat.completion", "created": 0, "model": "stand-in"}
    return Reply(
        input_tokens=usage["prompt_tokens"],
        output_tokens=outputs,
        body=json.dumps(body | {"choices": [choice], "usage": usage}).encode(),
    )


def test_output_that_only_the_total_holds_is_charged(server: BillingServer) -> None:
    server.script(telling({"prompt_tokens": 1000, "total_tokens": 1900}, TEXT, 900))
    context = desk(client(server))
    asked(context)
    assert_exact(context, server)
    assert [row.usage.output_tokens for row in rows_of(context)] == [900]


@pytest.mark.parametrize("usage", [NO_OUTPUT, ONLY_PROMPT], ids=["zero", "left out"])
@pytest.mark.parametrize(
    "message", [TEXT, {"content": None, "tool_calls": [CALL]}], ids=["text", "tool call"]
)
def test_an_answer_of_no_tokens_that_says_something_is_refused(
    server: BillingServer, usage: dict[str, int], message: dict[str, Any]
) -> None:
    server.script(telling({**usage, "prompt_tokens": INPUT_BOUND}, message))
    context = desk(client(server))
    with pytest.raises(UnmeteredCall, match="answered without token counts"):
        asked(context)
    assert_in_doubt(context, server)


def test_an_estimate_keeps_the_counts_that_were_told(server: BillingServer) -> None:
    server.script(telling(NO_OUTPUT, TEXT))
    context = desk(client(server), on_missing_usage="estimate")
    asked(context)
    (row,) = rows_of(context)
    # 12 bytes of answer.
    assert (row.usage.input_tokens, row.usage.output_tokens, row.is_estimated) == (70, 4, True)


@pytest.mark.parametrize("usage", [NO_OUTPUT, ONLY_PROMPT], ids=["zero", "left out"])
def test_an_empty_answer_of_no_tokens_is_exact(
    server: BillingServer, usage: dict[str, int]
) -> None:
    server.script(telling(usage, {"content": ""}, 0))
    context = desk(client(server))
    asked(context)
    assert_exact(context, server)


def test_an_unparsable_answer_of_no_tokens_is_in_doubt(server: BillingServer) -> None:
    server.script(telling({**NO_OUTPUT, "prompt_tokens": INPUT_BOUND}, TEXT))
    context = desk(client(server).with_structured_output(Point))
    asked(context)
    assert_in_doubt(context, server)

"""What a prompt was made of travels beside its text, and no provider is sent it."""

import json

import pytest
from billing_server import BillingServer
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.messages.tool import tool_call
from metered_calls import (
    KEY,
    agent_loop,
    context_for,
    plain,
    streamed,
    streamed_asynchronously,
    structured,
    through,
)

from costada.nodes.calls.paid_calls import Conversation, ask_model
from costada.prompts.render import Prompt
from costada.prompts.requests import KEY as DATA_KEY
from costada.prompts.requests import PromptData, TrialData

MARK = "beside the text"
PROMPT = Prompt("be brief", "improve it", PromptData("generation", MARK, others=(MARK,)))
TRIED = Conversation(PROMPT).followed_by(
    [
        AIMessage("", tool_calls=[tool_call(name="evaluate", args={}, id="c-1")]),
        ToolMessage(
            "It ran.",
            tool_call_id="c-1",
            name="evaluate",
            additional_kwargs=TrialData(MARK, 0.5).kwargs,
        ),
    ]
)
SCHEMA = {"title": "Point", "type": "object", "properties": {"x": {"type": "integer"}}}
WAYS = {
    "plain": plain(),
    "streaming": plain(streaming=True),
    "streamed": through(streamed),
    "streamed asynchronously": through(streamed_asynchronously),
    "responses": plain(use_responses_api=True),
    "responses, streaming": plain(use_responses_api=True, streaming=True),
    "responses, streamed": through(streamed, use_responses_api=True),
    "structured": structured(SCHEMA, method="function_calling"),
    "agent": through(agent_loop),
}


@pytest.mark.parametrize("asked", [Conversation(PROMPT), TRIED], ids=["prompt", "with tools"])
@pytest.mark.parametrize("way", WAYS)
def test_no_request_body_carries_what_a_prompt_was_made_of(way, asked):
    sent = [message.additional_kwargs for message in asked.messages]
    assert any(DATA_KEY in each for each in sent)
    with BillingServer() as server:
        context = context_for(WAYS[way](server))
        ask_model(context.menu[0], asked, KEY, {}, context)
    assert server.requests
    for body in map(json.dumps, server.requests):
        assert "improve it" in body
        assert DATA_KEY not in body
        assert MARK not in body

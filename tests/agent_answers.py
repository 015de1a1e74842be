"""What a model with tools answers: tool calls, and a whole scripted way of working."""

import hashlib
import json
from typing import Any

from billing_server import Reply
from fakes import IDEAS, is_guide_prompt, program, rewrite


def calling(tool: str, *, tokens: tuple[int, int] = (100, 50), **arguments: Any) -> Reply:
    """Return an answer that calls one tool."""
    taken, given = tokens
    return Reply(json.dumps(arguments), tool=tool, input_tokens=taken, output_tokens=given)


def trying(value: float) -> Reply:
    return calling("evaluate_candidate", changes=rewrite(value))


def submitting(candidate: str) -> Reply:
    return calling("submit", candidate=candidate)


def tool_results(body: Any) -> list[str]:
    """Return what the tools have told so far in the conversation of a request."""
    return [str(each["content"]) for each in body["messages"] if each["role"] == "tool"]


def hashed(body: Any) -> bytes:
    """Return a digest of what a request says, whatever ids its tool calls carry."""
    said = [(m["role"], m.get("content"), _called(m)) for m in body["messages"]]
    return hashlib.sha256(json.dumps(said).encode()).digest()


def agent_answer(body: Any) -> Reply:
    """Answer by the conversation alone: try once or twice, then submit, at times fail."""
    prompt = body["messages"][1]["content"]
    draw, told = hashed(body), tool_results(body)
    tokens = len(prompt), 500 + int.from_bytes(draw[4:6], "big") % 3000
    share = int.from_bytes(draw[:4], "big") / 2**32
    if is_guide_prompt(prompt):
        return Reply(IDEAS, input_tokens=tokens[0], output_tokens=tokens[1])
    if share < 0.1:
        return Reply("I would rather not.", input_tokens=tokens[0], output_tokens=tokens[1])
    if share < 0.2:
        return calling("search_archive", tokens=tokens, words="return")
    tried = [text.split()[1] for text in told if text.startswith("Candidate ")]
    if tried and share < 0.6:
        return calling("submit", tokens=tokens, candidate=tried[-1])
    value = share if share > 0.95 else share / 2
    fenced = f"```python\n{program(value)}```"
    return calling("evaluate_candidate", tokens=tokens, changes=fenced)


def _called(message: Any) -> list[Any]:
    return [each["function"] for each in message.get("tool_calls") or []]

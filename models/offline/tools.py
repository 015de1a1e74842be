"""The offline model with tools: it tries its edits before it hands one in."""

import re
from collections.abc import Callable, Sequence
from random import Random

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call

from costada.models.offline.reading import GenerationView, read_prompt

EVALUATE, SEARCH, SUBMIT = "evaluate_candidate", "search_archive", "submit"

SEARCH_RATE = 0.2
"""Share of attempts that begin with a look at the archive."""

MAX_TRIALS = 2
"""Edits that are tried at most before the best of them is handed in."""

_TRIAL = re.compile(r"Candidate (?P<id>\S+)\n+Score: (?P<score>-?[\d.]+)")
_CURRENT = re.compile(r"^Score: (-?[\d.]+)$", re.MULTILINE)


def tool_answer(
    messages: Sequence[BaseMessage], rng: Random, write: Callable[[str, Random], str]
) -> AIMessage | None:
    """Return the next answer of a conversation with tools, None where no program is asked for.

    An edit that raises the score is handed in at once; of two that do not, the better one.

    Args:
        messages: The conversation so far.
        rng: All chance in the answer.
        write: From a prompt to the answer that changes its program.
    """
    prompt = next((each.text for each in messages if isinstance(each, HumanMessage)), "")
    if not isinstance(read_prompt(prompt), GenerationView):
        return None
    told = [each for each in messages if isinstance(each, ToolMessage)]
    if not told and rng.random() < SEARCH_RATE:
        return _call(len(told), SEARCH)
    tried = sum(each.name == EVALUATE for each in told)
    found = [trial for each in told if (trial := _TRIAL.match(each.text))]
    best = max(found, key=lambda each: float(each["score"]), default=None)
    if best is not None and (tried >= MAX_TRIALS or float(best["score"]) > _current(prompt)):
        return _call(len(told), SUBMIT, candidate=best["id"])
    changes = write(prompt, rng)
    if tried >= MAX_TRIALS:
        return AIMessage(changes)
    return _call(len(told), EVALUATE, changes=changes)


def _current(prompt: str) -> float:
    score = _CURRENT.search(prompt)
    return float(score[1]) if score else 0.0


def _call(number: int, name: str, **arguments: str) -> AIMessage:
    call = tool_call(name=name, args=dict(arguments), id=f"offline-{number + 1}")
    return AIMessage("", tool_calls=[call])

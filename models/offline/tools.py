"""The offline model with tools: it tries its edits before it hands one in."""

from collections.abc import Sequence
from random import Random

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.messages.tool import tool_call

from costada.models.offline.answering import answer
from costada.values.prompt_data import PromptData, trial_data

EVALUATE, SEARCH, SUBMIT = "evaluate_candidate", "search_archive", "submit"

SEARCH_RATE = 0.2
"""Share of attempts that begin with a look at the archive."""

MAX_TRIALS = 2
"""Edits that are tried at most before the best of them is handed in."""


def tool_answer(
    messages: Sequence[BaseMessage], asked: PromptData, rng: Random
) -> AIMessage | None:
    """Return the next answer of a conversation with tools, None where no program is asked for.

    An edit that raises the score is handed in at once; of two that do not, the better one.

    Args:
        messages: The conversation so far.
        asked: Data of its prompt.
        rng: All chance in the answer.
    """
    if asked.kind != "generation":
        return None
    told = [each for each in messages if isinstance(each, ToolMessage)]
    if not told and rng.random() < SEARCH_RATE:
        return _call(len(told), SEARCH)
    tried = sum(each.name == EVALUATE for each in told)
    found = [trial for each in told if (trial := trial_data(each.additional_kwargs))]
    best = max(found, key=lambda each: round(each.score, 4), default=None)
    if best is not None and (tried >= MAX_TRIALS or round(best.score, 4) > round(asked.score, 4)):
        return _call(len(told), SUBMIT, candidate=best.candidate)
    changes = answer(asked, rng)
    if tried >= MAX_TRIALS:
        return AIMessage(changes)
    return _call(len(told), EVALUATE, changes=changes)


def _call(number: int, name: str, **arguments: str) -> AIMessage:
    call = tool_call(name=name, args=dict(arguments), id=f"offline-{number + 1}")
    return AIMessage("", tool_calls=[call])

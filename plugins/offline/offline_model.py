"""A chat model that needs neither network nor key."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun, Callbacks
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.messages.tool import tool_call, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult, LLMResult
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import Runnable

from costada.models.chat_models import TICKET, BuiltInModel
from costada.models.reply_content import text_with_tool_calls
from costada.plugins.offline.answers import answer, population_reply
from costada.plugins.offline.conversations import reply
from costada.prompts.requests import PromptData, prompt_data, trial_data
from costada.values.usage import Usage

MODEL_NAME = "offline"

CHARACTERS_PER_TOKEN = 4

MIN_REASONING, MAX_REASONING = 2_400, 4_800
"""Bounds of the hidden tokens of an answer about a program, all integers in them equally likely.

Reasoning models think before they write, and bill it as output. With this allowance a step
costs what one of a mid-sized reasoning model does.
"""

EVALUATE, SEARCH, SUBMIT = "evaluate_candidate", "search_archive", "submit"

SEARCH_RATE = 0.2
"""Share of attempts with tools that begin with a look at the archive."""

MAX_TRIALS = 2
"""Edits that are tried at most before the best of them is submitted."""

_LINES_PER_CHUNK = 4


class OfflineModel(BuiltInModel):
    """A stand-in for a language model in demos, tests and lessons.

    No language model is behind it. It takes the program from the data beside a prompt (see
    `costada.prompts.requests`) and answers with a general edit of it: other numbers, other lines,
    or a search that scores arrays by the program's own function. It knows no benchmark and no
    solution. As a guide it proposes general searches and refinements. One answer in ten fails on
    purpose.

    The same seed, messages and ticket of a run always get the same answer, in any order and on
    any thread; attempts that start from the same prompt differ by their ticket. Run times among
    the metrics of a prompt make no difference, so that a run with the same seed can be repeated.
    Token counts are estimates; `max_tokens`, bound to the model, limits an answer.
    With tools it tries up to two edits and submits the better one.
    """

    @staticmethod
    def population_reply(asked: PromptData, rng: Random) -> str:
        """Its labels, insight or strategy, for another model with no language model behind it."""
        return population_reply(asked, rng)

    @property
    def _llm_type(self) -> str:
        return MODEL_NAME

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: str | None = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """The model with tools, of which it uses those that try and submit programs."""
        return self.bind(tools=list(tools), **kwargs)

    def generate_prompt(
        self,
        prompts: list[PromptValue],
        stop: list[str] | None = None,
        callbacks: Callbacks = None,
        **kwargs: Any,
    ) -> LLMResult:
        """The answers; each knows its ticket also where a graph has it streamed."""
        return super().generate_prompt(prompts, stop, callbacks, **_with_ticket(kwargs))

    async def agenerate_prompt(
        self,
        prompts: list[PromptValue],
        stop: list[str] | None = None,
        callbacks: Callbacks = None,
        **kwargs: Any,
    ) -> LLMResult:
        """The answers, as from `generate_prompt`."""
        return await super().agenerate_prompt(prompts, stop, callbacks, **_with_ticket(kwargs))

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        message = self._reply(messages, stop, _ticket(run_manager, kwargs), kwargs)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        reply = self._reply(messages, stop, _ticket(run_manager, kwargs), kwargs)
        lines = reply.text.splitlines(keepends=True)
        for start in range(0, len(lines), _LINES_PER_CHUNK):
            part = "".join(lines[start : start + _LINES_PER_CHUNK])
            chunk = ChatGenerationChunk(message=AIMessageChunk(content=part))
            if run_manager:
                run_manager.on_llm_new_token(part, chunk=chunk)
            yield chunk
        calls = [
            tool_call_chunk(
                name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=n
            )
            for n, call in enumerate(reply.tool_calls)
        ]
        yield ChatGenerationChunk(
            message=AIMessageChunk(
                content="",
                tool_call_chunks=calls,
                usage_metadata=reply.usage_metadata,
                response_metadata=reply.response_metadata,
                chunk_position="last",
            )
        )

    def _reply(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None,
        ticket: object,
        options: Mapping[str, Any],
    ) -> AIMessage:
        prompt = "\n\n".join(text_with_tool_calls(message) for message in messages)
        rng = self._generator(messages, ticket)
        data = (prompt_data(each.additional_kwargs) for each in messages)
        asked = next((each for each in data if each is not None), None)
        if asked is None:
            message = AIMessage(reply([text_with_tool_calls(message) for message in messages]))
        elif options.get("tools") and asked.kind == "generation":
            message = _with_tools(messages, asked, rng)
        else:
            message = AIMessage(answer(asked, rng))
        text, calls = text_with_tool_calls(message), message.tool_calls
        text = text[: min([text.find(word) for word in stop or [] if word in text], default=None)]
        reasoning = 0 if asked is None else rng.randint(MIN_REASONING, MAX_REASONING)
        reason = "tool_calls" if calls else "stop"
        limit = options.get("max_tokens")
        if limit is not None and estimated_tokens(text) + reasoning > limit:
            # the reasoning comes first, so a low limit leaves no text
            reasoning = min(limit, reasoning)
            text = text[: (limit - reasoning) * CHARACTERS_PER_TOKEN]
            calls, reason = [], "length"
        tokens = Usage(
            estimated_tokens(prompt),
            estimated_tokens(text) + reasoning,
            reasoning_tokens=reasoning,
        )
        return self._message("" if calls else text, tokens, reason, calls)


def _with_ticket(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a call with its ticket among them.

    LangChain streams an answer whose messages a graph streams, and passes `_stream` no metadata.
    """
    metadata = options.get("metadata") or {}
    return {**options, TICKET: metadata[TICKET]} if TICKET in metadata else options


def _ticket(run_manager: CallbackManagerForLLMRun | None, options: Mapping[str, Any]) -> object:
    """The ticket that a call was made for, None outside of a run."""
    metadata = run_manager.metadata if run_manager else {}
    return options.get(TICKET, metadata.get(TICKET))


def _with_tools(messages: Sequence[BaseMessage], asked: PromptData, rng: Random) -> AIMessage:
    """The next answer of a conversation with tools, which tries its edits before it submits one.

    An edit that raises the score is submitted at once; of two that do not, the better one. Scores
    count as the prompt shows them, with four decimals.
    """
    results = [each for each in messages if isinstance(each, ToolMessage)]

    def call(name: str, **arguments: str) -> AIMessage:
        made = tool_call(name=name, args=dict(arguments), id=f"offline-{len(results) + 1}")
        return AIMessage("", tool_calls=[made])

    if not results and rng.random() < SEARCH_RATE:
        return call(SEARCH)
    tried = sum(each.name == EVALUATE for each in results)
    trials = [trial for each in results if (trial := trial_data(each.additional_kwargs))]
    best = max(trials, key=lambda each: round(each.score, 4), default=None)
    if best is not None and (tried >= MAX_TRIALS or round(best.score, 4) > round(asked.score, 4)):
        return call(SUBMIT, candidate=best.candidate)
    changes = answer(asked, rng)
    return AIMessage(changes) if tried >= MAX_TRIALS else call(EVALUATE, changes=changes)


def estimated_tokens(text: str) -> int:
    """Tokens of a text: a quarter of its characters, rounded up."""
    return math.ceil(len(text) / CHARACTERS_PER_TOKEN)

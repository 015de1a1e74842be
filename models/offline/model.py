"""A chat model that needs neither network nor key."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from threading import Lock
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun, Callbacks
from langchain_core.language_models import BaseChatModel, LangSmithParams, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolCallChunk
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult, LLMResult
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import Runnable

from costada.models.offline.answering import answer
from costada.models.offline.reading import asked
from costada.models.offline.tools import tool_answer
from costada.models.offline.usage import cut_short, estimated_usage
from costada.models.replies import text_with_tool_calls

MODEL_NAME = "offline"

ITERATION = "costada_iteration"
"""Metadata of a call that tells apart calls with equal messages."""

_LINES_PER_CHUNK = 4

_PARSING = Lock()
"""Held to answer: threads that parse at once can fail in Python 3.11 (python/cpython#106905)."""

_TIMING = re.compile(r"^- \w*(?:time|seconds)\w*: .*$", re.MULTILINE)
"""Metrics that differ from run to run, whatever the program does."""


class OfflineModel(BaseChatModel):
    """A stand-in for a language model in demos, tests and lessons.

    No language model is behind it. It reads the program in a prompt and answers with a general
    edit of it: other numbers, another order, a part of another program, or a search that judges
    arrays by the program's own statements. It knows no benchmark and no solution. As a guide it
    proposes general searches and refinements. One answer in ten fails on purpose.

    The same seed, messages and iteration of a run always get the same answer, in any order and on
    any thread; attempts that start from the same prompt differ by their iteration. Run times among
    the metrics of a prompt make no difference, so that a run with the same seed can be repeated.
    Token counts are estimates, see `usage`; `max_tokens`, bound to the model, limits an answer.
    With tools it tries up to two edits and submits the better one.

    Attributes:
        seed: Chooses one of many equally good models.
    """

    seed: int = 0

    @property
    def _llm_type(self) -> str:
        return MODEL_NAME

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": MODEL_NAME, "seed": self.seed}

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        return LangSmithParams(
            ls_provider="costada", ls_model_name=MODEL_NAME, ls_model_type="chat"
        )

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: str | None = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return the model with tools, of which it uses those that try and submit programs."""
        return self.bind(tools=list(tools), **kwargs)

    def generate_prompt(
        self,
        prompts: list[PromptValue],
        stop: list[str] | None = None,
        callbacks: Callbacks = None,
        **kwargs: Any,
    ) -> LLMResult:
        """Return the answers; each knows its iteration also where a graph has it streamed."""
        return super().generate_prompt(prompts, stop, callbacks, **_with_iteration(kwargs))

    async def agenerate_prompt(
        self,
        prompts: list[PromptValue],
        stop: list[str] | None = None,
        callbacks: Callbacks = None,
        **kwargs: Any,
    ) -> LLMResult:
        """Return the answers, as `generate_prompt` does."""
        return await super().agenerate_prompt(prompts, stop, callbacks, **_with_iteration(kwargs))

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        message = self._reply(messages, stop, _iteration(run_manager, kwargs), kwargs)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        reply = self._reply(messages, stop, _iteration(run_manager, kwargs), kwargs)
        for part in _parts(reply.text):
            chunk = ChatGenerationChunk(message=AIMessageChunk(content=part))
            if run_manager:
                run_manager.on_llm_new_token(part, chunk=chunk)
            yield chunk
        yield ChatGenerationChunk(
            message=AIMessageChunk(
                content="",
                tool_call_chunks=_call_chunks(reply),
                usage_metadata=reply.usage_metadata,
                response_metadata=reply.response_metadata,
                chunk_position="last",
            )
        )

    def _reply(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None,
        iteration: object,
        options: Mapping[str, Any],
    ) -> AIMessage:
        prompt = "\n\n".join(text_with_tool_calls(message) for message in messages)
        rng = _generator(self.seed, iteration, prompt)
        with _PARSING:
            data = asked(messages)
            called = tool_answer(messages, data, rng) if options.get("tools") and data else None
            text = text_with_tool_calls(called) if called else answer(data, rng)
        text, calls = _until(text, stop), called.tool_calls if called else []
        usage, reason = estimated_usage(prompt, text, rng), "tool_calls" if calls else "stop"
        limit = options.get("max_tokens")
        if limit is not None and usage["output_tokens"] > limit:
            (text, usage), calls, reason = cut_short(text, usage, limit), [], "length"
        return AIMessage(
            content="" if calls else text,
            tool_calls=calls,
            usage_metadata=usage,
            response_metadata={"model_name": MODEL_NAME, "finish_reason": reason},
        )


def _call_chunks(reply: AIMessage) -> list[ToolCallChunk]:
    return [
        tool_call_chunk(name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=n)
        for n, call in enumerate(reply.tool_calls)
    ]


def _with_iteration(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a call with its iteration among them.

    LangChain streams an answer whose messages a graph streams, and tells `_stream` no metadata.
    """
    metadata = options.get("metadata") or {}
    return {**options, ITERATION: metadata[ITERATION]} if ITERATION in metadata else options


def _iteration(run_manager: CallbackManagerForLLMRun | None, options: Mapping[str, Any]) -> object:
    """Return the iteration that a call was made in, None outside of a run."""
    metadata = run_manager.metadata if run_manager else {}
    return options.get(ITERATION, metadata.get(ITERATION))


def _generator(seed: int, iteration: object, prompt: str) -> Random:
    origin = seed if iteration is None else f"{seed}/{iteration}"
    digest = hashlib.sha256(f"{origin}\n{_TIMING.sub('', prompt)}".encode()).digest()
    return Random(int.from_bytes(digest))


def _until(text: str, stop: list[str] | None) -> str:
    ends = [text.find(word) for word in stop or [] if word in text]
    return text[: min(ends, default=len(text))]


def _parts(text: str) -> Iterator[str]:
    lines = text.splitlines(keepends=True)
    for start in range(0, len(lines), _LINES_PER_CHUNK):
        yield "".join(lines[start : start + _LINES_PER_CHUNK])

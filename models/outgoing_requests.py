"""A request before it leaves: who is asked, its size, and the limit of its answer."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig
from pydantic import BaseModel

from costada.models.langchain_openai import RequestFacts, messages_of, request_facts
from costada.models.runnable_tree import (
    AskedModel,
    requested_model,
    sent_parameters,
    with_every_model_changed,
)
from costada.models.wrapper import ModelWrapper

JOURNAL = "costada_journal"
"""In the metadata of a model that calls through a gateway: the id of the gateway's journal."""

OUTPUT_CAPS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
"""What providers call the most tokens that an answer may have."""

STANDARD_CAP = "max_tokens"
"""What LangChain calls it where a model does not say."""

FRAME_TOKENS = 32
"""Tokens that a provider adds around one message, at most."""

_READ_BESIDE_CONTENT = ("tool_calls", "invalid_tool_calls", "tool_call_id", "name")
"""What of a message a model reads besides its content."""

_READ_BESIDE_MESSAGES = ("tools", "functions", "response_format")
"""Parameters of a request that become part of what the model reads."""

_READ_ELSEWHERE = (
    "conversation",
    "plugins",
    "previous_response_id",
    "prompt",
    "web_search_options",
)
"""Parameters of a request by which a model reads what the request does not hold."""


class OutgoingRequest(NamedTuple):
    """Who is asked, and how much may be read and written.

    Attributes:
        model: The model's name at its provider.
        provider: The provider's name as LangChain reports it, if it does.
        output_cap: Most answer tokens that the request allows a choice, if it says; of several
            limits the highest, as a provider may honour any of them.
        choices: How many answers the request asks for; each of them is billed.
        input_bound: Most tokens that the prompt can have, tools and schemas included.
        is_all_text: Whether the model reads nothing but the text of the request. Of an image, a
            file or a search on the web the bytes sent do not bound the tokens.
        number: Position among the requests of its logical call, from 1; 0 before it leaves.
        gateway: Id of the journal of the gateway that it goes through; empty without one.
    """

    model: str
    provider: str | None
    output_cap: int | None
    choices: int
    input_bound: int
    is_all_text: bool = True
    number: int = 0
    gateway: str = ""


def outgoing_request(facts: RequestFacts, prompts: Sequence[BaseMessage | str]) -> OutgoingRequest:
    """Describe a request from what LangChain passes to its callbacks."""
    provider, sent = facts.metadata.get("ls_provider"), sent_parameters(facts.params)
    choices = sent.get("n")
    return OutgoingRequest(
        model=requested_model(facts),
        provider=str(provider) if provider else None,
        output_cap=max(stated_caps(sent), default=None),
        choices=choices if isinstance(choices, int) and choices > 1 else 1,
        input_bound=sum(map(_size, prompts))
        + FRAME_TOKENS * len(prompts)
        + sum(_json_size(sent[name]) for name in _READ_BESIDE_MESSAGES if sent.get(name)),
        is_all_text=all(map(_is_text, prompts))
        and all(map(_is_run_by_caller, sent.get("tools") or ()))
        and not any(sent.get(name) for name in _READ_ELSEWHERE),
        gateway=str(facts.metadata.get(JOURNAL, "")),
    )


def bounded_request(
    model: BaseChatModel, given: LanguageModelInput, bound: Mapping[str, Any]
) -> OutgoingRequest:
    """Describe a request before LangChain does; of several limits of the answer the lowest."""
    facts = request_facts(model, bound)
    caps = [*stated_caps(vars(model)), *stated_caps(facts.params)]
    caps += stated_caps(facts.params.get("extra_body") or {})
    request = outgoing_request(facts, messages_of(model, given))
    return request._replace(output_cap=min(caps, default=None))


def stated_caps(params: Mapping[str, Any]) -> list[int]:
    """The numbers of tokens to which a request limits its answer, whatever their names."""
    caps = [params.get(name) for name in OUTPUT_CAPS]
    return [cap for cap in caps if isinstance(cap, int)]


def byte_size(text: str) -> int:
    """The bytes of a text: no tokenizer makes more tokens of it."""
    return len(text.encode("utf-8", "surrogatepass"))


def _size(prompt: BaseMessage | str) -> int:
    if isinstance(prompt, str):
        return byte_size(prompt)
    content = prompt.content
    beside = [getattr(prompt, name, None) for name in _READ_BESIDE_CONTENT]
    size = byte_size(content) if isinstance(content, str) else _json_size(content)
    return size + sum(_json_size(each) for each in beside if each)


def _json_size(value: object) -> int:
    def plain(value: object) -> object:
        if isinstance(value, type) and issubclass(value, BaseModel):
            return value.model_json_schema()
        return str(value)

    return byte_size(json.dumps(value, default=plain, ensure_ascii=False))


def _is_text(prompt: BaseMessage | str) -> bool:
    if isinstance(prompt, str) or isinstance(prompt.content, str):
        return True
    return all(isinstance(block, str) or block.get("type") == "text" for block in prompt.content)


def _is_run_by_caller(tool: object) -> bool:
    """Whether the caller runs a tool; a tool of the provider brings its own text."""
    return not isinstance(tool, Mapping) or tool.get("type", "function") in ("function", "custom")


Limit = Callable[[OutgoingRequest], int]
"""Takes a request that is about to leave and returns the most tokens its answer may have."""


class RequestNotSent(Exception):
    """A request was not sent, because no answer worth having was allowed."""


class LimitedModel(ModelWrapper):  # type: ignore[no-redef]
    """One chat model; each request to it is given a limit first.

    Retries and fallbacks around it cause further requests. `limit` is called before any callback of
    the request, in a thread, as it may read a database, and may raise `RequestNotSent`. `bound` is
    the chat model (`asked`), perhaps with something bound to it since.
    """

    asked: BaseChatModel
    limit: Limit

    async def ainvoke(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AIMessage:
        """Ask for an answer within the limit."""
        request = bounded_request(self.asked, input, kwargs)
        cap = await asyncio.to_thread(self.limit, request)
        limited = {**kwargs, **limit_parameters(self.asked, kwargs, cap)}
        return await super().ainvoke(input, config, **limited)


def with_limited_answers(model: Runnable[Any, Any], limit: Limit) -> Runnable[Any, Any]:
    """Limit the answer of each request that a model, or a model inside it, sends.

    Raises:
        ValueError: If the model is composed in a way that no limit can be bound in.
    """
    return with_every_model_changed(
        model,
        lambda part: LimitedModel(bound=part, asked=part, limit=limit),
        "answers cannot be limited",
    )


def limit_parameters(model: BaseChatModel, bound: Mapping[str, Any], cap: int) -> dict[str, Any]:
    """The parameters that limit an answer, under every name that the model has for it.

    The OpenAI client reads one of its names in one of its protocols and the other in the other.
    Limits in the request's `extra_body`, which would win, are replaced there.
    """
    fields = type(model).model_fields
    known = {name for field, facts in fields.items() for name in (field, facts.alias)}
    names = [name for name in OUTPUT_CAPS if name in known] or [STANDARD_CAP]
    extra = request_facts(model, bound).params.get("extra_body") or {}
    replaced = {name: cap for name in OUTPUT_CAPS if name in extra}
    return dict.fromkeys(names, cap) | ({"extra_body": {**extra, **replaced}} if replaced else {})


def with_tools(
    model: Runnable[Any, Any], tools: Sequence[Mapping[str, object]]
) -> Runnable[Any, Any]:
    """Bind tools, as OpenAI describes them, that a model, or a model inside it, may call.

    Raises:
        ValueError: A model cannot call tools, or is composed in a way that none can be bound in.
    """

    def bind(part: BaseChatModel) -> Runnable[Any, Any]:
        try:
            return part.bind_tools([dict(tool) for tool in tools])
        except NotImplementedError:
            raise ValueError(
                f"model {AskedModel(part).name!r}: cannot call tools, expected a chat model"
                " that can"
            ) from None

    return with_every_model_changed(model, bind, "no tools can be bound")

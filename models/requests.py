"""A request before it leaves: who is asked, its size, and the limit of its answer."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import Runnable
from langchain_core.runnables.base import RunnableBindingBase
from pydantic import BaseModel

from costada.models.runnable_tree import (
    RequestFacts,
    model_identity,
    request_facts,
    requested_model,
    said_in,
    with_every_model_changed,
)

OUTPUT_CAPS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
"""What providers call the most tokens that an answer may have."""

FRAME_TOKENS = 32
"""Tokens that a provider adds around one message, at most."""

_BESIDE_CONTENT = ("tool_calls", "invalid_tool_calls", "tool_call_id", "name")
"""What of a message a model reads besides its content."""

_SAID_BESIDE = ("tools", "functions", "response_format")
"""Parameters of a request that become part of what the model reads."""


_READ_ELSEWHERE = (
    "conversation",
    "plugins",
    "previous_response_id",
    "prompt",
    "web_search_options",
)
"""Parameters of a request by which a model reads what the request does not hold."""


class ModelRequest(NamedTuple):
    """Who is asked, and how much may be read and written.

    Attributes:
        model: The model's name at its provider.
        provider: The provider's name as LangChain reports it, if it does.
        output_cap: Most answer tokens that the request allows a choice, if it says; of several
            limits the highest, as a provider may honour any of them.
        choices: How many answers the request asks for; each of them is billed.
        input_bound: Most tokens that the prompt can have, tools and schemas included.
        is_all_text: Whether the model reads nothing but the text of the request. Of an image, a
            file or a search on the web the bytes sent do not tell the tokens.
        number: Of the request among those of its logical call, from 1; 0 before it leaves.
    """

    model: str
    provider: str | None
    output_cap: int | None
    choices: int
    input_bound: int
    is_all_text: bool = True
    number: int = 0


def model_request(facts: RequestFacts, prompts: Sequence[BaseMessage | str]) -> ModelRequest:
    """Return what the callback of a request's start was told."""
    provider, said = facts.metadata.get("ls_provider"), said_in(facts.params)
    choices = said.get("n")
    return ModelRequest(
        model=requested_model(facts),
        provider=str(provider) if provider else None,
        output_cap=max(stated_caps(said), default=None),
        choices=choices if isinstance(choices, int) and choices > 1 else 1,
        input_bound=sum(map(_size, prompts))
        + FRAME_TOKENS * len(prompts)
        + sum(_json_size(said[name]) for name in _SAID_BESIDE if said.get(name)),
        is_all_text=all(map(_is_text, prompts))
        and all(map(_is_ours, said.get("tools") or ()))
        and not any(said.get(name) for name in _READ_ELSEWHERE),
    )


def stated_caps(said: Mapping[str, Any]) -> list[int]:
    """Return the numbers of tokens to which a request limits its answer, whatever their names."""
    caps = [said.get(name) for name in OUTPUT_CAPS]
    return [cap for cap in caps if isinstance(cap, int)]


def byte_size(text: str) -> int:
    """Return the bytes of a text: no tokenizer makes more tokens of it."""
    return len(text.encode("utf-8", "surrogatepass"))


def _size(prompt: BaseMessage | str) -> int:
    if isinstance(prompt, str):
        return byte_size(prompt)
    content, beside = prompt.content, [getattr(prompt, name, None) for name in _BESIDE_CONTENT]
    size = byte_size(content) if isinstance(content, str) else _json_size(content)
    return size + sum(_json_size(each) for each in beside if each)


def _is_text(prompt: BaseMessage | str) -> bool:
    if isinstance(prompt, str) or isinstance(prompt.content, str):
        return True
    return all(isinstance(block, str) or block.get("type") == "text" for block in prompt.content)


def _is_ours(tool: object) -> bool:
    """Tell a tool that the caller runs from one of the provider's, which brings its own text."""
    return not isinstance(tool, Mapping) or tool.get("type", "function") in ("function", "custom")


def _json_size(value: object) -> int:
    return byte_size(json.dumps(value, default=_plain, ensure_ascii=False))


def _plain(value: object) -> object:
    if isinstance(value, type) and issubclass(value, BaseModel):
        return value.model_json_schema()
    return str(value)


STANDARD_NAME = "max_tokens"
"""What LangChain calls the most tokens of an answer where a model does not say."""

Limit = Callable[[ModelRequest], int]
"""Told of a request that is about to leave, it returns the most tokens its answer may have."""


class RequestNotSent(Exception):
    """A request was not sent, because no answer worth having was allowed."""


class CappedModel(RunnableBindingBase[LanguageModelInput, AIMessage]):  # type: ignore[no-redef]
    """One chat model; each request to it is given a limit first.

    A request is what its `batch` sends; retries and fallbacks around it cause further ones. The
    limit is asked for before a callback hears of the request.

    Attributes:
        bound: What is asked: the chat model, perhaps with something bound to it since.
        asked: The chat model.
        limit: Returns the limit; raises `RequestNotSent` if the request must not be sent.
    """

    asked: BaseChatModel
    limit: Limit

    def batch(
        self,
        inputs: list[LanguageModelInput],
        config: Any = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> list[AIMessage]:
        """Return the model's answers, or in place of one the error that held it back."""
        answers: list[Any] = []
        for each in inputs:
            try:
                cap = self.limit(bounded_request(self.asked, each, kwargs))
            except RequestNotSent as error:
                if not return_exceptions:
                    raise
                answers.append(error)
            else:
                limited = {**kwargs, **limits(self.asked, kwargs, cap)}
                answers += super().batch(
                    [each], config, return_exceptions=return_exceptions, **limited
                )
        return answers


def bounded_request(
    model: BaseChatModel, given: LanguageModelInput, bound: Mapping[str, Any]
) -> ModelRequest:
    """Return what LangChain will announce; of several limits of the answer the lowest.

    Args:
        model: The chat model that is asked.
        given: The prompt.
        bound: What is bound to the model for this request.
    """
    facts = request_facts(model, bound)
    asked = model_request(facts, model._convert_input(given).to_messages())
    caps = [*stated_caps(vars(model)), *stated_caps(facts.params)]
    caps += stated_caps(facts.params.get("extra_body") or {})
    return asked._replace(output_cap=min(caps, default=None))


def with_limited_answers(model: Runnable[Any, Any], limit: Limit) -> Runnable[Any, Any]:
    """Return the model with a limit for each request that it, or a model inside it, sends.

    The limit is bound under every name that a model's class gives it: the OpenAI client reads one
    of its names in one of its protocols and the other in the other.

    Args:
        model: A chat model, bare or wrapped; asked through `batch`.
        limit: Called before each request.

    Raises:
        ValueError: If the model is composed in a way that no limit can be bound in.
    """
    return with_every_model_changed(
        model,
        lambda part: CappedModel(bound=part, asked=part, limit=limit),
        "answers cannot be limited",
    )


def limits(model: BaseChatModel, bound: Mapping[str, Any], cap: int) -> dict[str, Any]:
    """Return the parameters that limit an answer, by every name that the model has for it.

    Limits in the request's `extra_body`, which would hold instead, are replaced there.

    Args:
        model: The chat model that is asked.
        bound: What is bound to the model for this request.
        cap: Most tokens of the answer.
    """
    fields = type(model).model_fields
    known = {name for field, facts in fields.items() for name in (field, facts.alias)}
    names = [name for name in OUTPUT_CAPS if name in known] or [STANDARD_NAME]
    extra = request_facts(model, bound).params.get("extra_body") or {}
    replaced = {name: cap for name in OUTPUT_CAPS if name in extra}
    return dict.fromkeys(names, cap) | ({"extra_body": {**extra, **replaced}} if replaced else {})


def with_tools(
    model: Runnable[Any, Any], tools: Sequence[Mapping[str, object]]
) -> Runnable[Any, Any]:
    """Return the model with tools that it, or a model inside it, may call in its answers.

    Args:
        model: A chat model, bare or in bindings, retries, fallbacks and sequences.
        tools: Each as OpenAI describes one; LangChain translates that for other providers.

    Raises:
        ValueError: A model cannot call tools, or is composed in a way that none can be bound in.
    """

    def bind(part: BaseChatModel) -> Runnable[Any, Any]:
        try:
            return part.bind_tools([dict(tool) for tool in tools])
        except NotImplementedError:
            raise ValueError(
                f"model {model_identity(part).name!r}: cannot call tools, expected a chat model"
                " that can"
            ) from None

    return with_every_model_changed(model, bind, "no tools can be bound")

"""Telling a model which tools it may call."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable
from langchain_core.runnables.base import RunnableBindingBase

from costada.models.identity import model_identity, request_facts
from costada.models.requests import OUTPUT_CAPS, Announcement, announced, stated_caps
from costada.models.runnable_tree import with_every_model_changed

STANDARD_NAME = "max_tokens"
"""What LangChain calls the most tokens of an answer where a model does not say."""

Limit = Callable[[Announcement], int]
"""Told of a request that is about to leave, it returns the most tokens its answer may have."""


class HeldBack(Exception):
    """A request was not sent, because no answer worth having was allowed."""


class CappedModel(RunnableBindingBase[LanguageModelInput, AIMessage]):  # type: ignore[no-redef]
    """One chat model; each request to it is given a limit first.

    A request is what its `batch` sends; retries and fallbacks around it cause further ones. The
    limit is asked for before a callback hears of the request.

    Attributes:
        bound: What is asked: the chat model, perhaps with something bound to it since.
        asked: The chat model.
        limit: Returns the limit; raises `HeldBack` if the request must not be sent.
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
                cap = self.limit(announcement(self.asked, each, kwargs))
            except HeldBack as error:
                if not return_exceptions:
                    raise
                answers.append(error)
            else:
                limited = {**kwargs, **limits(self.asked, kwargs, cap)}
                answers += super().batch(
                    [each], config, return_exceptions=return_exceptions, **limited
                )
        return answers


def announcement(
    model: BaseChatModel, given: LanguageModelInput, bound: Mapping[str, Any]
) -> Announcement:
    """Return what LangChain will announce; of several limits of the answer the lowest.

    Args:
        model: The chat model that is asked.
        given: The prompt.
        bound: What is bound to the model for this request.
    """
    facts = request_facts(model, bound)
    asked = announced(facts, model._convert_input(given).to_messages())
    caps = [*stated_caps(vars(model)), *stated_caps(facts.params)]
    caps += stated_caps(facts.params.get("extra_body") or {})
    return asked._replace(output_cap=min(caps, default=None))


def capped(model: Runnable[Any, Any], limit: Limit) -> Runnable[Any, Any]:
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

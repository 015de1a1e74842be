"""A chat model that asks before each request how long its answer may be, if it may go at all."""

from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable
from langchain_core.runnables.base import RunnableBindingBase

from costada.models.announcements import OUTPUT_CAPS, Announcement, announced
from costada.models.identity import model_identity, underlying_models
from costada.models.leaves import with_models_changed

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
                limited = {**kwargs, **dict.fromkeys(cap_names(self.asked), cap)}
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
    params = model._get_invocation_params(**bound)
    messages = model._convert_input(given).to_messages()
    facts = {"ls_model_name": model_identity(model).name}
    caps = [said.get(name) for said in (vars(model), params) for name in OUTPUT_CAPS]
    lowest = min((cap for cap in caps if isinstance(cap, int)), default=None)
    asked = announced(None, facts, {"invocation_params": params}, messages)
    return asked._replace(output_cap=lowest)


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
    reached: list[BaseChatModel] = []

    def change(part: BaseChatModel) -> Runnable[Any, Any]:
        reached.append(part)
        return CappedModel(bound=part, asked=part, limit=limit)

    changed = with_models_changed(model, change)
    if any(all(part is not each for each in reached) for part in underlying_models(model)):
        raise ValueError(
            f"model: got {type(model).__name__}, in which answers cannot be limited; expected a"
            " chat model, bare or in bindings, retries, fallbacks and sequences"
        )
    return changed


def cap_names(model: BaseChatModel) -> list[str]:
    """Return every name under which a model takes the most tokens of an answer."""
    fields = type(model).model_fields
    known = {name for field, facts in fields.items() for name in (field, facts.alias)}
    return [name for name in OUTPUT_CAPS if name in known] or [STANDARD_NAME]

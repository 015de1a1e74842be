"""A chat model whose answers may not become longer than what can be paid."""

from collections.abc import Mapping
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableSequence, RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase

from costada.models.announcements import OUTPUT_CAPS
from costada.models.identity import underlying_models

STANDARD_NAME = "max_tokens"
"""What LangChain calls the most tokens of an answer where a model does not say."""


def capped(model: Runnable[Any, Any], cap: int) -> Runnable[Any, Any]:
    """Return the model with answers of at most `cap` tokens, and no more than it allowed before.

    The limit is bound to each chat model inside bindings, retries, fallbacks and sequences, under
    every name that its class gives it: the OpenAI client reads one of its names in one of its
    protocols and the other in the other. What is composed otherwise stays as it is.

    Args:
        model: A chat model, bare or wrapped.
        cap: Tokens, at least 1.
    """
    if isinstance(model, BaseChatModel):
        return model.bind(**dict.fromkeys(_names(model), _lowest(cap, vars(model))))
    if isinstance(model, RunnableWithFallbacks):
        others = [capped(each, cap) for each in model.fallbacks]
        return model.model_copy(
            update={"runnable": capped(model.runnable, cap), "fallbacks": others}
        )
    if isinstance(model, RunnableBindingBase):
        inner = capped(model.bound, _lowest(cap, model.kwargs))
        kept = {name: value for name, value in model.kwargs.items() if name not in OUTPUT_CAPS}
        return model.model_copy(update={"bound": inner, "kwargs": kept})
    if isinstance(model, RunnableSequence):
        steps = [capped(step, cap) if underlying_models(step) else step for step in model.steps]
        return RunnableSequence(*steps, name=model.name)
    return model


def _lowest(cap: int, settings: Mapping[str, Any]) -> int:
    limits = [settings.get(name) for name in OUTPUT_CAPS]
    return min([cap, *(limit for limit in limits if isinstance(limit, int))])


def _names(model: BaseChatModel) -> list[str]:
    fields = type(model).model_fields
    known = {name for field, facts in fields.items() for name in (field, facts.alias)}
    return [name for name in OUTPUT_CAPS if name in known] or [STANDARD_NAME]

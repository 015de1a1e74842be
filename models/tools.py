"""Telling a model which tools it may call."""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable

from costada.models.identity import model_identity
from costada.models.leaves import with_every_model_changed


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

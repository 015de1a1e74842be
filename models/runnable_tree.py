"""Exchanging the chat models inside a runnable."""

from collections.abc import Callable
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable
from pydantic import BaseModel

from costada.models.identity import underlying_models

_PARTS = frozenset({"bound", "runnable", "fallbacks", "first", "middle", "last"})


def with_models_changed(
    runnable: Runnable[Any, Any], change: Callable[[BaseChatModel], Runnable[Any, Any]]
) -> Runnable[Any, Any]:
    """Return a runnable like the given one, with each chat model in it replaced by its change.

    Bindings, retries, fallbacks and sequences are looked into; the given runnable stays as it is.
    """
    if isinstance(runnable, BaseChatModel):
        return change(runnable)
    if not isinstance(runnable, BaseModel):
        return runnable

    def changed(part: Any) -> Any:
        if isinstance(part, list | tuple):
            return [changed(each) for each in part]
        return with_models_changed(part, change) if isinstance(part, Runnable) else part

    names = _PARTS & type(runnable).model_fields.keys()
    return runnable.model_copy(update={name: changed(getattr(runnable, name)) for name in names})


def with_every_model_changed(
    runnable: Runnable[Any, Any],
    change: Callable[[BaseChatModel], Runnable[Any, Any]],
    failing: str,
) -> Runnable[Any, Any]:
    """Return what `with_models_changed` does, unless it leaves a model as it is.

    Args:
        runnable: A chat model, bare or wrapped.
        change: Returns what takes the place of a chat model.
        failing: What cannot be done otherwise, for the message.

    Raises:
        ValueError: The runnable is composed in a way in which a model cannot be replaced, or
            holds none.
    """
    reached: list[BaseChatModel] = []

    def noted(part: BaseChatModel) -> Runnable[Any, Any]:
        reached.append(part)
        return change(part)

    changed, parts = with_models_changed(runnable, noted), underlying_models(runnable)
    if not parts or any(all(part is not each for each in reached) for part in parts):
        raise ValueError(
            f"model: got {type(runnable).__name__}, in which {failing}; expected a chat model,"
            " bare or in bindings, retries, fallbacks and sequences"
        )
    return changed

"""Exchanging the chat models inside a runnable."""

from collections.abc import Callable
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable
from pydantic import BaseModel

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

"""Which chat models hide inside a runnable, and who they are."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase

from costada.models.gateway.protocol import UPSTREAM

_PARTS = (
    "bound",
    "runnable",
    "mapper",
    "steps",
    "steps__",
    "fallbacks",
    "deps",
    "branches",
    "default",
    "alternatives",
)
_ADDRESSES = ("openai_api_base", "base_url", "anthropic_api_url", "endpoint")


class ModelIdentity(NamedTuple):
    """What is needed to price a model.

    Attributes:
        name: The model's name at its provider, the same that a CallMeter reports.
        provider: The provider's name as LangChain reports it, if it does.
        base_url: Address of the server that will answer, if the model tells it.
    """

    name: str
    provider: str | None
    base_url: str | None


def underlying_models(runnable: Runnable[Any, Any]) -> tuple[BaseChatModel, ...]:
    """Return the chat models a runnable can call, in the order in which it holds them.

    Bindings, retries, fallbacks, sequences (as structured output makes them), parallels and
    branches are looked into, and functions as far as LangChain sees through them. A model that
    is built or chosen only at run time is not found.
    """
    found: list[BaseChatModel] = []
    pending: list[Runnable[Any, Any]] = [runnable]
    seen: dict[int, Runnable[Any, Any]] = {}
    while pending:
        current = pending.pop(0)
        if id(current) in seen:
            continue
        seen[id(current)] = current
        if isinstance(current, BaseChatModel):
            found.append(current)
        else:
            pending[:0] = _parts(current)
    return tuple(found)


def returns_raw_answers(runnable: Runnable[Any, Any]) -> bool:
    """Return whether a runnable hands on what its model answers as it is.

    True for a chat model, bound, retried or with fallbacks; anything else may change the answer.
    """
    if isinstance(runnable, BaseChatModel):
        return True
    if isinstance(runnable, RunnableWithFallbacks):
        return all(map(returns_raw_answers, (runnable.runnable, *runnable.fallbacks)))
    if isinstance(runnable, RunnableBindingBase):
        return returns_raw_answers(runnable.bound)
    return False


def model_identity(model: BaseChatModel) -> ModelIdentity:
    """Return who a chat model is, without calling it."""
    facts = model._get_ls_params()
    name = facts.get("ls_model_name") or type(model).__name__
    return ModelIdentity(str(name), facts.get("ls_provider"), _base_url(model))


def _parts(runnable: Runnable[Any, Any]) -> list[Runnable[Any, Any]]:
    """Return what a composed runnable consists of; LangChain has no one name for it."""
    parts = [part for name in _PARTS for part in _flat(getattr(runnable, name, None))]
    return [part for part in parts if isinstance(part, Runnable)]


def _flat(parts: object) -> list[object]:
    """Return a part, or the parts in a mapping or in nested sequences, in order."""
    if isinstance(parts, Mapping):
        return _flat(list(parts.values()))
    if isinstance(parts, list | tuple):
        return [member for part in parts for member in _flat(part)]
    return [parts]


def _base_url(model: BaseChatModel) -> str | None:
    """Return the address of a model's provider: its client knows what the environment set."""
    client = getattr(model, "root_client", None)
    addresses = [(model.metadata or {}).get(UPSTREAM), getattr(client, "base_url", None)]
    addresses += [getattr(model, name, None) for name in _ADDRESSES]
    return next((str(address) for address in addresses if address), None)

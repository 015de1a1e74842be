"""The chat models inside a runnable: found, identified, replaced."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import (
    Runnable,
    RunnableBranch,
    RunnableSequence,
    RunnableWithFallbacks,
)
from langchain_core.runnables.base import RunnableBindingBase, RunnableEachBase
from langchain_core.runnables.configurable import (
    DynamicRunnable,
    RunnableConfigurableAlternatives,
    RunnableConfigurableFields,
)
from pydantic import BaseModel

from costada.models.gateway.protocol import UPSTREAM

_PARTS = (
    "bound",
    "runnable",
    "mapper",
    "steps",
    "steps__",
    "deps",
    "branches",
    "default",
)
_HAND_ON = (RunnableWithFallbacks, RunnableBranch, RunnableEachBase, DynamicRunnable)
"""What hands the parameters of a call on to each of its parts."""

_VERSION = re.compile(r"-[\d.-]+")
"""What LangChain appends to the name of a model whose version it knows, Azure's for one."""

_SECRET = re.compile(r"key|secret|password|credential|authorization|header|token$", re.IGNORECASE)
"""Parameters that are left out of what is written down."""

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


class AskedModel(NamedTuple):
    """A chat model inside a runnable, as it is asked there.

    Attributes:
        model: The chat model.
        bound: The parameters that the runnable adds to its requests; one may name another model.
    """

    model: BaseChatModel
    bound: Mapping[str, Any]

    @property
    def identity(self) -> ModelIdentity:
        """Who answers."""
        return model_identity(self.model, self.bound)


class RequestFacts(NamedTuple):
    """What LangChain tells callbacks of a request before it leaves.

    Attributes:
        params: The parameters of the request.
        metadata: Facts about the request, to which callers may add.
        serialized: A description of the chat model.
    """

    params: Mapping[str, Any]
    metadata: Mapping[str, Any]
    serialized: Mapping[str, Any]


def request_facts(model: BaseChatModel, bound: Mapping[str, Any]) -> RequestFacts:
    """Return what LangChain will tell callbacks of a request, without making it.

    Args:
        model: The chat model that is asked.
        bound: What is bound to it for this request.
    """
    metadata = {**model._get_ls_params(**bound), **(model.metadata or {})}
    serialized = {"name": model.get_name()}
    return RequestFacts(model._get_invocation_params(**bound), metadata, serialized)


def requested_model(facts: RequestFacts) -> str:
    """Name the model that a request asks, as its provider knows it.

    Prices, bounds, journal and purse all go by this name. What is sent decides: a bound `model`
    replaces the one of the constructor, and one in `extra_body` replaces both. LangChain's own name
    counts where it is the same without a path or with a version.
    """
    params, told = facts.params, str(facts.metadata.get("ls_model_name") or "")
    names = (said_in(params).get("model"), params.get("model"), params.get("model_name"))
    sent = next((name for name in names if name and isinstance(name, str)), "")
    is_same = sent.endswith(f"/{told}") or _VERSION.fullmatch(told.removeprefix(sent))
    if told and is_same and sent in names[1:]:
        return told
    return sent or told or str(facts.serialized.get("name") or "unknown")


def said_in(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a request's body says: what is in `extra_body` replaces the other parameters."""
    extra = params.get("extra_body")
    return {**params, **(extra if isinstance(extra, Mapping) else {})}


def underlying_models(runnable: Runnable[Any, Any]) -> tuple[BaseChatModel, ...]:
    """Return the chat models a runnable holds, in its order, each of them once.

    Bindings, retries, fallbacks, sequences (as structured output makes them), parallels and
    branches are looked into, and functions as far as LangChain sees through them. A model that
    is built or chosen only at run time is not found.
    """
    found = {id(model): model for model, _ in _walk(runnable, is_configured=False)}
    return tuple(found.values())


def asked_models(runnable: Runnable[Any, Any]) -> tuple[AskedModel, ...]:
    """Return the chat models a runnable can ask, each with all that is bound to it.

    As `underlying_models`, but a model that is bound in two ways is found twice, and one with
    configurable fields is found as it is configured.
    """
    return tuple(_walk(runnable, is_configured=True))


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


def model_identity(model: BaseChatModel, bound: Mapping[str, Any] | None = None) -> ModelIdentity:
    """Return who a chat model is when it is asked with bound parameters, without calling it."""
    facts = request_facts(model, bound or {})
    provider = facts.metadata.get("ls_provider")
    return ModelIdentity(
        requested_model(facts), str(provider) if provider else None, _base_url(model)
    )


def _walk(runnable: Runnable[Any, Any], *, is_configured: bool) -> Iterator[AskedModel]:
    """Yield each chat model inside a runnable, once for each way in which it is bound."""
    pending: list[tuple[Runnable[Any, Any], Mapping[str, Any]]] = [(runnable, {})]
    seen: list[tuple[Runnable[Any, Any], Mapping[str, Any]]] = []
    while pending:
        current, bound = pending.pop(0)
        if any(current is each and bound == given for each, given in seen):
            continue
        seen.append((current, bound))
        if isinstance(current, BaseChatModel):
            yield AskedModel(current, bound)
        else:
            pending[:0] = _parts(current, bound, is_configured=is_configured)


def _parts(
    runnable: Runnable[Any, Any], bound: Mapping[str, Any], *, is_configured: bool
) -> list[tuple[Runnable[Any, Any], Mapping[str, Any]]]:
    """Return what a composed runnable consists of, each part with the parameters it is given.

    LangChain has no one name for a part, and fallbacks and configurable runnables show those of
    their first part as their own. A sequence hands parameters to its first step, functions and
    parallels to none.
    """
    if isinstance(runnable, RunnableBindingBase):
        return [(runnable.bound, {**runnable.kwargs, **bound})]
    if isinstance(runnable, RunnableConfigurableFields):
        return [(runnable.prepare()[0] if is_configured else runnable.default, bound)]
    if isinstance(runnable, RunnableConfigurableAlternatives):
        held: list[object] = [runnable.default, *runnable.alternatives.values()]
        held += [runnable.prepare()[0]] if is_configured else []
    elif isinstance(runnable, RunnableWithFallbacks):
        held = [runnable.runnable, *runnable.fallbacks]
    else:
        held = [part for name in _PARTS for part in _flat(getattr(runnable, name, None))]
    parts = [part for part in held if isinstance(part, Runnable)]
    if isinstance(runnable, RunnableSequence):
        return [(part, {} if number else bound) for number, part in enumerate(parts)]
    hands_on = isinstance(runnable, _HAND_ON)
    return [(part, bound if hands_on else {}) for part in parts]


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


def model_facts(runnable: Runnable[Any, Any]) -> dict[str, object]:
    """Return what decides how the models of a runnable answer, in plain values, as they tell it.

    Class, provider, name and address of each chat model, and the parameters of its requests except
    for the seed. What may hold a key is left out.
    """
    asked = [_facts_of(each) for each in asked_models(runnable)]
    return asked[0] if len(asked) == 1 else {str(n): each for n, each in enumerate(asked, 1)}


def _facts_of(asked: AskedModel) -> dict[str, object]:
    identity = asked.identity
    params = request_facts(asked.model, asked.bound).params
    return {
        **_open_params(params),
        "class": type(asked.model).__qualname__,
        "name": identity.name,
        "provider": identity.provider,
        "base_url": _without_key(identity.base_url),
    }


def _open_params(params: Mapping[str, Any]) -> dict[str, object]:
    """Return the parameters that are set, without the seed and whatever may hold a key."""
    told: dict[str, object] = {}
    for name, value in params.items():
        if value is None or name == "seed" or _SECRET.search(name):
            continue
        told[name] = _open_params(value) if isinstance(value, Mapping) else value
    return told


def _without_key(address: str | None) -> str | None:
    """Return an address without user, password and query."""
    if address is None:
        return None
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


_REPLACEABLE_PARTS = frozenset({"bound", "runnable", "fallbacks", "first", "middle", "last"})


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

    names = _REPLACEABLE_PARTS & type(runnable).model_fields.keys()
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

"""Chat models whose every request and cost can be seen from outside."""

from functools import cached_property
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable

from costada.models.identity import model_identity, underlying_models
from costada.models.retries import with_retries
from costada.models.retry_policy import RetryPolicy
from costada.models.runnable_tree import with_models_changed

_CLIENTS = ("root_client", "root_async_client", "client", "async_client")
_TELLS_COST_IN_WHOLE_ANSWERS = "openrouter.ai"


def accountable(
    runnable: Runnable[Any, Any], policy: RetryPolicy | None = None
) -> Runnable[Any, Any]:
    """Return a runnable that asks like the given one, with nothing hidden from a meter.

    Clients of the OpenAI, Anthropic and similar SDKs send a failed request again by themselves,
    two times by default, and each of these may be billed. In the returned runnable as many retries
    are made outside of the client, so that each is a request of its own. Streams tell their token
    counts; where they would lose what the provider charged, answers arrive in one piece. The given
    runnable stays as it is, and is returned itself where nothing has to change.

    Args:
        runnable: A chat model, bare or in bindings, retries, fallbacks and sequences.
        policy: How long to wait between two requests for one answer.

    Raises:
        ValueError: If a model retries by itself and cannot be replaced or told not to.
    """
    if all(map(_is_accountable, underlying_models(runnable))):
        return runnable
    waits = policy or RetryPolicy()
    changed = with_models_changed(runnable, lambda model: _accountable_model(model, waits))
    for model in underlying_models(changed):
        _check_quiet(model)
    return changed


def quietened(model: BaseChatModel) -> tuple[BaseChatModel, int]:
    """Return a chat model with nothing hidden from a meter, and how often it used to retry.

    The retries are left to the caller. Streams tell their token counts.

    Raises:
        ValueError: If the model retries by itself and cannot be told not to.
    """
    hidden = hidden_retries(model)
    quiet = _telling(_without_retries(model) if hidden else model)
    _check_quiet(quiet)
    return quiet, hidden


def hidden_retries(model: BaseChatModel) -> int:
    """Return how often a model's client may send a failed request again by itself."""
    stated = getattr(model, "max_retries", None)
    return max(_told_by_clients(model) or [stated if isinstance(stated, int) else 0])


def _check_quiet(model: BaseChatModel) -> None:
    if hidden := hidden_retries(model):
        raise ValueError(
            f"model {model_identity(model).name!r} sends a failed request again by itself, up"
            f" to {hidden} times, so what it costs cannot be known; expected max_retries=0"
        )


def _is_accountable(model: BaseChatModel) -> bool:
    return not (hidden_retries(model) or _loses_cost(model) or _loses_counts(model))


def _accountable_model(model: BaseChatModel, policy: RetryPolicy) -> Runnable[Any, Any]:
    hidden, told = hidden_retries(model), _telling(model)
    if not hidden:
        return told
    quiet = _without_retries(told)
    return with_retries(quiet, 1 + hidden, policy.retry_wait, policy.longest_wait)


def _telling(model: BaseChatModel) -> BaseChatModel:
    """Return a copy whose streams lose neither counts nor cost, or the model itself if it does."""
    if _loses_cost(model):
        model = model.model_copy(update={"disable_streaming": True})
    return model.model_copy(update={"stream_usage": True}) if _loses_counts(model) else model


def _without_retries(model: BaseChatModel) -> BaseChatModel:
    """Return a copy whose clients say that they do not retry, or else the model as it is."""
    held = {name: _quiet(getattr(model, name, None)) for name in _CLIENTS}
    clients = {name: client for name, client in held.items() if client is not None}
    copied = model.model_copy(update={**clients, "max_retries": 0})
    for name in _built_on_first_use(model):
        vars(copied).pop(name, None)
    return copied if _told_by_clients(copied) else model


def _quiet(held: Any) -> Any:
    """Return an SDK client, or a part of one such as its completions, that does not retry."""
    if hasattr(held, "with_options"):
        return held.with_options(max_retries=0)
    client: Any = getattr(held, "_client", None)
    if hasattr(client, "with_options"):
        return type(held)(client.with_options(max_retries=0))
    return None


def _told_by_clients(model: BaseChatModel) -> list[int]:
    """Return how often each SDK client of a model retries."""
    held = [getattr(model, name, None) for name in (*_CLIENTS, *_built_on_first_use(model))]
    clients = held + [getattr(each, "_client", None) for each in held]
    told = [getattr(client, "max_retries", None) for client in clients]
    return [number for number in told if isinstance(number, int)]


def _built_on_first_use(model: BaseChatModel) -> list[str]:
    """Return the properties in which some classes, Anthropic's for one, build their clients."""
    members = [member for kind in type(model).__mro__ for member in vars(kind).items()]
    return [
        name for name, value in members if isinstance(value, cached_property) and "client" in name
    ]


def _loses_counts(model: BaseChatModel) -> bool:
    """Return whether the model's streams do not ask for token counts, as LangChain may choose."""
    return getattr(model, "stream_usage", True) is not True


def _loses_cost(model: BaseChatModel) -> bool:
    """Return whether the provider tells what it charged, and LangChain drops it from streams."""
    address = model_identity(model).base_url or ""
    return (
        _TELLS_COST_IN_WHOLE_ANSWERS in address
        and hasattr(model, "root_client")
        and model.disable_streaming is not True
    )

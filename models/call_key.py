"""The key that a call shows to the gateway, so that it is never paid twice."""

from typing import Any, TypeVar
from uuid import uuid4

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable

from costada.models.gateway.protocol import CALL_HEADER, EXECUTION_HEADER, UPSTREAM
from costada.models.identity import underlying_models
from costada.models.leaves import with_models_changed

Model = TypeVar("Model", bound=Runnable[Any, Any])


def has_gateway(model: Runnable[Any, Any]) -> bool:
    """Return whether a chat model inside a runnable calls through a gateway."""
    return any(map(_is_marked, underlying_models(model)))


def with_call_key(model: Model, key: str) -> Model:
    """Return a model for one execution of a logical call; without a gateway it is the same.

    All requests of the execution carry the key and a number of the execution, drawn here. From the
    two the gateway tells a retry from a repetition after a crash: what an earlier execution was
    answered is told again, what this one was answered is not.

    Args:
        model: A chat model, bare or wrapped.
        key: `run_id/iteration/role/attempt`, the same whenever the call is executed again.
    """
    if not has_gateway(model):
        return model
    headers = {CALL_HEADER: key, EXECUTION_HEADER: uuid4().hex}

    def keyed(part: BaseChatModel) -> Runnable[Any, Any]:
        return part.bind(extra_headers=headers) if _is_marked(part) else part

    return with_models_changed(model, keyed)  # type: ignore[return-value]


def _is_marked(model: BaseChatModel) -> bool:
    return UPSTREAM in (model.metadata or {})

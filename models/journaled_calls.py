"""Calls through a process that journals responses, and reports them again after a crash.

Such a process is a plug-in (`runs/gateways.py`), which marks the models that call through it. All
that paid calls know of it is here: whether a model is marked, and the key that a call carries.
"""

from typing import Any, TypeVar
from uuid import uuid4

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable

from costada.models.outgoing_requests import JOURNAL
from costada.models.runnable_tree import UPSTREAM, underlying_models, with_models_changed

Model = TypeVar("Model", bound=Runnable[Any, Any])

CALL_HEADER = "X-CostAda-Call"
"""The logical call: run_id/ticket/role/attempt, the same when it is executed again."""

EXECUTION_HEADER = "X-CostAda-Execution"
"""Which execution of that call is asking; new each time the call is executed."""


def has_gateway(model: Runnable[Any, Any]) -> bool:
    """Whether a chat model inside a runnable calls through a gateway."""
    return any(map(_is_marked, underlying_models(model)))


def journals_of(model: Runnable[Any, Any]) -> set[str]:
    """Ids of the journals of the gateways that the chat models inside a runnable call through."""
    parts = underlying_models(model)
    return {(part.metadata or {}).get(JOURNAL, "") for part in parts} - {""}


def with_call_key(model: Model, key: str) -> Model:
    """A model for one execution of a logical call; without a gateway it is the same.

    All requests of the execution carry the key and a number of the execution, drawn here. From the
    two the gateway tells a retry from a repetition after a crash: what an earlier execution
    received is replayed, what this one received is not.

    Args:
        model: A chat model, bare or wrapped.
        key: `run_id/ticket/role/attempt`, with the name of one of several models behind it; the
            same whenever the call is executed again.
    """
    if not has_gateway(model):
        return model
    headers = {CALL_HEADER: key, EXECUTION_HEADER: uuid4().hex}

    def keyed(part: BaseChatModel) -> Runnable[Any, Any]:
        return part.bind(extra_headers=headers) if _is_marked(part) else part

    return with_models_changed(model, keyed)  # type: ignore[return-value]


def _is_marked(model: BaseChatModel) -> bool:
    return UPSTREAM in (model.metadata or {})

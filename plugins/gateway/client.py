"""A run's side of the gateway: models that call through it, holding and stopping it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException
from typing import Any, TypeVar
from uuid import uuid4

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable

from costada.plugins.gateway.gateway_protocol import (
    CALL_HEADER,
    EXECUTION_HEADER,
    HOLD,
    JOURNAL,
    STOP,
    TOKEN_HEADER,
    UPSTREAM,
    GatewayAddress,
)
from costada.models.langchain_openai import is_openai, with_address
from costada.models.runnable_tree import (
    model_identity,
    underlying_models,
    with_every_model_changed,
    with_models_changed,
)

Model = TypeVar("Model", bound=Runnable[Any, Any])
ChatModel = Runnable[LanguageModelInput, AIMessage]
CONTROL_SECONDS = 10.0
BYPASSED = "requests would bypass the gateway"


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


def upstreams(model: ChatModel) -> set[str]:
    """The addresses that the OpenAI-compatible models inside a runnable call."""
    return {_address(part) for part in underlying_models(model) if is_openai(part)}


def through_gateway(model: ChatModel, address: GatewayAddress) -> ChatModel:
    """A model whose OpenAI-compatible models call the gateway instead of its upstream.

    Their calls need a key; see `with_call_key`. Models of other providers stay as they are.

    Raises:
        ValueError: The model is composed in a way in which one of them would bypass the gateway.
    """

    def redirected(part: BaseChatModel) -> Runnable[Any, Any]:
        if not is_openai(part) or _address(part) != address.upstream:
            return part
        metadata = {UPSTREAM: model_identity(part).base_url, JOURNAL: address.journal}
        return with_address(part, address.base_url, {TOKEN_HEADER: address.token}, metadata)

    return with_every_model_changed(model, redirected, BYPASSED)


def _address(model: BaseChatModel) -> str:
    return (model_identity(model).base_url or "").rstrip("/")


@contextmanager
def hold_gateway(address: GatewayAddress) -> Iterator[None]:
    """Keep a gateway from ending as unused; the system lets go when this process dies.

    Raises:
        OSError: The gateway does not answer.
        ValueError: It does not accept the token.
    """
    with closing(_connection(address)) as connection:
        connection.request("GET", HOLD, headers={TOKEN_HEADER: address.token})
        with closing(connection.getresponse()) as response:
            if response.status != 200:
                message = f"{address.base_url}: not a gateway of CostAda, status {response.status}"
                raise ValueError(message)
            yield


def stop_gateway(address: GatewayAddress) -> None:
    """Ask a gateway to end once nothing is running; one that has ended is fine."""
    with closing(_connection(address)) as connection:
        try:
            connection.request("POST", STOP, headers={TOKEN_HEADER: address.token})
            connection.getresponse().read()
        except (OSError, HTTPException):
            return


def _connection(address: GatewayAddress) -> HTTPConnection:
    return HTTPConnection("127.0.0.1", address.port, timeout=CONTROL_SECONDS)

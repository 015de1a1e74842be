"""A run's side of the gateway: models that call through it, holding and stopping it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException
from typing import Any, TypeVar, cast
from uuid import uuid4

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable

from costada.models.deadline import hooks
from costada.models.gateway.protocol import (
    CALL_HEADER,
    EXECUTION_HEADER,
    HOLD,
    STOP,
    TOKEN_HEADER,
    UPSTREAM,
    GatewayAddress,
)
from costada.models.runnable_tree import (
    model_identity,
    underlying_models,
    with_every_model_changed,
    with_models_changed,
)

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


ChatModel = Runnable[LanguageModelInput, AIMessage]
CONTROL_SECONDS = 10.0


def upstreams(model: ChatModel) -> set[str]:
    """Return the addresses that the OpenAI-compatible models inside a runnable call."""
    return {_address(part) for part in underlying_models(model) if _is_openai(part)}


def through_gateway(model: ChatModel, door: GatewayAddress) -> ChatModel:
    """Return a model whose OpenAI-compatible models call the gateway instead of its upstream.

    Their calls need a key; see `with_call_key`. Models of other providers stay as they are.

    Raises:
        ValueError: The model is composed in a way in which one of them would pass the gateway by.
    """

    def redirected(part: BaseChatModel) -> Runnable[Any, Any]:
        is_behind = _is_openai(part) and _address(part) == door.upstream
        return _redirected(part, door) if is_behind else part

    return with_every_model_changed(model, redirected, "requests would pass the gateway by")


@contextmanager
def hold_gateway(door: GatewayAddress) -> Iterator[None]:
    """Keep a gateway from ending as unused; the system lets go when this process dies.

    Raises:
        OSError: The gateway does not answer.
        ValueError: It does not accept the token.
    """
    with closing(_connection(door)) as connection:
        connection.request("GET", HOLD, headers={TOKEN_HEADER: door.token})
        with closing(connection.getresponse()) as response:
            if response.status != 200:
                raise ValueError(f"{door.base_url}: no gateway of ours, status {response.status}")
            yield


def stop_gateway(door: GatewayAddress) -> None:
    """Ask a gateway to end once nothing is under way; one that has ended is fine."""
    with closing(_connection(door)) as connection:
        try:
            connection.request("POST", STOP, headers={TOKEN_HEADER: door.token})
            connection.getresponse().read()
        except (OSError, HTTPException):
            return


def _connection(door: GatewayAddress) -> HTTPConnection:
    return HTTPConnection("127.0.0.1", door.port, timeout=CONTROL_SECONDS)


def _is_openai(model: BaseChatModel) -> bool:
    from langchain_openai import ChatOpenAI

    return isinstance(model, ChatOpenAI)


def _address(model: BaseChatModel) -> str:
    return (model_identity(model).base_url or "").rstrip("/")


def _redirected(model: BaseChatModel, door: GatewayAddress) -> BaseChatModel:
    """Return a copy with clients of its own, which no proxy of the environment diverts."""
    from langchain_openai import ChatOpenAI
    from openai import DefaultAsyncHttpxClient, DefaultHttpxClient

    chat = cast(ChatOpenAI, model)
    headers = {TOKEN_HEADER: door.token}
    client = chat.root_client.with_options(
        base_url=door.base_url,
        default_headers=headers,
        http_client=DefaultHttpxClient(trust_env=False, event_hooks=hooks()),
    )
    async_client = chat.root_async_client.with_options(
        base_url=door.base_url,
        default_headers=headers,
        http_client=DefaultAsyncHttpxClient(trust_env=False),
    )
    return chat.model_copy(
        update={
            "root_client": client,
            "client": client.chat.completions,
            "root_async_client": async_client,
            "async_client": async_client.chat.completions,
            "metadata": {**(chat.metadata or {}), UPSTREAM: model_identity(chat).base_url},
        }
    )

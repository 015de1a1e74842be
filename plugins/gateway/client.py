"""A run's side of the gateway: models that call through it, holding and stopping it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException
from typing import Any

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable

from costada.models.langchain_openai import is_openai, with_address
from costada.models.runnable_tree import (
    JOURNAL,
    UPSTREAM,
    AskedModel,
    underlying_models,
    with_every_model_changed,
)
from costada.plugins.gateway.gateway_protocol import HOLD, STOP, TOKEN_HEADER, GatewayAddress

ChatModel = Runnable[LanguageModelInput, AIMessage]
CONTROL_SECONDS = 10.0
BYPASSED = "requests would bypass the gateway"


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
        metadata = {UPSTREAM: AskedModel(part).base_url, JOURNAL: address.journal}
        return with_address(part, address.base_url, {TOKEN_HEADER: address.token}, metadata)

    return with_every_model_changed(model, redirected, BYPASSED)


def _address(model: BaseChatModel) -> str:
    return (AskedModel(model).base_url or "").rstrip("/")


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

"""A run's side of the gateway: models that call through it, holding and stopping it."""

import logging
from collections.abc import Callable
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from socket import SHUT_RDWR
from threading import Lock, Thread
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
LOG = logging.getLogger("costada.gateway")
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


class HeldGateway:
    """Keeps a gateway from ending as unused, until it is released or this process dies.

    A gateway that dies is started again. One that was stopped is not.
    """

    def __init__(
        self, address: GatewayAddress, again: Callable[[GatewayAddress], GatewayAddress]
    ) -> None:
        """Hold a gateway.

        Args:
            address: Where it is.
            again: Starts it again, if possible so that its clients find it.

        Raises:
            OSError: The gateway does not answer.
            ValueError: It does not accept the token.
        """
        self._address, self._again = address, again
        self._lock, self._is_released = Lock(), False
        self._connection, self._answer = _holding(address)
        self._watching = Thread(target=self._watch, name="gateway", daemon=True)
        self._watching.start()

    def release(self) -> None:
        """Let the gateway end as unused."""
        with self._lock:
            self._is_released = True
            with suppress(OSError):  # it has ended
                self._connection.sock.shutdown(SHUT_RDWR)
        self._watching.join()
        self._connection.close()

    def _watch(self) -> None:
        """Start the gateway again whenever it dies."""
        while self._has_died():
            try:
                address = self._again(self._address)
                connection, answer = _holding(address)
            except (ValueError, OSError) as error:
                LOG.warning("a gateway has died, and cannot be started again: %s", error)
                return
            with self._lock:
                self._connection.close()
                self._address, self._connection, self._answer = address, connection, answer
                if self._is_released:
                    return

    def _has_died(self) -> bool:
        """Wait for the end of the gateway, or until it is released; whether it has died."""
        try:
            with self._answer:
                self._answer.read()
        except (HTTPException, OSError):
            return not self._is_released
        return False


def _holding(address: GatewayAddress) -> tuple[HTTPConnection, HTTPResponse]:
    """The connection that keeps a gateway from ending, and its answer, which ends if it is stopped.

    Raises:
        OSError: The gateway does not answer.
        ValueError: It does not accept the token.
    """
    connection = _connection(address)
    connection.request("GET", HOLD, headers={TOKEN_HEADER: address.token})
    answer = connection.getresponse()
    if answer.status != 200:
        connection.close()
        message = f"{address.base_url}: not a gateway of CostAda, status {answer.status}"
        raise ValueError(message)
    connection.sock.settimeout(None)
    return connection, answer


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

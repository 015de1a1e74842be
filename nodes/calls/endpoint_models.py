"""The models that an evaluation asks through a server of this process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from socket import socket
from typing import Any, Protocol

from costada.evaluators.granted_models import FunctionCall
from costada.evaluators.remote.score_processes import call_in_process
from costada.models.endpoint.http_server import Endpoint
from costada.values.evaluation import Evaluation
from costada.values.model_access import new_token
from costada.values.roles import CANDIDATE, EVALUATION

SHARED = "shared"
"""Whose models a sandbox reaches that evaluator and candidate share."""


class ModelServer(Protocol):
    """A server, started when its address is first needed."""

    endpoint: Endpoint

    @property
    def url(self) -> str:
        """Where it listens for clients on this machine."""


class EndpointModels(ABC):
    """Models behind a server; a `GrantedModels`."""

    def __init__(self, server: ModelServer) -> None:
        """Take the server."""
        self._server = server

    @abstractmethod
    def admit(self, token: str, role: str) -> bool:
        """Let whoever shows a token ask the models of a role, or `SHARED`, if there are any."""

    @abstractmethod
    def dismiss(self, token: str) -> None:
        """Let whoever shows a token ask nothing more."""

    def connect(self, *, is_shared: bool) -> Callable[[socket], None] | None:
        """What serves the connections of a sandbox; see `GrantedModels`."""
        token = new_token()
        if not self.admit(token, SHARED if is_shared else CANDIDATE):
            return None
        return partial(self._server.endpoint.adopt, token=token)

    def call(self, problem: Any, called: FunctionCall, output: object) -> Evaluation:
        """What a function of a problem says, called in a process that asks through the server."""
        admit = partial(self.admit, role=EVALUATION)
        return call_in_process(problem, called, output, self._server.url, admit, self.dismiss)

"""What a client of the endpoint asks, what it is answered, and who keeps account of it."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from costada.models.metering import MeteredCall
from costada.models.runnable_tree import OutgoingRequest


class Dialect(StrEnum):
    """A protocol of requests, named after its path below `/v1`."""

    CHAT = "chat/completions"
    RESPONSES = "responses"
    EMBEDDINGS = "embeddings"
    MODELS = "models"
    MESSAGES = "messages"


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """A request of a client.

    Attributes:
        dialect: The protocol it is made in.
        model: The name of the model that it asks; empty where it asks for the list of them.
        body: Its body; empty where it asks for the list of models.
        is_stream: Whether it asks for an event stream.
        output_cap: Most tokens that it allows for a choice, if it says; of several limits the
            highest, as a provider may honour any of them.
        choices: How many answers it asks for.
        input_bound: Most tokens that the model can read in it.
        is_all_text: Whether the model reads nothing but the text of the request.
        headers: Those that the protocol gives a meaning.
        is_anthropic: Whether it is made by a client of Anthropic, also where it asks for the list
            of models.
        attempt: Names the attempt at the work of its client; a repeated attempt asks the same.
    """

    dialect: Dialect
    model: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)
    is_stream: bool = False
    output_cap: int | None = None
    choices: int = 1
    input_bound: int = 0
    is_all_text: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)
    is_anthropic: bool = False
    attempt: str = ""


@dataclass(frozen=True, slots=True)
class ClientResponse:
    """What a client is answered; a stream is sent piece by piece as it arrives."""

    status: int
    content_type: str
    body: bytes | AsyncGenerator[bytes, None]
    headers: Mapping[str, str] = field(default_factory=dict)


class Refusal(Exception):
    """A request is refused: nothing was sent and nothing is charged.

    Attributes:
        status: HTTP status, from 400.
        code: A short word that programs can read.
        retry_after: Seconds after which the client may ask again, if it may.
    """

    def __init__(
        self, status: int, code: str, message: str, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after = retry_after


class Postponed(Exception):
    """A request cannot leave yet; whoever sends it begins it again later.

    Attributes:
        seconds: How much later.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"not asked yet, again in {seconds:g} s")
        self.seconds = seconds


class BrokenStream(Exception):
    """A stream ended before its end; the connection of its client breaks too."""


class RequestLedger(Protocol):
    """Keeps account of the requests of a client that leave for a provider.

    Each `begin` that returned is followed by exactly one `finish`, also for a request that is
    cancelled. Both are called in a thread, as they write to a database, and in a copy of the
    context in which the request was sent.
    """

    def begin(self, request: OutgoingRequest) -> OutgoingRequest:
        """Write down a request that is about to leave, and return it as it may leave.

        Its `output_cap` may be lower then, and nothing else changes. The repetition of a failed
        request is a request of its own, with the next `number`. What is raised here ends the
        request, and nothing leaves. It must not wait for other requests, which may need the thread
        to end, but raise `Postponed`.
        """
        ...

    def finish(self, call: MeteredCall) -> None:
        """Write down how it ended, before the client sees the end.

        `call.reply.answer` is the body that the client gets, from which `stored_response` of
        `costada.models.endpoint.client_responses` makes the response again.
        """
        ...


Answer = Callable[[str, ClientRequest], Awaitable[ClientResponse]]
"""Answers the request of a client that shows a token; raises `Refusal`.

It runs in the event loop of paid calls and must not block it.
"""

"""Telling a provider's failures from programming errors, and passing ones from lasting ones."""

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from socket import gaierror
from traceback import walk_tb

from langchain_core.exceptions import (
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelError,
    ModelInvalidRequestError,
    ModelNotFoundError,
    ModelPermissionDeniedError,
    ModelRateLimitError,
    ModelTimeoutError,
    OutputParserException,
)
from langchain_core.language_models import BaseChatModel
from pydantic import ValidationError

from costada.models.retry_policy import YEAR

_SECRET_ENDINGS = ("_KEY", "_TOKEN", "_SECRET")
_SHORTEST_SECRET = 8
_LONGEST_DESCRIPTION = 500


class UnmeteredCall(RuntimeError):
    """A model answered and did not say how many tokens it billed, or said what cannot be."""


def describe(error: BaseException) -> str:
    """Return the class and message of an error, short and free of secrets.

    Providers sometimes quote the key they reject, and descriptions end up in journals and
    terminals. Values of environment variables named like a secret are replaced by the name.
    """
    said = str(error).encode("utf-8", "replace").decode()
    text = " ".join(said.split()) or "no message"
    for name, value in os.environ.items():
        secret = value.strip()
        if name.endswith(_SECRET_ENDINGS) and len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, f"<{name}>")
    return f"{type(error).__name__}: {text}"[:_LONGEST_DESCRIPTION]


_STATUS_OF_KIND: dict[type[ModelError], int] = {
    ModelInvalidRequestError: 400,
    ModelAuthenticationError: 401,
    ModelPermissionDeniedError: 403,
    ModelNotFoundError: 404,
    ModelRateLimitError: 429,
}
_OUT_OF_QUOTA = frozenset(
    {"insufficient_quota", "billing_not_active", "billing_hard_limit_reached"}
)
_OUT_OF_CREDIT = ("credit balance is too low", "insufficient_quota")
_PASSING_STATUSES = frozenset({408, 409, 425, 429})
_PASSING_KINDS = (
    ConnectionError,
    TimeoutError,
    ModelAPIError,
    ModelConnectionError,
    ModelTimeoutError,
)
_METER = "costada.models.metering"
_LOST_ON_THE_WAY = frozenset({"APIConnectionError", "TransportError"})
_NEVER_SENT = frozenset(
    {
        "ClientConnectorError",
        "ConnectError",
        "ConnectTimeout",
        "ConnectTimeoutError",
        "ConnectionTimeoutError",
        "EndpointConnectionError",
        "InvalidSchema",
        "InvalidURL",
        "LocalProtocolError",
        "MissingSchema",
        "NewConnectionError",
        "NoCredentialsError",
        "ParamValidationError",
        "PoolTimeout",
        "ProxyError",
        "UnsupportedProtocol",
    }
)
_MODEL_CODE = frozenset({"_generate", "_agenerate", "_stream", "_astream"})
_REQUEST_WRITERS = frozenset(
    {
        "_build_request",
        "_get_request_payload",
        "_use_responses_api",
        "build_request",
        "encode_request",
        "prepare",
        "prepare_request",
    }
)
"""Functions of LangChain, HTTP clients and SDKs that make a request and do not send it."""
_SDKS = ("openai", "anthropic")
"""SDKs whose functions for callers send a request in `_base_client`; a `parser` reads answers."""
_TIMED_OUT = frozenset({"APITimeoutError", "ReadTimeout", "Timeout", "ServerTimeoutError"})
_SDK_FAILURES = frozenset({"APIError", "LengthFinishReasonError", "ContentFilterFinishReasonError"})
_BODY_READERS = frozenset(
    {
        "_create_chat_result",
        "_construct_lc_result_from_responses_api",
        "_convert_chunk_to_generation_chunk",
    }
)
_ANSWER_TAKERS = frozenset(
    {"invoke", "ainvoke", "stream", "astream", "generate_from_stream", "agenerate_from_stream"}
)


def http_status(error: BaseException) -> int | None:
    """Return the HTTP status an error stands for, wherever its SDK puts it."""
    response = getattr(error, "response", None)
    codes = (
        getattr(error, "status_code", None),
        getattr(response, "status_code", None),
        getattr(error, "code", None),
    )
    for code in codes:
        if isinstance(code, int) and 200 <= code < 600:
            return int(code)
    for kind, status in _STATUS_OF_KIND.items():
        if isinstance(error, kind):
            return status
    return None


def may_have_been_billed(error: BaseException, has_left: bool) -> bool:
    """Tell whether a request that ended with an error may be on the provider's bill.

    An error status is not billed, and neither is a request that was never sent. A timeout, a lost
    connection, an error event inside a stream that had begun well, or an answer that cannot be read
    may be.

    Args:
        error: What ended the request.
        has_left: Whether anything was sent while the request was made, or can have been unseen.
    """
    status = http_status(error)
    if status is not None and status >= 400 and not _came_inside_a_stream(error):
        return False
    causes = list(_causes(error))
    if any(map(_never_connected, causes)) or _failed_while_written(error):
        return False
    return has_left or any(map(_is_of_a_network, causes)) or _is_unreadable_reply(error)


def is_passing(error: BaseException) -> bool:
    """Tell whether the same request may succeed a little later.

    True for rate limits, server errors, timeouts and lost connections. False for a quota that is
    used up, which some providers tell as a rate limit, and for whatever the receiver of a meter's
    reports raises: its answer is paid already.
    """
    if any(module == _METER for module, _ in _places(error)) or is_out_of_quota(error):
        return False
    status = http_status(error)
    if status is not None:
        return status in _PASSING_STATUSES or status >= 500
    return isinstance(error, _PASSING_KINDS) or _is_named(error, _LOST_ON_THE_WAY)


def is_out_of_quota(error: BaseException) -> bool:
    """Tell whether a provider refuses a request because the account has no money or quota left."""
    in_answer = _reported_in_answer(error)
    told = [getattr(error, "code", None), getattr(error, "type", None), in_answer.get("code")]
    if any(isinstance(word, str) and word in _OUT_OF_QUOTA for word in told):
        return True
    text = str(error).lower()
    return http_status(error) in (400, 429) and any(words in text for words in _OUT_OF_CREDIT)


def is_timeout(error: BaseException) -> bool:
    """Tell whether a request reached its provider and no complete answer came in time."""
    is_late = isinstance(error, TimeoutError | ModelTimeoutError) or _is_named(error, _TIMED_OUT)
    return is_late and not any(_never_connected(each) for each in _causes(error))


def is_down(error: BaseException) -> bool:
    """Tell whether an error says that the provider is unavailable.

    True for rate limits, server errors and lost connections, also where an answer of status 200
    reports one; false for timeouts, which may be due to the request.
    """
    told = str(_reported_in_answer(error).get("code", ""))
    if told.isdecimal():
        return int(told) in _PASSING_STATUSES or int(told) >= 500
    return is_passing(error) and not is_timeout(error)


def is_no_protocol(error: BaseException) -> bool:
    """Tell whether what answered is not a chat model, such as a server of web pages.

    A chat model's answer may report an error or miss the wanted schema.
    """
    is_of_protocol = isinstance(error, ValidationError) or bool(_reported_in_answer(error))
    has_failed = (http_status(error) or 0) >= 400
    return not (has_failed or is_of_protocol) and _is_unreadable_reply(error)


def retry_after(error: BaseException) -> float | None:
    """Return the seconds that a provider asks to wait before the next request, if it does.

    At most a year.
    """
    headers = getattr(getattr(error, "response", None), "headers", None)
    if not isinstance(headers, Mapping):
        return None
    milliseconds = _seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    told = headers.get("retry-after")
    seconds = _seconds(told)
    if seconds is not None or not told:
        return seconds
    try:
        moment = parsedate_to_datetime(told)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return min(YEAR, max(0.0, (moment - datetime.now(UTC)).total_seconds()))


def is_providers(error: BaseException) -> bool:
    """Tell whether an error is the provider's, including replies that cannot be read."""
    places = _places(error)
    if not isinstance(error, Exception) or any(module == _METER for module, _ in places):
        return False
    return (
        http_status(error) is not None
        or is_passing(error)
        or isinstance(error, ModelError | OutputParserException)
        or _is_named(error, _SDK_FAILURES)
        or _is_unreadable_reply(error)
    )


def _seconds(told: object) -> float | None:
    try:
        seconds = float(str(told))
    except ValueError:
        return None
    return min(YEAR, max(0.0, seconds)) if isfinite(seconds) else None


def _reported_in_answer(error: BaseException) -> Mapping[str, object]:
    """Return the error that an answer of status 200 reports, as LangChain raises it, if any."""
    if not isinstance(error, ValueError) or not _is_unreadable_reply(error):
        return {}
    told = error.args[0] if error.args else None
    return told if isinstance(told, Mapping) else {}


def _never_connected(error: BaseException) -> bool:
    return isinstance(error, ConnectionRefusedError | gaierror) or _is_named(error, _NEVER_SENT)


def _failed_while_written(error: BaseException) -> bool:
    """Tell whether a request could not be made, for instance of an unknown parameter."""
    places = _places(error)
    if any(function in _REQUEST_WRITERS for _, function in places):
        return True
    if any(module.endswith("._base_client") or name == "parser" for module, name in places):
        return False
    callers = tuple(f"{sdk}.{room}." for sdk in _SDKS for room in ("resources", "_utils"))
    return any(module.startswith(callers) for module, _ in places)


def _is_of_a_network(error: BaseException) -> bool:
    """Tell whether an error says itself that a request was under way.

    An error of Python's own that a chat model raises in its own code says nothing.
    """
    _, function = (_places(error) or [("", "")])[-1]
    return (
        isinstance(error, ModelError)
        or (isinstance(error, ConnectionError | TimeoutError) and function not in _MODEL_CODE)
        or _is_named(error, _LOST_ON_THE_WAY | _SDK_FAILURES | {"RpcError"})
        or http_status(error) is not None
    )


def _came_inside_a_stream(error: BaseException) -> bool:
    """Tell whether a code is told by an event of a stream: the OpenAI SDK gives it no status."""
    has_status = hasattr(error, "status_code") or hasattr(error, "response")
    return _is_named(error, _SDK_FAILURES) and not has_status


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those it was made of, but not an earlier one that was being handled.

    Some clients hand the cause on as an argument (requests) or as a reason (urllib).
    """
    pending, seen = [error], set[int]()
    while pending:
        current = pending.pop()
        if isinstance(current, BaseException) and id(current) not in seen:
            seen.add(id(current))
            yield current
            pending += [current.__cause__, getattr(current, "reason", None), *current.args]


def _is_named(error: BaseException, names: frozenset[str]) -> bool:
    """Tell whether a class of an error has one of the names.

    SDKs of different providers name their errors alike, and not all are installed.
    """
    return any(kind.__name__ in names for kind in type(error).__mro__)


def _is_unreadable_reply(error: BaseException) -> bool:
    """Tell whether an error was raised while a reply's body was read.

    LangChain and the OpenAI SDK raise built-in types for a body they cannot read, so only the
    place they come from tells them from a programming error.
    """
    places = _places(error)
    if _failed_while_written(error):
        return False
    for module, function in places:
        if module.startswith("langchain_openai.") and function in _BODY_READERS:
            return True
        if module.startswith("openai.") and isinstance(error, ValueError):
            return True
    module, function = places[-1] if places else ("", "")
    return module == BaseChatModel.__module__ and function in _ANSWER_TAKERS


def _places(error: BaseException) -> list[tuple[str, str]]:
    """Return module and function of each frame an error passed through, outermost first."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    return [(str(frame.f_globals.get("__name__")), frame.f_code.co_name) for frame in frames]

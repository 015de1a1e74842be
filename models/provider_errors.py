"""Whether an error is the provider's or ours, transient or permanent, billed or not."""

from collections.abc import Iterator, Mapping
from socket import gaierror

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
from pydantic import ValidationError

from costada.models.langchain_openai import (
    failed_before_sending,
    failed_reading_response,
    raised_by_model_code,
    traceback_frames,
)
from costada.values.provider_error import (
    LOST_CONNECTION,
    is_named,
    is_transient_status,
    says_out_of_quota,
    stated_status,
)

_METER = "costada.models.metering"

# Errors of LangChain itself have a class in place of a status.
_STATUS_OF_KIND: dict[type[ModelError], int] = {
    ModelInvalidRequestError: 400,
    ModelAuthenticationError: 401,
    ModelPermissionDeniedError: 403,
    ModelNotFoundError: 404,
    ModelRateLimitError: 429,
}
_TRANSIENT_KINDS = (
    ConnectionError,
    TimeoutError,
    ModelAPIError,
    ModelConnectionError,
    ModelTimeoutError,
)
_TIMED_OUT = frozenset({"APITimeoutError", "ReadTimeout", "Timeout", "ServerTimeoutError"})
_SDK_FAILURES = frozenset({"APIError", "LengthFinishReasonError", "ContentFilterFinishReasonError"})
# Of httpx, requests, urllib3, aiohttp and botocore.
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


def http_status(error: BaseException) -> int | None:
    """The HTTP status of an error, wherever its SDK puts it."""
    stated = stated_status(error)
    if stated is not None:
        return stated
    for kind, status in _STATUS_OF_KIND.items():
        if isinstance(error, kind):
            return status
    return None


def may_have_been_billed(error: BaseException, may_be_sent: bool) -> bool:
    """Whether a request that ended with an error may be on the provider's bill.

    An error status is not billed, and neither is a request that was never sent. A timeout, a lost
    connection, an error event inside a stream that had begun well, or an answer that cannot be read
    may be.

    Args:
        error: What ended the request.
        may_be_sent: Whether anything may have been sent while the request was made.
    """
    status = http_status(error)
    has_status = hasattr(error, "status_code") or hasattr(error, "response")
    # The OpenAI SDK gives the error event of a stream a code and no status.
    is_stream_event = is_named(error, _SDK_FAILURES) and not has_status
    if status is not None and status >= 400 and not is_stream_event:
        return False
    causes = list(_causes(error))
    # Asked first: these count as errors of a network too, though nothing was sent.
    if any(map(_never_connected, causes)) or failed_before_sending(error):
        return False
    return may_be_sent or any(map(_is_of_a_network, causes)) or failed_reading_response(error)


def is_transient(error: BaseException) -> bool:
    """Whether the same request may succeed a little later.

    True for rate limits, server errors, timeouts and lost connections. False for a quota that is
    used up, which some providers report as a rate limit, and for whatever the receiver of a meter's
    reports raises: its answer is paid already.
    """
    if _came_through_meter(error) or is_out_of_quota(error):
        return False
    status = http_status(error)
    if status is not None:
        return is_transient_status(status)
    return isinstance(error, _TRANSIENT_KINDS) or is_named(error, LOST_CONNECTION)


def is_out_of_quota(error: BaseException) -> bool:
    """Whether a provider refuses a request because the account has no money or quota left."""
    return says_out_of_quota(error, http_status(error), _reported_in_answer(error).get("code"))


def is_rate_limit(error: BaseException) -> bool:
    """Whether a provider refuses a request because too many are sent, also in an answer of 200."""
    code = str(_reported_in_answer(error).get("code", ""))
    return (http_status(error) == 429 or code == "429") and not is_out_of_quota(error)


def is_timeout(error: BaseException) -> bool:
    """Whether a request reached its provider and no complete answer came in time."""
    is_late = isinstance(error, TimeoutError | ModelTimeoutError) or is_named(error, _TIMED_OUT)
    return is_late and not any(map(_never_connected, _causes(error)))


def is_unavailable(error: BaseException) -> bool:
    """Whether an error says that the provider is unavailable.

    True for rate limits, server errors and lost connections, also where an answer of status 200
    reports one; false for timeouts, which may be due to the request.
    """
    code = str(_reported_in_answer(error).get("code", ""))
    if code.isdecimal():
        return is_transient_status(int(code))
    return is_transient(error) and not is_timeout(error)


def is_not_chat_api(error: BaseException) -> bool:
    """Whether the server that answered is not a chat API, such as a web server.

    An answer of a chat API may report an error or fail to match the requested schema.
    """
    is_of_protocol = isinstance(error, ValidationError) or bool(_reported_in_answer(error))
    has_failed = (http_status(error) or 0) >= 400
    return not (has_failed or is_of_protocol) and failed_reading_response(error)


def is_provider_failure(error: BaseException) -> bool:
    """Whether an error is the provider's, including replies that cannot be read."""
    if not isinstance(error, Exception) or _came_through_meter(error):
        return False
    return (
        http_status(error) is not None
        or is_transient(error)
        or isinstance(error, ModelError | OutputParserException)
        or is_named(error, _SDK_FAILURES)
        or failed_reading_response(error)
    )


def _reported_in_answer(error: BaseException) -> Mapping[str, object]:
    """The error that an answer of status 200 reports, as LangChain raises it, if any."""
    if not isinstance(error, ValueError) or not failed_reading_response(error):
        return {}
    reported = error.args[0] if error.args else None
    return reported if isinstance(reported, Mapping) else {}


def _never_connected(error: BaseException) -> bool:
    return isinstance(error, ConnectionRefusedError | gaierror) or is_named(error, _NEVER_SENT)


def _is_of_a_network(error: BaseException) -> bool:
    """Whether an error shows that a request was sent; a built-in one of a model's code does not."""
    return (
        isinstance(error, ModelError)
        or (isinstance(error, ConnectionError | TimeoutError) and not raised_by_model_code(error))
        or is_named(error, LOST_CONNECTION | _SDK_FAILURES | {"RpcError"})
        or http_status(error) is not None
    )


def _came_through_meter(error: BaseException) -> bool:
    return any(module == _METER for module, _ in traceback_frames(error))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes, but not an earlier error that was being handled.

    Some clients pass the cause as an argument (requests) or as a reason (urllib).
    """
    pending, seen = [error], set[int]()
    while pending:
        current = pending.pop()
        if isinstance(current, BaseException) and id(current) not in seen:
            seen.add(id(current))
            yield current
            pending += [current.__cause__, getattr(current, "reason", None), *current.args]

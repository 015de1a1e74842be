"""Telling a provider's failures from programming errors, and passing ones from lasting ones."""

from collections.abc import Iterator
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

_STATUS_OF_KIND: dict[type[ModelError], int] = {
    ModelInvalidRequestError: 400,
    ModelAuthenticationError: 401,
    ModelPermissionDeniedError: 403,
    ModelNotFoundError: 404,
    ModelRateLimitError: 429,
}
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
_NEVER_SENT = frozenset({"ConnectError", "ConnectTimeout", "UnsupportedProtocol"})
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


def may_have_been_billed(error: BaseException) -> bool:
    """Tell whether a request that ended with an error may be on the provider's bill.

    An error status is not billed, and neither is a request that reached nobody. Of a timeout, a
    lost connection, an error told inside a stream that had begun well, or an answer that cannot be
    read nobody can tell.
    """
    status = http_status(error)
    if status is not None and status >= 400 and not _came_inside_a_stream(error):
        return False
    return not any(_reached_nobody(each) for each in _causes(error))


def is_passing(error: BaseException) -> bool:
    """Tell whether the same request may succeed a little later.

    True for rate limits, server errors, timeouts and lost connections. False for whatever the
    receiver of a meter's reports raises: its answer is paid already.
    """
    if any(module == _METER for module, _ in _places(error)):
        return False
    status = http_status(error)
    if status is not None:
        return status in _PASSING_STATUSES or status >= 500
    return isinstance(error, _PASSING_KINDS) or _is_named(error, _LOST_ON_THE_WAY)


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


def _reached_nobody(error: BaseException) -> bool:
    return isinstance(error, ConnectionRefusedError) or _is_named(error, _NEVER_SENT)


def _came_inside_a_stream(error: BaseException) -> bool:
    """Tell whether a code is told by an event of a stream: the OpenAI SDK gives it no status."""
    has_status = hasattr(error, "status_code") or hasattr(error, "response")
    return _is_named(error, _SDK_FAILURES) and not has_status


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those it was made of, but not an earlier one that was being handled."""
    while error is not None:
        yield error
        error = error.__cause__


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

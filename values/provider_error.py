"""What an error of any provider's SDK says: its HTTP status, quota, connection, and time to wait.

SDKs name their errors alike, and not all are installed, so classes are known by their names.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite

YEAR = 366 * 86_400.0
"""Seconds of the longest time that can be waited for."""

TRANSIENT_STATUSES = frozenset({408, 409, 425, 429})

LOST_CONNECTION = frozenset({"APIConnectionError", "TransportError"})
"""Classes of errors of OpenAI, Anthropic and httpx, timeouts included."""

_OUT_OF_QUOTA = frozenset(
    {"insufficient_quota", "billing_not_active", "billing_hard_limit_reached"}
)
_OUT_OF_CREDIT = ("credit balance is too low", "insufficient_quota")


def stated_status(error: BaseException) -> int | None:
    """The HTTP status that an error has, wherever its SDK puts it."""
    response = getattr(error, "response", None)
    codes = (
        getattr(error, "status_code", None),
        getattr(response, "status_code", None),
        getattr(error, "code", None),
    )
    for code in codes:
        if isinstance(code, int) and 200 <= code < 600:
            return int(code)
    return None


def is_transient_status(status: int) -> bool:
    """Whether a request that was refused with a status may succeed a little later."""
    return status in TRANSIENT_STATUSES or status >= 500


def says_out_of_quota(error: BaseException, status: int | None, code: object = None) -> bool:
    """Whether an error says that the account has no money or quota left.

    Some providers report it as a rate limit. `code` is one that came in a complete answer.
    """
    codes = [getattr(error, "code", None), getattr(error, "type", None), code]
    if any(isinstance(each, str) and each in _OUT_OF_QUOTA for each in codes):
        return True
    text = str(error).lower()
    return status in (400, 429) and any(words in text for words in _OUT_OF_CREDIT)


def is_named(error: BaseException, names: frozenset[str]) -> bool:
    """Whether the class of an error, or one from which it is derived, has one of these names."""
    return any(kind.__name__ in names for kind in type(error).__mro__)


def retry_after(error: BaseException) -> float | None:
    """Seconds that a provider asks to wait before the next request, if it does; at most a year."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    if not isinstance(headers, Mapping):
        return None
    milliseconds = _seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _seconds(value)
    if seconds is not None or not value:
        return seconds
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return min(YEAR, max(0.0, (moment - datetime.now(UTC)).total_seconds()))


def _seconds(value: object) -> float | None:
    try:
        seconds = float(str(value))
    except ValueError:
        return None
    return min(YEAR, max(0.0, seconds)) if isfinite(seconds) else None

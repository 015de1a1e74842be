"""Whether an error of an evaluator says that the provider of a model it asks is unavailable."""

from collections.abc import Iterator

from costada.values.provider_error import (
    LOST_CONNECTION,
    is_named,
    is_transient_status,
    retry_after,
    says_out_of_quota,
    stated_status,
)


def outage_seconds(error: BaseException) -> float | None:
    """Seconds that an unavailable provider asks to wait, 0 if it does not say; `None`: no outage.

    Rate limits, server errors, time-outs and lost connections are recognised by the classes of
    OpenAI, Anthropic and httpx and by the HTTP status that an error has, also where another error
    was raised because of it. A plain `ValueError` is a rejection, whatever caused it.
    """
    for each in _chain(error):
        if _is_transient(each):
            return retry_after(each) or 0.0
        if isinstance(each, ValueError):
            return None
    return None


def _is_transient(error: BaseException) -> bool:
    if not isinstance(error, Exception):  # the code of an exit is no status
        return False
    status = stated_status(error)
    if status is None:
        return is_named(error, LOST_CONNECTION)
    return is_transient_status(status) and not says_out_of_quota(error, status)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and those during whose handling it was raised."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)

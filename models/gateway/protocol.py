"""What client and gateway agree on: paths, the headers of a request, those handed on."""

from collections.abc import Iterable, Mapping
from urllib.parse import unquote

PREFIX = "/v1"
"""Requests below it go upstream, without it."""

HOLD, STOP = "/hold", "/stop"
IDLE_SECONDS = 600.0
"""A gateway that nobody uses for so long, with no request under way, ends by itself."""

CALL_TIMEOUT = 3600.0
"""Seconds after which a gateway gives a response up as lost, even if a client still waits."""

CALL_HEADER = "X-CostAda-Call"
"""The logical call: run_id/iteration/role/attempt, the same when it is executed again."""

EXECUTION_HEADER = "X-CostAda-Execution"
"""Which execution of that call is asking; new each time the call is executed."""

TOKEN_HEADER = "X-CostAda-Token"  # noqa: S105
"""Proof that the client may use this gateway."""

UPSTREAM = "costada_upstream"
"""In the metadata of a model that calls through a gateway: the address of its provider."""

Headers = tuple[tuple[str, str], ...]

_OWN = "x-costada-"
_OF_ONE_CONNECTION = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_KEPT = frozenset(
    {"content-type", "retry-after", "retry-after-ms", "x-request-id", "x-should-retry"}
)
_KEPT_BEGINNINGS = ("openai-", "x-ratelimit-")


def path_below(target: str) -> str | None:
    """Return what follows the prefix in the target of a request, as the provider gets it.

    `None` where any server on the way might take it for a path outside: it has steps upwards, empty
    steps, backslashes or control characters, encoded once or more often.
    """
    if not target.startswith(f"{PREFIX}/"):
        return None
    path, plain = target.partition("?")[0].removeprefix(f"{PREFIX}/"), ""
    while plain != path:
        plain, path = path, unquote(path)
    steps = [step.partition(";")[0] for step in plain.split("/")]
    is_odd = "\\" in plain or not plain.isprintable() or {"", ".", ".."}.intersection(steps)
    return None if is_odd else target.removeprefix(PREFIX)


def sent_upstream(headers: Mapping[str, str]) -> Headers:
    """Return the headers of a request that the provider gets: not the gateway's own."""
    return tuple(
        (name, value)
        for name, value in headers.items()
        if name.lower() not in _OF_ONE_CONNECTION and not name.lower().startswith(_OWN)
    )


def kept_of_answer(headers: Iterable[tuple[str, str]]) -> Headers:
    """Return the headers of a response that clients act on; the others are dropped."""
    return tuple(
        (name, value)
        for name, value in headers
        if name.lower() in _KEPT or name.lower().startswith(_KEPT_BEGINNINGS)
    )

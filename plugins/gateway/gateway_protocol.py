"""What client and gateway agree on: the address file, paths and headers."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from stat import S_ISREG
from time import monotonic, sleep
from urllib.parse import unquote

PREFIX = "/v1"
"""Requests below it go upstream, without it."""

HOLD, STOP = "/hold", "/stop"
IDLE_SECONDS = 600.0
"""An unused gateway without a running request ends after so long."""

CALL_TIMEOUT = 3600.0
"""Seconds after which a gateway gives a response up as lost, even if a client still waits."""

TOKEN_HEADER = "X-CostAda-Token"  # noqa: S105
"""Proof that the client may use this gateway."""

Headers = tuple[tuple[str, str], ...]

_OWN_HEADERS = "x-costada-"
_CONNECTION_HEADERS = frozenset(
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
_KEPT_HEADERS = frozenset(
    {"content-type", "retry-after", "retry-after-ms", "x-request-id", "x-should-retry"}
)
_KEPT_HEADER_PREFIXES = ("openai-", "x-ratelimit-")

_OWNER_ONLY = 0o600
_LOCK_SECONDS = 1.0
_TICK_SECONDS = 0.01
_TO_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_FOR_OWNER = os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Non-blocking, so that opening a pipe in place of a file does not wait."""


def path_below(target: str) -> str | None:
    """What follows the prefix in the target of a request; `None` if it may lead outside.

    A path with `..`, `.`, empty steps, backslashes or control characters is refused, however often
    these are percent-encoded: any server on the way might decode them.
    """
    if not target.startswith(f"{PREFIX}/"):
        return None
    path, plain = target.partition("?")[0].removeprefix(f"{PREFIX}/"), ""
    while plain != path:
        plain, path = path, unquote(path)
    steps = [step.partition(";")[0] for step in plain.split("/")]
    is_odd = "\\" in plain or not plain.isprintable() or {"", ".", ".."}.intersection(steps)
    return None if is_odd else target.removeprefix(PREFIX)


def forwarded_headers(headers: Mapping[str, str]) -> Headers:
    """The headers of a request without those meant for the gateway or for one connection."""
    return tuple(
        (name, value)
        for name, value in headers.items()
        if name.lower() not in _CONNECTION_HEADERS and not name.lower().startswith(_OWN_HEADERS)
    )


def returned_headers(headers: Iterable[tuple[str, str]]) -> Headers:
    """The headers of a response that clients act on; the others are dropped."""
    return tuple(
        (name, value)
        for name, value in headers
        if name.lower() in _KEPT_HEADERS or name.lower().startswith(_KEPT_HEADER_PREFIXES)
    )


def open_for_owner(path: Path, flags: int) -> int:
    """Open a file that only its owner can read, creating it if need be; returns the descriptor.

    Raises:
        ValueError: It is a link or no file, or has another name elsewhere.
        OSError: It cannot be opened.
    """
    refuse_link(path)
    descriptor = os.open(path, flags | _FOR_OWNER, _OWNER_ONLY)
    found = os.fstat(descriptor)
    if not S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(descriptor)
        raise ValueError(f"{path}: expected a file with one name only; remove it")
    os.fchmod(descriptor, _OWNER_ONLY)
    return descriptor


def refuse_link(path: Path) -> None:
    """Raise `ValueError` for a symbolic link."""
    if path.is_symlink():
        raise ValueError(f"{path}: is a link, expected a file of the gateway's own; remove it")


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    """A running gateway: its port on 127.0.0.1, process, token, provider's address and journal.

    `journal` is the id of the journal; empty if the gateway is of a version that has none.
    """

    port: int
    pid: int
    token: str
    upstream: str
    journal: str = ""

    @property
    def base_url(self) -> str:
        """The address that a client takes for the provider's."""
        return f"http://127.0.0.1:{self.port}{PREFIX}"


def address_file(journal: Path) -> Path:
    """Where the gateway of a journal keeps its address."""
    return journal.with_name(f"{journal.name}.address")


def read_address(path: Path) -> GatewayAddress | None:
    """The gateway that holds an address file, `None` if none does or it is not ready yet.

    What a dead gateway left in the file is never returned: the system has released its lock.
    """
    try:
        with open(os.open(path, _TO_READ), encoding="utf-8") as file:
            text = file.read() if _is_locked(file.fileno()) else ""
    except FileNotFoundError:
        return None
    return GatewayAddress(**json.loads(text)) if text else None


def is_held(path: Path) -> bool:
    """Whether a gateway holds an address file, ready or not."""
    try:
        with open(os.open(path, _TO_READ), "rb") as file:
            return _is_locked(file.fileno())
    except FileNotFoundError:
        return False


class AddressFile:
    """The address file, held by one gateway."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.clear()

    def write(self, address: GatewayAddress) -> None:
        """Publish the address of the gateway."""
        os.write(self._descriptor, json.dumps(asdict(address)).encode())

    def clear(self) -> None:
        """Withdraw the address."""
        os.ftruncate(self._descriptor, 0)


@contextmanager
def hold_address(path: Path) -> Iterator[AddressFile]:
    """Hold the address file for this process; the file stays and only its owner can read it.

    Raises:
        ValueError: Another gateway uses the same journal, or the file is a link.
        OSError: The file cannot be created.
    """
    descriptor = open_for_owner(path, os.O_RDWR)
    try:
        _lock(descriptor, path)
        file = AddressFile(descriptor)
        try:
            yield file
        finally:
            file.clear()
    finally:
        os.close(descriptor)


def _is_locked(descriptor: int) -> bool:
    """Whether another process locks a file; the lock taken here ends when the file is closed."""
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _lock(descriptor: int, path: Path) -> None:
    """Lock an address file; its readers lock it as well, for a moment."""
    import fcntl

    deadline = monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if monotonic() > deadline:
                raise ValueError(f"{path}: another gateway uses this journal") from None
            sleep(_TICK_SECONDS)

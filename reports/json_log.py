"""The log of a command as JSON, one object a line on standard error, if COSTADA_LOG is json."""

from __future__ import annotations

import atexit
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from decimal import Decimal
from io import TextIOBase
from math import isfinite
from traceback import format_exception
from types import TracebackType
from typing import Any, Literal

from costada.values.redaction import without_passwords

VARIABLE, JSON = "COSTADA_LOG", "json"
STANDARD_ERROR = 2
Level = Literal["info", "warning", "error"]

current_run: ContextVar[str] = ContextVar("costada_current_run", default="")
"""Name of the run that this thread or task works on, for what it logs."""

# Reentrant: a signal handler may log while its own thread does.
_LOCK = threading.RLock()
_has_begun = [False]


def is_on() -> bool:
    """Whether this process logs in JSON."""
    return _has_begun[0]


def begin_if_asked() -> None:
    """Write nothing but JSON objects to standard error from here on, if the environment says so.

    Messages of Python loggers, warnings, tracebacks and what others print there become events too.

    Raises:
        ValueError: The variable has another value.
    """
    given = os.environ.get(VARIABLE, "")
    if given not in ("", JSON):
        raise ValueError(f"{VARIABLE}: got {given!r}, expected {JSON}, or no such variable")
    if not given:
        return
    _has_begun[0] = True
    sys.stderr = output = _Output()
    atexit.register(output.end)
    sys.excepthook = _log_crash
    threading.excepthook = lambda found: _log_crash(
        found.exc_type, found.exc_value, found.exc_traceback
    )
    logging.captureWarnings(True)
    logging.getLogger().addHandler(_Records(logging.WARNING))
    os.register_at_fork(after_in_child=_renew_lock)


def _renew_lock() -> None:
    """Another thread of the parent may have held the lock, and does not exist in the child."""
    global _LOCK
    _LOCK = threading.RLock()


def log_event(event: str, message: str = "", *, level: Level = "info", **facts: Any) -> None:
    """Write one event, if this process logs in JSON; empty texts are left out.

    May be called inside a signal handler. Nothing fails if standard error is closed.
    """
    if not is_on():
        return
    line = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "level": level,
        "event": event,
        "message": without_passwords(message),
        "run": current_run.get(),
        **facts,
    }
    known = _plain({name: value for name, value in line.items() if value != ""})
    # JSON escapes all control characters but this one.
    text = json.dumps(known, allow_nan=False, default=str).replace("\x7f", "\\u007f")
    left = f"{text}\n".encode()
    with _LOCK, suppress(OSError):
        while left:
            left = left[os.write(STANDARD_ERROR, left) :]


def log_message(text: str, level: Level, **facts: Any) -> None:
    """Write a message as the event `error`, or `notice` if it is none."""
    log_event("error" if level == "error" else "notice", text, level=level, **facts)


def _plain(value: object) -> object:
    """A value in types of JSON, which has no number for infinity and for what is no number."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Decimal):
        value = float(value)
    return None if isinstance(value, float) and not isfinite(value) else value


class _Records(logging.Handler):
    """Writes what Python loggers are told."""

    def emit(self, record: logging.LogRecord) -> None:
        # What a message of ours has as `extra`.
        facts: dict[str, Any] = {"ticket": record.ticket} if hasattr(record, "ticket") else {}
        if record.exc_info:
            facts["traceback"] = without_passwords("".join(format_exception(record.exc_info[1])))
        level: Level = "error" if record.levelno >= logging.ERROR else "warning"
        log_message(record.getMessage(), level, logger=record.name, **facts)


class _Output(TextIOBase):
    """Stands in for standard error: each line that is printed there is an event."""

    encoding = "utf-8"

    def __init__(self) -> None:
        self._begun = ""

    def write(self, text: str) -> int:
        with _LOCK:
            *lines, self._begun = re.split("[\r\n]", self._begun + text)
        for line in lines:
            if line.strip():
                log_event("output", line)
        return len(text)

    def end(self) -> None:
        """Write the last line, if it has no end."""
        self.write("\n")

    def fileno(self) -> int:
        return STANDARD_ERROR

    def writable(self) -> bool:
        return True


def _log_crash(
    kind: type[BaseException], error: BaseException | None, trace: TracebackType | None
) -> None:
    if not issubclass(kind, SystemExit):
        traceback = without_passwords("".join(format_exception(kind, error, trace)))
        log_message(f"{kind.__name__}: {error}", "error", traceback=traceback)

"""What is reported of a failure inside: an error in words that a model can act on, and its cause.

An evaluator catches the error of a refused process and calls the candidate invalid, so that the
answer alone says nothing of it: the log does. The provider of a model that an evaluator asks may be
unavailable, which is not a fault of a candidate.
"""

import errno
import os
import sys
import traceback
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple

from costada.evaluators.sandbox.inside.foreign_code import capture_exception
from costada.evaluators.sandbox.inside.orders import PROGRAM, policy
from costada.values.provider_error import (
    LOST_CONNECTION,
    is_named,
    is_transient_status,
    retry_after,
    says_out_of_quota,
    stated_status,
)

MAX_MESSAGE_CHARS = 2000
MAX_FRAMES = 8
MAX_LINE_CHARS = 200
REFUSALS = (errno.EACCES, errno.ENOSYS, errno.EPERM, errno.EROFS)
UNMAPPED = "failed to map segment"
"""What the system's loader says of a library for which no memory is left."""

STARTING_EVENTS = (
    *("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system"),
    *("os.exec", "pty.spawn"),
)
"""Events by which Python reports that a process is about to be started."""

PROCESS_REFUSED = "No process may be started in this sandbox"
HINT = "if the evaluator needs processes, write processes = 16 in problem.toml"
MAX_NAME_CHARS = 60
LOG_FD = 2

Request = Mapping[str, Any]


class File(NamedTuple):
    """What an error may show of a file: the name to show it under, and its text."""

    name: str
    text: str


class Files:
    """The request's files, noted before a program can change the working folder or the files."""

    def __init__(self, request: Request, limits: Mapping[str, int], no_memory: bytes) -> None:
        """Note the files and their contents, and the limits that errors name."""
        self.limits = limits
        self.no_memory = no_memory
        self._texts: Mapping[str, bytes] = request["files"]
        self._folder = os.getcwd()
        self.has_evaluator = "evaluator" in request
        self.evaluator: str | None = None
        if self.has_evaluator:
            self.evaluator = os.path.join(self._folder, request["evaluator"])
        self._evaluator_text = b""
        if self.evaluator:
            with suppress(OSError), open(self.evaluator, "rb") as file:
                self._evaluator_text = file.read()  # loading it fails with the reason

    def shown(self) -> dict[str, File]:
        """What an error may show, by full path; made for an error, as most programs have none."""
        place = f"{PROGRAM}/" if self.has_evaluator else ""
        shown = {
            os.path.join(self._folder, path): File(path.removeprefix(place), _text(found))
            for path, found in self._texts.items()
        }
        if self.evaluator:
            name = os.path.basename(self.evaluator)
            shown[self.evaluator] = File(name, _text(self._evaluator_text))
        return shown


def _text(content: bytes) -> str:
    return content.decode("utf-8-sig", "replace")


def error_report(error: BaseException, files: Mapping[str, File], limits: Mapping[str, int]) -> str:
    """An exception in words a model can act on: its message, and the frames in files shown.

    `files` are by full path; of the limits, the one that was exceeded is named.
    """
    text = type(error).__name__
    # Its own code may fail in producing more, in whatever way.
    with capture_exception(also=(BaseException,), but=(MemoryError,)):
        text = _message(error, limits)
    for filename, file in files.items():
        text = text.replace(filename, file.name).replace(filename.removesuffix(file.name), "")
    if len(text) > MAX_MESSAGE_CHARS:
        half = MAX_MESSAGE_CHARS // 2
        text = f"{text[:half]} ... {text[-half:]}"
    report = [text]
    for filename, number, function in frames_in(error.__traceback__, files)[-MAX_FRAMES:]:
        report.append(f'  File "{files[filename].name}", line {number}, in {function}')
        lines = files[filename].text.splitlines()
        if number <= len(lines) and (line := lines[number - 1].strip()[:MAX_LINE_CHARS]):
            report.append(f"    {line}")
    return "\n".join(report)


def _message(error: BaseException, limits: Mapping[str, int]) -> str:
    if isinstance(error, MemoryError):
        traceback.clear_frames(error.__traceback__)
        return out_of_memory(limits)
    if isinstance(error, SystemExit):
        return f"SystemExit: the program called exit ({error.code!r}) instead of returning"
    text = "".join(traceback.format_exception_only(error)).strip()
    if isinstance(error, OSError) and error.errno in REFUSALS:
        return f"{text}\n{policy(limits['processes'])}"
    if isinstance(error, ImportError) and UNMAPPED in text:
        return f"{text}\n(the limit is {limits['memory_mb']} MB: memory_mb)"
    if isinstance(error, OSError) and error.errno in (errno.EFBIG, errno.ENOSPC):
        return f"{text}\n(the limit of the program's files is {limits['scratch_mb']} MB)"
    return text


def out_of_memory(limits: Mapping[str, int]) -> str:
    """The error of a program that has used up its memory."""
    return f"MemoryError: out of memory, the limit is {limits['memory_mb']} MB"


def frames_in(trace: TracebackType | None, filenames: Container[str]) -> list[tuple[str, int, str]]:
    """File name, line and function of each frame that lies in one of the files."""
    return [
        (frame.f_code.co_filename, line, frame.f_code.co_name)
        for frame, line in traceback.walk_tb(trace)
        if frame.f_code.co_filename in filenames
    ]


def report_refused_processes() -> None:
    """Write one line to the log when this process first tries to start another one."""
    seen: list[str] = []

    def report(event: str, arguments: tuple[object, ...]) -> None:
        if seen or event not in STARTING_EVENTS:
            return
        seen.append(event)
        given = arguments[0] if arguments else None
        name = os.path.basename(os.fsdecode(given)) if isinstance(given, str | bytes) else ""
        shown = f" ({name[:MAX_NAME_CHARS]})" if name.isprintable() and name else ""
        os.write(LOG_FD, f"\n{PROCESS_REFUSED}{shown}: {HINT}\n".encode())

    sys.addaudithook(report)


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
    if not isinstance(error, Exception):  # the code of an exit is not a status
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

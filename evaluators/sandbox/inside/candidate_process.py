"""A candidate's own process: loads one program, calls it, answers with plain data.

Every answer is a frame on the result pipe: eight bytes of length, then a message (see codec.py).
The first is empty and says that the confinement is in force, the second that the program is loaded
(empty) or why not; then comes one for each call. The other way come a frame with the request and
the source, and one with the arguments of each call when the call before is answered: a program can
compute nothing ahead.
"""

import encodings.utf_8_sig  # noqa: F401  (or each worker would load it)
import errno
import os
import random
import stat
import sys
import tempfile
import traceback
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from importlib import import_module
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from types import TracebackType
from typing import Any, NamedTuple, cast

from costada.evaluators.sandbox import codec
from costada.evaluators.sandbox.inside.command import Command
from costada.evaluators.sandbox.inside.evaluator_contracts import load_evaluator
from costada.evaluators.sandbox.inside.foreign_code import load_module
from costada.evaluators.sandbox.inside.outage import outage_seconds
from costada.evaluators.sandbox.inside.refusals import report_refused_processes
from costada.evaluators.sandbox.inside.scored_command import load_commands
from costada.evaluators.sandbox.inside.semaphores import offer_semaphores
from costada.evaluators.sandbox.inside.syntax_check import load_check

CANDIDATE_FILE = "candidate.py"
"""Name of the file of a candidate of one text, unless the request says another."""

ONLY_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
MAX_MESSAGE_CHARS = 2000
MAX_FRAMES = 8
MAX_LINE_CHARS = 200
CHUNK_BYTES = 65536
RESERVE_BYTES = 512 * 1024  # kept to report the error of a program that has used up its memory
SEED = 0
REFUSALS = (errno.EACCES, errno.ENOSYS, errno.EPERM, errno.EROFS)
STARTING = "start processes, "
POLICY = (
    f"(programs may not {STARTING}share memory, use the network, or touch files outside their"
    " working folder)"
)

UNMAPPED = "failed to map segment"
"""What the system's loader says of a library for which no memory is left."""

Request = Mapping[str, Any]


def serve(request_fd: int, result_fd: int, limits: Mapping[str, int]) -> None:
    """Carry out the request that comes through one descriptor; write the answers to the other."""
    no_memory = codec.encode({"error": _out_of_memory(limits), "is_own_fault": True})
    # The parent may have drawn random numbers, and cached a folder for temporary files.
    tempfile.tempdir = None
    random.seed(SEED)
    opening = None
    with suppress(MemoryError):
        opening = _opening(request_fd, limits, no_memory)
    _send(result_fd, b"")
    if opening is None:
        _send(result_fd, no_memory)
        return
    request, loading = opening
    if "words" in request:
        command = None
        with loading:
            command = Command(request)
            loading.answer = codec.encode(command.begun())
        _send(result_fd, loading.answer)
        if command:
            command.execute(request_fd, result_fd)
        return
    if limits["processes"] > 0:
        offer_semaphores()
    elif loading.files.has_evaluator:
        report_refused_processes()
    function = None
    with loading:
        function = MODES[request["mode"]](request)
    _send(result_fd, loading.answer)
    while function:
        attempt = Attempt(loading.files)
        with attempt:
            if not (message := _received(request_fd)):
                break
            arguments = cast(Request, codec.decode(message))
            attempt.answer = codec.encode({"output": function(**arguments)})
        _send(result_fd, attempt.answer)


def _opening(
    request_fd: int, limits: Mapping[str, int], no_memory: bytes
) -> "tuple[Request, Attempt]":
    """The request, whose program is written to files now, and the attempt to load that."""
    text = _received(request_fd)
    end = codec.LENGTH_BYTES + int.from_bytes(text[: codec.LENGTH_BYTES], "big")
    request = cast(Request, codec.decode(text[codec.LENGTH_BYTES : end]))
    texts = {}
    for path, size in request["files"].items():
        texts[path] = text[end : end + size]
        write_new(path, texts[path])
        end += size
    return request, Attempt(Files(request, texts, limits, no_memory))


def write_new(path: str, text: bytes) -> None:
    """Write a file of the program below the working folder, where nothing is yet.

    The path is relative and has no `..`; the folder is as empty as the server made it.
    """
    if folder := os.path.dirname(path):
        os.makedirs(folder, exist_ok=True)
    with open(os.open(path, ONLY_NEW, stat.S_IRWXU), "wb") as file:
        file.write(text)


class File(NamedTuple):
    """What an error may show of a file: the name to show it under, and its text."""

    name: str
    text: str


class Files:
    """The request's files, found before a program can change the working folder or the files."""

    def __init__(
        self,
        request: Request,
        texts: Mapping[str, bytes],
        limits: Mapping[str, int],
        no_memory: bytes,
    ) -> None:
        """Note the files and their texts, and the limits that errors name."""
        self.limits = limits
        self.no_memory = no_memory
        self.shown = {
            os.path.abspath(path): File(path, text.decode("utf-8-sig", "replace"))
            for path, text in texts.items()
        }
        self.candidate = frozenset(self.shown)
        self.has_evaluator = "evaluator" in request
        if self.has_evaluator:
            path, text = request["evaluator"], ""
            with suppress(OSError), open(path, encoding="utf-8-sig", errors="replace") as file:
                text = file.read()  # if it cannot be read, loading it fails with the reason
            self.shown[path] = File(os.path.basename(path), text)


class Attempt:
    """Runs what is under `with`; if that raises anything at all, the error is the answer."""

    def __init__(self, files: Files) -> None:
        """Prepare to report errors, even when there is no more memory and they resist it."""
        self.answer = b""
        self.files = files
        try:
            self._reserve = mmap(-1, RESERVE_BYTES, MAP_PRIVATE | MAP_ANONYMOUS)
        except OSError:
            raise MemoryError from None

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """Keep the error; it is the candidate's own if it arose in, or by calling, its code."""
        if error is not None:
            self._reserve.close()
            self.answer = self.files.no_memory
            with suppress(MemoryError):
                files = self.files
                text = error_report(error, files.shown, files.limits)
                is_own = (
                    not files.has_evaluator
                    or (isinstance(error, SyntaxError) and error.filename in files.candidate)
                    or bool(_frames(error.__traceback__, files.candidate))
                )
                fault = {"error": text, "is_own_fault": is_own}
                outage = outage_seconds(error) if files.has_evaluator and not is_own else None
                self.answer = codec.encode(fault if outage is None else {**fault, "outage": outage})
        return True


def _send(result_fd: int, message: bytes) -> None:
    view = memoryview(len(message).to_bytes(codec.LENGTH_BYTES, "big") + message)
    while view:
        view = view[os.write(result_fd, view) :]


def _received(request_fd: int) -> bytes:
    """The next frame; nothing if there is none."""
    return _read(request_fd, int.from_bytes(_read(request_fd, codec.LENGTH_BYTES), "big"))


def _read(request_fd: int, size: int) -> bytes:
    chunks = []
    while size and (chunk := os.read(request_fd, min(size, CHUNK_BYTES))):
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)


def _candidate(request: Request) -> Callable[..., object]:
    """Load the candidate; its entry point, with a colon behind the module if it has several."""
    module_name, _, entry_point = request["entry_point"].rpartition(":")
    if module_name:
        sys.path.insert(0, os.getcwd())
        module = import_module(module_name)
    else:
        module = load_module("candidate", os.path.abspath(request["program"]))
    function = getattr(module, entry_point, None)
    if not callable(function):
        place = module_name or "the program"
        raise AttributeError(f"{place} defines no function {entry_point}")
    return cast(Callable[..., object], function)


def _evaluator(request: Request) -> Callable[..., object]:
    """Load a problem folder's evaluator; its evaluation of the candidate's file or folder."""
    return load_evaluator(request, os.path.abspath(request["program"]))


def _syntax_check(request: Request) -> Callable[..., object]:
    """What checks the syntax of the program's files; nothing of them is executed."""
    return load_check(request)


MODES: Mapping[str, Callable[[Request], Callable[..., object]]] = {
    "candidate": _candidate,
    "evaluator": _evaluator,
    "syntax": _syntax_check,
    "commands": load_commands,
}


def seed_numpy() -> None:
    """Seed NumPy's random numbers, if it is loaded, for all forks of this process alike."""
    if "numpy" in sys.modules:
        import numpy.random

        numpy.random.seed(SEED)


def error_report(error: BaseException, files: Mapping[str, File], limits: Mapping[str, int]) -> str:
    """An exception in words a model can act on: its message, and the frames in files shown.

    `files` are by full path; of the limits, the one that was exceeded is named.
    """
    message = Message(type(error).__name__)
    with message:
        message.text = _message(error, limits)
    text = message.text
    for filename, file in files.items():
        text = text.replace(filename, file.name).replace(filename.removesuffix(file.name), "")
    if len(text) > MAX_MESSAGE_CHARS:
        half = MAX_MESSAGE_CHARS // 2
        text = f"{text[:half]} ... {text[-half:]}"
    report = [text]
    for filename, number, function in _frames(error.__traceback__, files)[-MAX_FRAMES:]:
        report.append(f'  File "{files[filename].name}", line {number}, in {function}')
        lines = files[filename].text.splitlines()
        if number <= len(lines) and (line := lines[number - 1].strip()[:MAX_LINE_CHARS]):
            report.append(f"    {line}")
    return "\n".join(report)


class Message:
    """The message of an error; its type's name alone if its own code fails in producing more."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        return not isinstance(error, MemoryError)


def _message(error: BaseException, limits: Mapping[str, int]) -> str:
    if isinstance(error, MemoryError):
        traceback.clear_frames(error.__traceback__)
        return _out_of_memory(limits)
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


def policy(processes: int) -> str:
    """What programs may not do that may start so many processes."""
    return POLICY.replace(STARTING, "") if processes else POLICY


def _out_of_memory(limits: Mapping[str, int]) -> str:
    return f"MemoryError: out of memory, the limit is {limits['memory_mb']} MB"


def _frames(trace: TracebackType | None, filenames: Container[str]) -> list[tuple[str, int, str]]:
    """File name, line and function of each frame that lies in one of the files."""
    return [
        (frame.f_code.co_filename, line, frame.f_code.co_name)
        for frame, line in traceback.walk_tb(trace)
        if frame.f_code.co_filename in filenames
    ]

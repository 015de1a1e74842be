"""A candidate's own process: loads one program, calls it, answers with plain data.

Every answer is a frame on the result pipe: eight bytes of length, then a message (see codec.py).
The first is empty and says that the confinement is in force, the second that the program is loaded
(empty) or why not; then comes one for each call. The other way come a frame with the request and
the source, and one with the arguments of each call when the call before is answered: a program can
compute nothing ahead.
"""

import encodings.utf_8_sig  # noqa: F401  (or each worker would load it)
import os
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from time import monotonic
from types import ModuleType
from typing import Any, NoReturn, cast

from costada.evaluators.sandbox import codec
from costada.evaluators.sandbox.inside.confinement import NUM_OPEN_FILES
from costada.evaluators.sandbox.inside.error_reports import (
    Files,
    error_report,
    frames_in,
    out_of_memory,
    outage_seconds,
    report_refused_processes,
)
from costada.evaluators.sandbox.inside.evaluator_contracts import load_evaluator
from costada.evaluators.sandbox.inside.foreign_code import load_module
from costada.evaluators.sandbox.inside.orders import BUILD_FOLDER
from costada.evaluators.sandbox.inside.scored_commands import load_commands
from costada.evaluators.sandbox.inside.semaphores import offer_semaphores
from costada.evaluators.sandbox.inside.syntax_check import load_check

ONLY_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
CHUNK_BYTES = 65536
RESERVE_BYTES = 512 * 1024  # kept to report the error of a program that has used up its memory
NOT_EXECUTED = 127
RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores, and that programs expect to end them."""

Request = Mapping[str, Any]


def serve(
    request_fd: int,
    result_fd: int,
    limits: Mapping[str, int],
    compat_modules: Sequence[ModuleType],
    has_limits: bool,
) -> None:
    """Carry out the request that comes through one descriptor; write the answers to the other.

    Args:
        request_fd: Descriptor of the request.
        result_fd: Descriptor for the answers.
        limits: What was ordered; see `Order`.
        compat_modules: Modules whose `offer` makes other packages importable for evaluators.
        has_limits: Whether the limits hold.
    """
    no_memory = codec.encode({"error": out_of_memory(limits), "is_own_fault": True})
    tempfile.tempdir = None  # the server may have cached a folder for temporary files
    opening = None
    # Read behind the walls: neither the size nor the content of a program reaches the server.
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
    elif has_limits and loading.files.has_evaluator:
        report_refused_processes()
    if loading.files.has_evaluator:
        for module in compat_modules:
            module.offer()
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
                    or bool(frames_in(error.__traceback__, files.candidate))
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


class Command:
    """A request's command: this process becomes another program, the candidate or its build.

    What the program reads is the rest of the request; what it writes follows the frames of this
    process on the same pipe, or goes to the log. Nothing of ours is left beside it: its end is the
    program's.
    """

    def __init__(self, request: Mapping[str, Any]) -> None:
        """Find its program; a FileNotFoundError says that there is none."""
        os.makedirs(BUILD_FOLDER, exist_ok=True)
        self._words = request["words"]
        self._reads, self._writes = request["reads"], request["writes"]
        self._program = shutil.which(self._words[0]) or ""
        if not self._program:
            raise FileNotFoundError(f"{self._words[0]} is not a program that can be executed here")

    def begun(self) -> dict[str, float]:
        """What is answered just before it is executed."""
        return {"begun": monotonic()}

    def execute(self, request_fd: int, result_fd: int) -> NoReturn:
        """Become the program."""
        os.dup2(request_fd if self._reads else os.open(os.devnull, os.O_RDONLY), 0)
        if self._writes:
            os.dup2(result_fd, 1)
        os.closerange(3, NUM_OPEN_FILES)
        for number in RESTORED:
            signal.signal(number, signal.SIG_DFL)
        environment = {**os.environ, "LANG": "C.UTF-8"}
        try:
            os.execve(self._program, self._words, environment)  # noqa: S606
        except OSError as error:
            os.write(2, f"{self._words[0]}: {error.strerror}\n".encode())
        os._exit(NOT_EXECUTED)

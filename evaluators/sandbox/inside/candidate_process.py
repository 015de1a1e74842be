"""A candidate's own process: loads one program, calls it, answers with plain data.

Every answer is a frame on the result pipe: eight bytes of length, then a message (see codec.py).
The first is empty and says that the confinement is in force, the second that the program is loaded
(empty) or why not; then comes one for each call. The other way come a frame with the request and
the source, and one with the arguments of each call when the call before is answered: a program can
compute nothing ahead.
"""

import encodings.utf_8_sig  # noqa: F401  (or each worker would load it)
import json
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
from traceback import print_exception
from types import ModuleType
from typing import Any, NoReturn, cast

from costada.evaluators.sandbox import codec
from costada.evaluators.sandbox.inside.child_access import ChildAccess
from costada.evaluators.sandbox.inside.command_site import (
    code_of,
    confine_in_commands,
    offer_to_commands,
)
from costada.evaluators.sandbox.inside.commands_sitecustomize import CHILDREN, MODELS, POOLS
from costada.evaluators.sandbox.inside.confined_starts import confine_children
from costada.evaluators.sandbox.inside.confinement import NUM_OPEN_FILES
from costada.evaluators.sandbox.inside.error_reports import (
    Files,
    error_report,
    frames_in,
    out_of_memory,
    outage_seconds,
    report_refused_processes,
)
from costada.evaluators.sandbox.inside.evaluator_children import EvaluatorChildren
from costada.evaluators.sandbox.inside.evaluator_contracts import load_evaluator
from costada.evaluators.sandbox.inside.foreign_code import new_module, run_module
from costada.evaluators.sandbox.inside.model_connections import offer_models
from costada.evaluators.sandbox.inside.orders import (
    BUILD_FOLDER,
    CANDIDATE_FILE,
    HOME,
    REPOSITORY,
)
from costada.evaluators.sandbox.inside.own_files import stamps_of
from costada.evaluators.sandbox.inside.scored_commands import load_commands
from costada.evaluators.sandbox.inside.semaphores import offer_semaphores
from costada.evaluators.sandbox.inside.start_methods import offer_start_methods
from costada.evaluators.sandbox.inside.syntax_check import load_check

ONLY_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
CHUNK_BYTES = 65536
RESERVE_BYTES = 512 * 1024  # kept to report the error of a program that has used up its memory
NOT_EXECUTED = 127
MODULE_NAME = "candidate"
NUM_REHEARSALS = 20  # Python adapts code that is called more than 8 times
DECODER = json.JSONDecoder()
RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores, and that programs expect to end them."""

Request = Mapping[str, Any]


class CandidateProcess:
    """What a worker does once it is confined: carries out one request, and writes the answers.

    All that does not depend on the candidate is done in the server, before the worker is forked.
    """

    def __init__(self, compat_modules: Sequence[ModuleType], *, has_limits: bool) -> None:
        """Take what is the same for all candidates.

        Args:
            compat_modules: Modules whose `offer` makes other packages importable for evaluators.
            has_limits: Whether limits hold.
        """
        self._compat_modules = compat_modules
        self._has_limits = has_limits
        self._limits: Mapping[str, int] = {}
        self._no_memory = b""
        self._models_code: Mapping[str, bytes] = {}
        self._module: ModuleType | None = None
        self._access: ChildAccess | None = None
        self._given: Sequence[str] = ()
        self._children_code: Mapping[str, bytes] = {}

    def confine_children(self, access: ChildAccess, given: Sequence[str]) -> None:
        """Have evaluators confine what they start that runs a candidate; see the module."""
        self._access, self._given = access, given
        self._children_code = code_of(*CHILDREN, *POOLS)

    def prepare(self, limits: Mapping[str, int]) -> None:
        """Prepare for what was ordered; see `Order`."""
        if limits != self._limits:
            self._limits = limits
            self._no_memory = codec.encode({"error": out_of_memory(limits), "is_own_fault": True})
            has_commands = "may_execute" in limits and "evaluates" not in limits
            if "has_models" in limits and has_commands and not self._models_code:
                self._models_code = code_of(*MODELS)
        tempfile.tempdir = None  # the server may have cached a folder for temporary files

    def rehearse(self) -> None:
        """Carry out a program of ours in the working folder, until Python has adapted its code.

        Otherwise each worker would adapt it again, and copy the pages of memory that it writes to.
        """
        self.prepare({"memory_mb": 0, "processes": 0})
        source = b"def f():\n    return 0.5\n"
        call = {"mode": "candidate", "entry_point": "f", "program": CANDIDATE_FILE}
        head = json.dumps({**call, "files": {CANDIDATE_FILE: len(source)}}).encode()
        request = codec.framed(codec.framed(head) + source) + codec.framed(codec.encode({}))
        for _ in range(NUM_REHEARSALS):
            (request_fd, writing_fd), (reading_fd, result_fd) = os.pipe(), os.pipe()
            os.write(writing_fd, request)
            os.close(writing_fd)
            self.serve(request_fd, result_fd)
            for descriptor in (request_fd, reading_fd, result_fd):
                os.close(descriptor)
            os.unlink(CANDIDATE_FILE)
        del sys.modules[MODULE_NAME]
        self._module = new_module(MODULE_NAME, os.path.abspath(CANDIDATE_FILE))

    def _confine_children_of_evaluator(self, access: ChildAccess, request: dict[str, Any]) -> None:
        """Confine what the evaluator starts, and what its own programs in Python start in turn."""
        settings = {
            "given": stamps_of(self._given),
            "evaluator": request["evaluator"],
            "texts": [text.decode("utf-8", "replace") for text in request["files"].values()],
            "keys": [*request["keys"]],
            "shared": [*request["shared"]],
        }
        plan = EvaluatorChildren.plan(access, root=os.getcwd(), **settings)
        site = confine_in_commands(self._children_code, plan)
        places = [site, os.environ.get("PYTHONPATH")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, places))
        confine_children(EvaluatorChildren(access, **settings, site=site))

    def serve(self, request_fd: int, result_fd: int, channel_fd: int | None = None) -> None:
        """Carry out the request that comes through one descriptor; write the answers to the other.

        What was ordered has been prepared. With a channel, the program reaches models.
        """
        # Read in confinement: neither the size nor the content of a program reaches the server.
        try:
            request, loading = self._opening(request_fd)
        except MemoryError:
            _send(result_fd, b"")
            _send(result_fd, self._no_memory)
            return
        _send(result_fd, b"")
        if channel_fd is not None:
            self._offer_models(request, channel_fd)
        if self._access is not None and "evaluator" in request:
            self._confine_children_of_evaluator(self._access, request)
            for descriptor in (request_fd, result_fd):
                os.set_inheritable(descriptor, False)
        if self._access is not None and request.get("is_apart"):
            texts = [text.decode("utf-8", "replace") for text in request["files"].values()]
            plan = EvaluatorChildren.plan(
                self._access,
                given=stamps_of([*self._given, *request["import_places"]]),
                evaluator=request["script"],
                texts=texts,
                keys=[*request["keys"]],
                root=os.getcwd(),
                folder=REPOSITORY,
                confines_all=request["confines_all"],
            )
            request["site"] = confine_in_commands(self._children_code, plan)
        if "words" in request:
            _become_command(request, loading, request_fd, result_fd, channel_fd)
            return
        self._offer_more(loading.files)
        function = None
        with loading:
            load = MODES.get(request["mode"], self._load_candidate)
            function = load(request)
        _send(result_fd, loading.answer)
        while function:
            attempt = Attempt(loading.files)
            with attempt:
                if not (message := _received(request_fd)):
                    break
                arguments = cast(Request, codec.decode(message))
                attempt.answer = codec.encode({"output": function(**arguments)})
            _send(result_fd, attempt.answer)

    def _opening(self, request_fd: int) -> "tuple[dict[str, Any], Attempt]":
        """The request, whose program is written to files now, and the attempt to load that.

        In the request, the files' texts stand in the place of their sizes.
        """
        text = _received(request_fd)
        end = codec.LENGTH_BYTES + int.from_bytes(text[: codec.LENGTH_BYTES], "big")
        request, _ = DECODER.raw_decode(text[codec.LENGTH_BYTES : end].decode())
        texts = {}
        for path, size in request["files"].items():
            texts[path] = text[end : end + size]
            write_new(path, texts[path])
            end += size
        request["files"] = texts
        return request, Attempt(Files(request, self._limits, self._no_memory))

    def _load_candidate(self, request: Request) -> Callable[..., object]:
        """Load the candidate; its entry point, with a colon behind the module if it has several."""
        module_name, _, entry_point = request["entry_point"].rpartition(":")
        if module_name:
            sys.path.insert(0, os.getcwd())
            module = import_module(module_name)
        else:
            program = request["program"]
            if self._module is not None and program == CANDIDATE_FILE:
                module = self._module
            else:
                module = new_module(MODULE_NAME, os.path.abspath(program))
            run_module(module, request["files"][program])
        function = getattr(module, entry_point, None)
        if not callable(function):
            place = module_name or "the program"
            raise AttributeError(f"{place} defines no function {entry_point}")
        return cast(Callable[..., object], function)

    def _offer_models(self, request: dict[str, Any], channel_fd: int) -> None:
        """Let clients in this process reach models, or in those that its commands start."""
        os.environ.update(request["environment"])
        if "evaluates" not in self._limits and "may_execute" in self._limits:
            offer_to_commands(self._models_code, channel_fd)
            request["channel_fd"] = channel_fd
        else:
            offer_models(channel_fd, may_fork=self._limits["processes"] > 0)

    def _offer_more(self, files: Files) -> None:
        """Make more work in this process than does by itself, or report that it does not."""
        if self._limits["processes"] > 0:
            offer_semaphores()
            offer_start_methods()
        elif self._has_limits and files.has_evaluator:
            report_refused_processes()
        if files.has_evaluator:
            for module in self._compat_modules:
                module.offer()


def write_new(path: str, text: bytes) -> None:
    """Write a file of the program below the working folder, where nothing is yet.

    The path is relative and has no `..`; the folder is as empty as the server made it.
    """
    if "/" in path:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    # Without one of Python's objects for files, which take more time than all else here.
    file_fd = os.open(path, ONLY_NEW, stat.S_IRWXU)
    rest = memoryview(text)
    while rest:
        rest = rest[os.write(file_fd, rest) :]
    os.close(file_fd)


class Attempt:
    """Runs what is under `with`; if that raises anything at all, the error is the answer."""

    def __init__(self, files: Files) -> None:
        """Prepare to report errors, even when there is no more memory and they resist it."""
        self.answer = b""
        self.files = files
        self._process = os.getpid()
        try:
            self._reserve = mmap(-1, RESERVE_BYTES, MAP_PRIVATE | MAP_ANONYMOUS)
        except OSError:
            raise MemoryError from None

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """Keep the error; it is the candidate's own if it arose in, or by calling, its code."""
        if os.getpid() != self._process:
            _end_fork(error)
        if error is not None:
            self._reserve.close()
            self.answer = self.files.no_memory
            with suppress(MemoryError):
                files = self.files
                shown = files.shown()
                text = error_report(error, shown, files.limits)
                candidate = shown.keys() - {files.evaluator}
                is_own = (
                    not files.has_evaluator
                    or (isinstance(error, SyntaxError) and error.filename in candidate)
                    or bool(frames_in(error.__traceback__, candidate))
                )
                fault = {"error": text, "is_own_fault": is_own}
                outage = outage_seconds(error) if files.has_evaluator and not is_own else None
                self.answer = codec.encode(fault if outage is None else {**fault, "outage": outage})
        return True


def _end_fork(error: BaseException | None) -> NoReturn:
    """End a fork of the program that has left its code, as a script ends: it has no answer."""
    code = error.code if isinstance(error, SystemExit) else error
    with suppress(OSError, ValueError):
        if isinstance(error, Exception):
            print_exception(error)
        elif not (code is None or isinstance(code, int)):
            sys.stderr.write(f"{code}\n")
        sys.stderr.flush()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(code & 0xFF if isinstance(code, int) else code is not None)


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
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _become_command(
    request: Request, loading: Attempt, request_fd: int, result_fd: int, channel_fd: int | None
) -> None:
    """Become the request's command; returns where there is no such program."""
    command = None
    with loading:
        command = Command(request)
        loading.answer = codec.encode(command.begun())
    _send(result_fd, loading.answer)
    if command:
        command.execute(request_fd, result_fd, channel_fd)


def _evaluator(request: Request) -> Callable[..., object]:
    """Load a problem folder's evaluator; its evaluation of the candidate's file or folder.

    It starts in its folder, and has another one for what is temporary.
    """
    own = os.path.abspath(request["evaluator"])
    program = os.path.abspath(request["program"])
    os.environ.update(request["keys"])
    os.environ["TMPDIR"] = os.path.abspath(HOME)
    # Not the candidate's: tools carry out what lies in a home.
    os.environ["HOME"] = tempfile.mkdtemp(prefix=".home-", dir=os.getcwd())
    # A program that is started could change the code that a Python of the evaluator would keep.
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    with suppress(FileNotFoundError):  # then loading it says so
        os.chdir(os.path.dirname(own))
    return load_evaluator({**request, "evaluator": own}, program)


def _syntax_check(request: Request) -> Callable[..., object]:
    """What checks the syntax of the program's files; nothing of them is executed."""
    return load_check(request)


MODES: Mapping[str, Callable[[Request], Callable[..., object]]] = {
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

    def execute(self, request_fd: int, result_fd: int, channel_fd: int | None) -> NoReturn:
        """Become the program, which inherits the channel to models if there is one."""
        os.dup2(request_fd if self._reads else os.open(os.devnull, os.O_RDONLY), 0)
        if self._writes:
            os.dup2(result_fd, 1)
        if channel_fd is None:
            os.closerange(3, NUM_OPEN_FILES)
        else:
            os.closerange(3, channel_fd)
            os.closerange(channel_fd + 1, NUM_OPEN_FILES)
        for number in RESTORED:
            signal.signal(number, signal.SIG_DFL)
        environment = {**os.environ, "LANG": "C.UTF-8"}
        try:
            os.execve(self._program, self._words, environment)  # noqa: S606
        except OSError as error:
            os.write(2, f"{self._words[0]}: {error.strerror}\n".encode())
        os._exit(NOT_EXECUTED)

"""What runs in a candidate's own process: loads one program, calls it, answers with plain data.

Every answer is a frame on the result pipe: eight bytes of length, then a message (see wire.py).
The first is empty and says that the walls stand, the second that the program is loaded (empty) or
why not; then comes one for each call. The other way come a frame with the request and the source,
and one with the arguments of each call when the call before is answered: a program can compute
nothing ahead.
"""

import encodings.utf_8_sig  # noqa: F401  (or each child would load it)
import os
import random
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.machinery import ModuleSpec, SourceFileLoader
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from numbers import Real
from types import ModuleType, TracebackType
from typing import Any, cast

from costada.evaluators.sandbox import wire
from costada.evaluators.sandbox.inside import faults

CANDIDATE_FILE = "candidate.py"
EVALUATOR_FILE = "evaluator.py"
MAX_ARTIFACT_CHARS = 20_000
CHUNK_BYTES = 65536
RESERVE_BYTES = 512 * 1024
"""Kept to tell the error of a program that has used up its memory."""
SEED = 0

Request = Mapping[str, Any]


def serve(request_fd: int, result_fd: int, limits: Mapping[str, int]) -> None:
    """Carry out the request that comes through one descriptor; write the answers to the other."""
    text = faults.out_of_memory(limits["memory_mb"])
    no_memory = wire.encode({"error": text, "is_own_fault": True})
    # The process this one was forked from may have drawn, and looked for a folder of its own.
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
    function = None
    with loading:
        function = MODES[request["mode"]](request)
    _send(result_fd, loading.answer)
    while function:
        attempt = Attempt(loading.files)
        with attempt:
            if not (message := _received(request_fd)):
                break
            arguments = cast(Request, wire.decode(message))
            attempt.answer = wire.encode({"output": function(**arguments)})
        _send(result_fd, attempt.answer)


def _opening(
    request_fd: int, limits: Mapping[str, int], no_memory: bytes
) -> "tuple[Request, Attempt]":
    """Return the request, whose source is a file now, and the attempt to load that.

    Raises:
        MemoryError: If the limit leaves no room for them.
    """
    text = _received(request_fd)
    end = wire.LENGTH_BYTES + int.from_bytes(text[: wire.LENGTH_BYTES], "big")
    request = cast(Request, wire.decode(text[wire.LENGTH_BYTES : end]))
    source = text[end:]
    with open(CANDIDATE_FILE, "wb") as file:
        file.write(source)
    return request, Attempt(Files(request, source, limits, no_memory))


class Files:
    """The request's files, found before a program can change the working folder or the files."""

    def __init__(
        self, request: Request, source: bytes, limits: Mapping[str, int], no_memory: bytes
    ) -> None:
        """Note the files and their texts, and the limits that errors speak of."""
        self.limits = limits
        self.no_memory = no_memory
        self.candidate = os.path.abspath(CANDIDATE_FILE)
        self.told = {
            self.candidate: faults.File(CANDIDATE_FILE, source.decode("utf-8-sig", "replace"))
        }
        self.has_evaluator = "folder" in request
        if self.has_evaluator:
            path = os.path.join(request["folder"], EVALUATOR_FILE)
            self.told[path] = faults.File(EVALUATOR_FILE, _text(path))


class Attempt:
    """Runs what is under `with`; if that raises anything at all, the error is the answer."""

    def __init__(self, files: Files) -> None:
        """Prepare to tell errors, even when there is no more memory and they resist it.

        Raises:
            MemoryError: If there is none left for that.
        """
        self.answer = b""
        self.files = files
        try:
            self._reserve = mmap(-1, RESERVE_BYTES, MAP_PRIVATE | MAP_ANONYMOUS)
        except OSError:
            raise MemoryError from None

    def __enter__(self) -> None:
        """Begin the attempt."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """Keep the error, if there is one."""
        if error is not None:
            self._reserve.close()
            self.answer = self.files.no_memory
            with suppress(MemoryError):
                text = faults.describe(error, self.files.told, self.files.limits)
                is_own = not self.files.has_evaluator or faults.concerns(
                    error, self.files.candidate
                )
                self.answer = wire.encode({"error": text, "is_own_fault": is_own})
        return True


def _send(result_fd: int, message: bytes) -> None:
    view = memoryview(len(message).to_bytes(wire.LENGTH_BYTES, "big") + message)
    while view:
        view = view[os.write(result_fd, view) :]


def _received(request_fd: int) -> bytes:
    """Return the next frame; nothing if there is none."""
    size = int.from_bytes(_read(request_fd, wire.LENGTH_BYTES), "big")
    return _read(request_fd, size)


def _read(request_fd: int, size: int) -> bytes:
    chunks = []
    while size and (chunk := os.read(request_fd, min(size, CHUNK_BYTES))):
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)


def _text(path: str) -> str:
    """Return the text of a file; nothing if it cannot be read, which loading it will tell."""
    with suppress(OSError), open(path, encoding="utf-8-sig", errors="replace") as file:
        return file.read()
    return ""


def load_module(name: str, path: str) -> ModuleType:
    """Return the file at path, run as a module that sys.modules knows under the name given."""
    module = ModuleType(name)
    module.__file__, module.__package__ = path, ""
    module.__loader__ = SourceFileLoader(name, path)
    module.__spec__ = ModuleSpec(name, module.__loader__, origin=path)
    sys.modules[name] = module
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, module.__dict__)  # noqa: S102  (this process is there for it)
    return module


def _candidate(request: Request) -> Callable[..., object]:
    """Load the candidate; return its entry point."""
    entry_point = request["entry_point"]
    module = load_module("candidate", os.path.abspath(CANDIDATE_FILE))
    function = getattr(module, entry_point, None)
    if not callable(function):
        raise AttributeError(f"the program defines no function {entry_point}")
    return cast(Callable[..., object], function)


def _evaluator(request: Request) -> Callable[..., object]:
    """Load a problem folder's evaluator; return its judgement of the candidate's file."""
    folder = request["folder"]
    sys.path.insert(0, folder)
    module = load_module("evaluator", os.path.join(folder, EVALUATOR_FILE))
    return lambda: _sorted(module.evaluate(os.path.abspath(CANDIDATE_FILE)))


def _sorted(result: object) -> dict[str, object]:
    metrics = getattr(result, "metrics", result)
    if not isinstance(metrics, dict):
        raise TypeError(f"evaluate returned {type(result).__name__}; expected a dict of metrics")
    artifacts = getattr(result, "artifacts", None) or {}
    return {
        "metrics": {str(name): _plain(value) for name, value in metrics.items()},
        "artifacts": {str(name): str(_plain(value)) for name, value in artifacts.items()},
    }


def _plain(value: object) -> float | str | None:
    """Return a number as a float, nothing as None, and anything else as text."""
    if value is None:
        return None
    if isinstance(value, Real) or getattr(value, "shape", None) == ():
        return float(value)  # type: ignore[arg-type]
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return str(value).replace(os.getcwd() + os.sep, "")[:MAX_ARTIFACT_CHARS]


MODES: Mapping[str, Callable[[Request], Callable[..., object]]] = {
    "candidate": _candidate,
    "evaluator": _evaluator,
}


def seed_numpy() -> None:
    """Begin NumPy's random numbers, if it is loaded, for all children of this process alike."""
    if "numpy" in sys.modules:
        import numpy.random

        numpy.random.seed(SEED)

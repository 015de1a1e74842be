"""The program of the candidate's process: sets its limits, runs one piece of code, answers once.

Started by path in a fresh interpreter (see process.py), so nothing of ours needs to be
importable here. Everything printed is log; the answer goes over a pipe of its own.
"""

import ctypes
import importlib.util
import os
import resource
import signal
import sys
from collections.abc import Callable
from numbers import Real
from types import ModuleType, TracebackType

CANDIDATE_FILE = "candidate.py"
EVALUATOR_FILE = "evaluator.py"
PR_SET_PDEATHSIG = 1
MAX_FILE_BYTES = 256 * 1024 * 1024
MAX_OPEN_FILES = 256
MAX_ARTIFACT_CHARS = 20_000


def load_module(name: str, path: str) -> ModuleType:
    """Return the file at path, run as a module that sys.modules knows under the name given."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def sibling(name: str) -> ModuleType:
    """Return a module that lies beside this file, loaded by path."""
    return load_module(f"_sandbox_{name}", os.path.join(os.path.dirname(__file__), f"{name}.py"))


wire = sibling("wire")
faults = sibling("faults")


class Attempt:
    """Runs what is under `with` and keeps how it ended, whatever it raises, as one answer."""

    def __init__(self, shown: dict[str, str], memory_mb: int) -> None:
        self.answer = b""
        self.shown = shown
        self.memory_mb = memory_mb

    def __enter__(self) -> "Attempt":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if error is not None:
            text = faults.describe(error, self.shown, self.memory_mb)
            is_own = faults.concerns(error, os.path.abspath(CANDIDATE_FILE))
            self.answer = wire.encode({"error": text, "is_own_fault": is_own})
        return True


def run_candidate(request: dict[str, object]) -> object:
    """Return what the candidate's entry point returns for the arguments of the request."""
    entry_point = str(request["entry_point"])
    module = load_module("candidate", os.path.abspath(CANDIDATE_FILE))
    function = getattr(module, entry_point, None)
    if not callable(function):
        raise AttributeError(f"the program defines no function {entry_point}")
    arguments = request["arguments"]
    return function(**arguments) if isinstance(arguments, dict) else function()


def run_evaluator(request: dict[str, object]) -> object:
    """Return metrics and artifacts of a problem folder's evaluator for the candidate file."""
    folder = str(request["folder"])
    sys.path.insert(0, folder)
    module = load_module("evaluator", os.path.join(folder, EVALUATOR_FILE))
    result = module.evaluate(os.path.abspath(CANDIDATE_FILE))
    metrics = getattr(result, "metrics", result)
    if not isinstance(metrics, dict):
        raise TypeError(f"evaluate returned {type(result).__name__}; expected a dict of metrics")
    artifacts = getattr(result, "artifacts", None) or {}
    return {
        "metrics": {str(name): plain(value) for name, value in metrics.items()},
        "artifacts": {str(name): str(plain(value)) for name, value in artifacts.items()},
    }


def plain(value: object) -> float | str | None:
    """Return a number as a float, nothing as None, and anything else as text."""
    if value is None:
        return None
    if isinstance(value, Real) or getattr(value, "shape", None) == ():
        return float(value)  # type: ignore[arg-type]
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return str(value).replace(os.getcwd() + os.sep, "")[:MAX_ARTIFACT_CHARS]


def restrict(memory_mb: int, cpu_seconds: int) -> None:
    """Set the limits of this process; those the system does not know are left out."""
    memory = _address_space() + memory_mb * 1024 * 1024
    wanted = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_CPU: cpu_seconds,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: MAX_FILE_BYTES,
        resource.RLIMIT_NOFILE: MAX_OPEN_FILES,
    }
    for limit, value in wanted.items():
        _, hard = resource.getrlimit(limit)
        bounded = value if hard == resource.RLIM_INFINITY else min(value, hard)
        if sys.platform != "darwin" or limit != resource.RLIMIT_AS:
            resource.setrlimit(limit, (bounded, bounded))


def _address_space() -> int:
    if not sys.platform.startswith("linux"):
        return 0
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def die_with_parent(parent: int) -> None:
    """Have the system kill this process when the one that started it dies (Linux only)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def main() -> None:
    """Read the request from standard input, run it, and write the answer to the result pipe."""
    channel = int(sys.argv[1])
    os.set_inheritable(channel, False)
    request = wire.decode(sys.stdin.buffer.read())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    die_with_parent(request["parent"])
    restrict(request["memory_mb"], request["cpu_seconds"])
    os.write(channel, wire.MAGIC)
    modes: dict[str, Callable[[dict[str, object]], object]] = {
        "candidate": run_candidate,
        "evaluator": run_evaluator,
    }
    shown = {os.path.abspath(CANDIDATE_FILE): CANDIDATE_FILE}
    if "folder" in request:
        shown[os.path.join(request["folder"], EVALUATOR_FILE)] = EVALUATOR_FILE
    attempt = Attempt(shown, request["memory_mb"])
    with attempt:
        attempt.answer = wire.encode({"output": modes[request["mode"]](request)})
    send(channel, attempt.answer)
    os._exit(0)


def send(channel: int, data: bytes) -> None:
    """Write all of data to a pipe."""
    view = memoryview(data)
    while view:
        view = view[os.write(channel, view) :]


if __name__ == "__main__":
    main()

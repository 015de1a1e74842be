"""Runs candidates: source text in, plain data or a reason out."""

import os
import signal
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.process import Ending, run_process
from costada.evaluators.sandbox.wire import MAGIC, Value, decode, encode

CANDIDATE_FILE = "candidate.py"
CPU_GRACE_SECONDS = 5
PRELOAD = ("numpy", "scipy.optimize")
"""Modules that most candidates import."""


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """What came of one run.

    Attributes:
        output: What the entry point returned, as plain data; None if it failed.
        error: Why it failed; None if it returned.
        log: The beginning of what was printed.
        seconds: Wall-clock time, with the start of the interpreter.
        is_own_fault: Whether a failure came from the candidate's code; False only if an
            evaluator failed outside of it.
    """

    output: Value
    error: str | None
    log: str
    seconds: float
    is_own_fault: bool = True


def run_candidate(
    source: str,
    entry_point: str,
    limits: Limits,
    arguments: Mapping[str, Value] | None = None,
) -> CandidateResult:
    """Return what a candidate's entry point returns, or why it does not.

    The source is compiled and run in a fresh interpreter that shares nothing with this
    process and is killed, with everything it started, at the end. Safe to call from several
    threads at once; an interrupt ends the run and passes on.

    Args:
        source: The candidate's source text.
        entry_point: The function to call.
        limits: What the run may take.
        arguments: Keyword arguments of the call, as plain data.

    Raises:
        OSError: If the scratch directory cannot be made.
        RuntimeError: If the sandbox itself does not work. Never because of the candidate.
    """
    call: dict[str, Value] = {"mode": "candidate", "entry_point": entry_point}
    return _run(source, call | {"arguments": dict(arguments or {})}, limits)


def run_calls(
    source: str,
    entry_point: str,
    calls: Sequence[Mapping[str, object]],
    limits: Limits,
    layer: Layer = Layer.AUTO,
    preload: Sequence[str] = PRELOAD,
) -> list[CandidateResult]:
    """Return what a candidate's entry point returns for each call."""
    return [run_candidate(source, entry_point, limits, dict(call)) for call in calls]


def run_evaluator(source: str, folder: Path, limits: Limits) -> CandidateResult:
    """Return metrics and artifacts that the evaluator.py of a folder gives a candidate.

    Evaluator and candidate run together in the child; the output is a dict with "metrics"
    and "artifacts", whose values are numbers, texts or None.

    Raises:
        OSError: If the scratch directory cannot be made.
        RuntimeError: If the sandbox itself does not work.
    """
    return _run(source, {"mode": "evaluator", "folder": str(folder.resolve())}, limits)


def _run(source: str, call: dict[str, Value], limits: Limits) -> CandidateResult:
    text = source.encode("utf-8", "replace")
    if len(text) > limits.source_bytes:
        reason = f"the source has {len(text)} bytes; expected at most {limits.source_bytes}"
        return CandidateResult(None, reason, "", 0.0)
    cpu_seconds = (ceil(limits.wall_seconds) + CPU_GRACE_SECONDS) * (os.cpu_count() or 1)
    request: dict[str, Value] = {
        "parent": os.getpid(),
        "memory_mb": limits.memory_mb,
        "cpu_seconds": cpu_seconds,
    }
    with _scratch_directory() as scratch:
        (scratch / CANDIDATE_FILE).write_bytes(text)
        ending = run_process(encode(request | call), scratch, limits)
    log = ending.log.decode("utf-8", "replace").replace(f"{scratch}{os.sep}", "")
    return _judge(ending, log)


@contextmanager
def _scratch_directory() -> Iterator[Path]:
    """Lend a private directory; remove it even where a candidate took away permissions."""
    scratch = Path(mkdtemp(prefix="costada-")).resolve()
    try:
        yield scratch
    finally:
        for folder, names, _ in os.walk(scratch):
            for path in (Path(folder, name) for name in names):
                with suppress(OSError):
                    if not path.is_symlink():
                        path.chmod(stat.S_IRWXU)
        rmtree(scratch, ignore_errors=True)


def _judge(ending: Ending, log: str) -> CandidateResult:
    if ending.stopped is not None:
        return CandidateResult(None, ending.stopped, log, ending.seconds)
    if not ending.answer.startswith(MAGIC):
        raise RuntimeError(
            f"sandbox: {sys.executable!r} ended with status {ending.status} before it could "
            f"run a program: {log[-1000:]}"
        )
    message = memoryview(ending.answer)[len(MAGIC) :]
    if not message:
        return CandidateResult(None, _tell_exit(ending.status), log, ending.seconds)
    try:
        return _read_answer(decode(message), log, ending.seconds)
    except ValueError as error:
        return CandidateResult(None, f"malformed answer: {error}", log, ending.seconds)


def _read_answer(answer: Value, log: str, seconds: float) -> CandidateResult:
    match answer:
        case {"output": output, **rest} if not rest:
            return CandidateResult(output, None, log, seconds)
        case {"error": str(error), "is_own_fault": bool(is_own), **rest} if error and not rest:
            text = error.encode("utf-8", "replace").decode()
            return CandidateResult(None, text, log, seconds, is_own)
    raise ValueError("it is neither an output nor an error")


def _tell_exit(status: int) -> str:
    if status >= 0:
        return f"the program ended its process (exit status {status}) before it returned"
    name = signal.Signals(-status).name if -status in list(signal.Signals) else str(-status)
    hint = "; a crash in compiled code or too deep recursion" if name == "SIGSEGV" else ""
    return f"the program was killed by {name} before it returned{hint}"

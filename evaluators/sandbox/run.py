"""Runs candidates: source text in, plain data or a reason out."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from costada.evaluators.folder_files import shown_files
from costada.evaluators.sandbox.choice import chosen_layer
from costada.evaluators.sandbox.execution import execute_in_any, request_for, too_slow
from costada.evaluators.sandbox.judgement import results_of
from costada.evaluators.sandbox.launch import SeenFile, SlotKind
from costada.evaluators.sandbox.layers import LATE, PRELOAD, Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.result import CandidateResult
from costada.values.evaluation import NOT_STORABLE, is_storable


def run_candidate(
    source: str,
    entry_point: str,
    limits: Limits,
    arguments: Mapping[str, object] | None = None,
    layer: Layer = Layer.AUTO,
    preload: Sequence[str] = PRELOAD,
) -> CandidateResult:
    """Return what a candidate's entry point returns, or why it does not; see `run_calls`."""
    return run_calls(source, entry_point, [arguments or {}], limits, layer, preload)[0]


def run_calls(
    source: str,
    entry_point: str,
    calls: Sequence[Mapping[str, object]],
    limits: Limits,
    layer: Layer = Layer.AUTO,
    preload: Sequence[str] = PRELOAD,
) -> list[CandidateResult]:
    """Return what a candidate's entry point returns for each call, or why it does not.

    The source is compiled and run in a fresh process that shares nothing with this one and is
    killed, with everything it started, at the end. All calls go to the same process; after a call
    that runs out of its time, the rest go to a new one. Safe to call from several threads at
    once; an interrupt ends the run and passes on.

    Args:
        source: The candidate's source text.
        entry_point: The function to call.
        calls: The keyword arguments of each call, as plain data.
        limits: What the run may take.
        layer: What holds the candidate's process.
        preload: Modules that are loaded before the process starts; SciPy's before the first one
            whose source names it.

    Raises:
        InterruptedError: If the evaluation was asked to stop.
        OSError: If the scratch directory cannot be made.
        RuntimeError: If the sandbox itself does not work. Never because of the candidate.
        ValueError: If this machine does not offer the layer, or an argument is no plain data.
    """
    kind = SlotKind(chosen_layer(layer), tuple(preload), files_mb=limits.files_mb)
    results: list[CandidateResult] = []
    remaining = limits.wall_seconds
    while len(results) < len(calls):
        rest = calls[len(results) :]
        if remaining <= 0:
            reason = too_slow(limits.wall_seconds)
            return results + [CandidateResult(None, reason, "", 0.0)] * len(rest)
        call = {"mode": "candidate", "entry_point": entry_point}
        fresh = _run(source, call, rest, limits, kind, remaining)
        remaining -= sum(result.seconds for result in fresh)
        results += fresh
    return results


def run_evaluator(
    source: str,
    folder: Path,
    limits: Limits,
    layer: Layer = Layer.AUTO,
    preload: Sequence[str] = PRELOAD,
    files: Sequence[str] = (),
) -> CandidateResult:
    """Return metrics and artifacts that the evaluator.py of a folder gives a candidate.

    Evaluator and candidate run together in the child; the output is a dict with "metrics" and
    "artifacts", whose values are numbers, texts or None. Of the folder they may read what
    `shown_files` finds; `files` are those that the folder declares.

    Raises:
        InterruptedError: If the evaluation was asked to stop.
        OSError: If the scratch directory cannot be made.
        RuntimeError: If the sandbox itself does not work.
        ValueError: If this machine does not offer the layer, or declared files are not there.
    """
    found = folder.resolve()
    shown = shown_files(found, files)
    seen = tuple(_seen(path, found) for path in shown)
    kind = SlotKind(chosen_layer(layer), tuple(preload), seen, files_mb=limits.files_mb)
    call = {"mode": "evaluator", "folder": str(found)}
    texts = [path.read_text(errors="replace") for path in shown if path.suffix == ".py"]
    return _run(source, call, [{}], limits, kind, limits.wall_seconds, "".join(texts))[0]


def _seen(path: Path, folder: Path) -> SeenFile:
    about = path.stat()
    return SeenFile(str(path), str(folder), (about.st_dev, about.st_ino))


def _run(
    source: str,
    call: Mapping[str, object],
    calls: Sequence[Mapping[str, object]],
    limits: Limits,
    kind: SlotKind,
    seconds: float,
    other_text: str = "",
) -> list[CandidateResult]:
    """Return the results up to the first call that ran out of time, or of all calls.

    `other_text` is what runs beside the source.
    """
    if not is_storable(source):
        return [CandidateResult(None, NOT_STORABLE, "", 0.0)] * len(calls)
    text = source.encode()
    if len(text) > limits.source_bytes:
        reason = f"the source has {len(text)} bytes; expected at most {limits.source_bytes}"
        return [CandidateResult(None, reason, "", 0.0)] * len(calls)
    request = request_for(text, call, calls)
    needs_all = LATE in source or LATE in other_text
    execution = execute_in_any(kind, request, limits, seconds, needs_all=needs_all)
    return results_of(execution)

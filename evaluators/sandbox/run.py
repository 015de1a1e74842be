"""Runs candidates: source text in, plain data or a reason out."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from costada.evaluators.folder_files import shown_files
from costada.evaluators.sandbox.execution import (
    CandidateResult,
    execute_in_any,
    request_for,
    results_of,
    too_slow,
)
from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import LATE, PRELOAD, Layer, ReadableFile, SlotKind
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.slot import SLOTS, Pool
from costada.values.evaluation import NOT_STORABLE, is_storable


def run_candidate(
    source: str,
    entry_point: str,
    limits: Limits,
    arguments: Mapping[str, object] | None = None,
    layer: Layer = Layer.AUTO,
    preload: Sequence[str] = PRELOAD,
    slots: Pool = SLOTS,
) -> CandidateResult:
    """Run a candidate's entry point once; see `run_calls`."""
    return run_calls(source, entry_point, [arguments or {}], limits, layer, preload, slots)[0]


def run_calls(
    source: str,
    entry_point: str,
    calls: Sequence[Mapping[str, object]],
    limits: Limits,
    layer: Layer = Layer.AUTO,
    preload: Sequence[str] = PRELOAD,
    slots: Pool = SLOTS,
) -> list[CandidateResult]:
    """Run a candidate's entry point for each call; the results in order.

    The source is compiled and run in a fresh process that shares nothing with this one and is
    killed, with everything it started, at the end. All calls go to the same process; after a call
    that runs out of its time, the rest go to a new one. Thread-safe: there are as many runs at once
    as slots, and waiting for a slot takes no time from a run. A KeyboardInterrupt ends the run and
    passes on.

    Args:
        source: The candidate's source text.
        entry_point: The function to call.
        calls: The keyword arguments of each call, as plain data.
        limits: What the run may take.
        layer: What confines the candidate's process.
        preload: Modules that are loaded before the process starts; SciPy's before the first one
            whose source names it.
        slots: Where to run it.

    Raises:
        InterruptedError: If the evaluation was cancelled.
        OSError: If the scratch directory cannot be made.
        RuntimeError: If the sandbox itself does not work. Never because of the candidate.
        ValueError: If this machine does not offer the layer, or an argument is no plain data.
    """
    kind = SlotKind(chosen_layer(layer), tuple(preload), files_mb=limits.files_mb)
    call = {"mode": "candidate", "entry_point": entry_point}
    results: list[CandidateResult] = []
    remaining = limits.wall_seconds
    while len(results) < len(calls):
        rest = calls[len(results) :]
        if remaining <= 0:
            reason = too_slow(limits.wall_seconds)
            return results + [CandidateResult(None, reason, "", 0.0)] * len(rest)
        fresh = _run(source, call, rest, limits, kind, remaining, slots=slots)
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
    """Run the evaluator.py of a folder on a candidate, both in the same confined process.

    The output is a dict with "metrics" and "artifacts", whose values are numbers, texts or None.
    Of the folder they may read what `shown_files` finds; `files` are those that it declares.

    Raises:
        InterruptedError: If the evaluation was cancelled.
        OSError: If the scratch directory cannot be made.
        RuntimeError: If the sandbox itself does not work.
        ValueError: If this machine does not offer the layer, or declared files are not there.
    """
    found = folder.resolve()
    shown = shown_files(found, files)
    readable = []
    for path in shown:
        about = path.stat()
        readable.append(ReadableFile(str(path), str(found), (about.st_dev, about.st_ino)))
    layer = chosen_layer(layer)
    kind = SlotKind(layer, tuple(preload), tuple(readable), files_mb=limits.files_mb)
    call = {"mode": "evaluator", "folder": str(found)}
    texts = [path.read_text(errors="replace") for path in shown if path.suffix == ".py"]
    return _run(source, call, [{}], limits, kind, limits.wall_seconds, "".join(texts))[0]


def _run(
    source: str,
    call: Mapping[str, object],
    calls: Sequence[Mapping[str, object]],
    limits: Limits,
    kind: SlotKind,
    seconds: float,
    evaluator_text: str = "",
    slots: Pool = SLOTS,
) -> list[CandidateResult]:
    """The results up to the first call that ran out of time, or of all calls."""
    if not is_storable(source):
        return [CandidateResult(None, NOT_STORABLE, "", 0.0)] * len(calls)
    text = source.encode()
    if len(text) > limits.source_bytes:
        reason = f"the source has {len(text)} bytes; expected at most {limits.source_bytes}"
        return [CandidateResult(None, reason, "", 0.0)] * len(calls)
    request = request_for(text, call, calls)
    needs_all = LATE in source or LATE in evaluator_text
    return results_of(
        execute_in_any(kind, request, limits, seconds, needs_all=needs_all, slots=slots)
    )

"""Runs commands on a candidate whose files are put into a clean copy of a folder."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from costada.evaluators.sandbox.execution import (
    CandidateResult,
    execute_in_any,
    request_for,
    results_of,
)
from costada.evaluators.sandbox.inside.scored_command import REPOSITORY
from costada.evaluators.sandbox.interpreter import interpreter_at
from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import Layer, Original, SlotKind, readable_paths
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.named_files import named_files
from costada.evaluators.sandbox.slot import SLOTS, Pool
from costada.values.candidate import Program


def run_in_copy(
    program: Program,
    original: Original,
    commands: Mapping[str, Sequence[str]],
    limits: Limits,
    *,
    report_file: str | None = None,
    layer: Layer = Layer.AUTO,
    interpreter: str | None = None,
    readable: Sequence[str] = (),
    slots: Pool = SLOTS,
) -> CandidateResult:
    """Put a candidate's files into a copy, and run commands there until one fails.

    The output says how the last command that ran ended, what it printed and which score it
    reports; see `inside/scored_command.py`. Nothing that the commands write outlives the run.

    Args:
        program: The candidate; the original has no files at its paths.
        original: What the copy is made of.
        commands: Words of each command by name; no shell reads them.
        limits: What all commands together may take.
        report_file: File below the repository in which the last command reports its score; None
            if it prints that.
        layer: What confines the commands.
        interpreter: Path of the Python that they find first; that of this process if absent.
        readable: Paths, and patterns of such, that they may read beside the system's.
        slots: Where to run them.

    Raises:
        InterruptedError: If the evaluation was cancelled.
        OSError: If the scratch folder cannot be made.
        RuntimeError: If the sandbox itself does not work.
        ValueError: If this machine does not offer the layer.
    """
    files = named_files(program)
    if fault := files.fault(limits):
        return CandidateResult(None, fault, "", 0.0)
    kind = SlotKind(
        chosen_layer(layer),
        preload=(),
        files_mb=limits.files_mb,
        interpreter=interpreter_at(interpreter) if interpreter else None,
        original=original,
        readable=readable_paths(readable),
    )
    words = {name: list(command) for name, command in commands.items()}
    call = {"mode": "commands", "commands": words, "report_file": report_file}
    placed = {f"{REPOSITORY}/{path}": text for path, text in files.encoded.items()}
    request = replace(request_for(placed, call, [{}]), may_execute=True)
    return results_of(execute_in_any(kind, request, limits, limits.wall_seconds, slots=slots))[0]

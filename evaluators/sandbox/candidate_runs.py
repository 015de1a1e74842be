"""Runs candidates: a program in, plain data or a reason out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from costada.evaluators.sandbox.candidate_results import CandidateResult, results_of
from costada.evaluators.sandbox.codec import Value
from costada.evaluators.sandbox.execution import execute_in_any, request_for, too_slow
from costada.evaluators.sandbox.inside.orders import (
    CANDIDATE_FILE,
    FOLDER,
    PROGRAM,
    REPOSITORY,
    SOURCES,
)
from costada.evaluators.sandbox.interpreter import own_interpreter
from costada.evaluators.sandbox.layer_choice import kind_for
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.model_channel import Connect
from costada.evaluators.sandbox.opened import NOTHING, Opened
from costada.evaluators.sandbox.slot import SLOTS, Pool
from costada.evaluators.sandbox.slot_kind import (
    LATE,
    PRELOAD,
    Original,
    SlotKind,
)
from costada.values.candidate import Program
from costada.values.evaluation import NOT_STORABLE, is_storable
from costada.values.program_form import invalid_files_reason

if TYPE_CHECKING:  # what is trusted imports nothing that reads problems' folders
    from costada.evaluators.folder_files import EvaluatorFile

ENDED = "ended_in_stage"
"""Name of the text that says in which stage an evaluation ended."""


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """The files of a candidate, text by relative path.

    Attributes:
        files: Text by path below the working folder.
        path: The path of the only file; empty for that of the folder, if there may be several.
    """

    files: Mapping[str, str]
    path: str

    @property
    def encoded(self) -> dict[str, bytes]:
        """The files as they are written."""
        return {path: text.encode() for path, text in self.files.items()}

    def fault(self, limits: Limits) -> str | None:
        """Why they cannot be written into a sandbox with these limits; None if they can."""
        if fault := invalid_files_reason(self.files):
            return f"the program has {fault}"
        if not all(map(is_storable, self.files.values())):
            return NOT_STORABLE
        size = sum(len(text) for text in self.encoded.values())
        if size > limits.source_bytes:
            what = "source has" if self.path else "files have together"
            return f"the {what} {size} bytes; expected at most {limits.source_bytes}"
        return None


def named_files(source: str | Program, file_name: str = CANDIDATE_FILE) -> NamedFiles:
    """The files of a program: one string under the name given, or files under their own paths."""
    if isinstance(source, str):
        return NamedFiles({file_name: source}, file_name)
    return NamedFiles(source, "")


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
    source: str | Program,
    entry_point: str,
    calls: Sequence[Mapping[str, object]],
    limits: Limits,
    layer: Layer = Layer.AUTO,
    preload: Sequence[str] = PRELOAD,
    slots: Pool = SLOTS,
    interpreter: str | None = None,
    connect: Connect | None = None,
) -> list[CandidateResult]:
    """Run a candidate's entry point for each call; the results in order.

    The source is compiled and run in a fresh process that shares nothing with this one and is
    killed, with everything it started, at the end. All calls go to the same process; after a call
    that runs out of its time, the rest go to a new one. Thread-safe: there are as many runs at once
    as slots, and waiting for a slot takes no time from a run. A KeyboardInterrupt ends the run and
    passes on.

    Args:
        source: The candidate's source text, or its files, which it can import.
        entry_point: The function to call; of several files, `module:function`.
        calls: The keyword arguments of each call, as plain data.
        limits: What the run may take.
        layer: What confines the candidate's process.
        preload: Modules that are loaded before the process starts; SciPy's before the first one
            whose source names it.
        slots: Where to run it.
        interpreter: Path of the Python that runs it; that of this process if absent.
        connect: Serves each connection that it opens to its models, which clients in Python reach
            by the environment; None if it has no models.

    Raises:
        InterruptedError: If the evaluation was cancelled.
        OSError: If the scratch directory cannot be made.
        RuntimeError: If the sandbox itself does not work. Never because of the candidate.
        ValueError: If this machine does not offer the layer, or an argument is not plain data.
    """
    kind = kind_for(layer, limits, preload, interpreter)
    call = {"mode": "candidate", "entry_point": entry_point}
    program = named_files(source)
    results: list[CandidateResult] = []
    remaining = limits.wall_seconds
    while len(results) < len(calls):
        rest = calls[len(results) :]
        if remaining <= 0:
            reason = too_slow(limits.wall_seconds)
            return results + [CandidateResult(None, reason, "", 0.0)] * len(rest)
        fresh = _run(program, call, rest, limits, kind, remaining, slots=slots, connect=connect)
        remaining -= sum(result.seconds for result in fresh)
        results += fresh
    return results


def run_evaluator(
    source: str | Program,
    evaluator: "EvaluatorFile",
    limits: Limits,
    layer: Layer = Layer.AUTO,
    preload: Sequence[str] = PRELOAD,
    interpreter: str | None = None,
    file_name: str = CANDIDATE_FILE,
    readable: Sequence[str] = (),
    connect: Connect | None = None,
    opened: Opened = NOTHING,
) -> CandidateResult:
    """Run the evaluator of a folder on a candidate, in a clean copy of its folder.

    It is given the path of the candidate's file, which has the name given, or of the folder that
    holds its files. What it writes ends with the evaluation.
    The output is a dict with "metrics" and "artifacts", whose values are numbers, strings or None;
    see `inside/evaluator_contracts.py`. If a stage after the first fails, the result is that of the
    stages before, with the error among its artifacts.
    `interpreter` is the path of the Python that runs both; that of this process if absent. Of this
    one, both may read what is installed in editable mode, but for packages around the folder or in
    it. `readable` are files and folders beside the system's that both may read, and `connect`
    serves each connection that either opens to the models. What is `opened` is the evaluator's:
    what it starts that runs the candidate has none of it.

    Raises:
        InterruptedError: If the evaluation was cancelled.
        OSError: If the scratch directory cannot be made.
        RuntimeError: If the sandbox itself does not work.
        ValueError: If this machine does not offer the layer, or declared files are not there.
    """
    program = named_files(source, file_name)
    if fault := program.fault(limits):
        return CandidateResult(None, fault, "", 0.0)
    copied, empty_folders = evaluator.copied()
    places = {file.path: file.place for file in copied}
    kind = kind_for(layer, limits, preload, interpreter, readable, starts_programs=True)
    editable = () if interpreter else own_interpreter().editable_apart_from(evaluator.folder)
    call: dict[str, object] = {
        "mode": "evaluator",
        "evaluator": places.get(str(evaluator.path), f"{FOLDER}/{evaluator.path.name}"),
        "contract": evaluator.contract,
        "thresholds": list(evaluator.thresholds),
        "program": str(PurePosixPath(PROGRAM, program.path)),
        "keys": dict(opened.keys),
        "shared": [places[str(path)] for path in evaluator.shared() if str(path) in places],
    }
    calls = [{"stage": stage} for stage in range(1, evaluator.num_stages + 1)] or [{}]
    placed = {f"{PROGRAM}/{path}": text for path, text in program.encoded.items()}
    request = replace(request_for(placed, call, calls, connect), evaluates=True)
    own = [Path(file.path) for file in copied if file.path.endswith(".py")]
    texts = [*(path.read_text(errors="replace") for path in own), *program.files.values()]
    execution = execute_in_any(
        replace(
            kind,
            files=copied,
            empty_folders=empty_folders,
            opened=opened.of_slot,
            editable=editable,
        ),
        request,
        limits,
        limits.wall_seconds,
        needs_all=any(LATE in text for text in texts),
    )
    return _last_stage(results_of(execution))


def find_syntax_faults(
    program: NamedFiles, languages: Mapping[str, str], limits: Limits, layer: Layer
) -> dict[str, str]:
    """The first syntax error of each file, by path, found by parsers in a confined process.

    Nothing is executed. A check that fails, or takes longer than its limits, finds no error.
    `languages` are as `inside/syntax_check.py` takes them.

    Raises:
        InterruptedError: If the evaluation was cancelled.
        OSError: If the scratch directory cannot be made.
        RuntimeError: If the sandbox itself does not work.
    """
    kind = kind_for(layer, limits)
    call = {"mode": "syntax", "languages": dict(languages)}
    output = _run(program, call, [{}], limits, kind, limits.wall_seconds)[0].output
    faults = output if isinstance(output, dict) else {}
    return {path: str(fault) for path, fault in faults.items()}


def _last_stage(stages: list[CandidateResult]) -> CandidateResult:
    """The result of stages together, whose outputs cover the stages before."""
    seconds = sum(result.seconds for result in stages)
    last = replace(stages[0], seconds=seconds)
    for number, result in enumerate(stages[1:], start=2):
        if result.is_sandbox_fault or result.outage is not None:
            return replace(result, seconds=seconds)
        if not isinstance(last.output, dict) or (result.error or result.output) is None:
            return replace(last, output=_with_end(last.output, number - 1, len(stages)))
        if result.error is not None:
            return replace(last, output=_without_stage(last.output, number, result.error))
        last = replace(last, output=result.output)
    return last


def _with_end(output: Value, number: int, num_stages: int) -> Value:
    """What an evaluator answered in its first stages, and that it went no further."""
    match output:
        case {"metrics": metrics, "artifacts": dict(artifacts), "averaged": names}:
            said = f"ended after stage {number} of {num_stages}, as its threshold was not reached"
            return {
                "metrics": metrics,
                "artifacts": {**artifacts, ENDED: said},
                "averaged": names,
            }
    return output


def _without_stage(output: dict[str, Value], number: int, error: str) -> dict[str, Value]:
    """What an evaluator answered before a stage failed, with the error."""
    match output:
        case {"metrics": dict(metrics), "artifacts": dict(artifacts), "averaged": list(names)}:
            passed = f"stage{number}_passed"
            return {
                "metrics": {**metrics, passed: 0.0},
                "artifacts": {**artifacts, f"stage{number}_error": error},
                "averaged": [*names, passed],
            }
    return output


def _run(
    program: NamedFiles,
    call: Mapping[str, object],
    calls: Sequence[Mapping[str, object]],
    limits: Limits,
    kind: SlotKind,
    seconds: float,
    slots: Pool = SLOTS,
    connect: Connect | None = None,
) -> list[CandidateResult]:
    """The results up to the first call that ran out of time, or of all calls."""
    if fault := program.fault(limits):
        return [CandidateResult(None, fault, "", 0.0)] * len(calls)
    request = request_for(program.encoded, {**call, "program": program.path}, calls, connect)
    needs_all = any(LATE in text for text in program.files.values())
    return results_of(
        execute_in_any(kind, request, limits, seconds, needs_all=needs_all, slots=slots)
    )


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
    connect: Connect | None = None,
    opened: Opened = NOTHING,
    script: str = "",
) -> CandidateResult:
    """Put a candidate's files into a copy, and run commands there until one fails.

    The output says how the last command that ran ended, what it printed and which score it
    reports; see `inside/scored_commands.py`. Nothing that the commands write outlives the run.

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
        connect: Serves each connection to the models that a Python opens which a command is; None
            if there are no models.
        opened: What is opened to the commands.
        script: The Python file that the only command is, if it runs no code of the candidate. What
            it starts that may do so is confined once more, and has none of what is opened.

    Raises:
        InterruptedError: If the evaluation was cancelled.
        OSError: If the scratch folder cannot be made.
        RuntimeError: If the sandbox itself does not work.
        ValueError: If this machine does not offer the layer.
    """
    files = named_files(program)
    if fault := files.fault(limits):
        return CandidateResult(None, fault, "", 0.0)
    kind = kind_for(layer, limits, interpreter=interpreter, readable=readable, starts_programs=True)
    kind = replace(kind, original=original, opened=opened.of_slot)
    words = {name: list(command) for name, command in commands.items()}
    call: dict[str, object] = {"mode": "commands", "commands": words, "report_file": report_file}
    call["keys"] = dict(opened.keys)
    if script:
        call |= {
            "is_apart": True,
            "script": f"{REPOSITORY}/{script}",
            "import_places": [REPOSITORY, f"{REPOSITORY}/{SOURCES}"],
            "confines_all": bool(opened),
        }
    placed = {f"{REPOSITORY}/{path}": text for path, text in files.encoded.items()}
    request = request_for(placed, call, [{}], connect)
    request = replace(request, may_execute=True, is_apart=bool(script))
    return results_of(execute_in_any(kind, request, limits, limits.wall_seconds, slots=slots))[0]

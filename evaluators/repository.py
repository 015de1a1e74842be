"""A repository as a problem: candidates change some of its files, and a command scores a copy.

The problem folder holds `problem.md` and a `problem.toml` with `repository`, `program` (patterns of
the files that candidates may add, change and delete) and `command`. The repository is only read.
Each candidate is a clean copy of it in the sandbox, in which the command runs.
"""

import errno
import json
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path, PurePosixPath
from signal import Signals
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from costada.evaluators.consent import check_sendable, consent_fault
from costada.evaluators.environment import interpreter_of
from costada.evaluators.feedback import reported_texts
from costada.evaluators.folder_evaluators import evaluation_error, folder_evaluation
from costada.evaluators.folder_settings import SETTINGS_FILE, FolderSettings
from costada.evaluators.initial_program import read_files
from costada.evaluators.original_folder import Base, base_of
from costada.evaluators.problem import Problem
from costada.evaluators.repository_commands import script_apart
from costada.evaluators.repository_files import RepositoryFiles, repository_files
from costada.evaluators.sandbox.candidate_results import (
    WITHOUT_CONTROLS,
    CandidateResult,
    signal_name,
)
from costada.evaluators.sandbox.candidate_runs import run_in_copy
from costada.evaluators.sandbox.commands import command_words
from costada.evaluators.sandbox.inside.scored_commands import SECONDS
from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.opened import NOTHING
from costada.evaluators.sandboxed import Confined
from costada.evaluators.setup_hints import Setup, setup_hint
from costada.evaluators.shown_paths import read_shown
from costada.values.candidate import Program
from costada.values.evaluation import (
    COMBINED_SCORE,
    EVALUATOR_FAULT,
    LOG,
    NOT_SCORED,
    SANDBOX_FAULT,
    Direction,
    Evaluation,
    failed,
    storable,
)
from costada.values.program_form import language_of

BUILD, TEST, COMMAND = "build", "test", "command"
PROCESSES = 64
"""How many processes the commands may start where the settings do not say."""

REPORT_FILE = re.compile(r"--(?:benchmark-json|export-json)(?:=|\s+)['\"]?([^\s'\"]+)")
"""The options of pytest-benchmark and hyperfine that name the file for their results."""

NOT_OF_REPOSITORIES = ("entry_point", "run")
TOO_LARGE = (os.strerror(errno.EFBIG), "File size limit exceeded", Signals.SIGXFSZ.name)
"""What programs and shells say where a file exceeds the limit of the sandbox."""

NUM_LINES = 20
"""Of each output, shown as the reason of a failure."""

MAX_SOURCE_BYTES = 20_000
"""Largest file that is shown with the commands that name it."""

MAX_LOG_CHARS = 8_000


class CommandReport(BaseModel):
    """What `inside/scored_commands.py` reports, where a candidate may have written something else.

    Raises:
        ValidationError: If it is no such report.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    name: str
    status: int | None
    seconds: float = 0.0
    stdout: str
    stderr: str
    is_full: bool = False
    fault: str | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    texts: dict[str, str] = Field(default_factory=dict)
    are_times: bool = False

    @model_validator(mode="after")
    def _check_times(self) -> Self:
        """Refuse times without seconds."""
        if self.are_times and self.metrics.get(SECONDS, 0.0) <= 0:
            raise ValueError(f"{SECONDS} is absent or not positive")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryEvaluator(Confined):
    """Evaluates candidates by a command that runs in a clean copy of a repository.

    Attributes:
        folder: The problem folder.
        settings: Its settings.
        base: The files that no candidate changes.
        script: The file that the score command runs without the candidate's code; empty if none.
    """

    folder: Path
    settings: FolderSettings
    base: Base
    script: str = ""

    @property
    def commands(self) -> dict[str, list[str]]:
        """Words of the commands that build and test, if there are any, and of that which scores."""
        settings = self.settings
        given = {BUILD: settings.build, TEST: settings.test, COMMAND: settings.command}
        return {name: shlex.split(text) for name, text in given.items() if text}

    @property
    def report_file(self) -> str | None:
        """The file in which the command reports its score; None if it prints it."""
        found = REPORT_FILE.search(self.settings.command or "")
        return found[1] if found else None

    def decided_by(self) -> tuple[object, ...]:
        """What evaluations depend on besides the limits: all files of the copies, and commands."""
        return (self.base.digest, tuple(sorted(self.commands.items())))

    def content(self) -> bytes:
        """Hash of what decides what the commands do."""
        told = json.dumps([self.base.digest, sorted(self.commands.items()), self.settings.program])
        return sha256(told.encode()).digest()

    def runs_candidate(self) -> bool:
        """Whether the commands may run the candidate in a process that has what they have."""
        return not self.script

    def check_confirmed(self, layer: Layer) -> None:
        """Refuse to run commands whose declarations nobody has confirmed; as in `Confined`."""
        if fault := consent_fault(self.folder, self.settings.needs, self, layer):
            raise ValueError(f"{self.folder}: {fault}")

    def check_sendable(self) -> None:
        """As in `Confined`."""
        check_sendable(self.settings.needs)

    def __call__(self, source: str | Program) -> Evaluation:
        """Evaluation of a program; raises as `SandboxedEvaluator` does.

        It raises a ValueError too if the repository has changed since the problem was loaded, or
        what the command needs is not confirmed.
        """
        self.check_granted()
        program = Program.of(source)
        for path in program:
            if fault := self.base.conflict(path):
                return failed(f"the program has a file where none can be: {fault}")
        return self._evaluation_of(self.run(program, self.commands, self.report_file))

    def run(
        self,
        program: Program,
        commands: Mapping[str, Sequence[str]],
        report_file: str | None = None,
        *,
        has_needs: bool = True,
    ) -> CandidateResult:
        """What commands do in a copy with a program's files; raises as `run_in_copy` does.

        They have what the settings declare as needed, or with `has_needs=False` none of it. It
        raises a ValueError too if that is not confirmed.
        """
        needs = self.settings.needs
        if has_needs and needs.are_of_evaluator:
            self.check_confirmed(chosen_layer(self.layer))
        with needs.opened() if has_needs else nullcontext(NOTHING) as opened:
            return run_in_copy(
                program,
                self.base.original(self.folder),
                commands,
                self.limits,
                report_file=report_file,
                layer=self.layer,
                interpreter=self.interpreter,
                readable=self.readable,
                connect=self.connect,
                opened=opened,
                script=self.script if has_needs else "",
            )

    def hint(self, error: str, log: str) -> str:
        """What may help where a command fails for where it runs; empty if nothing is known."""
        commands = str(list(self.commands.values()))
        return setup_hint(
            error, log, Setup(commands, chosen_layer(self.layer), self.limits.processes)
        )

    def _evaluation_of(self, run: CandidateResult) -> Evaluation:
        """Evaluation of what the commands did."""
        seconds = run.seconds
        report = _report_in(run.output)
        if run.error is not None or report is None:
            error = run.error or "malformed answer: it is not a report of a command"
            reason = evaluation_error(error, self.limits)
            mark = SANDBOX_FAULT if run.is_sandbox_fault else NOT_SCORED
            log = {LOG: run.log} if run.log else {}
            return failed(reason, artifacts=log | {mark: reason}, seconds=seconds)
        printed = {"stdout": readable(report.stdout), "stderr": readable(report.stderr)}
        log = {name: text[-MAX_LOG_CHARS:] for name, text in printed.items() if text.strip()}
        if report.status is None:
            fault = (
                f"{report.name} cannot be run in the sandbox: {printed['stderr']}; expected a"
                " program of this Python's environment, of the system or of the repository"
            )
            return failed(fault, artifacts={EVALUATOR_FAULT: fault}, seconds=seconds)
        if report.status != 0 or report.fault is not None:
            failure = _failure(report, printed) if report.status else readable(str(report.fault))
            if report.is_full or any(text in failure for text in TOO_LARGE):
                failure += f"\n(the limit of the program's files is {self.limits.scratch_mb} MB)"
            return failed(failure, artifacts=log, seconds=seconds)
        texts = {readable(name): readable(text) for name, text in report.texts.items()}
        metrics = {readable(name): number for name, number in report.metrics.items()}
        if report.are_times:
            time = metrics[SECONDS]
            is_minimized = self.settings.direction is Direction.MINIMIZE
            metrics[COMBINED_SCORE] = time if is_minimized else 1 / time
        artifacts = log | reported_texts(texts, log)
        evaluation = folder_evaluation(metrics, artifacts, self.settings, seconds)
        if EVALUATOR_FAULT in evaluation.artifacts:
            known = ", ".join(sorted(metrics)) or "no number"
            reason = f"the command reports no {COMBINED_SCORE}; expected a number (found {known})"
            return failed(reason, metrics=metrics, artifacts=artifacts, seconds=seconds)
        return evaluation


def _report_in(output: object) -> CommandReport | None:
    """The report that an output holds; None if it holds none."""
    try:
        return CommandReport.model_validate(output)
    except ValidationError:
        return None


def _failure(report: CommandReport, printed: Mapping[str, str]) -> str:
    """Why a command failed: how it ended, and the lines that say most."""
    status = report.status or 0
    ended = f"exit status {status}" if status > 0 else signal_name(-status)
    reason = [f"{report.name} failed ({ended})"]
    for lines in map(str.splitlines, printed.values()):
        reason += lines[:NUM_LINES] if report.name == BUILD else lines[-NUM_LINES:]
    return "\n".join(reason)


def readable(text: str) -> str:
    """What a command has printed, without signs that control a terminal or cannot be stored."""
    return storable(text.translate(WITHOUT_CONTROLS))


def load_repository(
    folder: Path, settings: FolderSettings, task: str, sent: RepositoryFiles | None = None
) -> Problem:
    """The problem of a folder whose settings name a repository.

    Args:
        folder: The problem folder.
        settings: Its settings.
        task: The text of its task.
        sent: The repository's files as another machine sent them, in place of those named by the
            settings.

    Raises:
        ValueError: Naming the setting that is missing or wrong, or the file that cannot be used.
    """
    where = folder / SETTINGS_FILE
    _check_settings(where, settings)
    patterns = (settings.program,) if isinstance(settings.program, str) else settings.program
    root = sent.root if sent else repository_root(folder, settings)
    files = sent or repository_files(root, folder, settings.files)
    texts = read_files(root, patterns, without={*files.links, *files.left_out})
    program = {path: text for path, text in texts.items() if path in files.files}
    if not program:
        raise ValueError(
            f"{where}: program is {list(patterns)!r}, which fits only files that git ignores;"
            " expected files of the repository"
        )
    given = settings.problem_fields()
    given |= dict.fromkeys((*NOT_OF_REPOSITORIES, BUILD)) | {"preload": ()}
    given["limits"] = replace(settings.limits, processes=settings.processes or PROCESSES)
    base = base_of(files, program.keys())
    # What a build or a test leaves may be the candidate's.
    is_alone = settings.build is None and settings.test is None
    words = shlex.split(settings.command or "")
    script = script_apart(words, base, (*program, *patterns)) if is_alone else ""
    try:
        return Problem(
            name=settings.name or folder.name,
            task=task,
            initial_program=program,
            editable=patterns,
            language=settings.language or _usual_language(program),
            interpreter=interpreter_of(folder),
            evaluate=RepositoryEvaluator(
                folder=folder, settings=settings, base=base, script=script
            ),
            evaluator_source=_shown_to_guide(settings, base),
            notes=[
                f"{path} is left out of the copies: it leads to {target}"
                for path, target in files.left_out.items()
            ],
            **given,
        )
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None


def repository_evaluator(problem: Problem) -> RepositoryEvaluator:
    """The evaluator of such a problem."""
    if not isinstance(problem.evaluate, RepositoryEvaluator):
        raise TypeError(f"the evaluator is {problem.evaluate!r}; expected one of a repository")
    return problem.evaluate


def repository_root(folder: Path, settings: FolderSettings) -> Path:
    """The repository that a problem folder names, without links.

    Raises:
        ValueError: If a relative path leads over a link, which the folder may have brought along.
    """
    named = settings.repository or ""
    place = Path(os.path.normpath(folder.resolve() / named))
    real = Path(os.path.realpath(place))
    if real != place and not os.path.isabs(named):
        raise ValueError(
            f"{folder / SETTINGS_FILE}: repository is {named!r}, a link or behind one, which leads"
            f" to {real}; expected a folder without links on the way, or an absolute path"
        )
    return real


def _check_settings(where: Path, settings: FolderSettings) -> None:
    """Refuse settings that are missing, or contradict the repository."""
    if not settings.command:
        raise ValueError(f"{where}: command is missing; needed where repository is given")
    for name in (*NOT_OF_REPOSITORIES, "start"):
        if (value := getattr(settings, name)) is not None:
            raise ValueError(f"{where}: {name} is {value!r}; expected none beside repository")
    if not any([settings.program] if isinstance(settings.program, str) else settings.program):
        raise ValueError(f"{where}: program is missing; expected patterns such as 'src/*.py'")
    for name in (BUILD, TEST, COMMAND):
        if (command := getattr(settings, name)) is not None:
            command_words(f"{where}: {name}", command)
    report = REPORT_FILE.search(settings.command)
    if report and (report[1].startswith("/") or ".." in report[1].split("/")):
        raise ValueError(
            f"{where}: command writes {report[1]!r}; expected a path below the repository"
        )


def _usual_language(paths: Iterable[str]) -> str:
    return Counter(language_of(path).name for path in paths).most_common(1)[0][0]


def _shown_to_guide(settings: FolderSettings, base: Base) -> str:
    """The commands, and the files of the repository that they name."""
    commands = [text for text in (settings.build, settings.test, settings.command) if text]
    parts = [f"$ {text}" for text in commands]
    for word in dict.fromkeys(word for text in commands for word in re.split(r"[\s'\"=]+", text)):
        path = str(PurePosixPath(word)) if word else ""
        if path in base.paths and base.repository.files[path] <= MAX_SOURCE_BYTES:
            root = base.repository.root
            text = read_shown(root / path, root, with_hidden=True).decode("utf-8", "replace")
            parts.append(f"{path}:\n{text}")
    return "\n\n".join(parts)

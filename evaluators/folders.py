"""A problem as a folder: task, initial program and evaluator, each in its own file.

The folder holds `problem.md`, the initial program, `evaluator.py` and, with its settings,
`problem.toml`; the layouts of other tools are read by plug-ins, see `folder_layout.py`. There are
two kinds of evaluators:

- A native one defines `score(output)`. Candidates run in the sandbox, where the entry point that
  `problem.toml` names is called with `ARGUMENTS` (or once with each of `CALLS`); what it returns is
  evaluated here, in another process. `HOLDOUT` may add held-out inputs, and `GUIDE_READS` imported
  functions whose source a guide reads. With `examples` in `problem.toml` it defines
  `score_example(output, example)` instead, which judges a candidate on each of them.
- One of another tool is given the path of the candidate's file. It runs in the sandbox, in the same
  process as the candidate, and answers with metrics, of which "combined_score" is the score.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from inspect import getsource, signature
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, cast

from costada.evaluators.consent import ConfirmableFile, Needs, consent_fault
from costada.evaluators.data_set import DataSet, read_examples
from costada.evaluators.environment import interpreter_of
from costada.evaluators.fetched_files import check_fetched, fetched_fault
from costada.evaluators.folder_evaluators import (
    FolderEvaluator,
    FolderExampleScore,
    FolderScore,
)
from costada.evaluators.folder_layout import (
    IN_RUN,
    NATIVE,
    PER_EXAMPLE,
    TASK_FILE,
    Contract,
    Layout,
    MissingDependencies,
    defined_names,
    find_layout,
    formats,
)
from costada.evaluators.folder_settings import (
    SETTINGS_FILE,
    FolderSettings,
    read_settings,
)
from costada.evaluators.import_paths import imported_modules
from costada.evaluators.initial_program import (
    InitialProgram,
    other_programs,
    program_place,
    read_initial_program,
    read_text,
)
from costada.evaluators.problem import Problem
from costada.evaluators.problem_checks import check_called_function
from costada.evaluators.problem_fields import Holdout
from costada.evaluators.repository import load_repository, repository_evaluator
from costada.evaluators.sandbox.inside.error_reports import outage_seconds
from costada.evaluators.sandbox.inside.orders import CANDIDATE_FILE
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.trusted_module import load_trusted, own_imports, shared_files
from costada.values.model_access import CLIENT_VARIABLES, ModelAccess
from costada.values.program_form import PYTHON

NOWHERE = ModelAccess("http://127.0.0.1:9", "none")
"""What clients find that are made while an evaluator is loaded: no key, and nobody who answers."""

GUIDE_BLOCK = re.compile(
    r"^# GUIDE-BLOCK-START\n(.*?)^# GUIDE-BLOCK-END$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class ProblemFolder:
    """What a problem folder says, read without running anything of it.

    Attributes:
        layout: Its parts.
        settings: Its settings, and the limits of another tool's configuration.
        program: The initial program.
        interpreter: Path of the Python of its environment; None if it has none of its own.
    """

    layout: Layout
    settings: FolderSettings
    program: InitialProgram
    interpreter: str | None

    @property
    def needs(self) -> Needs:
        """What is opened beyond the confinement."""
        is_in_run = self.layout.contract in IN_RUN
        return self.settings.needs_of_score if is_in_run else self.settings.needs

    @property
    def confirmable(self) -> ConfirmableFile:
        """The evaluator, as far as a confirmation is about it."""
        return ConfirmableFile(self.layout.evaluator_file(self.settings))

    @property
    def missing(self) -> MissingDependencies:
        """What the Python that evaluates it lacks, as far as a plug-in knows that."""
        known = (each.missing(self) for each in formats() if each.missing)
        return next(known, MissingDependencies())


def read_folder(path: str | Path, *, interpreter: str | None = None) -> ProblemFolder:
    """What a problem folder says; `interpreter` is given for that of its environment.

    Raises:
        ValueError: Naming the file that is missing, empty or malformed.
    """
    folder, given = _settings_of(path)
    layout = find_layout(folder, given)
    settings = _with_limits(given, layout)
    language, own_files = layout.config.language, (*layout.own_files, *settings.data_files)
    program = read_initial_program(folder, settings, language, own_files)
    return ProblemFolder(layout, settings, program, interpreter or interpreter_of(folder))


def load_folder(
    path: str | Path,
    *,
    interpreter: str | None = None,
    may_ask_models: bool = False,
    is_sent: bool = False,
) -> Problem:
    """The problem that a folder describes.

    Args:
        path: The folder.
        interpreter: Python that runs candidates; None for that of the folder's environment.
        may_ask_models: Whether the evaluator finds its models in the environment of this process.
            Elsewhere it gets no key and reaches no provider while it is loaded.
        is_sent: Whether it is a copy of a run's folder, for which the run asks what is confirmed.

    Raises:
        ValueError: Naming the file that is missing, empty or malformed, or what the folder needs
            that is not installed.
    """
    folder, given = _settings_of(path)
    if fault := fetched_fault(folder):
        raise ValueError(fault)
    if given.repository is not None:
        problem = load_repository(folder, given, read_text(folder / TASK_FILE, folder))
        repository_evaluator(problem).check_confirmed(Layer.AUTO)
        return problem
    found = read_folder(folder, interpreter=interpreter)
    layout, settings, program = found.layout, found.settings, found.program
    config, task = layout.config, layout.task
    if refusal := found.missing.refusal:
        raise ValueError(f"{folder}: {refusal}")
    if layout.contract in IN_RUN:
        _check_no_needs(folder, settings)
    if not is_sent and (fault := consent_fault(folder, found.needs, found.confirmable)):
        raise ValueError(f"{folder}: {fault}")
    if layout.contract in IN_RUN:
        own_fields = _native(layout, settings, program, may_ask_models)
    else:
        evaluator = layout.evaluator_file(settings)
        _check_entry_point(folder, settings, program)
        _check_no_examples(folder, settings, layout.contract)
        own_fields = {
            "evaluator_source": _guide_blocks(layout.source),
            "limits": settings.limits_of_evaluator,
            "evaluate": FolderEvaluator(
                evaluator=replace(evaluator, imported=_imported_by(program)),
                settings=settings,
                file_name=program.file_name or CANDIDATE_FILE,
                dimensions=config.dimensions,
            ),
        }
    try:
        return Problem(
            name=settings.name or folder.name,
            task=task,
            initial_program=program.source,
            editable=program.editable,
            reserved=program.reserved,
            language=program.language,
            file_name=program.file_name,
            interpreter=found.interpreter,
            evaluations_at_once=config.evaluations_at_once,
            notes=(*config.notes, *notes_on_start(found)),
            **{**settings.problem_fields(), **own_fields},
        )
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None


def _imported_by(program: InitialProgram) -> tuple[str, ...]:
    """The modules that an initial program in Python imports."""
    source = program.source if isinstance(program.source, str) else ""
    return imported_modules(source) if program.language == PYTHON.name else ()


def _check_no_needs(folder: Path, settings: FolderSettings) -> None:
    """Refuse what is opened in the sandbox where the evaluator's `score` runs outside of it."""
    for name in ("network", "keys", "docker", "files"):
        if value := getattr(settings, name):
            shown = value if isinstance(value, bool) else list(value)
            raise ValueError(
                f"{folder / SETTINGS_FILE}: {name} is {shown!r}; expected none without an"
                " evaluate(program_path) or a repository"
            )


def _check_no_examples(folder: Path, settings: FolderSettings, contract: Contract) -> None:
    """Refuse examples that nothing is called with."""
    for name in ("examples", "validation"):
        if (value := getattr(settings, name)) is not None:
            raise ValueError(
                f"{folder / SETTINGS_FILE}: {name} is {value!r}; expected none beside"
                f" {contract.value}, as only {Contract.SCORE_EXAMPLE.value} is called with them"
            )


def _check_entry_point(folder: Path, settings: FolderSettings, program: InitialProgram) -> None:
    """Refuse the name of a function that the initial program lacks: every candidate defines it."""
    name, source = settings.entry_point, program.source
    if name is None or not isinstance(source, str) or settings.allow_invalid_start:
        return
    # Without any, the program is no Python that parses, and its evaluation says so.
    names = defined_names(source) if program.language == PYTHON.name else frozenset()
    if names and name not in names:
        raise ValueError(
            f"{folder / SETTINGS_FILE}: entry_point is {name!r}; expected a name that the initial"
            " program defines, as every candidate must define it"
        )


def notes_on_start(found: ProblemFolder) -> list[str]:
    """Which initial programs a folder does not start from, where no setting names the start."""
    folder, program = found.layout.folder, found.settings.program
    if found.settings.start:
        name = program if isinstance(program, str) else ""
        named = [name] if name and (folder / name).exists() else []
        ignored = " and ".join([*named, *other_programs(folder, name)])
        return [f'{ignored} is not read, as {SETTINGS_FILE} says start = "none"'] if ignored else []
    start = "" if program else program_place(folder)
    others = other_programs(folder, start) if start else []
    wanted = f"to choose another: program = NAME in {SETTINGS_FILE}"
    return [f"the start is {start}, not {' or '.join(others)}; {wanted}"] if others else []


def _settings_of(path: str | Path) -> tuple[Path, FolderSettings]:
    """The full path of a problem folder, and what its `problem.toml` says."""
    folder = Path(path).resolve()
    if not folder.is_dir():
        raise ValueError(f"{path}: is not a folder, expected one with {TASK_FILE} or an evaluator")
    return folder, read_settings(folder / SETTINGS_FILE)


def _with_limits(settings: FolderSettings, layout: Layout) -> FolderSettings:
    """The settings, with the time limit of another tool's configuration unless they have one."""
    seconds = layout.config.timeout
    if seconds is None or "timeout" in settings.model_fields_set:
        return settings
    if layout.num_stages > 1:
        limits = {"timeout": seconds * layout.num_stages, "call_timeout": seconds}
        return settings.model_copy(update=limits)
    return settings.model_copy(update={"timeout": seconds})


def _guide_blocks(source: str) -> str:
    """What a guide reads of an `evaluator.py`: its guide blocks, or else all of it."""
    blocks = [block.strip("\n") for block in GUIDE_BLOCK.findall(source)]
    return "\n\n".join(blocks) + "\n" if blocks else source


def _shown_to_guide(source: str, module: ModuleType, path: Path) -> str:
    """What a guide reads of a native evaluator, and of the functions that `GUIDE_READS` lists."""
    functions = getattr(module, "GUIDE_READS", ())
    if not isinstance(functions, tuple) or not all(
        isinstance(each, FunctionType) for each in functions
    ):
        raise ValueError(f"{path}: GUIDE_READS is {functions!r}; expected a tuple of functions")
    parts = [_guide_blocks(source), *map(getsource, functions)]
    return "\n\n\n".join(part.rstrip("\n") for part in parts) + "\n" if functions else parts[0]


def _native(
    layout: Layout, settings: FolderSettings, program: InitialProgram, may_ask_models: bool
) -> dict[str, Any]:
    """Run a native evaluator in this process, for the fields of a problem that it defines."""
    path = layout.evaluator
    is_python = program.language == PYTHON.name and not isinstance(program.source, dict)
    if is_python and settings.entry_point is None and settings.run is None:
        raise ValueError(
            f"{layout.folder / SETTINGS_FILE}: entry_point is missing; needed where {path.name}"
            " defines score(output); where score reads the text itself, language says another one,"
            ' such as "Triton" or "text"'
        )
    asks_models = settings.models or settings.candidate_models
    with _providers_out_of_reach() if asks_models and not may_ask_models else nullcontext():
        module = load_trusted(path)
    if not hasattr(module, PER_EXAMPLE):
        _check_no_examples(layout.folder, settings, layout.contract)
    holdout = getattr(module, "HOLDOUT", None)
    if not isinstance(holdout, Holdout | None):
        raise ValueError(f"{path}: HOLDOUT is {holdout!r}; expected a costada.Holdout")
    place = settings, layout.folder, path, own_imports(module), shared_files(module)
    scored: dict[str, Any]
    if settings.examples is not None:
        function = getattr(module, PER_EXAMPLE, None)
        _check_score(PER_EXAMPLE, function, path, ("output", "example"))
        scored = {
            "score_example": FolderExampleScore(cast(Callable[..., object], function), *place),
            **_data_of(layout.folder, settings),
        }
    elif not hasattr(module, NATIVE):
        raise ValueError(
            f"{layout.folder / SETTINGS_FILE}: examples is missing; needed where {path.name}"
            f" defines {PER_EXAMPLE}(output, example)"
        )
    else:
        _check_score(NATIVE, module.score, path, ("output",))
        folder_score = FolderScore(module.score, *place)
        held_out = holdout and replace(holdout, score=replace(folder_score, score=holdout.score))
        scored = {"score": folder_score, "holdout": held_out}
    return {
        "evaluator_source": _shown_to_guide(layout.source, module, path),
        "arguments": getattr(module, "ARGUMENTS", {}),
        "calls": getattr(module, "CALLS", None),
        "holdout": holdout,
        **scored,
    }


def _data_of(folder: Path, settings: FolderSettings) -> dict[str, DataSet]:
    """The data sets that the settings of a folder name."""
    check_fetched(folder, settings.prepare, settings.data_files)
    named = {"examples": settings.examples, "validation": settings.validation}
    return {field: read_examples(folder / name, folder) for field, name in named.items() if name}


@contextmanager
def _providers_out_of_reach() -> Iterator[None]:
    """Let clients be made, without a key of the user and with an address that does not answer.

    What they asked in this process would not be on the ledger.
    """
    variables = NOWHERE.environment()
    with CLIENT_VARIABLES:
        before = {name: os.environ[name] for name in variables if name in os.environ}
        os.environ.update(variables)
        try:
            yield
        except ValueError as error:
            if error.__cause__ is None or outage_seconds(error.__cause__) is None:
                raise
            hint = "an evaluator asks its models in a call, not when it is loaded"
            raise ValueError(f"{error}; {hint}") from None
        finally:
            for name in variables:
                os.environ.pop(name, None)
            os.environ.update(before)


def _check_score(name: str, score: object, path: Path, given: tuple[str, ...]) -> None:
    """Refuse what cannot be called with the output of a candidate."""
    if not callable(score):
        raise ValueError(f"{path}: {name} is {score!r}; expected a function")
    try:
        check_called_function(name, score)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if not isinstance(score, FunctionType):  # the signature of other callables may be unknown
        return
    try:
        signature(score).bind(*given)
    except TypeError:
        count = "one argument" if len(given) == 1 else f"{len(given)} arguments"
        raise ValueError(
            f"{path}: {name}{signature(score)} does not take {count}; expected"
            f" {name}({', '.join(given)})"
        ) from None

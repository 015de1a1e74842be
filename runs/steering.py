"""Puts ideas and programs of a user into the run of a folder, also while it is running."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from costada.evaluators.folders import ProblemFolder, read_folder
from costada.evaluators.initial_program import files_in
from costada.prompts.changes import invalid_program_reason
from costada.reports.formats import counted
from costada.reports.summary import end_text
from costada.reports.trace import end_after
from costada.runs.folder import RunFolder
from costada.store.address import is_there
from costada.store.candidates import SEED_ID
from costada.store.files import read_text
from costada.store.rows import record
from costada.store.run_store import RunStore
from costada.store.user_inputs import MAX_PROGRAM, MAX_WAITING
from costada.values.candidate import Program
from costada.values.program_form import TEXT, ProgramForm, find_language


@dataclass(frozen=True, slots=True)
class Added:
    """An input that now waits for a step: its number in the run, and how many wait before it."""

    number: int
    before: int


def add_idea(folder: RunFolder, text: str) -> Added:
    """Let the next step carry out an idea.

    Raises:
        ValueError: If the folder holds no run that has started, the idea is empty, too long or
            unprintable, or too many inputs wait.
        OSError: If the run file cannot be written.
    """
    with _opened(folder) as store:
        run_id = store.run_ids()[-1]
        _check_room(folder, store, run_id)
        number = store.inputs.put_idea(run_id, text)
        return _added(store, run_id, number)


def add_program(folder: RunFolder, path: Path) -> Added:
    """Let the next step evaluate a program: a file, or a folder where programs have several.

    Raises:
        ValueError: If the folder holds no run that has started, the program is not text, too large
            or of another form than those of the run, has a file that the problem does not allow or
            Python with a syntax error, or too many inputs wait.
        OSError: If a file cannot be read, or the run file not written.
    """
    is_folder = path.is_dir()
    with _opened(folder) as store:
        run_id = store.run_ids()[-1]
        seed = store.candidates.find(run_id, SEED_ID)
        if is_folder and seed is not None and seed.program.is_one_text:
            files = [each for each in path.iterdir() if each.is_file()]
            only = f", such as {files[0]}" if len(files) == 1 else ""
            raise ValueError(
                f"program: got the folder {path}, expected a file{only}; the programs of the run"
                " are one text"
            )
        source = files_in(path, lambda _: True) if is_folder else read_text(path, MAX_PROGRAM)
        return _put_program(folder, store, run_id, source, path.name)


def add_program_text(folder: RunFolder, source: str | Mapping[str, str], name: str) -> Added:
    """Let the next step evaluate a program: one text, or the text of each file by its path.

    Args:
        folder: The run.
        source: The program.
        name: What a program of one text is called, such as `program.py`.

    Raises:
        ValueError: As `add_program` does.
        OSError: If the run file cannot be written.
    """
    with _opened(folder) as store:
        run_id = store.run_ids()[-1]
        return _put_program(folder, store, run_id, source, name)


def _put_program(
    folder: RunFolder, store: RunStore, run_id: str, source: str | Mapping[str, str], name: str
) -> Added:
    seed = store.candidates.find(run_id, SEED_ID)
    if seed is not None:
        found = _problem(folder)
        if not (isinstance(source, str) or seed.program.is_one_text or found is None):
            form = _form(found, seed.program)
            if fault := invalid_program_reason(dict(source), seed.program, form):
                raise ValueError(f"program: {fault}")
        if found is None or found.interpreter is None:
            _check_python(source, name, seed.program)
    _check_room(folder, store, run_id)
    return _added(store, run_id, store.inputs.put_program(run_id, source))


def outlook(folder: RunFolder, added: Added) -> str:
    """Message that says when a step will take an input.

    Raises:
        ValueError: If the folder holds no run, or its file is damaged.
    """
    if folder.is_running:
        after = f"a step takes it after {counted(added.before, 'other')}"
        return after if added.before else "the next step that begins takes it"
    first = f"{added.before} before it; " if added.before else ""
    config = folder.load()
    with RunStore.at(folder.database, is_read_only=True) as store:
        run_id = store.run_ids()[-1]
        last = store.last_step(run_id)
        steps = [record(store.step_line(run_id, last))] if last else []
        row = next(iter(store.settled(run_id, steps)), None)
        setup = store.setup(run_id)
    end = end_after(row, config, setup.problem if setup else {}) if row else None
    resume = folder.next_command(config)
    if end == "iterations":
        resume += f" --max-iterations {config.max_iterations + 1}"
    elif end == "target":
        resume += " --target BETTER"
    elif end:
        resume += " --budget MORE"
    why = f" ({end_text(end, config.budget - row['spent'])})" if end and row else ""
    return f"{first}it waits until the run is resumed{why}: {resume}"


def has_started(folder: RunFolder) -> bool:
    """Whether a run can be given ideas and programs."""
    if not is_there(folder.database):
        return False
    with RunStore.at(folder.database, is_read_only=True) as store:
        return bool(store.run_ids())


def _opened(folder: RunFolder) -> RunStore:
    folder.load()
    if has_started(folder):
        return RunStore.at(folder.database)
    hint = "; try again in a moment" if folder.is_running else ""
    raise ValueError(f"{folder.place}: the run has not started, expected one that has{hint}")


def _problem(folder: RunFolder) -> ProblemFolder | None:
    """The problem of a run, `None` if it is not a readable folder.

    Reads the problem folder and executes nothing in it.
    """
    try:
        return read_folder(folder.load().problem)
    except (ValueError, OSError):  # the step checks the program, if the run can be resumed at all
        return None


def _form(found: ProblemFolder, start: Program) -> ProgramForm:
    """What the files of programs may be."""
    return ProgramForm(
        paths=tuple(start),
        patterns=found.program.editable,
        reserved=found.program.reserved,
        language=find_language(found.program.language) or TEXT,
        entry_point=found.settings.entry_point,
    )


def _check_python(source: str | Mapping[str, str], name: str, start: Program) -> None:
    """Refuse Python files with a syntax error, unless the initial program has one as well.

    Nothing is executed. Programs for a Python of the problem's own environment are not checked.
    """
    files = {name: source} if isinstance(source, str) else source
    started = [text for name, text in start.items() if not name or name.endswith(".py")]
    if any(map(_syntax_fault, started)):
        return
    for path, text in files.items():
        if path.endswith(".py") and (fault := _syntax_fault(text)):
            raise ValueError(f"program: {path}: {fault}, expected Python without syntax errors")


def _syntax_fault(text: str) -> str:
    """The first syntax error of a Python file, empty without one."""
    try:
        # The compiler warns of invalid escapes, which are no reason to refuse a program.
        with warnings.catch_warnings(action="ignore"):
            compile(text, "program", "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:  # NUL characters, too deep
        return str(error) or "too complex"
    return ""


def _check_room(folder: RunFolder, store: RunStore, run_id: str) -> None:
    waiting = len(store.inputs.waiting(run_id))
    if waiting >= MAX_WAITING:
        raise ValueError(
            f"{folder.place}: {waiting} ideas and programs wait for a step, expected fewer than"
            f" {MAX_WAITING} before another one"
        )


def _added(store: RunStore, run_id: str, number: int) -> Added:
    waiting = [each.number for each in store.inputs.waiting(run_id)]
    return Added(number, sum(each < number for each in waiting))

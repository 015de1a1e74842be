"""A command as the generator: it changes the files of the parent in a copy of its own."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from tempfile import gettempdir

from langchain_core.runnables import RunnableConfig

from costada.evaluators.initial_program import files_in
from costada.evaluators.problem import Problem
from costada.evaluators.sandbox.helper_environment import helper_environment
from costada.nodes.attempts import load_prompt
from costada.nodes.calls.journal import check_same_request
from costada.nodes.context import RunContext, candidate_of, model_of
from costada.nodes.generator_command import GeneratorCommand
from costada.nodes.state import SearchState
from costada.nodes.tools.command_process import CommandEnd, run_command
from costada.prompts.changes import Change, read_edited_files
from costada.prompts.render import Prompt
from costada.prompts.whole_texts import Rejection
from costada.store.call_log import CallKey
from costada.store.rows import Outcome, OutcomeKind
from costada.values.candidate import Program

MAX_SHOWN = 2000
"""Characters of a command's output, its last ones, that the next attempt is shown."""

UNPRINTABLE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\r(?=\n)|[\x00-\x08\x0b-\x1f\x7f]")
"""Colours and movements of a terminal, and other characters that are no text."""


@dataclass(frozen=True, slots=True)
class CommandAttempt:
    """What a command made of an attempt: hashes of stored texts, empty where there is none.

    Attributes:
        program: The program.
        changes: The diff from its parent.
        failure: Why there is no program.
        log: What the command printed.
    """

    program: str = ""
    changes: str = ""
    failure: str = ""
    log: str = ""


def ask_command(state: SearchState, config: RunnableConfig, context: RunContext) -> SearchState:
    """Add the program that the command leaves to the attempt, or why there is none.

    What came of a command is stored, so an attempt that is executed again does not run it again.

    Raises:
        InterruptedError: The run was asked to stop.
        ValueError: The program of the command is missing, or the journal holds another request for
            the same attempt.
    """
    step, call_log = state["step"], context.store.call_log
    role = "generation" if step.attempt.number == 1 else "retry"
    key = CallKey(state["run"].id, step.ticket, role, step.attempt.number)
    prompt = load_prompt(state, context)
    request = f"{context.settings.generator}\0{prompt.system}\0{prompt.user}"
    request_hash = sha256(request.encode("utf-8", "surrogatepass")).hexdigest()
    known = call_log.outcome(key)
    if known is None:
        made = _run(prompt, state, context)
        text = json.dumps(asdict(made))
        call_log.put_outcome(key, Outcome(request_hash, text, OutcomeKind.ANSWER))
    else:
        check_same_request(request_hash, known.request_hash, key, context)
        made = CommandAttempt(**json.loads(known.text))
    return {"step": replace(step, attempt=replace(step.attempt, **asdict(made)))}


def _run(prompt: Prompt, state: SearchState, context: RunContext) -> CommandAttempt:
    """Run the command on a copy of the parent, and read what it leaves there."""
    step, put_text = state["step"], context.store.put_text
    parent = candidate_of(step.attempt.parent, state, context).program
    asked = model_of(step, context)
    command = GeneratorCommand.read(context.settings.generator)
    # Named by the attempt: executed again, the command sees the same paths and sends the same
    # requests, which the journal answers.
    with _scratch_folder(f"{state['run'].id}-{step.ticket}.{step.attempt.number}") as scratch:
        files, text = scratch / "files", scratch / "prompt.md"
        paths = _write_files(parent, files, context.problem)
        text.write_text(f"{prompt.system}\n\n{prompt.user}", "utf-8", "surrogatepass")
        ended = run_command(
            command.filled(prompt=text, model=asked.first.name, url="", files=paths),
            files,
            stdin=text if command.reads_stdin else None,
            environment=helper_environment(),
            seconds=context.settings.generator_timeout,
        )
        read = _read_files(files, parent, context.problem) if ended.exit_code == 0 else None
    log = UNPRINTABLE.sub("", ended.log)
    if isinstance(read, Change):
        program = context.store.put_program(read.program)
        return CommandAttempt(program, put_text(read.changes), log=put_text(log))
    reason = read.reason if read else _failure(ended, context.settings.generator_timeout)
    if shown := log.strip()[-MAX_SHOWN:]:
        reason = f"{reason} The end of its output:\n{shown}"
    return CommandAttempt(failure=put_text(reason), log=put_text(log))


def _failure(ended: CommandEnd, seconds: float) -> str:
    if ended.exit_code is None:
        return f"The command was stopped after {seconds:g} seconds."
    return f"The command failed with exit status {ended.exit_code}."


@contextmanager
def _scratch_folder(name: str) -> Iterator[Path]:
    """A new folder for this user alone, which is removed afterwards."""
    folder = Path(gettempdir()).resolve() / f"costada-{name}"
    rmtree(folder, ignore_errors=True)  # what a killed process has left
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        rmtree(folder, ignore_errors=True)


def _write_files(program: Program, folder: Path, problem: Problem) -> list[str]:
    """Write a program's files below a new folder; their paths."""
    files = {problem.candidate_name: program.text} if program.is_one_text else dict(program)
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(text.encode("utf-8", "surrogatepass"))
    return list(files)


def _read_files(folder: Path, parent: Program, problem: Problem) -> Change | Rejection:
    """The program that a command has left in a folder, or why there is none."""
    name, form = problem.candidate_name, problem.form

    def is_wanted(path: str) -> bool:
        return path == name if parent.is_one_text else path in parent or form.allows(path)

    try:
        found = files_in(folder, is_wanted)
    except (OSError, ValueError) as error:
        return Rejection(str(error).replace(f"{folder}/", "") + ".")
    if parent.is_one_text and not found:
        return Rejection(f"The command left no file `{name}`.")
    return read_edited_files(found, parent, form)

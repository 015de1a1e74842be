"""A command as the generator: it changes the files of the parent in a copy of its own."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from functools import partial
from hashlib import sha256
from pathlib import Path
from shutil import copytree, rmtree
from tempfile import gettempdir
from threading import Condition

from costada.evaluators.initial_program import files_in
from costada.evaluators.problem import Problem
from costada.evaluators.repository import RepositoryEvaluator
from costada.evaluators.sandbox.helper_environment import helper_environment
from costada.evaluators.sandbox.inside.orders import REPOSITORY
from costada.models.asking import FailureKind, ModelFailure, journals_of
from costada.models.errors import ModelUnusable, UncountedAnswer
from costada.nodes.attempts import load_prompt, with_refusal
from costada.nodes.calls.allowance import Allowance
from costada.nodes.calls.budget import expected_left, left_of_step
from costada.nodes.calls.granted_calls import UNAFFORDABLE, Grant
from costada.nodes.calls.health import OUTCOMES, Pause, health_of, outlast
from costada.nodes.calls.journal import check_same_request
from costada.nodes.calls.paid_calls import ModelUnavailable, Unaffordable
from costada.nodes.context import PricedModel, RunContext, candidate_of, model_of, models_left
from costada.nodes.generator_command import GeneratorCommand
from costada.nodes.state import SearchState
from costada.nodes.tools.command_process import CommandEnd, run_command
from costada.prompts.changes import Change, read_edited_files
from costada.prompts.render import Prompt
from costada.prompts.whole_texts import Rejection
from costada.store.call_log import CallKey
from costada.store.rows import Outcome, OutcomeKind
from costada.values.candidate import Program
from costada.values.roles import GENERATION, RETRY

MAX_SHOWN = 2000
"""Characters of a command's output, its last ones, that the next attempt is shown."""

UNPRINTABLE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\r(?=\n)|[\x00-\x08\x0b-\x1f\x7f]")
"""Colours and movements of a terminal, and other characters that are no text."""


@dataclass(frozen=True, slots=True)
class CommandAttempt:
    """What a command made of an attempt, as its fields say it.

    Attributes:
        program: Hash of the program; empty: none.
        changes: Hash of the diff from its parent.
        failure: Hash of why there is no program; empty: there is one.
        log: Hash of what the command printed.
        is_out_of_money: Whether a hard budget could not pay for its first request.
        is_cut_short: Whether the step's cap or the budget refused a request.
    """

    program: str = ""
    changes: str = ""
    failure: str = ""
    log: str = ""
    is_out_of_money: bool = False
    is_cut_short: bool = False


@dataclass(frozen=True, slots=True)
class CommandRun:
    """A run of the command, and what its requests met.

    Attributes:
        attempt: What it made.
        outage: Why a request was not answered by its provider, if one was not.
        unaffordable: Why the budget could not pay for its first request, if so.
    """

    attempt: CommandAttempt
    outage: ModelFailure | None
    unaffordable: str


class StepAllowance(Allowance):
    """What the command of a step may spend, as the ledger has it at each request.

    No request is sent once the step has cost its cap, and none after the first once the budget is
    used up. Under a hard budget none can exceed the cap, and `Grant` reserves what it can cost.
    """

    def __init__(
        self, key: CallKey, asked: PricedModel, state: SearchState, context: RunContext
    ) -> None:
        super().__init__(0.0, "the step's cap", is_strict=False)
        self._key, self._state, self._context = key, state, context
        self._gateways = journals_of(asked.model)

    @property
    def left(self) -> Decimal:
        """What the next request may cost."""
        key, context, gateways = self._key, self._context, self._gateways
        left = left_of_step(key, context.settings.step_cap, context, gateways=gateways)
        is_further = context.store.call_log.is_known(key)
        if is_further and expected_left(key, self._state, context, gateways=gateways) <= 0:
            return Decimal(0)
        if left is None or (left > 0 and not context.is_hard):
            return Decimal("Infinity")
        return left


def ask_command(state: SearchState, context: RunContext) -> SearchState:
    """Add the program that the command leaves to the attempt, or why there is none.

    The command asks the model of the attempt through the endpoint. While the provider is
    unavailable the run is paused, and the command is run again; requests that were answered before
    are answered from the journal. What came of a command is stored, so an attempt that is executed
    again does not run it again.

    Raises:
        InterruptedError: The run was asked to stop.
        UnmeteredCall: What an answer costs is unknown.
        ValueError: The program of the command is missing, the provider refuses in a way that no
            retry can cure, or the journal holds another request for the same attempt.
    """
    step, call_log = state["step"], context.store.call_log
    role = GENERATION if step.attempt.number == 1 else RETRY
    key = CallKey(state["run"].id, step.ticket, role, step.attempt.number)
    prompt = load_prompt(state, context)
    request = f"{context.settings.generator}\0{prompt.system}\0{prompt.user}"
    request_hash = sha256(request.encode("utf-8", "surrogatepass")).hexdigest()
    known = call_log.outcome(key)
    if known is not None:
        check_same_request(request_hash, known.request_hash, key, context)
        made = CommandAttempt(**json.loads(known.text))
        return {"step": replace(step, attempt=replace(step.attempt, **asdict(made)))}
    left = models_left(state, context) if context.has_choice else []
    has_others = any(each.name != step.attempt.model for each in left)
    try:
        done = _run_when_up(prompt, key, state, context, has_others=has_others)
    except (ModelUnusable, UncountedAnswer) as error:
        if not has_others:
            raise
        return {"step": with_refusal(step, ModelUnavailable(str(error)), context)}
    made = done.attempt
    if context.has_choice and made.is_out_of_money:
        return {"step": with_refusal(step, Unaffordable(done.unaffordable), context)}
    if not made.is_out_of_money:  # a run with more money runs it again
        outcome = Outcome(request_hash, json.dumps(asdict(made)), _kind(done, key, context))
        call_log.put_outcome(key, outcome)
    return {"step": replace(step, attempt=replace(step.attempt, **asdict(made)))}


def _kind(done: CommandRun, key: CallKey, context: RunContext) -> OutcomeKind:
    """How the requests of a command ended, for the health of its model."""
    if done.outage is not None:
        return OUTCOMES.get(done.outage.kind, OutcomeKind.FAILURE)
    is_answered = context.store.call_log.is_answered(key)
    return OutcomeKind.ANSWER if is_answered else OutcomeKind.FAILURE


def _run_when_up(
    prompt: Prompt, key: CallKey, state: SearchState, context: RunContext, *, has_others: bool
) -> CommandRun:
    """Run the command, and again after each outage of the provider that its requests have met."""
    asked = model_of(state["step"], context)
    health = health_of(asked, key, context, has_others=has_others)
    health.check_usable()
    pause = Pause(context.retry_policy, health.pause_text)

    def outage_in(done: CommandRun) -> ModelFailure | None:
        failure = done.outage
        if failure is None:
            return None
        # An earlier request of the same command shows that the model answers.
        has_answered = failure.kind is FailureKind.DOWN and context.store.call_log.is_answered(key)
        is_down = has_answered or health.is_outage(failure, is_paused=pause.has_begun)
        return failure if is_down else None

    run = partial(_run, prompt, asked, key, state, context)
    try:
        return outlast(run, lambda failure: run(), outage_in, health.outages, pause)
    except ModelUnusable as error:
        health.give_up(error)
        raise


def _run(
    prompt: Prompt, asked: PricedModel, key: CallKey, state: SearchState, context: RunContext
) -> CommandRun:
    """Run the command on a copy of the parent, and read what it leaves there."""
    step, put_text = state["step"], context.store.put_text
    parent = candidate_of(step.attempt.parent, state, context).program
    command = GeneratorCommand.read(context.settings.generator)
    name = asked.name or asked.first.name
    grant = Grant(
        key, "command", {name: asked}, state, context, StepAllowance(key, asked, state, context)
    )
    # Named by the attempt: executed again, the command sees the same paths and sends the same
    # requests, which the journal answers.
    with _scratch_folder(f"{key.run_id}-{key.ticket}.{key.attempt}") as scratch:
        files, text = scratch / "files", scratch / "prompt.md"
        paths = _write_files(parent, files, context.problem)
        text.write_text(f"{prompt.system}\n\n{prompt.user}", "utf-8", "surrogatepass")
        try:
            access = grant.new_access()
            ended = run_command(
                command.filled(prompt=text, model=name, url=f"{access.url}/v1", files=paths),
                files,
                stdin=text if command.reads_stdin else None,
                environment={**helper_environment(), **access.environment()},
                seconds=context.settings.generator_timeout,
            )
        finally:
            grant.close()
        if grant.fault is not None:
            raise grant.fault
        read = _read_files(files, parent, context.problem) if ended.exit_code == 0 else None
    refused, log = grant.refusals, UNPRINTABLE.sub("", ended.log)
    made = CommandAttempt(log=put_text(log), is_cut_short=bool(refused))
    if isinstance(read, Change):
        program = context.store.put_program(read.program)
        made = replace(made, program=program, changes=put_text(read.changes))
        return CommandRun(made, grant.outage, "")
    reason = read.reason if read else _failure(ended, context.settings.generator_timeout)
    if shown := log.strip()[-MAX_SHOWN:]:
        reason = f"{reason} The end of its output:\n{shown}"
    is_unpaid = UNAFFORDABLE in refused and context.store.call_log.last_call(key) is None
    made = replace(made, failure=put_text(reason), is_out_of_money=is_unpaid)
    return CommandRun(made, grant.outage, refused.get(UNAFFORDABLE, ""))


def _failure(ended: CommandEnd, seconds: float) -> str:
    if ended.exit_code is None:
        return f"The command was stopped after {seconds:g} seconds."
    return f"The command failed with exit status {ended.exit_code}."


_FOLDERS: set[Path] = set()
_CHANGED = Condition()
"""The scratch folders in use by this process, and notice of each that is removed."""


@contextmanager
def _scratch_folder(name: str) -> Iterator[Path]:
    """A new folder for this user alone, which is removed afterwards.

    An attempt that was cancelled may still be ending when it is executed again.
    """
    folder = Path(gettempdir()).resolve() / f"costada-{name}"
    with _CHANGED:
        _CHANGED.wait_for(lambda: folder not in _FOLDERS)
        _FOLDERS.add(folder)
    try:
        rmtree(folder, ignore_errors=True)  # what a killed process has left
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        rmtree(folder, ignore_errors=True)
        with _CHANGED:
            _FOLDERS.remove(folder)
            _CHANGED.notify_all()


def _write_files(program: Program, folder: Path, problem: Problem) -> list[str]:
    """Write a program's files below a new folder; their paths.

    They are in a copy of the repository that they belong to, if there is one.
    """
    evaluator = problem.evaluate
    if isinstance(evaluator, RepositoryEvaluator):
        original = evaluator.base.original(evaluator.folder)
        copytree(Path(original.path, REPOSITORY), folder, symlinks=True)
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
        shown = str(error).replace(f"{folder}/", "").replace(str(folder), "the folder")
        return Rejection(f"{shown}.")
    if parent.is_one_text and not found:
        return Rejection(f"The command left no file `{name}`.")
    return read_edited_files(found, parent, form)

"""Runs candidates by commands: built once, then run for each call, all in one slot.

Nothing of ours is between the sandbox's confinement and the program: what it writes is read here,
and the time it takes is that from its execution to the end of its process.
"""

import os
import re
import shlex
import signal
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from errno import EPERM
from shutil import which
from typing import cast

from costada.evaluators.sandbox.candidate_results import CandidateResult, log_of, reason_of
from costada.evaluators.sandbox.candidate_runs import NamedFiles, named_files
from costada.evaluators.sandbox.codec import Value, decode
from costada.evaluators.sandbox.execution import (
    ERROR_BYTES,
    NUM_OPENING_FRAMES,
    Execution,
    execute,
    in_any_slot,
    request_for,
    too_slow,
)
from costada.evaluators.sandbox.inside.orders import BUILD_FOLDER, policy
from costada.evaluators.sandbox.inside.scratch_folder import TOO_LARGE, excess_reason
from costada.evaluators.sandbox.interpreter import distinct_folders, own_interpreter
from costada.evaluators.sandbox.layer_choice import kind_for
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.model_channel import Connect
from costada.evaluators.sandbox.slot import SLOTS, Pool, Slot
from costada.evaluators.sandbox.slot_kind import SlotKind
from costada.evaluators.sandbox.toolchains import rustup_toolchain
from costada.values.candidate import Program

BINARY = f"{BUILD_FOLDER}/program"
BUILD_PROCESSES = 64
"""Processes that a build may have at once, where the limits allow fewer."""

BUILD_THREADS = 256
MAX_BUILD_LINES = 40
MAX_BUILD_CHARS = 4000
OUT_OF_MEMORY = re.compile(
    "bad_alloc|out of memory|cannot allocate memory|memory allocation of|OutOfMemoryError"
    "|virtual memory exhausted|heap limit|MemoryError",
    re.IGNORECASE,
)
OUT_OF_SPACE = re.compile("file size limit exceeded|file too large|no space left", re.IGNORECASE)
"""What programs say when they get no more memory, or cannot write to a file."""

REFUSAL = re.compile(f"{os.strerror(EPERM)}|cannot fork", re.IGNORECASE)
"""What programs say when they may not start others."""

NOT_COPIED = "what the build left cannot be used"

SHELL_SIGN = re.compile(r"\|[|&]?|&&?|&>\S*|\d*[<>]\S*|\S*;")
"""A word that only a shell would act on."""

QUOTED = re.compile(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """The commands of a problem, and what they may read.

    Words are split as a shell does it, but no shell runs them. In each, `{program}` stands for the
    file of a candidate of one string, `{binary}` for what the build makes, and `{folder}` for the
    folder of the candidate's files, in which the commands start.

    Attributes:
        run: Command that runs a candidate.
        build: Command that builds it; None if there is nothing to build.
        file_name: Name of the file of a candidate of one string.
    """

    run: str
    build: str | None = None
    file_name: str

    def words(self, name: str, *, has_one_file: bool) -> list[str]:
        """The words of `build` or `run`.

        Raises:
            ValueError: If they cannot be split, hold signs for a shell, or have other fields than
                those above.
        """
        command = getattr(self, name)
        places = {"binary": BINARY, "folder": "."}
        if has_one_file:
            places["program"] = self.file_name
        try:
            words = [filled_word(word, places) for word in shlex.split(command)]
        except (KeyError, ValueError) as error:
            known = " and ".join(f"{{{place}}}" for place in sorted(places))
            fault = f"unknown {{{error.args[0]}}}" if isinstance(error, KeyError) else error
            raise ValueError(
                f"{name} is {command!r}; expected a command with {known} for paths ({fault});"
                " braces that stand for themselves are written twice"
            ) from None
        if not words:
            raise ValueError(f"{name} is {command!r}; expected a command")
        check_no_shell(name, command)
        return words

    def check_programs(self, kind: SlotKind, *, has_one_file: bool) -> None:
        """Make sure that the programs of both commands are there for a slot of this kind.

        Raises:
            ValueError: Naming one that is not, and where it was looked for.
        """
        for name in ("build", "run") if self.build else ("run",):
            word = self.words(name, has_one_file=has_one_file)[0]
            python = kind.interpreter or own_interpreter()
            places = [*kind.programs, *python.program_paths]
            found = which(word, path=os.pathsep.join(places))
            elsewhere = found or which(word)
            if elsewhere and (toolchain := rustup_toolchain(elsewhere)):
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}; {elsewhere} is a link to rustup, which"
                    f' chooses no toolchain in the sandbox: write readable = ["{toolchain}"]'
                )
            if "/" in word or found:
                continue
            hint = f"; {elsewhere} is not visible in the sandbox" if elsewhere else ""
            raise ValueError(
                f"{name} is {getattr(self, name)!r}; found no program {word!r} in"
                f" {', '.join(distinct_folders(places))}{hint}. Install it, or name the"
                " folder of its installation in readable"
            )


def check_no_shell(name: str, command: str) -> None:
    """Refuse a command with pipes, redirections or other signs that only a shell acts on.

    Raises:
        ValueError: Naming the first one. Signs in quotes are arguments.
    """
    if reason := shell_sign_reason(command):
        raise ValueError(f"{name} is {command!r}; {reason}")


def command_words(name: str, command: str) -> list[str]:
    """The words of a command that no shell reads.

    Raises:
        ValueError: If there is none, a quote does not end, or a sign is only for a shell.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ValueError(f"{name} is {command!r}; expected quotes that end ({error})") from None
    if not words:
        raise ValueError(f"{name} is {command!r}; expected a command")
    check_no_shell(name, command)
    return words


def shell_sign_reason(command: str) -> str | None:
    """What is expected of a command with signs for a shell outside of quotes; None without any."""
    for word in QUOTED.sub("", command).split():
        if SHELL_SIGN.fullmatch(word):
            return (
                f"expected a command without {word!r}, as no shell takes part: write sh -c '...',"
                f" or '{word}' in quotes if it is an argument"
            )
    return None


def filled_word(word: str, places: Mapping[str, str]) -> str:
    """A word of a command with its fields replaced; a KeyError names one that is not known."""
    filled = ""
    for text, field, specification, conversion in string.Formatter().parse(word):
        if field is not None and (field not in places or specification or conversion):
            raise KeyError(field)
        filled += text + (places[field] if field is not None else "")
    return filled


def run_commands(
    source: str | Program,
    commands: Commands,
    calls: Sequence[Mapping[str, object]],
    limits: Limits,
    layer: Layer = Layer.AUTO,
    readable: Sequence[str] = (),
    interpreter: str | None = None,
    slots: Pool = SLOTS,
    connect: Connect | None = None,
) -> list[CandidateResult]:
    """Build a candidate, and run it once for each call; the results in order.

    A call is a dict with `stdin` (a string) and `arguments` (a list of strings), both optional. The
    output of a call is a dict with `stdout`, `stderr`, `exit_code` and `seconds`; a program that a
    signal or a limit ends has failed. If the build fails, all calls have. All that the build and
    the calls start is killed when they end. Each call starts in a new folder, with the candidate's
    files or, after a build, a copy of all that it left: no call finds what another one wrote.
    `readable` are files and folders beside the system's that commands may read, and `interpreter`
    the Python that they find first. `connect` serves each connection to the models that a Python
    opens which `run` starts.

    Raises:
        InterruptedError: If the evaluation was cancelled.
        OSError: If the scratch directory cannot be made.
        RuntimeError: If the sandbox itself does not work. Never because of the candidate.
        ValueError: If this machine does not offer the layer, or a program of the commands.
    """
    program = named_files(source, commands.file_name)
    if fault := program.fault(limits):
        return [CandidateResult(None, fault, "", 0.0)] * len(calls)
    kind = kind_for(layer, limits, interpreter=interpreter, readable=readable, starts_programs=True)
    if commands.build:  # what the build leaves, and the copy of that for a call
        kind = replace(kind, files_mb=2 * limits.files_mb)
    commands.check_programs(kind, has_one_file=bool(program.path))

    def use(slot: Slot) -> list[CandidateResult]:
        try:
            return _CommandRun(slot, program, commands, limits, connect).results(calls)
        finally:
            if slot.is_alive:
                slot.clear()

    return in_any_slot(kind, use, slots)


class _CommandRun:
    """The commands of one candidate, one after the other in one slot."""

    def __init__(
        self,
        slot: Slot,
        program: NamedFiles,
        commands: Commands,
        limits: Limits,
        connect: Connect | None,
    ) -> None:
        self._slot = slot
        self._connect = connect
        self._commands = commands
        self._limits = limits
        self._has_one_file = bool(program.path)
        self._files: Mapping[str, bytes] = program.encoded  # nothing once they are built
        self._remaining = limits.wall_seconds
        self._result_bytes = limits.result_bytes
        self._build_seconds = 0.0
        self._is_built = False

    def results(self, calls: Sequence[Mapping[str, object]]) -> list[CandidateResult]:
        """The result of each call."""
        if self._commands.build and (failure := self._build()):
            return [failure, *[replace(failure, seconds=0.0)] * (len(calls) - 1)]
        results: list[CandidateResult] = []
        words = self._commands.words("run", has_one_file=self._has_one_file)
        for call in calls:
            if results and results[-1].is_sandbox_fault:
                results.append(replace(results[-1], seconds=0.0))
            elif self._remaining <= 0:
                reason = too_slow(self._limits.wall_seconds)
                results.append(CandidateResult(None, reason, "", 0.0))
            else:
                results.append(self._run(words, call))
        return results

    def _build(self) -> CandidateResult | None:
        """Build the candidate; the failure, if it fails."""
        limits = replace(
            self._limits,
            processes=max(self._limits.processes, BUILD_PROCESSES),
            threads=max(self._limits.threads, BUILD_THREADS),
        )
        words = self._commands.words("build", has_one_file=self._has_one_file)
        request = {"words": words, "reads": False, "writes": False}
        ended = self._execute(request, "", limits, self._remaining, is_build=True)
        if ended.failure is None and ended.exit_code == 0:
            self._files, self._is_built = {}, True
            self._build_seconds = ended.seconds
            return None
        reason = ended.failure or f"exit status {ended.exit_code}"
        reason = reason.replace("the program's", "its").replace("the program", "it")
        lines = ended.log.strip().splitlines()
        text = "\n".join([f"the build failed: {reason}", *lines[:MAX_BUILD_LINES]])
        if len(lines) > MAX_BUILD_LINES or len(text) > MAX_BUILD_CHARS:
            text = f"{text[:MAX_BUILD_CHARS]}\n..."
        return CandidateResult(
            None,
            text,
            "",
            ended.seconds,
            is_sandbox_fault=ended.is_sandbox_fault,
            is_unbuilt=True,
        )

    def _run(self, words: list[str], call: Mapping[str, object]) -> CandidateResult:
        """Run the candidate for one call."""
        arguments = cast(Sequence[str], call.get("arguments", ()))
        stdin = cast(str, call.get("stdin", ""))
        limits = replace(self._limits, result_bytes=max(1, self._result_bytes))
        request = {"words": [*words, *arguments], "reads": True, "writes": True}
        seconds = min(self._remaining, limits.call_seconds or self._remaining)
        ended = self._execute(request, stdin, limits, seconds)
        self._result_bytes -= len(ended.output)
        seconds, self._build_seconds = ended.seconds + self._build_seconds, 0.0
        if ended.failure is not None:
            is_lost = ended.is_sandbox_fault
            return CandidateResult(
                None, ended.failure, ended.log, seconds, is_sandbox_fault=is_lost
            )
        log = ended.log
        if ended.exit_code > 0 and REFUSAL.search(log):
            log = f"{log.rstrip()}\n{policy(limits.processes)}"
        output: dict[str, Value] = {
            "stdout": ended.output.decode("utf-8", "replace"),
            "stderr": ended.log,
            "exit_code": ended.exit_code,
            "seconds": ended.seconds,
        }
        return CandidateResult(output, None, log, seconds)

    def _execute(
        self,
        request: Mapping[str, object],
        stdin: str,
        limits: Limits,
        seconds: float,
        *,
        is_build: bool = False,
    ) -> "CommandResult":
        """Execute a command beside the candidate's files, or a copy of what the build left."""
        connect = None if is_build else self._connect
        opening = request_for(self._files, request, [], connect)
        command = replace(
            opening,
            opening=opening.opening + stdin.encode("utf-8", "replace"),
            is_command=True,
            is_build=is_build,
            has_built=self._is_built,
        )
        execution = execute(self._slot, command, limits, seconds)
        ended = _result_of(execution, limits, has_built=self._is_built)
        if execution.stopped == too_slow(limits.wall_seconds) and seconds < self._remaining:
            ended = replace(ended, failure=f"timeout: the call exceeded {seconds:g} s")
        self._remaining -= execution.ended - execution.started
        return ended


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended."""

    failure: str | None  # why it has no exit code of its own
    exit_code: int
    output: bytes
    log: str
    seconds: float
    is_sandbox_fault: bool = False


def _result_of(execution: Execution, limits: Limits, *, has_built: bool) -> CommandResult:
    """How the command of an execution ended.

    Raises:
        RuntimeError: If it never began, and needed nothing that a build left.
    """
    messages, log = execution.answers.messages(), log_of(execution)
    seconds = execution.ended - execution.started
    if not messages and execution.stopped is None and not execution.is_slot_lost:
        if not has_built:
            raise RuntimeError(f"sandbox: could not begin a program: {log[-1000:]}")
        _, _, error = log.rstrip().rpartition("\n")
        reason = f"{NOT_COPIED}: {error}"
        return CommandResult(reason, execution.status or 0, b"", log, seconds)
    output, failure = b"", None
    if len(messages) == NUM_OPENING_FRAMES:
        output = execution.answers.rest
        match decode(messages[1]):
            case {"begun": float(begun)} if execution.exited:
                seconds = execution.exited - begun
            case {"error": str(error)}:
                failure = error[:ERROR_BYTES].partition("\n")[0]
    status = execution.status or 0
    is_ended = execution.stopped or execution.exceeded or execution.is_slot_lost or status < 0
    if failure is None and (is_ended or len(messages) < NUM_OPENING_FRAMES):
        failure = reason_of(execution)
    if status != 0 and not execution.stopped and execution.exceeded is None:
        if status == -signal.SIGXFSZ or OUT_OF_SPACE.search(log):
            failure = f"{excess_reason(TOO_LARGE, limits.scratch_mb)}, or were too many"
        elif OUT_OF_MEMORY.search(log):
            failure = f"the program ran out of memory, the limit is {limits.memory_mb} MB"
    return CommandResult(failure, status, output, log, seconds, execution.is_slot_lost)

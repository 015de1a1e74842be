"""The process of a generator's command: its time limit, its output, and the end of all it starts.

Between this process and the command stands a supervisor. It kills the command and everything that
came from it when the command ends, when it is told to, and when this process ends in any way.
"""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import IO, cast

from costada.evaluators.sandbox.concurrency import CANCELLED, active_tokens
from costada.evaluators.sandbox.inside import kernel
from costada.evaluators.sandbox.inside.process_tree import (
    SIGNALLED,
    kill_descendants,
    kill_tree,
)

START = "from costada.nodes.tools.command_process import supervise; supervise()"
NOT_FOUND = 127
MAX_LOG = 16 * 2**10
"""Bytes of a command's output that are kept, the last ones."""

CHUNK = 2**16


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """How a command ended.

    Attributes:
        exit_code: Its exit status; `None`: it was killed at its time limit.
        log: The end of what it printed on both streams.
    """

    exit_code: int | None
    log: str


def run_command(
    words: Sequence[str],
    folder: Path,
    *,
    stdin: Path | None,
    environment: Mapping[str, str],
    seconds: float,
) -> CommandEnd:
    """Run a command to its end.

    Args:
        words: Its words; the first is the path of a program.
        folder: Where it starts.
        stdin: The file that is its standard input; `None`: nothing.
        environment: All its variables.
        seconds: After which it is killed.

    Raises:
        InterruptedError: The run was asked to stop.
    """
    inherited, control = os.pipe()
    try:
        with open(stdin or os.devnull, "rb") as source:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", START, str(inherited), *words],
                cwd=folder,
                env=environment,
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[inherited],
                start_new_session=True,
            )
    except BaseException:  # raised again
        os.close(control)
        raise
    finally:
        os.close(inherited)
    with process:
        try:
            log, is_late = _output(process, monotonic() + seconds)
        finally:
            os.close(control)
    exit_code = None if is_late else process.returncode
    return CommandEnd(exit_code, log.decode("utf-8", "replace"))


def _output(process: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bool]:
    """The end of what a command prints, and whether it reached its deadline.

    The output ends with the supervisor, the last process that can write to it.
    """
    output, log = cast(IO[bytes], process.stdout).fileno(), bytearray()
    polled = select.poll()
    polled.register(output, select.POLLIN)
    for token in active_tokens():
        polled.register(token, select.POLLIN)
    while (left := deadline - monotonic()) > 0:
        ready = [number for number, _ in polled.poll(1000 * left)]
        if any(number != output for number in ready):
            raise InterruptedError(CANCELLED)
        if not ready:
            continue
        written = os.read(output, CHUNK)
        if not written:
            return bytes(log[-MAX_LOG:]), False
        log += written
        if len(log) > 2 * MAX_LOG:
            del log[:-MAX_LOG]
    return bytes(log[-MAX_LOG:]), True


def supervise() -> None:
    """Run the command of the arguments; the first is the descriptor whose end is its own.

    Exits as the command does, with 128 and the number of the signal if one ended it.
    """
    control, words = int(sys.argv[1]), sys.argv[2:]
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    kernel.set_process_option(kernel.PR_SET_CHILD_SUBREAPER, 1)
    supervisor = os.getpid()
    try:
        command = subprocess.Popen(
            words, preexec_fn=lambda: kernel.die_with_parent(supervisor), close_fds=True
        )
    except OSError as error:
        sys.stderr.write(f"{words[0]}: {error.strerror}\n")
        sys.exit(NOT_FOUND)
    status = None
    while status is None:
        ready, _, _ = select.select([control, woken], [], [])
        if control in ready:
            kill_tree(command.pid)
            os._exit(SIGNALLED + signal.SIGKILL)
        os.read(woken, CHUNK)
        status = command.poll()
    kill_descendants()
    os._exit(status if status >= 0 else SIGNALLED - status)

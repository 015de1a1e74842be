"""A slot: a warm server process in the sandbox, the conversation with it, and the pool of slots."""

import atexit
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryFile, gettempdir
from threading import Lock
from time import monotonic
from typing import NamedTuple

from costada.evaluators.sandbox import container
from costada.evaluators.sandbox.control_group import ControlGroup, new_group
from costada.evaluators.sandbox.fair_semaphore import FairSemaphore, available_cores
from costada.evaluators.sandbox.inside.confinement import without_capabilities
from costada.evaluators.sandbox.inside.fork_server import BEGIN, too_much_memory
from costada.evaluators.sandbox.inside.process_tree import SIGNALLED
from costada.evaluators.sandbox.inside.scratch_folder import SlotFolder
from costada.evaluators.sandbox.layers import Layer, SlotKind, launch

START_SECONDS = 60.0
READY_SECONDS = 10.0
POLL_SECONDS = 0.5
INFO_SECONDS = 2.0
CLOSE_SECONDS = 2.0
MAX_ANSWER_BYTES = 65536
MAX_SWEEPS = 50
MAX_REMOVALS = 3
STDERR_BYTES = 2000
MIN_SLOTS = 2


@dataclass(frozen=True, slots=True)
class SlotAnswer:
    """How a candidate ended, or that the server is ready for the next."""

    status: int = 0  # exit status, negative for a signal
    exceeded: str | None = None  # the limit that it exceeded, in words
    ended: float = 0.0  # when its process ended, on the monotonic clock
    group: int | None = None  # process group of the next candidate, if known before it starts
    bounds_files: bool = False  # whether a private file system bounds the files of candidates


class Pipes(NamedTuple):
    """Our ends of a candidate's pipes."""

    request_fd: int
    answer_fd: int
    log_fd: int

    def close(self) -> None:
        """Close them."""
        for descriptor in self:
            os.close(descriptor)


class Slot:
    """A server process that runs one candidate at a time. Not for two threads at once.

    Between two programs, a process for the next one is forked and confined ahead, with the limits
    of the one before.
    """

    def __init__(self, kind: SlotKind) -> None:
        """Start the process and wait until it is ready.

        Raises:
            FileNotFoundError: If the layer's program is not installed.
            BrokenPipeError: If something kills the process while it is starting.
            RuntimeError: If the process does not get ready, with its output.
        """
        self.kind = kind
        self.bounds_files = kind.has_filesystem
        self._init_fd: int | None = None
        self._group: int | None = None
        self._is_ready = False
        self._is_all_loaded = not kind.loaded_late
        self._unread = b""
        self._process: subprocess.Popen[bytes] | None = None
        self._control_group: ControlGroup | None = None
        self._memory_mb = 0
        self._prepared: tuple[dict[str, int], Pipes] | None = None
        self._path: Path | None = None
        self._folder: SlotFolder | None = None
        self._stderr = TemporaryFile()  # noqa: SIM115  (closed with the slot)
        self.control, theirs = socket.socketpair()
        with ExitStack() as undoing, theirs:
            undoing.callback(self._remove_unused_folder)
            undoing.callback(self.destroy)
            if kind.layer is not Layer.BUBBLEWRAP:
                # The server makes it: a process that is killed before one started leaves nothing.
                self._path = Path(gettempdir()).resolve() / f"costada-{token_hex(8)}"
            if kind.layer is Layer.CONTAINER and self._path is not None:
                self._path.mkdir(mode=0o700)
            self._start(theirs)
            undoing.pop_all()

    def _start(self, theirs: socket.socket) -> None:
        info, theirs_info = socket.socketpair()
        with info, theirs_info:
            start = launch(self.kind, self._path, theirs.fileno(), theirs_info.fileno())
            self.scratch = start.scratch
            inherited = [theirs.fileno(), theirs_info.fileno()]
            self._run(start.command, start.environment, inherited)
            theirs.close()
            theirs_info.close()
            try:
                self.await_ready()
            except BrokenPipeError:
                was_killed = self._was_killed()
                self._kill()
                if was_killed:
                    raise BrokenPipeError("the slot was killed while it was starting") from None
                output = self._last_output() or "it said nothing"
                raise RuntimeError(
                    f"sandbox: {Path(start.command[0]).name} started no process for candidates"
                    f" ({self.kind.layer}): {output}"
                ) from None
            if self.kind.layer is Layer.BUBBLEWRAP:
                self._init_fd = _inner_process(info)
        if self._control_group is not None and self._control_group.is_empty:
            self._leave_group()
        if self._path is not None:
            self._folder = SlotFolder(str(self._path))
        if self.kind.has_filesystem:
            self._remove_folder()

    def _run(self, command: list[str], environment: dict[str, str], inherited: list[int]) -> None:
        """Start the server's process; a container's server connects over a socket of its own."""
        is_contained = self.kind.layer is Layer.CONTAINER
        self._control_group = None if is_contained else new_group()
        if self._control_group is not None:
            command = self._control_group.entered_by(command)
        with ExitStack() as stack:
            listener = None
            if is_contained and self._path is not None:
                listener = container.ContainerSocket(self._path)
                stack.callback(listener.close)
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=self._stderr,
                stderr=self._stderr,
                pass_fds=[] if is_contained else inherited,
                start_new_session=True,
            )
            if listener and (connection := listener.accept(self._process, START_SECONDS)):
                self.control.close()
                self.control = connection

    @property
    def is_alive(self) -> bool:
        """Whether the process waits for orders."""
        return self._process is not None and self._process.poll() is None

    def await_ready(self, seconds: float = START_SECONDS) -> None:
        """Wait until the process can take an order; a BrokenPipeError says that it cannot."""
        if self._is_ready:
            return
        answer = self._await_answer(seconds)
        self._is_ready, self._group = True, answer.group
        self.bounds_files |= answer.bounds_files

    def _await_answer(self, seconds: float) -> SlotAnswer:
        """The next answer; a BrokenPipeError says that none comes."""
        end = monotonic() + seconds
        self.control.settimeout(POLL_SECONDS)
        answer = None
        # What the process has started may hold the other end of the socket longer than it lives.
        while answer is None and not self._has_ended() and monotonic() < end:
            with suppress(TimeoutError):
                if (answer := self.answer()) is None:
                    break
        if answer is None:
            raise BrokenPipeError("the slot does not get ready")
        self.control.settimeout(None)
        return answer

    def _has_ended(self) -> bool:
        """Whether the process has ended; unlike `is_alive`, keeps its pid in use."""
        if self._process is None or self._process.returncode is not None:
            return True
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, options) is not None

    def load_all(self) -> None:
        """Have the process load what it loads late; that takes no time from a candidate.

        Raises:
            BrokenPipeError: If something killed the process.
            RuntimeError: If a module cannot be loaded, with the process's output.
        """
        if self._is_all_loaded:
            return
        self.await_ready(READY_SECONDS)
        self._discard()
        self._is_ready = False
        self.control.sendall(json.dumps({"load": self.kind.loaded_late}).encode() + b"\n")
        try:
            self.await_ready()
        except BrokenPipeError:
            was_killed = self._was_killed()
            self._kill()
            if was_killed or not (output := self._last_output()):
                raise
            raise RuntimeError(f"sandbox: a module cannot be loaded: {output}") from None
        self._is_all_loaded = True

    def begin(self, limits: dict[str, int]) -> Pipes:
        """Have a candidate run with an `Order` of the fork server; an answer comes when it ends.

        Raises:
            BrokenPipeError: If the process is gone, or does not get ready.
            OSError: If pipes cannot be made.
        """
        self.await_ready(READY_SECONDS)
        has_ended = b"\n" in self._unread  # the prepared process: its answer has been received
        if has_ended or (self._prepared and self._prepared[0] != limits):
            self._discard()
        if self._control_group is not None:
            self._control_group.bound(limits)
        self._memory_mb = limits["memory_mb"]
        pipes = self._prepared[1] if self._prepared else self._order(limits)
        self._prepared, self._is_ready = None, False
        if not self.kind.is_single_use:
            with suppress(BrokenPipeError):  # the end of the socket is an answer as well
                self.control.sendall(BEGIN)
        return pipes

    def prepare(self, limits: dict[str, int]) -> None:
        """Have a process for the next candidate forked and confined once the last is cleared away.

        It waits for its program. Where this fails, it is forked when the next candidate begins. A
        spawn server prepares one by itself.
        """
        if not self.kind.is_single_use:
            with suppress(OSError):
                self._prepared = limits, self._order(limits)

    def _order(self, limits: dict[str, int]) -> Pipes:
        """Send an order, with the other ends of new pipes."""
        with ExitStack() as unless_sent, ExitStack() as theirs:
            kept, sent = [], []
            for is_request in (True, False, False):
                read_fd, write_fd = os.pipe()
                ours, other = (write_fd, read_fd) if is_request else (read_fd, write_fd)
                unless_sent.callback(os.close, ours)
                theirs.callback(os.close, other)
                kept.append(ours)
                sent.append(other)
            socket.send_fds(self.control, [json.dumps(limits).encode() + b"\n"], sent)
            unless_sent.pop_all()
        return Pipes(*kept)

    def _discard(self) -> None:
        """Have the prepared process killed, if there is one, and wait until all of it is gone."""
        if self._prepared is None:
            return
        self._close_prepared()
        self.cancel()
        self._await_answer(READY_SECONDS)
        self._is_ready = False
        self.await_ready(READY_SECONDS)

    def _close_prepared(self) -> None:
        if self._prepared is not None:
            self._prepared[1].close()
            self._prepared = None

    def clear(self) -> None:
        """Have the files removed that an order has left for the next."""
        with suppress(BrokenPipeError):
            self.await_ready(READY_SECONDS)
            self._is_ready = False
            self.control.sendall(b'{"clear": 1}\n')

    def cancel(self) -> None:
        """Have the candidate killed; the answer to its order comes soon."""
        with suppress(BrokenPipeError):
            self.control.sendall(b"kill\n")

    def answer(self) -> SlotAnswer | None:
        """The answer that has arrived; None if the process is gone."""
        with suppress(ConnectionResetError):
            while b"\n" not in self._unread:
                if not (text := self.control.recv(MAX_ANSWER_BYTES)):
                    return None
                self._unread += text
            line, _, self._unread = self._unread.partition(b"\n")
            answer = SlotAnswer(**json.loads(line))
            was_killed = answer.status == -signal.SIGKILL and answer.exceeded is None
            if was_killed and self._control_group is not None and self._control_group.has_run_out:
                return replace(answer, exceeded=too_much_memory(self._memory_mb))
            return answer
        return None

    def close(self) -> None:
        """Let the process end; kill it if it does not."""
        self.control.close()
        with suppress(subprocess.TimeoutExpired):
            if self._process is not None:
                self._process.wait(CLOSE_SECONDS)
        self.destroy()

    def destroy(self) -> None:
        """Kill the process and everything it started; a folder that is still written to is left."""
        self.control.close()
        self._close_prepared()
        self._kill()
        if self._init_fd is not None:
            os.close(self._init_fd)
            self._init_fd = None
        self._stderr.close()
        self._remove_folder()

    def abandon(self) -> None:
        """Let go of a slot that belongs to the process this one was forked from."""
        self.control.close()
        self._close_prepared()
        self._stderr.close()
        self._control_group = None
        if self._process is not None:
            self._process.returncode = 0
        if self._folder is not None:
            self._folder.close()
            self._folder = None

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            if self._init_fd is not None:
                signal.pidfd_send_signal(self._init_fd, signal.SIGKILL)
        if self._process is not None:
            self._kill_process(self._process)
            if self.kind.layer is Layer.CONTAINER and self._path is not None:
                container.remove(self._path)
        self._leave_group()
        for _ in range(MAX_SWEEPS):
            if self._path is None or not _kill_all_in(self._path):
                break

    def _kill_process(self, process: subprocess.Popen[bytes]) -> None:
        """Kill the slot's process; a supervisor gets the time to kill everything below it."""
        if self.kind.is_supervised:
            for number in (signal.SIGCONT, signal.SIGTERM):  # a candidate may have stopped it
                process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(CLOSE_SECONDS)
        own_group = process.pid if process.returncode is None else None
        for group in (self._group, own_group):
            if group is not None:
                _kill_group(group)
        process.wait()

    def _leave_group(self) -> None:
        """Kill what is in the slot's control group, and remove the group."""
        if self._control_group is not None:
            self._control_group.remove()
            self._control_group = None

    def _was_killed(self) -> bool:
        """Whether a signal ended the process; a supervisor exits as shells do then.

        What it had started is killed: the child of a bwrap that is killed early waits for ever.
        """
        if self._process is None:
            return False
        is_unreaped = self._process.returncode is None
        with suppress(subprocess.TimeoutExpired):
            status = self._process.wait(CLOSE_SECONDS)
            if is_unreaped:  # later, another group may have the number
                _kill_group(self._process.pid)
            return status < 0 or status > SIGNALLED
        return False

    def _remove_folder(self) -> None:
        """Remove the slot's folder if the process has not, with no more rights than it has."""
        if self._path is None or self._folder is None:
            return
        for _ in range(MAX_REMOVALS):
            with suppress(OSError), without_capabilities():
                self._folder.remove()
            if not self._folder.is_in_place:
                break
            _kill_all_in(self._path)
        self._folder.close()
        self._folder = None

    def _remove_unused_folder(self) -> None:
        """Remove what a server that did not get ready has left; no candidate has been in it."""
        if self._path is not None and self._path.is_dir():
            self._folder = SlotFolder(str(self._path))
            self._remove_folder()

    def _last_output(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read()[-STDERR_BYTES:].decode("utf-8", "replace").strip()


def _inner_process(info: socket.socket) -> int:
    """Descriptor of the process that bubblewrap reports: all others die with it."""
    info.settimeout(INFO_SECONDS)
    try:
        number: int = json.loads(info.recv(MAX_ANSWER_BYTES))["child-pid"]
    except (TimeoutError, ValueError):
        raise RuntimeError("sandbox: bwrap does not report the process it has started") from None
    try:
        return os.pidfd_open(number)
    except ProcessLookupError:
        raise BrokenPipeError("the slot was killed while it was starting") from None


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _kill_all_in(folder: Path) -> bool:
    """Kill the processes that use a slot's folder; whether there were any.

    Needed where a candidate killed the process that would have done it. Linux only.
    """
    is_any = False
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int(entry.name) != os.getpid() and _is_in(entry, f"{folder}/"):
                os.kill(int(entry.name), signal.SIGKILL)
                is_any = True
    return is_any


def _is_in(process: Path, folder: str) -> bool:
    """Whether a process has its HOME, its working folder or an open file in a folder.

    Descriptors that close on exec do not count: a process that another thread of ours is just
    starting has copies of all that we have open.
    """

    def leads_there(link: Path) -> bool:
        with suppress(OSError):
            return f"{os.readlink(link)}/".startswith(folder)
        return False

    def survives_exec(descriptor: str) -> bool:
        lines = (process / "fdinfo" / descriptor).read_text().splitlines()
        flags = next(line for line in lines if line.startswith("flags:"))
        return not int(flags.split()[1], 8) & os.O_CLOEXEC

    if b"HOME=%s" % os.fsencode(folder) in (process / "environ").read_bytes():
        return True
    held = [link.name for link in (process / "fd").iterdir() if leads_there(link)]
    return leads_there(process / "cwd") or any(map(survives_exec, held))


class Pool:
    """Keeps slots warm between evaluations, one candidate in each at a time; thread-safe."""

    def __init__(self, max_slots: int) -> None:
        self._turns = FairSemaphore(max_slots)
        self._idle: list[Slot] = []
        self._num_in_use = 0
        self._lock = Lock()

    def allow(self, num_slots: int) -> None:
        """Let at least so many slots be in use at once."""
        self._turns.raise_limit(num_slots)

    @contextmanager
    def acquire(self, kind: SlotKind) -> Iterator[Slot]:
        """A slot of a kind, started if none is idle.

        While all are in use, evaluations wait in the order in which they came.

        Raises:
            FileNotFoundError: If the layer's program is not installed.
            InterruptedError: If the evaluation was cancelled while it waited.
            RuntimeError: If the slot does not start.
        """
        with self._turns.permit():
            slot = None
            try:
                slot = self._take(kind) or Slot(kind)
                yield slot
            finally:
                with self._lock:
                    self._num_in_use -= 1
                    if slot is not None:
                        self._idle.append(slot)
                    dead = self._take_dead()
                for each in dead:
                    each.destroy()

    def _take(self, kind: SlotKind) -> Slot | None:
        """An idle slot of the kind; makes room for a new one if there is none.

        Ending other slots can take seconds, in which other threads take and return theirs.
        """
        with self._lock:
            self._num_in_use += 1
            dead, ended = self._take_dead(), None
            found = next((slot for slot in reversed(self._idle) if slot.kind == kind), None)
            if found is not None:
                self._idle.remove(found)
            elif len(self._idle) + self._num_in_use > self._turns.limit:
                ended = self._idle.pop(0)
        for slot in dead:
            slot.destroy()
        if ended is not None:
            ended.close()
        return found

    def _take_dead(self) -> list[Slot]:
        """Take out the idle slots whose process something outside has killed."""
        dead = [slot for slot in self._idle if not slot.is_alive]
        self._idle = [slot for slot in self._idle if slot not in dead]
        return dead

    def close(self) -> None:
        """End the idle slots."""
        with self._lock:
            idle, self._idle = self._idle, []
        for slot in reversed(idle):
            slot.close()

    def abandon(self) -> None:
        """Let go of slots that belong to the process this one was forked from."""
        for slot in self._idle:
            slot.abandon()
        self._idle, self._num_in_use, self._lock = [], 0, Lock()


def _pool(max_slots: int) -> Pool:
    """A pool that ends with this process, and that a fork of it does not share."""
    pool = Pool(max_slots)
    atexit.register(pool.close)
    os.register_at_fork(after_in_child=pool.abandon)
    return pool


SLOTS = _pool(max(MIN_SLOTS, available_cores()))
"""For candidates; at most so many run at once in this process."""

SHORT_SLOTS = _pool(1)
"""For what ends within seconds and must not wait behind candidates."""

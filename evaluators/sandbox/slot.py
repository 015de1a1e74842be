"""One slot: a warm process on the other side of the wall, and the conversation with it."""

import json
import os
import signal
import socket
import subprocess
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp
from time import monotonic

from costada.evaluators.sandbox import container
from costada.evaluators.sandbox.control_group import ControlGroup, new_group
from costada.evaluators.sandbox.door import Door
from costada.evaluators.sandbox.inside.guard import SIGNALLED
from costada.evaluators.sandbox.inside.home import Home
from costada.evaluators.sandbox.inside.walls import without_powers
from costada.evaluators.sandbox.inside.ward import too_much_memory
from costada.evaluators.sandbox.launch import SlotKind, launch
from costada.evaluators.sandbox.layers import Layer

START_SECONDS = 60.0
READY_SECONDS = 10.0
LOOK_SECONDS = 0.5
INFO_SECONDS = 2.0
CLOSE_SECONDS = 2.0
MAX_ANSWER_BYTES = 65536
MAX_SWEEPS = 50
MAX_REMOVALS = 3
TOLD_BYTES = 2000


@dataclass(frozen=True, slots=True)
class SlotAnswer:
    """How a candidate ended, or that the next may come.

    Attributes:
        status: Exit status, negative for a signal.
        passed: Which limit it passed; None if none.
        group: Process group of the next candidate, if that is known before it starts.
        bounds_files: Whether a file system of the slot's own bounds the files of candidates.
    """

    status: int = 0
    passed: str | None = None
    group: int | None = None
    bounds_files: bool = False


class Slot:
    """A process that runs one candidate at a time. Not for two threads at once."""

    def __init__(self, kind: SlotKind) -> None:
        """Start the process and wait until it is ready.

        Raises:
            FileNotFoundError: If the layer's program is not installed.
            BrokenPipeError: If something kills the process while it is starting.
            RuntimeError: If the process does not get ready, with what it said.
        """
        self.kind = kind
        self.bounds_files = kind.has_own_files
        self._keeper_fd: int | None = None
        self._group: int | None = None
        self._is_ready = False
        self._is_all_loaded = not kind.loaded_late
        self._unread = b""
        self._process: subprocess.Popen[bytes] | None = None
        self._control_group: ControlGroup | None = None
        self._memory_mb = 0
        self._home: Path | None = None
        self._held_home: Home | None = None
        self._trouble = TemporaryFile()  # noqa: SIM115  (closed with the slot)
        self.control, theirs = socket.socketpair()
        with ExitStack() as undoing, theirs:
            undoing.callback(self.destroy)
            if kind.layer is not Layer.BUBBLEWRAP:
                self._home = Path(mkdtemp(prefix="costada-")).resolve()
                self._held_home = Home(str(self._home))
            self._start(theirs)
            undoing.pop_all()

    def _start(self, theirs: socket.socket) -> None:
        info, theirs_info = socket.socketpair()
        with info, theirs_info:
            self._begin(theirs.fileno(), theirs_info.fileno())
            theirs.close()
            theirs_info.close()
            self._check_ready()
            if self.kind.layer is Layer.BUBBLEWRAP:
                self._keeper_fd = _inner_process(info)
        if self._control_group is not None and self._control_group.is_empty:
            self._leave_group()
        if self.kind.has_own_files:
            self._remove_home()

    @property
    def is_alive(self) -> bool:
        """Whether the process waits for orders."""
        return self._process is not None and self._process.poll() is None

    @property
    def _has_ended(self) -> bool:
        """Whether the process has ended; leaves its number in use, unlike `is_alive`."""
        if self._process is None or self._process.returncode is not None:
            return True
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, options) is not None

    def await_ready(self, seconds: float = START_SECONDS) -> None:
        """Wait until the process can take an order.

        Raises:
            BrokenPipeError: If it is gone, or does not get ready.
        """
        if self._is_ready:
            return
        end = monotonic() + seconds
        self.control.settimeout(LOOK_SECONDS)
        answer = None
        # What the process has started may hold the other end of the socket longer than it lives.
        while answer is None and not self._has_ended and monotonic() < end:
            try:
                answer = self.answer()
            except TimeoutError:
                continue
            break
        if answer is None:
            raise BrokenPipeError("the slot does not get ready")
        self.control.settimeout(None)
        self._is_ready, self._group = True, answer.group
        self.bounds_files |= answer.bounds_files

    def load_all(self) -> None:
        """Have the process load what it loads late; that takes no time from a candidate.

        Raises:
            BrokenPipeError: If something killed the process.
            RuntimeError: If a module cannot be loaded, with what the process said.
        """
        if self._is_all_loaded:
            return
        self.await_ready(READY_SECONDS)
        self._is_ready = False
        self.control.sendall(json.dumps({"load": self.kind.loaded_late}).encode() + b"\n")
        try:
            self.await_ready()
        except BrokenPipeError:
            was_killed = self._was_killed()
            self._kill()
            if was_killed or not (told := self.trouble()):
                raise
            raise RuntimeError(f"sandbox: a module cannot be loaded: {told}") from None
        self._is_all_loaded = True

    def order(self, limits: dict[str, int], descriptors: list[int]) -> None:
        """Have a candidate run; the answer comes when it has ended.

        Args:
            limits: See `inside/ward.py`.
            descriptors: Request, result and log.

        Raises:
            BrokenPipeError: If the process is gone.
        """
        self._is_ready = False
        if self._control_group is not None:
            self._control_group.bound(limits)
        self._memory_mb = limits["memory_mb"]
        socket.send_fds(self.control, [json.dumps(limits).encode() + b"\n"], descriptors)

    def cancel(self) -> None:
        """Ask for the end of the candidate; the answer to its order comes soon."""
        with suppress(BrokenPipeError):
            self.control.sendall(b"kill\n")

    def answer(self) -> SlotAnswer | None:
        """Return the answer that has arrived; None if the process is gone."""
        with suppress(ConnectionResetError):
            while b"\n" not in self._unread:
                if not (text := self.control.recv(MAX_ANSWER_BYTES)):
                    return None
                self._unread += text
            line, _, self._unread = self._unread.partition(b"\n")
            return self._completed(SlotAnswer(**json.loads(line)))
        return None

    def _completed(self, answer: SlotAnswer) -> SlotAnswer:
        """Return an answer with the limit that only the kernel saw a candidate pass."""
        was_killed = answer.status == -signal.SIGKILL and answer.passed is None
        if was_killed and self._control_group is not None and self._control_group.has_run_out:
            return replace(answer, passed=too_much_memory(self._memory_mb))
        return answer

    def close(self) -> None:
        """Let the process end; kill it if it does not."""
        self.control.close()
        with suppress(subprocess.TimeoutExpired):
            if self._process is not None:
                self._process.wait(CLOSE_SECONDS)
        self.destroy()

    def destroy(self) -> None:
        """Kill the process and all that came from it, at once.

        A folder that cannot be removed, as something still writes to it, is left.
        """
        self.control.close()
        self._kill()
        if self._keeper_fd is not None:
            os.close(self._keeper_fd)
            self._keeper_fd = None
        self._trouble.close()
        self._remove_home()

    def let_go(self) -> None:
        """Let go of a slot that belongs to the process this one was forked from."""
        self.control.close()
        self._trouble.close()
        self._control_group = None
        if self._process is not None:
            self._process.returncode = 0
        if self._held_home is not None:
            self._held_home.close()
            self._held_home = None

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            if self._keeper_fd is not None:
                signal.pidfd_send_signal(self._keeper_fd, signal.SIGKILL)
        if self._process is not None:
            self._kill_process(self._process)
        self._leave_group()
        if self.kind.layer is Layer.CONTAINER and self._home is not None:
            container.remove(self._home)
        for _ in range(MAX_SWEEPS):
            if self._home is None or not _kill_all_in(self._home):
                break

    def _leave_group(self) -> None:
        """Kill what is in the slot's control group, and remove that."""
        if self._control_group is not None:
            self._control_group.remove()
            self._control_group = None

    def _kill_process(self, process: subprocess.Popen[bytes]) -> None:
        """Kill the process of the slot; a guard gets the time to kill all that came from it."""
        if self.kind.is_guarded:
            for number in (signal.SIGCONT, signal.SIGTERM):  # a candidate may have stopped it
                process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(CLOSE_SECONDS)
        own_group = process.pid if process.returncode is None else None
        for group in (self._group, own_group):
            if group is not None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(group, signal.SIGKILL)
        process.wait()

    def _was_killed(self) -> bool:
        """Return whether a signal has ended the process; a guard exits as shells do then.

        What it had started is killed: the child of a bwrap that is killed early waits for ever.
        """
        if self._process is None:
            return False
        is_unreaped = self._process.returncode is None
        with suppress(subprocess.TimeoutExpired):
            status = self._process.wait(CLOSE_SECONDS)
            if is_unreaped:  # later, another group may have the number
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            return status < 0 or status > SIGNALLED
        return False

    def _remove_home(self) -> None:
        """Remove the slot's folder if the process has not, with no more rights than it has."""
        if self._home is None or self._held_home is None:
            return
        for _ in range(MAX_REMOVALS):
            with suppress(OSError), without_powers():
                self._held_home.remove()
            if not self._held_home.is_in_place:
                break
            _kill_all_in(self._home)
        self._held_home.close()
        self._held_home = None

    def trouble(self) -> str:
        """Return the last that the process said of itself."""
        self._trouble.seek(0)
        return self._trouble.read()[-TOLD_BYTES:].decode("utf-8", "replace").strip()

    def _begin(self, control_fd: int, info_fd: int) -> None:
        """Start the process; through the door of a container comes another socket."""
        start = launch(self.kind, self._home, control_fd, info_fd)
        self.scratch = start.scratch
        self._program = Path(start.command[0]).name
        is_contained = self.kind.layer is Layer.CONTAINER
        self._control_group = None if is_contained else new_group()
        command = start.command
        if self._control_group is not None:
            command = self._control_group.entered_by(command)
        with Door(self._home) if is_contained and self._home else nullcontext() as door:
            self._process = subprocess.Popen(
                command,
                env=start.environment,
                stdin=subprocess.DEVNULL,
                stdout=self._trouble,
                stderr=self._trouble,
                pass_fds=[] if is_contained else [control_fd, info_fd],
                start_new_session=True,
            )
            if door and (connection := door.admitted(self._process, START_SECONDS)):
                self.control.close()
                self.control = connection

    def _check_ready(self) -> None:
        try:
            self.await_ready()
        except BrokenPipeError:
            was_killed = self._was_killed()
            self._kill()
            if was_killed:
                raise BrokenPipeError("the slot was killed while it was starting") from None
            told = self.trouble() or "it said nothing"
            raise RuntimeError(
                f"sandbox: {self._program} started no process for candidates"
                f" ({self.kind.layer}): {told}"
            ) from None


def _inner_process(info: socket.socket) -> int:
    """Return a descriptor of the process that bubblewrap tells of: all others die with it."""
    info.settimeout(INFO_SECONDS)
    try:
        number: int = json.loads(info.recv(MAX_ANSWER_BYTES))["child-pid"]
    except (TimeoutError, ValueError):
        raise RuntimeError("sandbox: bwrap does not tell which process it has started") from None
    try:
        return os.pidfd_open(number)
    except ProcessLookupError:
        raise BrokenPipeError("the slot was killed while it was starting") from None


def _kill_all_in(home: Path) -> bool:
    """Kill the processes that have to do with a slot's folder; return whether there were any.

    Needed where a candidate killed the process that would have done it. Linux only.
    """
    is_any = False
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int(entry.name) != os.getpid() and _is_in(entry, f"{home}/"):
                os.kill(int(entry.name), signal.SIGKILL)
                is_any = True
    return is_any


def _is_in(process: Path, folder: str) -> bool:
    """Return whether a process has its home, its working folder or an open file in a folder.

    Descriptors that end with the next program do not count: a process that another thread of ours
    is just starting has copies of all that we have open.

    Raises:
        OSError: If it is gone, or another user's.
    """
    if b"HOME=%s" % os.fsencode(folder) in (process / "environ").read_bytes():
        return True
    held = [link for link in (process / "fd").iterdir() if f"{_target(link)}/".startswith(folder)]
    is_there = f"{_target(process / 'cwd')}/".startswith(folder)
    return is_there or any(_outlives_program(process / "fdinfo" / link.name) for link in held)


def _outlives_program(info: Path) -> bool:
    """Return whether a descriptor stays open when its process starts another program."""
    flags = next(line for line in info.read_text().splitlines() if line.startswith("flags:"))
    return not int(flags.split()[1], 8) & os.O_CLOEXEC


def _target(link: Path) -> str:
    """Return where a link leads; nothing if it is gone."""
    with suppress(OSError):
        return os.readlink(link)
    return ""

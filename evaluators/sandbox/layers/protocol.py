"""What a class of a layer is: the protocol, and what most layers share.

A new layer is a file beside this one with a class that derives from `SandboxLayer`, and a row in
`__init__.py`. The class states its facts, and overrides what it does otherwise than a server
process that is started directly, in a temporary folder of its own.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryFile, gettempdir
from typing import IO, ClassVar

from costada.evaluators.sandbox.control_group import ControlGroup, new_group
from costada.evaluators.sandbox.inside.kernel import without_capabilities
from costada.evaluators.sandbox.inside.orders import ABSENT, CONTENT, MAX_COPIED_BYTES
from costada.evaluators.sandbox.inside.process_tree import SIGNALLED
from costada.evaluators.sandbox.inside.scratch_folder import SlotFolder
from costada.evaluators.sandbox.interpreter import own_interpreter
from costada.evaluators.sandbox.launch import (
    NETWORK_FILES,
    PACKAGE_FOLDER,
    compat_files,
    guard_files,
    mounted_paths,
    server_command,
    tools,
)
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.slot_kind import LATE, CopiedFile, SlotKind
from costada.evaluators.sandbox.toolchains import cargo_environment

THREAD_VARIABLES = (
    *("MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    "VECLIB_MAXIMUM_THREADS",
)
"""One thread each: a process with more must not be forked, and its forks compete for the cores."""

INNER_FOLDER = "/tmp/costada"  # noqa: S108  (in a file system of the sandbox)
"""The only folder that a server can write to, in a layer with a file system of its own."""

SCRATCH_NAME = "work"
CLOSE_SECONDS = 2.0
MAX_SWEEPS = 50
MAX_REMOVALS = 3
OUTPUT_BYTES = 2000


class SandboxLayer:
    """A layer of the sandbox, and the server process of one slot in it.

    In the order in which its parts are used:

    - `strength` and the other facts of the class say what the layer keeps candidates from.
    - `probe` tries the layer on this machine, once, before anything relies on it.
    - `launch` starts the server of a slot; `settle` is called once it has answered.
    - `kill` ends it with all that it has started; `end` also removes what it leaves.
    """

    strength: ClassVar[int] = 0
    """AUTO takes the strongest layer that works; one may stand in for another not stronger."""

    is_automatic: ClassVar[bool] = True
    """Whether AUTO may choose it."""

    auto_warning: ClassVar[str] = ""
    """What the user is told once if AUTO finds nothing stronger."""

    confines: ClassVar[bool] = True
    """Whether Landlock and seccomp keep candidates from files, the network and processes."""

    has_limits: ClassVar[bool] = True
    """Whether memory, processor time, threads, processes and files are limited."""

    has_filesystem: ClassVar[bool] = False
    """Whether the server itself sees little of this machine, and has a bounded file system."""

    has_folder: ClassVar[bool] = True
    """Whether the slot has a folder of this machine, at `path`."""

    is_this_system: ClassVar[bool] = True
    """Whether files have the same device and inode in it as here."""

    @classmethod
    def may_change_modes(cls) -> bool:
        """Whether `chmod` has an effect for programs that a candidate starts."""
        return False

    @classmethod
    def probe(cls, attempt: Callable[[Limits], Mapping[str, bool]]) -> str | None:
        """Why the layer does not work on this machine; None if it does.

        Args:
            attempt: Runs `inside/probe.py` in a slot of the layer, and returns which of its
                attempts to get out have succeeded; it raises if no slot starts.
        """
        escapes = [name for name, has_succeeded in attempt(Limits()).items() if has_succeeded]
        return f"a probe inside it could {', '.join(escapes)}" if escapes else None

    def __init__(self, kind: SlotKind) -> None:
        """Prepare the layer for a slot of this kind; nothing is started yet."""
        self.kind = kind
        # The server makes it: a process that is killed before it has started one leaves nothing.
        self.path = Path(gettempdir()).resolve() / f"costada-{token_hex(8)}"
        inside = INNER_FOLDER if self.has_filesystem else str(self.path)
        self.scratch = os.path.join(inside, SCRATCH_NAME)  # as candidates see it
        self.program = ""
        self.process: subprocess.Popen[bytes] | None = None
        self.next_group: int | None = None  # process group of the next candidate, if it has one
        self._folder: SlotFolder | None = None
        self._control_group: ControlGroup | None = None
        self._output = TemporaryFile()  # noqa: SIM115  (closed with the slot)
        self.control, self._theirs = socket.socketpair()

    @property
    def preloaded(self) -> tuple[str, ...]:
        """Modules that the server loads, as far as it is confined itself.

        The packages of another environment may be somebody else's, so none of their code runs
        before the confinement is in force.
        """
        is_own = self.kind.interpreter is None or not self.confines
        return self.kind.preload if is_own or self.has_filesystem else ()

    @property
    def loaded_late(self) -> tuple[str, ...]:
        """Modules that the server loads when the first candidate names their package."""
        if self.kind.is_single_use:
            return ()
        return tuple(name for name in self.preloaded if name.partition(".")[0] == LATE)

    @property
    def is_supervised(self) -> bool:
        """Whether a supervisor sees that nothing outlives the slot; see `process_tree`."""
        return sys.platform.startswith("linux") and not self.has_filesystem

    def launch(self) -> None:
        """Start the server; its answers come through `control`.

        Raises:
            FileNotFoundError: If the layer's program is not installed.
            RuntimeError: If the layer needs a loaded process that forks, and this is not to be, or
                if no container engine works.
        """
        if self.kind.is_single_use and self.confines:
            raise RuntimeError("it needs a Linux kernel with pidfd_open")
        self._launch()

    def _launch(self) -> None:
        """Start the server directly; a layer that needs something around it overrides this."""
        self._launch_below([])

    def _launch_below(self, around: Sequence[str], inherited: Sequence[int] = ()) -> None:
        """Start the server as the command that follows another one's words."""
        command = [*around, *self._server_command(control_fd=self._theirs.fileno())]
        self._control_group = new_group()
        self._start(command, self._environment, [self._theirs.fileno(), *inherited])

    def _start(self, command: list[str], environment: dict[str, str], inherited: list[int]) -> None:
        self.program = Path(command[0]).name
        if self._control_group is not None:
            command = self._control_group.entered_by(command)
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            pass_fds=inherited,
            start_new_session=True,
        )
        # While this process has the other end open, it cannot see that the server has ended.
        self._theirs.close()

    @property
    def _environment(self) -> dict[str, str]:
        """All variables of the server and of candidates."""
        kind = self.kind
        environment = dict.fromkeys(THREAD_VARIABLES, "1")
        environment |= cargo_environment(kind.readable, has_network=kind.opened.has_network)
        return environment | {"HOME": self.scratch, "TMPDIR": self.scratch, "PYTHONHASHSEED": "0"}

    def _server_command(self, **control: object) -> list[str]:
        """The command of the server, with the settings that `inside/server_main.py` reads."""
        kind, python = self.kind, self.kind.interpreter or own_interpreter()
        files = [(file.path, *file.identity) for file in kind.linked]
        readable = [*python.standard_folders, *python.libraries, *kind.readable]
        listable = [each.listed for each in kind.editable if each.listed]
        for each in kind.editable:
            readable += each.shown.readable
            listable += each.shown.listed
        readable += NETWORK_FILES if kind.opened.has_network else ()
        if not self.is_this_system:  # an identity would match no file there
            readable += [path for path, *_ in files]
            files = []
        settings = {
            **control,
            "role": "spawn_server" if kind.is_single_use else "fork_server",
            "is_supervised": self.is_supervised,
            "has_namespace": self.has_limits and not kind.is_single_use,
            "scratch": self.scratch,
            "makes_folder": not self.has_filesystem,
            "files_mb": kind.room_mb if self.has_limits and not self.has_filesystem else 0,
            "original": self._original,
            "confines": self.confines,
            "has_limits": self.has_limits,
            "preload": [name for name in self.preloaded if name not in self.loaded_late],
            "import_path": python.libraries,
            "guards": guard_files(),
            "compat_modules": compat_files(),
            "environment": self._environment,
            "prefix": python.prefixes[0],
            "programs": [*kind.programs, *python.program_paths],
            "tools": tools(),
            "owns_files": self.may_change_modes(),
            "owns_processes": self.has_filesystem,
            "has_network": kind.opened.has_network,
            "devices": list(kind.opened.devices),
            "engine_socket": kind.opened.engine_socket,
            "hidden": str(PACKAGE_FOLDER),
            "readable": readable,
            "listable": listable,
            "files": files,
        }
        return server_command(python, settings)

    @property
    def _original(self) -> dict[str, object] | None:
        """What is copied for each candidate, and whether the server has to make it first."""
        if (copied := self.kind.copied) is None:
            return None
        path = os.path.join(os.path.dirname(self.scratch), copied.path)
        return {
            **asdict(copied),
            "path": path,
            "upper_mb": self.kind.files_mb,
            "is_received": bool(self.kind.files),
        }

    def send_files(self) -> None:
        """Send the server of an evaluator the lists of the files to copy, and of empty folders.

        Where the server does not see them, what they hold follows: a mount for each of thousands
        of files would take longer, and there may not be so many.

        Raises:
            BrokenPipeError: If the server has ended.
        """
        if not self.kind.files:
            return
        files = [
            (
                file.path,
                file.place,
                file.identity if self.is_this_system else (),
                self._is_sent(file),
            )
            for file in self.kind.files
        ]
        try:
            with self.control.makefile("wb") as stream:
                listed = {"files": files, "empty_folders": self.kind.empty_folders}
                stream.write(json.dumps(listed).encode() + b"\n")
                for file in self.kind.files:
                    if self._is_sent(file):
                        _send_content(file, stream)
        except ConnectionResetError:
            raise BrokenPipeError("the server has ended") from None

    def _is_sent(self, file: CopiedFile) -> bool:
        """Whether the server does not see a file, and gets what it holds."""
        return self.has_filesystem and not file.is_linked

    @property
    def _mounted(self) -> list[str]:
        """What a layer with a file system of its own must show beside the system."""
        kind = self.kind
        originals = [kind.original.path] if kind.original else []
        others = [*(file.path for file in kind.linked), *originals, *kind.readable, *tools()]
        others += [path for each in kind.editable for path in each.shown.readable]
        others += NETWORK_FILES if kind.opened.has_network else ()
        return mounted_paths(kind.interpreter or own_interpreter(), others)

    def settle(self) -> None:
        """Take hold of what the server has made, now that it has answered for the first time.

        Raises:
            BrokenPipeError: If something has killed it by now.
            RuntimeError: If its first process cannot be found.
        """
        if self._control_group is not None and self._control_group.is_empty:
            self._leave_group()  # the server is in another hierarchy
        if self.has_folder:
            # Opened before the first candidate, which may put something else in its place.
            self._folder = SlotFolder(str(self.path))

    @property
    def is_alive(self) -> bool:
        """Whether the process waits for orders."""
        return self.process is not None and self.process.poll() is None

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended; unlike `is_alive`, keeps its pid in use."""
        if self.process is None or self.process.returncode is not None:
            return True
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.process.pid, options) is not None

    def was_killed(self) -> bool:
        """Whether a signal ended the process; a supervisor exits as shells do then.

        What it had started is killed: the child of a bwrap that is killed early waits for ever.
        """
        if self.process is None:
            return False
        is_unreaped = self.process.returncode is None
        with suppress(subprocess.TimeoutExpired):
            status = self.process.wait(CLOSE_SECONDS)
            if is_unreaped:  # later, another group may have the number
                _kill_group(self.process.pid)
            return status < 0 or status > SIGNALLED
        return False

    @property
    def last_output(self) -> str:
        """The end of what the process has printed."""
        self._output.seek(0)
        return self._output.read()[-OUTPUT_BYTES:].decode("utf-8", "replace").strip()

    def bound(self, limits: Mapping[str, int]) -> None:
        """Have the kernel bound what the next candidate adds to the slot, where it can."""
        if self._control_group is not None:
            self._control_group.bound(limits)

    @property
    def has_run_out(self) -> bool:
        """Whether the kernel killed for lack of memory since `bound` was called."""
        return self._control_group is not None and self._control_group.has_run_out

    def kill(self) -> None:
        """Kill the server; a supervisor gets the time to kill everything below it.

        May be called again, and before the server has started or settled.
        """
        if self.process is None:
            return
        if self.is_supervised:
            for number in (signal.SIGCONT, signal.SIGTERM):  # a candidate may have stopped it
                self.process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(CLOSE_SECONDS)
        # Once it is reaped, another process may have its number.
        own_group = self.process.pid if self.process.returncode is None else None
        for group in (self.next_group, own_group):
            if group is not None:
                _kill_group(group)
        self.process.wait()

    def end(self) -> None:
        """Kill the server and everything it has started, whoever of them is alive."""
        self.kill()
        self._leave_group()
        for _ in range(MAX_SWEEPS):
            if not self.has_folder or not _kill_all_in(self.path):
                break

    def close(self) -> None:
        """Close what an ended server leaves open; a folder that is still written to is left."""
        for each in (self._output, self._theirs):
            each.close()
        self._remove_folder()

    def abandon(self) -> None:
        """Let go of a server that belongs to the process this one was forked from."""
        for each in (self.control, self._output, self._theirs):
            each.close()
        self._control_group = None
        if self.process is not None:
            self.process.returncode = 0
        if self._folder is not None:
            self._folder.close()
            self._folder = None

    def _leave_group(self) -> None:
        """Kill what is in the slot's control group, and remove the group."""
        if self._control_group is not None:
            self._control_group.remove()
            self._control_group = None

    def _remove_folder(self) -> None:
        """Remove the slot's folder if the process has not, with no more rights than it has."""
        if self._folder is None:
            return
        for _ in range(MAX_REMOVALS):
            with suppress(OSError), without_capabilities():
                self._folder.remove()
            if not self._folder.is_in_place:
                break
            _kill_all_in(self.path)
        self._folder.close()
        self._folder = None

    def remove_unused_folder(self) -> None:
        """Remove what a server that did not get ready has left; no candidate has been in it."""
        if self.path.is_dir():
            self._folder = SlotFolder(str(self.path))
            self._remove_folder()


def _send_content(file: CopiedFile, stream: IO[bytes]) -> None:
    """Send the permissions, the size and the bytes of a file; of another one by now, ABSENT."""
    head, content = CONTENT.pack(0, ABSENT), b""
    with suppress(OSError):
        file_fd = os.open(file.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(file_fd, "rb") as opened:
            about = os.fstat(file_fd)
            if (about.st_dev, about.st_ino) == file.identity:
                content = opened.read(MAX_COPIED_BYTES)
                head = CONTENT.pack(about.st_mode, len(content))
    stream.write(head + content)


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

"""The spawn server: has a fresh interpreter ready for each candidate where forking is not safe.

Speaks like the fork server, on systems that offer less than Linux does. An interpreter is used
once. The next one starts when all that the last left is removed, so that it takes no time from a
candidate, and is ready in the time that it takes to load the libraries.
"""

import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from secrets import token_hex
from time import monotonic
from typing import TYPE_CHECKING, Any

from costada.evaluators.sandbox.inside import confinement, kernel, process_tree
from costada.evaluators.sandbox.inside.file_copies import BUILT, copy_built, copy_folder
from costada.evaluators.sandbox.inside.fork_server import (
    FILES_WATCH_SECONDS,
    KILOBYTES_PER_MB,
    Server,
)
from costada.evaluators.sandbox.inside.orders import (
    CHILD_FAULT,
    KEEPING,
    MAX_DESCRIPTORS,
    MAX_ORDER_BYTES,
    Order,
    Permissions,
    too_many_processes,
    too_many_threads,
    too_much_memory,
)

if TYPE_CHECKING:
    from costada.evaluators.sandbox.inside.candidate_process import CandidateProcess

WATCH_SECONDS = 0.1 if process_tree.HAS_PROC else 0.5
"""Between checks of the processes, which cost more where `ps` must be run."""


class PreparedProcess:
    """A fresh interpreter that waits for one candidate, in a process group of its own."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Start it the way this process was started, with the same settings."""
        self.control, theirs = socket.socketpair()
        own = {"role": "worker", "control_fd": theirs.fileno(), "parent": os.getpid()}
        command = [*sys.orig_argv[:-1], json.dumps({**settings, **own})]
        with theirs:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.number = self.process.pid

    def end(self) -> int:
        """Kill it and all that came from it; its exit status."""
        self.control.close()
        _kill(process_tree.family(self.number))
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.number, signal.SIGKILL)
        status = self.process.wait()
        with suppress(ChildProcessError):
            # Orphans become children of this process (Linux), which has no others by now.
            while os.waitpid(-1, os.WNOHANG):
                orphans = process_tree.family(os.getpid())
                _kill(number for number in orphans if number != os.getpid())
        return status


def _kill(numbers: Iterable[int]) -> None:
    for number in numbers:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(number, signal.SIGKILL)


class SpawnServer(Server):
    """Serves one slot: one prepared process at a time, each for one candidate."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Start the first interpreter, and prepare to notice the end of children."""
        super().__init__(settings)
        self._settings = settings
        self._child_fd, write_fd = os.pipe()
        os.set_blocking(write_fd, False)
        signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.protect()
        self._prepared = PreparedProcess(settings)

    def serve(self) -> None:
        """Carry out orders until the socket or a waiting interpreter ends; remove the folder."""
        with suppress(BrokenPipeError, ConnectionResetError):
            while self._is_prepared():
                self._say_ready()
                if not (message := self._receive()):
                    break
                text, descriptors = message
                order = json.loads(text.splitlines()[-1])
                self.say(self._carry_out(order, descriptors))
                kept = (BUILT,) if order.keys() & KEEPING else ()
                self.folder.empty((*self.spared, *kept))
                if not self.folder.is_in_place:
                    break
                self._prepared = PreparedProcess(self._settings)
        self._prepared.end()
        self.files.remove()

    def _say_ready(self) -> None:
        is_mounted = self.files.is_mounted
        self.say({"group": self._prepared.number, "bounds_files": is_mounted})

    def _is_prepared(self) -> bool:
        """Wait until the interpreter has loaded the libraries; whether it has."""
        while True:
            readable, _, _ = select.select([self.control, self._prepared.control], [], [])
            if self._prepared.control in readable:
                return bool(self._prepared.control.recv(1))
            if not self.control.recv(MAX_ORDER_BYTES):
                return False

    def _receive(self) -> tuple[bytes, list[int]] | None:
        """The next order and its descriptors; None if there is nothing to wait for."""
        while True:
            readable, _, _ = select.select([self.control, self._prepared.control], [], [])
            if self._prepared.control in readable:
                return None
            text, descriptors, _, _ = socket.recv_fds(
                self.control, MAX_ORDER_BYTES, MAX_DESCRIPTORS
            )
            if descriptors:
                return text, descriptors
            if b"clear" in text:
                self.folder.empty(self.spared)
                self._say_ready()
            if not text:
                return None

    def _carry_out(self, order: Order, descriptors: list[int]) -> dict[str, Any]:
        """Have the interpreter run a candidate; its exit status, and which limit it exceeded."""
        if not os.path.isdir(self.scratch):
            os.close(self.folder.make(self.work))
        bare = process_tree.family(self._prepared.number)[self._prepared.number]
        try:
            socket.send_fds(self._prepared.control, [json.dumps(order).encode()], descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            exceeded = self._watch(order, bare)
        finally:
            ended = monotonic()
            status = self._prepared.end()
            with suppress(FileNotFoundError):
                self.folder.rename(self.work, BUILT if "keeps_files" in order else token_hex(8))
        return {"status": status, "exceeded": exceeded, "ended": ended}

    def _watch(self, order: Order, bare: int) -> str | None:
        """Wait until the candidate has ended, exceeds a limit (then which), or is to be killed."""
        next_look = monotonic() + WATCH_SECONDS
        next_search = monotonic() + FILES_WATCH_SECONDS
        while self._prepared.process.poll() is None:
            awaited: list[socket.socket | int] = [self.control, self._child_fd]
            readable, _, _ = select.select(awaited, [], [], max(0.0, next_look - monotonic()))
            if self.control in readable:
                return None
            if self._child_fd in readable:
                os.read(self._child_fd, MAX_ORDER_BYTES)
            if (now := monotonic()) >= next_look:
                if exceeded := self._exceeded_limit(order, bare, now >= next_search):
                    return exceeded
                next_look = now + WATCH_SECONDS
                next_search += FILES_WATCH_SECONDS if now >= next_search else 0.0
        return None

    def _exceeded_limit(self, order: Order, bare: int, are_files_due: bool) -> str | None:
        if not self.has_limits:
            return None
        number = self._prepared.number
        held = process_tree.family(number)
        if len(held) > 1 + order["processes"]:
            return too_many_processes(order["processes"])
        if sum(held.values()) > bare + order["memory_mb"] * KILOBYTES_PER_MB:
            return too_much_memory(order["memory_mb"])
        if process_tree.num_threads(number) > order["threads"] + ("has_models" in order):
            return too_many_threads(order["threads"])
        if not are_files_due:
            return None
        return self.exceeded_files(order, held, lambda look: look())


class SpawnedWorker:
    """Runs in a prepared process: has the libraries loaded, takes one order, ends."""

    def __init__(self, settings: Mapping[str, Any], process: "CandidateProcess") -> None:
        """Prepare for an order over the socket."""
        self._process = process
        self._control = socket.socket(fileno=settings["control_fd"])
        self._scratch = settings["scratch"]
        self._programs = settings["programs"]
        self._original = settings["original"]
        self._has_limits = settings["has_limits"]
        self._filters = confinement.limiting_filters() if self._has_limits else {}
        kernel.die_with_parent(settings["parent"])

    def serve(self) -> None:
        """Report that the libraries are loaded, and carry out the order that comes then."""
        self._control.sendall(b"\n")
        text, descriptors, _, _ = socket.recv_fds(self._control, MAX_ORDER_BYTES, MAX_DESCRIPTORS)
        if descriptors:
            self._control.close()
            try:
                self._become_worker(json.loads(text), *descriptors)
            finally:
                os._exit(CHILD_FAULT)

    def _become_worker(
        self, order: Order, request_fd: int, result_fd: int, log_fd: int, *channel_fd: int
    ) -> None:
        """Turn this process into a candidate's, run it and end. Never returns."""
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        os.close(log_fd)
        os.chdir(self._scratch)
        if self._original:
            copy_folder(self._original["path"], ".")
        if "has_built" in order:
            copy_built(os.path.join("..", BUILT), order["scratch_mb"])
        if self._has_limits:
            for limit, bounds in confinement.resource_limits(order):
                resource.setrlimit(limit, bounds)
            kernel.drop_privileges()
        permissions = Permissions.of(order)
        if permissions.may_execute:
            os.environ["PATH"] = os.pathsep.join(self._programs)
        if limiting := self._filters.get(permissions.may_start_processes):
            limiting.enforce()
        self._process.prepare(order)
        self._process.serve(request_fd, result_fd, *channel_fd)
        os._exit(0)

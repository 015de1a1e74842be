"""Has an interpreter ready for each next candidate, where a warm process must not be forked.

Speaks like a ward (see ward.py), on systems that offer less than Linux does. An interpreter is used
once. The next one starts when all that the last left is removed, so that it takes no time from a
candidate, and is ready in the time that it takes to load the libraries.
"""

import json
import os
import select
import signal
import socket
from collections.abc import Mapping
from contextlib import suppress
from secrets import token_hex
from time import monotonic
from typing import Any

from costada.evaluators.sandbox.inside import census, leavings, walls
from costada.evaluators.sandbox.inside.own_files import OwnFiles
from costada.evaluators.sandbox.inside.spare import Spare
from costada.evaluators.sandbox.inside.ward import (
    KILOBYTES_PER_MB,
    MAX_ORDER_BYTES,
    NUM_DESCRIPTORS,
    UNLIMITED_LAYER,
    Order,
    too_many_processes,
    too_much_memory,
)

WATCH_SECONDS = 0.1 if census.HAS_PROC else 0.5
"""Between looks at the processes, which cost more where a program must be asked."""
FILES_WATCH_SECONDS = 0.5


class Nursery:
    """Serves one slot: one interpreter at a time, each for one candidate."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Start the first interpreter, and prepare the socket that orders come over."""
        self._settings = settings
        self._control = socket.socket(fileno=settings["control_fd"])
        self._scratch = settings["scratch"]
        folder, self._work = os.path.split(self._scratch)
        self._files = OwnFiles(folder, settings["files_mb"])
        self._home = self._files.home
        self._has_limits = settings["layer"] != UNLIMITED_LAYER
        if self._has_limits:
            walls.drop_privileges(retained=walls.CAP_SYS_ADMIN)
        self._endings = _endings_of_children()
        walls.set_process_option(walls.PR_SET_DUMPABLE, 0)
        walls.set_process_option(walls.PR_SET_CHILD_SUBREAPER, 1)
        self._spare = Spare(settings)

    def serve(self) -> None:
        """Carry out orders until the socket or a waiting interpreter ends; remove the folder."""
        with suppress(BrokenPipeError, ConnectionResetError):
            while self._is_spare_ready():
                is_mounted = self._files.is_mounted
                self._say({"group": self._spare.number, "bounds_files": is_mounted})
                if not (message := self._receive()):
                    break
                text, descriptors = message
                self._say(self._carry_out(json.loads(text.splitlines()[-1]), descriptors))
                self._home.empty()
                if not self._home.is_in_place:
                    break
                self._spare = Spare(self._settings)
        self._spare.end()
        self._files.remove()

    def _is_spare_ready(self) -> bool:
        """Wait until the interpreter has loaded the libraries; return whether it has."""
        while True:
            readable, _, _ = select.select([self._control, self._spare.control], [], [])
            if self._spare.control in readable:
                return bool(self._spare.control.recv(1))
            if not self._control.recv(MAX_ORDER_BYTES):
                return False

    def _receive(self) -> tuple[bytes, list[int]] | None:
        """Return the next order and its descriptors; None if there is nothing to wait for."""
        while True:
            readable, _, _ = select.select([self._control, self._spare.control], [], [])
            if self._spare.control in readable:
                return None
            text, descriptors, _, _ = socket.recv_fds(
                self._control, MAX_ORDER_BYTES, NUM_DESCRIPTORS
            )
            if descriptors:
                return text, descriptors
            if not text:
                return None

    def _say(self, answer: Mapping[str, Any]) -> None:
        self._control.sendall(json.dumps(answer).encode() + b"\n")

    def _carry_out(self, order: Order, descriptors: list[int]) -> dict[str, Any]:
        """Return how a candidate ended: its exit status, and which limit it passed, if one."""
        self._home.make(self._work)
        bare = census.family(self._spare.number)[self._spare.number]
        try:
            self._spare.order(order, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            passed = self._watch(order, bare)
        finally:
            status = self._spare.end()
            with suppress(FileNotFoundError):
                self._home.rename(self._work, token_hex(8))
        return {"status": status, "passed": passed}

    def _watch(self, order: Order, bare: int) -> str | None:
        """Return once the candidate has ended, has passed a limit, or is to be killed."""
        next_look = monotonic() + WATCH_SECONDS
        next_search = monotonic() + FILES_WATCH_SECONDS
        while self._spare.status is None:
            awaited: list[socket.socket | int] = [self._control, self._endings]
            readable, _, _ = select.select(awaited, [], [], max(0.0, next_look - monotonic()))
            if self._control in readable:
                return None
            if self._endings in readable:
                os.read(self._endings, MAX_ORDER_BYTES)
            if (now := monotonic()) >= next_look:
                if self._has_limits and (passed := self._passed(order, bare, now >= next_search)):
                    return passed
                next_look = now + WATCH_SECONDS
                next_search += FILES_WATCH_SECONDS if now >= next_search else 0.0
        return None

    def _passed(self, order: Order, bare: int, are_files_due: bool) -> str | None:
        number = self._spare.number
        held = census.family(number)
        if len(held) > 1 + order["processes"]:
            return too_many_processes(order["processes"])
        if sum(held.values()) > bare + order["memory_mb"] * KILOBYTES_PER_MB:
            return too_much_memory(order["memory_mb"])
        if census.num_threads(number) > order["threads"]:
            return f"the program had more than {order['threads']} threads"
        if are_files_due:
            max_mb = order["scratch_mb"]
            return leavings.excess_reason(leavings.excess(held, self._scratch, max_mb), max_mb)
        return None


def _endings_of_children() -> int:
    """Return a descriptor that becomes readable whenever a child of this process ends."""
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return read_fd

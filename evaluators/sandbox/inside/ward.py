"""Has a child ready for each next order, watches it, kills and removes whatever it leaves."""

import json
import os
import select
import socket
import stat
import traceback
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import Any

from costada.evaluators.sandbox.inside import child, leavings, walls

WATCH_SECONDS = 0.1
SCRATCH_WATCH_SECONDS = 0.5
MAX_ORDER_BYTES = 4096
NUM_DESCRIPTORS = 3
REQUEST_FD, RESULT_FD = 3, 4
"""In a candidate's process; those that an order brings are never lower, in this sequence."""
CHILD_FAULT = 70
MAX_DESCRIPTOR = 2**31 - 2
WALLED_LAYERS = ("landlock", "bubblewrap", "container")
UNLIMITED_LAYER = "none"

Order = Mapping[str, int]
"""The limits of one child: memory_mb, scratch_mb, cpu_seconds, threads, processes."""


class Ward:
    """Serves one slot: one child at a time, each from the same clean state.

    An empty answer says that it takes an order: at the start, and when all that a child left is
    removed, which may take a while and delays no verdict. Only then is the next child forked,
    which does what it can before its order comes.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Prepare the walls that the layer asks for, and the socket that orders come over."""
        self._control = socket.socket(fileno=settings["control_fd"])
        self._scratch = settings["scratch"]
        self._gone = os.path.join(os.path.dirname(self._scratch), "gone")
        self._has_limits = settings["layer"] != UNLIMITED_LAYER
        self._programs = settings["programs"]
        self._walls = _walls(settings) if settings["layer"] in WALLED_LAYERS else None
        walls.set_process_option(walls.PR_SET_DUMPABLE, 0)
        walls.set_process_option(walls.PR_SET_CHILD_SUBREAPER, 1)

    def serve(self) -> None:
        """Carry out orders until the socket ends, then remove the slot's folder."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self._say({})
            self._prepare()
            while message := self._receive():
                text, descriptors = message
                if b"{" in text and len(descriptors) != NUM_DESCRIPTORS:
                    break  # a candidate has taken away our right to more of them
                if descriptors:
                    self._say(self._carry_out(text.splitlines()[-1], descriptors))
                    leavings.clear(self._gone, child.CANDIDATE_FILE)
                    leavings.empty(os.path.dirname(self._scratch))
                    self._say({})
                    self._prepare()
        leavings.remove(os.path.dirname(self._scratch))

    def _receive(self) -> tuple[bytes, list[int]] | None:
        text, descriptors, _, _ = socket.recv_fds(self._control, MAX_ORDER_BYTES, NUM_DESCRIPTORS)
        return (text, descriptors) if text else None

    def _say(self, answer: Mapping[str, Any]) -> None:
        self._control.sendall(json.dumps(answer).encode() + b"\n")

    def _prepare(self) -> None:
        """Fork the next child."""
        os.chmod(os.path.dirname(self._scratch), stat.S_IRWXU)
        os.mkdir(self._scratch, stat.S_IRWXU)
        ward = os.getpid()
        self._line, theirs = socket.socketpair()
        self._number = os.fork()
        if self._number == 0:
            try:
                self._line.close()
                self._control.close()
                self._get_ready(ward)
                self._become_candidate(theirs)
            finally:
                _tell_and_end()
        theirs.close()

    def _carry_out(self, text: bytes, descriptors: list[int]) -> dict[str, Any]:
        """Return how the child ended: its exit status, and which limit it passed, if one.

        Raises:
            BrokenPipeError: If it was gone before.
        """
        with self._line:
            socket.send_fds(self._line, [text], descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        try:
            passed = self._watch(self._number, json.loads(text))
        finally:
            status = leavings.end(self._number)
            os.rename(self._scratch, self._gone)
        return {"status": status, "passed": passed}

    def _get_ready(self, ward: int) -> None:
        """Do in this fork what is the same for every order."""
        os.setsid()
        walls.die_with_parent(ward)
        os.chdir(self._scratch)
        if self._has_limits:
            walls.drop_privileges()
        if self._walls:
            self._walls.confine_to(self._scratch)

    def _become_candidate(self, line: socket.socket) -> None:
        """Await the order, turn this fork into a candidate's process, run it. Never returns."""
        with line:
            text, descriptors, _, _ = socket.recv_fds(line, MAX_ORDER_BYTES, NUM_DESCRIPTORS)
        if len(descriptors) != NUM_DESCRIPTORS:
            os._exit(CHILD_FAULT)
        order, (request_fd, result_fd, log_fd) = json.loads(text), descriptors
        walls.set_process_option(walls.PR_SET_DUMPABLE, 1)
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        if self._has_limits:
            walls.limit_resources(order["memory_mb"], order["scratch_mb"], order["cpu_seconds"])
        may_start_processes = order["processes"] > 0
        if may_start_processes:
            os.environ["PATH"] = os.pathsep.join(self._programs)
        if self._walls:
            self._walls.hide_files(may_start_processes=may_start_processes)
        # Only now: the rules for files are descriptors too.
        os.dup2(request_fd, REQUEST_FD)
        os.dup2(result_fd, RESULT_FD)
        os.closerange(RESULT_FD + 1, MAX_DESCRIPTOR)
        if self._walls:
            self._walls.filter_calls(may_start_processes=may_start_processes)
        child.serve(REQUEST_FD, RESULT_FD)
        os._exit(0)

    def _watch(self, number: int, order: Order) -> str | None:
        """Return once the child has ended, has passed a limit, or is to be killed."""
        exit_fd = os.pidfd_open(number)
        ready = select.poll()
        ready.register(exit_fd, select.POLLIN)
        ready.register(self._control, select.POLLIN)
        next_look = monotonic() + SCRATCH_WATCH_SECONDS
        try:
            while not ready.poll(WATCH_SECONDS * 1000):
                is_time = monotonic() >= next_look
                if self._has_limits and (passed := self._passed(number, order, is_time)):
                    return passed
                next_look += SCRATCH_WATCH_SECONDS if is_time else 0.0
        finally:
            os.close(exit_fd)
        return None

    def _passed(self, number: int, order: Order, is_scratch_due: bool) -> str | None:
        with suppress(FileNotFoundError, ProcessLookupError):
            if leavings.num_threads(number) > order["threads"]:
                return f"the program had more than {order['threads']} threads"
            others = leavings.descendants(os.getpid())
            if len(others) > 1 + order["processes"]:
                return too_many_processes(order["processes"])
            if is_scratch_due and leavings.apart(
                lambda: leavings.is_too_large(others, self._scratch, order["scratch_mb"])
            ):
                return f"the program's files took more than {order['scratch_mb']} MB"
        return None


def too_many_processes(allowed: int) -> str:
    """Return what is said of a program that started more processes than allowed."""
    rule = f"at most {allowed} further processes are" if allowed else "further processes are not"
    return f"the program started processes; {rule} allowed"


def _tell_and_end() -> None:
    """End a child that did not become a candidate; the reason goes to the log."""
    try:
        traceback.print_exc()
    finally:
        os._exit(CHILD_FAULT)


def _walls(settings: Mapping[str, Any]) -> walls.Walls:
    home = os.path.dirname(settings["scratch"])
    return walls.Walls(home, settings["readable"], settings["programs"])

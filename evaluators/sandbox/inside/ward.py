"""Forks a child for each order, watches it, kills and removes whatever it leaves."""

import gc
import json
import os
import select
import socket
import traceback
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from time import monotonic
from typing import Any

from costada.evaluators.sandbox.inside import census, child, leavings, walls
from costada.evaluators.sandbox.inside.own_files import OwnFiles

WATCH_SECONDS = 0.1
SCRATCH_WATCH_SECONDS = 0.5
MAX_ORDER_BYTES = 4096
NUM_DESCRIPTORS = 3
CHILD_FAULT = 70
KILOBYTES_PER_MB = 1024
FIRST_TO_KILL = "1000"
"""Where memory runs out, the kernel ends a candidate before any other process."""

MAX_DESCRIPTOR = 2**31 - 2
WALLED_LAYERS = ("landlock", "bubblewrap", "container")
UNLIMITED_LAYER = "none"

Order = Mapping[str, int]
"""The limits of one child: memory_mb, scratch_mb, cpu_seconds, threads, processes."""


class Ward:
    """Serves one slot: one child at a time, each from the same clean state.

    An empty answer says that it is ready for an order: at the start, and when all that a child
    left is removed, which may take a while and delays no verdict.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Prepare the walls that the layer asks for, and the socket that orders come over."""
        self._control = socket.socket(fileno=settings["control_fd"])
        self._scratch = settings["scratch"]
        self._has_limits = settings["layer"] != UNLIMITED_LAYER
        self._programs = settings["programs"]
        folder, self._work = os.path.split(self._scratch)
        self._files = OwnFiles(folder, settings["files_mb"])
        self._home = self._files.home
        if self._has_limits:
            # What candidates may not delete, cleaning up after them must not delete either.
            walls.drop_privileges(retained=walls.CAP_SYS_ADMIN)
        self._home.make(self._work)
        self._walls = None
        self._filter = None
        if settings["layer"] in WALLED_LAYERS:
            self._walls = walls.Walls(
                settings["readable"],
                settings["listed"],
                self._programs,
                self._scratch,
                settings["hidden"],
            )
        elif self._has_limits:
            self._filter = walls.limiting_filter()
        walls.set_process_option(walls.PR_SET_DUMPABLE, 0)
        walls.set_process_option(walls.PR_SET_CHILD_SUBREAPER, 1)

    def serve(self) -> None:
        """Carry out orders until the socket ends, then remove the slot's folder.

        A candidate that put something else in the place of that folder ends the slot.
        """
        with suppress(BrokenPipeError, ConnectionResetError):
            self._say({"bounds_files": self._files.is_mounted})
            while message := self._receive():
                text, descriptors = message
                order = json.loads(text.splitlines()[-1]) if b"{" in text else {}
                if "load" in order:
                    load(order["load"])
                    self._say({})
                elif order and len(descriptors) != NUM_DESCRIPTORS:
                    break  # a candidate has taken away our right to more of them
                elif order:
                    self._say(self._carry_out(order, descriptors))
                    usual = os.path.join(self._work, child.CANDIDATE_FILE)
                    self._home.clear(usual, ask=leavings.apart)
                    if not self._home.is_in_place:
                        break
                    self._home.make(self._work)
                    if self._walls:
                        self._walls.renew()
                    self._say({})
        self._files.remove()

    def _receive(self) -> tuple[bytes, list[int]] | None:
        text, descriptors, _, _ = socket.recv_fds(self._control, MAX_ORDER_BYTES, NUM_DESCRIPTORS)
        return (text, descriptors) if text else None

    def _say(self, answer: Mapping[str, Any]) -> None:
        self._control.sendall(json.dumps(answer).encode() + b"\n")

    def _carry_out(self, order: Order, descriptors: list[int]) -> dict[str, Any]:
        """Return how a child ended: its exit status, and which limit it passed, if one."""
        ward = os.getpid()
        if self._walls:
            self._walls.prepare(may_start_processes=order["processes"] > 0)
        number = os.fork()
        if number == 0:
            try:
                self._become_child(ward, order, *descriptors)
            finally:
                _tell_and_end()
        for descriptor in descriptors:
            os.close(descriptor)
        try:
            passed = self._watch(number, order)
        finally:
            status = leavings.end(number)
        return {"status": status, "passed": passed}

    def _become_child(
        self, ward: int, order: Order, request_fd: int, result_fd: int, log_fd: int
    ) -> None:
        """Turn this fork into a candidate's process, run it and end. Never returns."""
        os.setsid()
        walls.die_with_parent(ward)
        with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
            score.write(FIRST_TO_KILL)
        walls.set_process_option(walls.PR_SET_DUMPABLE, 1)
        # Its own: flags, locks and owner of an open file are shared by all that inherit it.
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        may_start_processes = order["processes"] > 0
        kept = [request_fd, result_fd]
        if self._walls:
            kept += self._walls.prepare(may_start_processes=may_start_processes)
        self._home.enter(self._work)
        _close_all_but(*kept)
        if self._has_limits:
            walls.limit_resources(order["memory_mb"], order["scratch_mb"], order["cpu_seconds"])
            walls.drop_privileges()
        if may_start_processes:
            os.environ["PATH"] = os.pathsep.join(self._programs)
        if self._walls:
            self._walls.close_in(may_start_processes=may_start_processes)
        elif self._filter:
            self._filter.enforce()
        child.serve(request_fd, result_fd, order)
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
            if len(others) > 1 and self._is_memory_passed(others, order["memory_mb"]):
                return too_much_memory(order["memory_mb"])
            if is_scratch_due:
                max_mb = order["scratch_mb"]
                passed = leavings.apart(lambda: leavings.excess(others, self._scratch, max_mb))
                return leavings.excess_reason(passed, max_mb)
        return None

    def _is_memory_passed(self, numbers: list[int], memory_mb: int) -> bool:
        """Return whether processes together hold more than the limit beside what they began with.

        The limit that the system knows holds for each of them alone.
        """
        allowed = census.memory_of([os.getpid()], 0) + memory_mb * KILOBYTES_PER_MB
        return census.memory_of(numbers, allowed) > allowed


def load(modules: list[str]) -> None:
    """Import modules for all children to come, out of reach of the garbage collector."""
    for name in modules:
        import_module(name)
    gc.collect()
    gc.freeze()


def too_many_processes(allowed: int) -> str:
    """Return what is said of a program that started more processes than allowed."""
    rule = f"at most {allowed} further processes are" if allowed else "further processes are not"
    return f"the program started processes; {rule} allowed"


def too_much_memory(allowed_mb: int) -> str:
    """Return what is said of a program whose processes hold more memory than allowed."""
    return f"the program held more than {allowed_mb} MB of memory"


def _tell_and_end() -> None:
    """End a child that did not become a candidate; the reason goes to the log."""
    try:
        traceback.print_exc()
    finally:
        os._exit(CHILD_FAULT)


def _close_all_but(*kept: int) -> None:
    first = 3
    for descriptor in (*sorted(kept), MAX_DESCRIPTOR):
        os.closerange(first, descriptor)
        first = descriptor + 1

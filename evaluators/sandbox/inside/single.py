"""An interpreter for one candidate: has the libraries loaded, waits, becomes its process, ends."""

import json
import os
import resource
import socket
from collections.abc import Mapping
from typing import Any

from costada.evaluators.sandbox.inside import child, walls
from costada.evaluators.sandbox.inside.ward import (
    CHILD_FAULT,
    MAX_ORDER_BYTES,
    NUM_DESCRIPTORS,
    UNLIMITED_LAYER,
    Order,
)


class Single:
    """Takes one order; see `Nursery`, which raises these."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Prepare for an order over the socket."""
        self._control = socket.socket(fileno=settings["control_fd"])
        self._scratch = settings["scratch"]
        self._programs = settings["programs"]
        self._has_limits = settings["layer"] != UNLIMITED_LAYER
        self._filter = walls.limiting_filter() if self._has_limits else None
        walls.die_with_parent(settings["parent"])

    def serve(self) -> None:
        """Say that the libraries are loaded, and carry out what is ordered then."""
        self._control.sendall(b"\n")
        text, descriptors, _, _ = socket.recv_fds(self._control, MAX_ORDER_BYTES, NUM_DESCRIPTORS)
        if descriptors:
            self._control.close()
            try:
                self._become_candidate(json.loads(text), *descriptors)
            finally:
                os._exit(CHILD_FAULT)

    def _become_candidate(self, order: Order, request_fd: int, result_fd: int, log_fd: int) -> None:
        """Turn this process into a candidate's, run it and end. Never returns."""
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        os.close(log_fd)
        os.chdir(self._scratch)
        if self._has_limits:
            walls.limit_resources(order["memory_mb"], order["scratch_mb"], order["cpu_seconds"])
            walls.drop_privileges()
            _limit_processes(order["processes"])
        if order["processes"] > 0:
            os.environ["PATH"] = os.pathsep.join(self._programs)
        if self._filter:
            self._filter.enforce()
        child.serve(request_fd, result_fd, order)
        os._exit(0)


def _limit_processes(number: int) -> None:
    """Deny to start processes, where the limit for it does not count threads too (not on Linux)."""
    if not walls.IS_LINUX and number == 0:
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))

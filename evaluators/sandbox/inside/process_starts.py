"""Keeps a candidate from starting so many processes that no other program can start any.

Looks at the processes from time to time would come too late: a program that does nothing but fork
has tens of thousands of them within a tenth of a second. The kernel limits how many a user has, but
root; there, each process waits for its start until the server has counted those that run. A signal
that comes before the server has heard of it interrupts a start that waits, which shells take for a
failure, so nothing waits where the kernel's limit holds.
"""

import fcntl
import os
import socket
import struct
import subprocess
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from costada.evaluators.sandbox.inside.kernel import LIBC
from costada.evaluators.sandbox.inside.system_call_filter import Filter

SET_MODE_FILTER, NEW_LISTENER, WAIT_KILLABLE = 1, 1 << 3, 1 << 5
"""With the last flag (Linux 5.19), signals do not interrupt a start once it is received."""

LOAD, IF_EQUAL, IF_ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, NOTIFY = 0x7FFF0000, 0x7FC00000
NUMBER_AT, ARCHITECTURE_AT, FLAGS_AT = 0, 4, 16
"""Places in what a filter sees of a call; the flags are the first argument of `clone`."""

CLONE_THREAD = 0x00010000
RECEIVE, NOTIFICATION_BYTES = 0xC0502100, 80
SEND, CONTINUE = 0xC0182101, 1
RESPONSE = "=QqiI"  # identifier of the notification, value, error, flags

SPARE_TASKS = 1024
"""How many more tasks than there are may run before a user gets no further ones."""


class Machine(NamedTuple):
    """Numbers of an architecture: its own, and those of system calls."""

    architecture: int
    seccomp: int
    clone: int
    forks: tuple[int, ...]


MACHINES = {
    "x86_64": Machine(0xC000003E, 317, 56, (57, 58)),
    "aarch64": Machine(0xC00000B7, 277, 220, ()),
}


def max_tasks(processes: int) -> int:
    """How many processes and threads the user of a candidate may have, as long as that is not root.

    That is far above the limit of a candidate, which the server's looks enforce: it holds for all
    programs of the user together, so it allows for those that run, of whatever user, and more.
    """
    with open("/proc/loadavg", "rb", buffering=0) as file:
        num_tasks = int(file.read().split()[3].partition(b"/")[2])
    return num_tasks + processes + SPARE_TASKS


def start_filter() -> Filter | None:
    """A filter that notifies of the starts of processes, not of threads; None if it is unknown."""
    machine = MACHINES.get(os.uname().machine)
    return Filter(_instructions(machine)) if machine else None


def _instructions(machine: Machine) -> bytes:
    """The filter; each instruction has a code, two distances to jump, and a number."""
    rows = [(LOAD, 0, 0, ARCHITECTURE_AT), (IF_EQUAL, 1, 0, machine.architecture)]
    rows += [(RETURN, 0, 0, ALLOW), (LOAD, 0, 0, NUMBER_AT)]
    for number in machine.forks:
        rows += [(IF_EQUAL, 0, 1, number), (RETURN, 0, 0, NOTIFY)]
    rows += [(IF_EQUAL, 1, 0, machine.clone), (RETURN, 0, 0, ALLOW)]
    rows += [(LOAD, 0, 0, FLAGS_AT), (IF_ANY_BIT, 0, 1, CLONE_THREAD)]
    rows += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, NOTIFY)]
    return b"".join(struct.pack("=HBBI", *row) for row in rows)


def install(starts: Filter) -> int | None:
    """Filter this process and all that it starts; the listener, None if the kernel offers none."""
    number, flags = MACHINES[os.uname().machine].seccomp, NEW_LISTENER | WAIT_KILLABLE
    listener_fd: int = LIBC.syscall(number, SET_MODE_FILTER, flags, starts.header)
    return listener_fd if listener_fd >= 0 else None


def receive(listener_fd: int) -> int | None:
    """The identifier of a start that waits; None if its process has ended."""
    notification = bytearray(NOTIFICATION_BYTES)
    with suppress(FileNotFoundError):
        fcntl.ioctl(listener_fd, RECEIVE, notification)
        (identifier,) = struct.unpack_from("=Q", notification)
        return int(identifier)
    return None


def permit(listener_fd: int, identifier: int) -> None:
    """Let a start go on, if its process still waits."""
    with suppress(FileNotFoundError):
        fcntl.ioctl(listener_fd, SEND, struct.pack(RESPONSE, identifier, 0, 0, CONTINUE))


def hand_over(starts: Filter, theirs: socket.socket) -> None:
    """Filter this process, send the listener to the server, and keep nothing that leads to it."""
    with theirs:
        listener_fd = install(starts)
        if listener_fd is not None:
            socket.send_fds(theirs, [b"."], [listener_fd])
            os.close(listener_fd)
            retry_interrupted()


def retry_interrupted() -> None:
    """Have Python start a process again if a signal has interrupted the start.

    Only a start that waits can be interrupted, so programs do not expect it.
    """
    for owner, name in ((os, "fork"), (subprocess, "_fork_exec")):
        setattr(owner, name, partial(_start_again, getattr(owner, name)))


def _start_again(start: Callable[..., int], *arguments: object) -> int:
    while True:
        with suppress(InterruptedError):
            return start(*arguments)


def listener_of(ours: socket.socket) -> int | None:
    """The listener that a worker has sent; None if it has none, or has ended."""
    _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    return descriptors[0] if descriptors else None

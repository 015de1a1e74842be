"""Holds each start of a process by a candidate until the server has counted those that run.

Looks at the processes from time to time would come too late: a program that does nothing but fork
has tens of thousands of them within a tenth of a second, and no other program can start any.
"""

import fcntl
import os
import socket
import struct
from contextlib import suppress
from typing import NamedTuple

from costada.evaluators.sandbox.inside.kernel import LIBC
from costada.evaluators.sandbox.inside.system_call_filter import Filter

SET_MODE_FILTER, NEW_LISTENER = 1, 1 << 3
LOAD, IF_EQUAL, IF_ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, ASK = 0x7FFF0000, 0x7FC00000
NUMBER_AT, ARCHITECTURE_AT, FLAGS_AT = 0, 4, 16
"""Places in what a filter sees of a call; the flags are the first argument of `clone`."""

CLONE_THREAD = 0x00010000
RECEIVE, RECEIVED_BYTES = 0xC0502100, 80
ANSWER, CONTINUE = 0xC0182101, 1
ANSWER_FORMAT = "=QqiI"  # the question, a value, an error, flags


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


def hold() -> int | None:
    """Hold the starts of this process and of all that it starts; the descriptor that asks.

    Threads are not held. None where the kernel does not offer this.
    """
    machine = MACHINES.get(os.uname().machine)
    if machine is None:
        return None
    holding = Filter(_compiled(machine))
    asking_fd = LIBC.syscall(machine.seccomp, SET_MODE_FILTER, NEW_LISTENER, holding.header)
    return asking_fd if asking_fd >= 0 else None


def _compiled(machine: Machine) -> bytes:
    """The filter; each instruction has a code, two distances to jump, and a number."""
    rows = [(LOAD, 0, 0, ARCHITECTURE_AT), (IF_EQUAL, 1, 0, machine.architecture)]
    rows += [(RETURN, 0, 0, ALLOW), (LOAD, 0, 0, NUMBER_AT)]
    for number in machine.forks:
        rows += [(IF_EQUAL, 0, 1, number), (RETURN, 0, 0, ASK)]
    rows += [(IF_EQUAL, 1, 0, machine.clone), (RETURN, 0, 0, ALLOW)]
    rows += [(LOAD, 0, 0, FLAGS_AT), (IF_ANY_BIT, 0, 1, CLONE_THREAD)]
    rows += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, ASK)]
    return b"".join(struct.pack("=HBBI", *row) for row in rows)


def let_go(asking_fd: int) -> None:
    """Let the process go that asks; nothing if it has ended."""
    question = bytearray(RECEIVED_BYTES)
    with suppress(FileNotFoundError):
        fcntl.ioctl(asking_fd, RECEIVE, question)
        (number,) = struct.unpack_from("=Q", question)
        fcntl.ioctl(asking_fd, ANSWER, struct.pack(ANSWER_FORMAT, number, 0, 0, CONTINUE))


def send(asking_fd: int | None, theirs: socket.socket) -> None:
    """Send the descriptor to the server, and keep none that leads there."""
    with theirs:
        if asking_fd is not None:
            socket.send_fds(theirs, [b"."], [asking_fd])
            os.close(asking_fd)


def receive(ours: socket.socket) -> int | None:
    """The descriptor that a worker sends; None if it has none, or has ended."""
    _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    return descriptors[0] if descriptors else None

"""Enforces a compiled filter of system calls; `seccomp.py` compiles them."""

import ctypes
import os

from costada.evaluators.sandbox.inside.kernel import LIBC

PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
INSTRUCTION_BYTES, WORD_BYTES = 8, 4
OWN_PROCESS = 0x5ADA5ADA
"""Stands in a compiled filter for the process that it will hold: it may signal only itself."""


class Filter:
    """A filter for candidates, compiled once for all that follow.

    Attributes:
        program: What `confining` or `limiting` compiled.
        header: Its length and place, for the kernel.
    """

    def __init__(self, program: bytes) -> None:
        """Prepare a filter."""
        self.program = program
        self._words = (ctypes.c_uint32 * (len(program) // WORD_BYTES)).from_buffer_copy(program)
        self._own_places = [place for place, word in enumerate(self._words) if word == OWN_PROCESS]
        address = ctypes.addressof(self._words)
        self.header = ctypes.pointer(_Program(len(program) // INSTRUCTION_BYTES, address))

    def enforce(self) -> None:
        """Restrict this process, which has one thread and no new privileges, for good."""
        own = os.getpid()
        for place in self._own_places:
            self._words[place] = own
        if LIBC.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, self.header, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "the system call filter was refused")


class _Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))

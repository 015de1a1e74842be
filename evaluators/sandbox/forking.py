"""Whether candidates can be forked from a warm process on this machine."""

import os
import sys
from functools import cache


@cache
def can_fork() -> bool:
    """Return whether the system lets a warm process fork candidates, and watch and end them.

    macOS does not: its libraries do not survive a fork. Nor does a Linux kernel without pidfds,
    such as gVisor's.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True

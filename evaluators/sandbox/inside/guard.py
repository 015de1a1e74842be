"""Stands above the process that candidates are forked from, and sees that nothing outlives it.

Where Linux allows it, that process becomes the first of a process table of its own: nothing in it
can see or signal a process outside, and when the first one ends, in whatever way, the kernel ends
all others. Elsewhere orphans become children of the guard, which kills them when the process below
it has ended. A namespace also holds if the guard is killed; without one, the process below and its
candidate end then, but not what they started and left.
"""

import os
import signal

from costada.evaluators.sandbox.inside import leavings, walls

NAME = "costada-guard"
CLONE_NEWNS, CLONE_NEWPID = 0x00020000, 0x20000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_SLAVE = 0x2, 0x4, 0x8, 0x4000, 0x80000
SIGNALLED = 128
"""Added to the number of the signal that ended the guarded process, as shells do."""


def stand(control_fd: int, *, has_namespace: bool) -> None:
    """Return in a child of this process; this one waits for the child's end and for SIGTERM.

    Args:
        control_fd: Left to the child alone.
        has_namespace: Whether to give the child a process table of its own, if that is allowed.
    """
    has_namespace = has_namespace and leavings.apart(_is_refused) == 0
    awaited = {signal.SIGTERM, signal.SIGCHLD}
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    if has_namespace:
        walls.unshare(CLONE_NEWPID)
    guard = os.getpid()
    walls.set_process_option(walls.PR_SET_CHILD_SUBREAPER, 1)
    number = os.fork()
    if number == 0:
        walls.set_process_option(walls.PR_SET_CHILD_SUBREAPER, 0)
        # A parent outside of the process table shows as 0.
        walls.die_with_parent(0 if has_namespace else guard)
        if has_namespace:
            _mount_processes()
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)
        return
    os.close(control_fd)
    with open("/proc/self/comm", "w") as name:
        name.write(NAME)
    walls.set_process_option(walls.PR_SET_DUMPABLE, 0)
    walls.drop_privileges()
    while signal.sigwait(awaited) != signal.SIGTERM:
        if os.waitid(os.P_PID, number, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            break
    status = leavings.end(number)
    os._exit(status if status >= 0 else SIGNALLED - status)


def _is_refused() -> int:
    """Return 0 if a fork of this process can get a process table of its own; raises if not."""
    walls.unshare(CLONE_NEWPID)
    return leavings.apart(_mount_processes)


def _mount_processes() -> int:
    """Show this process its own process table under /proc; returns 0.

    Raises:
        OSError: If the system refuses it.
    """
    walls.unshare(CLONE_NEWNS)
    walls.checked(walls.LIBC.mount(None, b"/", None, MS_REC | MS_SLAVE, None))
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    walls.checked(walls.LIBC.mount(b"proc", b"/proc", b"proc", flags, None))
    return 0

"""The processes below a process: which there are, their memory, their end, and their supervisor."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from costada.evaluators.sandbox.inside import kernel

HAS_PROC = os.path.exists("/proc/self/statm")
HAS_CHILDREN_FILES = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
RESIDENT = ("RssAnon:", "RssShmem:")
PROPORTIONAL = ("Pss_Anon:", "Pss_Shmem:", "SwapPss:")
SYS_KCMP = {"x86_64": 312, "aarch64": 272}
KCMP_VM = 1
PAGE_KILOBYTES = os.sysconf("SC_PAGE_SIZE") // 1024
LISTING = ("/bin/ps", "-A", "-o", "pid=,ppid=,rss=")
SUPERVISOR_NAME = "costada-sandbox"
SIGNALLED = 128  # added to the number of the signal that ended the supervised process, as shells do


def children(number: int) -> list[int]:
    """The unreaped processes that a process has started; none if it is gone."""
    found: list[int] = []
    if HAS_CHILDREN_FILES:
        with suppress(FileNotFoundError, ProcessLookupError):
            for thread in os.listdir(f"/proc/{number}/task"):
                with suppress(FileNotFoundError, ProcessLookupError):
                    text = Path(f"/proc/{number}/task/{thread}/children").read_text()
                    found += [int(word) for word in text.split()]
        return found
    for entry in os.listdir("/proc"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if entry.isdigit():
                after_name = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2]
                if int(after_name.split()[1]) == number:
                    found.append(int(entry))
    return found


def descendants(number: int) -> list[int]:
    """The processes that came from a process, as far as their parents are alive."""
    found = children(number)
    for one in found:
        found.extend(children(one))
    return found


def num_threads(number: int) -> int:
    """How many threads a process has; 1 if it is gone or the system does not say."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return os.stat(f"/proc/{number}/task").st_nlink - 2
    return 1


def family(number: int) -> dict[int, int]:
    """The kilobytes of memory of a process and of each that came from it, by pid.

    Those whose parents have ended count only where orphans are reparented to the process itself.
    Without /proc, as on macOS, it takes one run of `ps`.
    """
    if not HAS_PROC:
        with subprocess.Popen(LISTING, stdout=subprocess.PIPE, env={}, text=True) as ps:
            text, _ = ps.communicate()
        return listed_family(text, number, ps.pid)
    held = {}
    for one in [number, *descendants(number)]:
        with suppress(FileNotFoundError, ProcessLookupError):
            held[one] = int(Path(f"/proc/{one}/statm").read_text().split()[1]) * PAGE_KILOBYTES
    return held


def listed_family(listing: str, number: int, without: int) -> dict[int, int]:
    """The same from lines of process, parent and kilobytes; one process does not count."""
    rows = [[int(word) for word in line.split()] for line in listing.splitlines()]
    parents = {own: parent for own, parent, _ in rows}
    return {
        own: kilobytes
        for own, _, kilobytes in rows
        if own != without and _comes_from(own, number, parents)
    }


def _comes_from(own: int, number: int, parents: Mapping[int, int]) -> bool:
    seen = set()
    while own != number and own in parents and own not in seen:
        seen.add(own)
        own = parents[own]
    return own == number


def memory_of(numbers: Iterable[int], enough: int) -> int:
    """The kilobytes of memory, other than of files, that processes hold together (Linux only).

    What several of them share counts once. That takes time to find out, so where the sum is below
    `enough` even if nothing is shared, that sum, which may be too large, is returned.
    """
    total = sum(_kilobytes(f"/proc/{number}/status", RESIDENT) for number in numbers)
    if total <= enough:
        return total
    total = 0
    known: list[int] = []
    for number in numbers:
        if any(_share_memory(number, other) for other in known):
            continue
        known.append(number)
        try:
            total += _kilobytes(f"/proc/{number}/smaps_rollup", PROPORTIONAL)
        except PermissionError:
            total += _kilobytes(f"/proc/{number}/status", RESIDENT)
    return total


def _kilobytes(path: str, fields: tuple[str, ...]) -> int:
    """The sum of fields of a process's file; 0 if the process is gone."""
    total = 0
    with suppress(FileNotFoundError, ProcessLookupError), open(path) as lines:
        for line in lines:
            if line.startswith(fields):
                total += int(line.split()[1])
    return total


def _share_memory(number: int, other: int) -> bool:
    """Whether two processes have one address space, as after vfork; False if unknown."""
    call = SYS_KCMP.get(os.uname().machine)
    return call is not None and kernel.LIBC.syscall(call, number, other, KCMP_VM, 0, 0) == 0


def kill_tree(number: int) -> int:
    """Kill a child of this process and everything below this process; its exit status.

    Negative is the signal that ended it. Orphans become children of this process (Linux), and
    this process has no other children. Never blocks in a wait: a process that traces the child
    receives its end first, and must be killed before.
    """
    os.kill(number, signal.SIGKILL)
    return os.waitstatus_to_exitcode(kill_descendants()[number])


def kill_descendants() -> dict[int, int]:
    """Kill everything below this process; the wait status of each child by its pid."""
    statuses: dict[int, int] = {}
    # Again and again: a process may fork between the look at its children and its end.
    with suppress(ChildProcessError):
        while True:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                statuses.setdefault(*ended)
            for left in descendants(os.getpid()):
                with suppress(ProcessLookupError):
                    os.kill(left, signal.SIGKILL)
    return statuses


def run_in_fork(question: Callable[[], int]) -> int:
    """The answer to a question, a small number, asked in a fork of this process; 1 if it raises.

    What it reads, such as the names of a candidate's files, does not stay in this process's
    memory, which the next candidate inherits.
    """
    number = os.fork()
    if number == 0:
        try:
            os._exit(question())
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def supervise(control_fd: int, *, has_namespace: bool) -> None:
    """Return in a child of this process, which stays as its supervisor: nothing outlives it.

    Where Linux allows it, the child becomes the first process of a pid namespace: nothing in it
    can see or signal a process outside, and when the first one ends, in whatever way, the kernel
    kills all others, even if the supervisor was killed. Elsewhere orphans become children of the
    supervisor, which kills them when the child has ended or on SIGTERM.

    Args:
        control_fd: Left to the child alone.
        has_namespace: Whether to give the child a pid namespace, if that is allowed.
    """
    has_namespace = has_namespace and run_in_fork(_new_pid_namespace) == 0
    awaited = {signal.SIGTERM, signal.SIGCHLD}
    # Blocked before the fork: one that came between the fork and the wait would be lost.
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    if has_namespace:
        kernel.unshare(kernel.CLONE_NEWPID)  # holds for children alone
    supervisor = os.getpid()
    kernel.set_process_option(kernel.PR_SET_CHILD_SUBREAPER, 1)
    number = os.fork()
    if number == 0:
        kernel.set_process_option(kernel.PR_SET_CHILD_SUBREAPER, 0)
        # A parent outside of the namespace shows as 0.
        kernel.die_with_parent(0 if has_namespace else supervisor)
        if has_namespace:
            kernel.mount_proc()
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)
        return
    os.close(control_fd)
    Path("/proc/self/comm").write_text(SUPERVISOR_NAME)
    kernel.set_process_option(kernel.PR_SET_DUMPABLE, 0)
    kernel.drop_privileges()
    # Orphans end with a SIGCHLD too. The child's pid stays in use until `kill_tree` reaps it.
    while signal.sigwait(awaited) != signal.SIGTERM:
        if os.waitid(os.P_PID, number, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            break
    status = kill_tree(number)
    os._exit(status if status >= 0 else SIGNALLED - status)


def _new_pid_namespace() -> int:
    """0 if a fork of this process can get a pid namespace with its own /proc; raises if not."""
    kernel.unshare(kernel.CLONE_NEWPID)
    return run_in_fork(lambda: kernel.mount_proc())

"""Which system calls a candidate may make (seccomp): an allow-list, so new calls stay out.

Nor may it hold files or memory that the limits do not see: threads share one table of descriptors,
and memory that outlives its mapping is refused. Without confinement, only that is refused, and to
start processes where none is allowed.
"""

import errno
import mmap
import stat
from tempfile import TemporaryFile

import pyseccomp  # type: ignore[import-untyped]
from pyseccomp import ALLOW, EQ, ERRNO, MASKED_EQ, NE, Arg

from costada.evaluators.sandbox.inside.orders import Permissions
from costada.evaluators.sandbox.inside.system_call_filter import OWN_PROCESS, PR_SET_SECCOMP

BINARY_TREE = 2
"""How libseccomp (2.5) lays out a filter, so that the kernel takes it in half the time."""

REFUSE = ERRNO(errno.EPERM)
CLONE_FILES, CLONE_THREAD = 0x00000400, 0x00010000
CLOSE_RANGE_UNSHARE = 2
HIDING_ALWAYS = ("memfd_create", "memfd_secret", "shmget", "unshare")
HIDING = {
    "close_range": (2, CLOSE_RANGE_UNSHARE),
    "mmap": (3, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS),
}
"""Refused where an argument, by its place, has all of some flags: the first gives a thread files
that the limits do not see; memory of the second stays whole while one page of it is mapped, and the
limit of memory counts what is mapped.
"""

SOL_SOCKET = 1
BUFFER_SIZES = (7, 8, 32, 33)  # SO_SNDBUF, SO_RCVBUF, SO_SNDBUFFORCE, SO_RCVBUFFORCE
NAMESPACE_FLAGS = (
    *(0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000),
    0x00008000,
)
"""Flags for new namespaces; the last is for a child that counts as a sister."""
AF_UNIX, SOCK_STREAM, SOCK_SEQPACKET, SOCKET_TYPE_MASK = 1, 1, 5, 0xF

FILES = """
access chdir close copy_file_range creat dup dup2 dup3 faccessat faccessat2 fadvise64
fchdir fdatasync flock fstat fstatfs fsync ftruncate getcwd getdents getdents64 lseek lstat mkdir
mkdirat newfstatat open openat openat2 pipe pipe2 pread64 preadv preadv2 pwrite64 pwritev pwritev2
read readahead readlink readlinkat readv rename renameat renameat2 rmdir sendfile splice stat statfs
statx symlink symlinkat link linkat sync_file_range tee umask unlink unlinkat write writev
"""
MEMORY = """
brk get_mempolicy madvise membarrier mincore mlock mlock2 mprotect mremap msync munlock munmap
"""
TIME = """
alarm clock_getres clock_gettime clock_nanosleep getitimer gettimeofday nanosleep setitimer time
timer_create timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create
timerfd_gettime timerfd_settime times
"""
WAITING = """
epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 futex
futex_waitv poll ppoll pselect6 select sched_yield wait4 waitid
"""
SIGNALS = """
pause restart_syscall rt_sigaction rt_sigpending rt_sigprocmask rt_sigreturn rt_sigsuspend
rt_sigtimedwait sigaltstack
"""
SELF = """
arch_prctl capget exit exit_group get_robust_list get_thread_area getcpu getegid geteuid getgid
getgroups getpgid getpgrp getpid getppid getpriority getrandom getresgid getresuid getrlimit
getrusage getsid gettid getuid rseq sched_get_priority_max sched_get_priority_min sched_getaffinity
sched_getattr sched_getparam sched_getscheduler set_robust_list set_tid_address sysinfo uname
"""
CONNECTED_SOCKETS = """
getpeername getsockname getsockopt recvfrom shutdown
"""
"""Not sendmsg: a descriptor that is on its way keeps a deleted file out of sight. Nor setsockopt,
which enlarges buffers: no limit counts them.
"""
NETWORK = "bind connect recvmmsg recvmsg sendmmsg sendmsg sendto setsockopt"
FAMILIES = (2, 10, 16)
"""AF_INET, AF_INET6 and AF_NETLINK, which looking up a name needs; other sockets are unknown."""

EXECUTION = "execve execveat"
PROCESSES = "fork setpgid setsid vfork"
RESTRICTING = "landlock_create_ruleset landlock_add_rule landlock_restrict_self"
"""Calls of Landlock."""

BOUNDS = {"sched_setaffinity": 0, "setpriority": 1}
"""The place of the argument that names a process; 0 is the caller."""

MODES = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2}
"""The place of the argument that is the mode."""
TIMES = "utime utimensat utimes futimesat"
OWNERS = "chown fchown fchownat lchown"
"""Landlock does not cover these three: where files of others could be reached, they answer success
and change nothing, so that copying works.
"""
IDENTITIES = "setregid setresgid setresuid setreuid"
"""Answer success and change nothing: make has its children return to the user that they are."""

UNSUPPORTED = """
fallocate fgetxattr flistxattr fremovexattr fsetxattr getxattr lgetxattr listxattr llistxattr
lremovexattr lsetxattr removexattr setxattr
"""
"""Answered as by a file system that knows neither extended attributes, which copying expects, nor
space without data, which would be taken faster than anyone can watch.
"""
REFUSED = """
accept accept4 bind connect execve execveat fork io_uring_setup listen memfd_create mknod mknodat
mount ptrace rt_sigqueueinfo rt_tgsigqueueinfo sched_setscheduler setns setpgid setsid setsockopt
shmget socket tkill truncate unshare vfork process_vm_readv process_vm_writev
"""
"""Refused as not permitted (EPERM); calls in no list fail as unknown (ENOSYS)."""

SIGNALLING = ["kill", "tgkill"]
ALL_BITS = 0xFFFFFFFF
TERMINAL_REQUESTS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX."""
GPU_REQUESTS = (
    *((0xFFFFFF00, 0), (ALL_BITS, 0x30000001), (ALL_BITS, 0x30000002)),
    *((0xFF00, ord("F") << 8), (0xFF00, ord("d") << 8)),
)
"""Masks and values of the requests to nvidia-uvm, to NVIDIA's other nodes, and to render nodes."""

DESCRIPTOR_COMMANDS = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032)
"""F_DUPFD to F_SETLKW, open file description locks, F_DUPFD_CLOEXEC, F_GETPIPE_SZ."""
NAMING = (15, 16)  # PR_SET_NAME, PR_GET_NAME


def confining(
    permissions: Permissions,
    *,
    has_scope: bool,
    owns_files: bool,
    has_network: bool = False,
    has_devices: bool = False,
    has_engine: bool = False,
) -> bytes:
    """Compile a filter that allows only what is listed.

    Args:
        permissions: What a candidate may do beside computing.
        has_scope: Whether Landlock keeps signals inside; without it, processes get no signals.
        owns_files: Whether no files but its own can be written to, so that programs that it
            executes may change their modes.
        has_network: Whether it may reach addresses, but no socket of this machine.
        has_devices: Whether it uses GPUs.
        has_engine: Whether it may reach sockets of this machine, that of a container engine.
    """
    may_start = permissions.may_start_processes
    rules = pyseccomp.SyscallFilter(ERRNO(errno.ENOSYS))
    rules.set_attr(pyseccomp.Attr.CTL_OPTIMIZE, BINARY_TREE)
    allowed = " ".join((FILES, MEMORY, TIME, WAITING, SIGNALS, SELF, CONNECTED_SOCKETS)).split()
    _add_clone(rules, may_start_processes=may_start)
    if permissions.may_execute:
        allowed += EXECUTION.split()
        allowed += [*MODES, *TIMES.split()] if owns_files else []
    if may_start:
        allowed += PROCESSES.split()
        allowed += SIGNALLING if has_scope else []
    families = (*(FAMILIES if has_network else ()), *((AF_UNIX,) if has_engine else ()))
    if families:
        allowed += NETWORK.split()
    for family in families:
        _add(rules, ALLOW, "socket", Arg(0, EQ, family))
    for mask, request in GPU_REQUESTS if has_devices else ():
        _add(rules, ALLOW, "ioctl", Arg(1, MASKED_EQ, mask, request))
    for name in allowed:
        _add(rules, ALLOW, name)
    for name in {*MODES, *f"{TIMES} {OWNERS} {IDENTITIES}".split()} - set(allowed):
        _add(rules, ERRNO(0), name)
    for name in UNSUPPORTED.split():
        _add(rules, ERRNO(errno.ENOTSUP), name)
    refused = set(REFUSED.split()) - {"socket"} if families else set(REFUSED.split())
    for name in refused - set(allowed):
        _add(rules, REFUSE, name)
    for name in set(SIGNALLING) - set(allowed):
        _add(rules, ALLOW, name, Arg(0, EQ, OWN_PROCESS))
        _add(rules, REFUSE, name, Arg(0, NE, OWN_PROCESS))
    _add_by_argument(rules)
    _add_bounds(rules, may_set=permissions.evaluates)
    if permissions.may_execute:  # programs in Rust hear of their children over such a pair
        _add_pair(rules, SOCK_SEQPACKET)
    _refuse_hiding(rules)
    return _exported(rules)


def limiting(*, may_start_processes: bool) -> bytes:
    """Compile a filter for layers without confinement.

    It refuses to hide what is held, and to start processes where none is allowed. Clients of
    models try to start `uname`, but do not need it.
    """
    rules = pyseccomp.SyscallFilter(ALLOW)
    rules.set_attr(pyseccomp.Attr.CTL_OPTIMIZE, BINARY_TREE)
    for name in HIDING_ALWAYS:
        _add(rules, REFUSE, name)
    _add(rules, ERRNO(errno.ENOSYS), "clone3")
    for option in BUFFER_SIZES:
        is_socket = Arg(1, MASKED_EQ, ALL_BITS, SOL_SOCKET)
        _add(rules, REFUSE, "setsockopt", is_socket, Arg(2, MASKED_EQ, ALL_BITS, option))
    _refuse_hiding(rules)
    if not may_start_processes:
        _add(rules, REFUSE, "clone", Arg(0, MASKED_EQ, CLONE_THREAD, 0))
        for name in ("fork", "vfork"):
            _add(rules, REFUSE, name)
    return _exported(rules)


def keeping_files() -> bytes:
    """Compile a filter that keeps the times of files, and their owner's right to read or enter.

    What an evaluator starts that runs its candidate could otherwise pass the evaluator's files off
    as written to, or lock them. Such calls answer success and change nothing.
    """
    rules = pyseccomp.SyscallFilter(ALLOW)
    rules.set_attr(pyseccomp.Attr.CTL_OPTIMIZE, BINARY_TREE)
    for name in TIMES.split():
        _add(rules, ERRNO(0), name)
    for name, place in MODES.items():
        for right in (stat.S_IRUSR, stat.S_IXUSR):
            _add(rules, ERRNO(0), name, Arg(place, MASKED_EQ, right, 0))
    return _exported(rules)


def _exported(rules: pyseccomp.SyscallFilter) -> bytes:
    with TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()


def _add_clone(rules: pyseccomp.SyscallFilter, *, may_start_processes: bool) -> None:
    """Allow threads that share their files, and processes if they may be started."""
    bad, thread = sum(NAMESPACE_FLAGS), CLONE_THREAD | CLONE_FILES
    _add(rules, ALLOW, "clone", Arg(0, MASKED_EQ, bad | thread, thread))
    for flag in NAMESPACE_FLAGS:
        _add(rules, REFUSE, "clone", Arg(0, MASKED_EQ, flag, flag))
    if may_start_processes:
        _add(rules, ALLOW, "clone", Arg(0, MASKED_EQ, bad | CLONE_THREAD, 0))
    else:
        _add(rules, REFUSE, "clone", Arg(0, MASKED_EQ, CLONE_THREAD, 0))


def _refuse_hiding(rules: pyseccomp.SyscallFilter) -> None:
    """Refuse a thread descriptors of its own, and memory that stays when it is unmapped."""
    _add(rules, REFUSE, "clone", Arg(0, MASKED_EQ, CLONE_THREAD | CLONE_FILES, CLONE_THREAD))
    for name, (place, flags) in HIDING.items():
        _add(rules, REFUSE, name, Arg(place, MASKED_EQ, flags, flags))


def _add_by_argument(rules: pyseccomp.SyscallFilter) -> None:
    for value in TERMINAL_REQUESTS:
        _add(rules, ALLOW, "ioctl", Arg(1, MASKED_EQ, ALL_BITS, value))
    for value in DESCRIPTOR_COMMANDS:
        _add(rules, ALLOW, "fcntl", Arg(1, MASKED_EQ, ALL_BITS, value))
    for value in NAMING:
        _add(rules, ALLOW, "prctl", Arg(0, EQ, value))
    for name, (place, flags) in HIDING.items():
        for bit in (1 << number for number in range(flags.bit_length())):
            if flags & bit:
                _add(rules, ALLOW, name, Arg(place, MASKED_EQ, bit, 0))
    _add(rules, ALLOW, "sendto", Arg(4, EQ, 0))
    _add_pair(rules, SOCK_STREAM)


def _add_bounds(rules: pyseccomp.SyscallFilter, *, may_set: bool) -> None:
    """Let an evaluator set its own limits, cores and priority, and restrict itself; refuse others.

    Limits are set where `prlimit64` has new ones, in its third argument.
    """
    # No call may match two of its rules: libseccomp (2.5) then leaves one out.
    others = [Arg(0, NE, 0)] if may_set else []
    _add(rules, ALLOW, "prlimit64", *others, Arg(2, EQ, 0))
    _add(rules, REFUSE, "prlimit64", *others, Arg(2, NE, 0))
    if may_set:
        _add(rules, ALLOW, "prlimit64", Arg(0, EQ, 0))
    for name, place in BOUNDS.items():
        _add(rules, REFUSE, name, Arg(place, NE, 0))
        _add(rules, ALLOW if may_set else REFUSE, name, Arg(place, EQ, 0))
    _add(rules, ALLOW if may_set else REFUSE, "setrlimit")
    if may_set:  # it restricts those of its children further that run its candidate
        for name in RESTRICTING.split():
            _add(rules, ALLOW, name)
        _add(rules, ALLOW, "prctl", Arg(0, EQ, PR_SET_SECCOMP))


def _add_pair(rules: pyseccomp.SyscallFilter, kind: int) -> None:
    """Allow two connected sockets."""
    is_kind = Arg(1, MASKED_EQ, SOCKET_TYPE_MASK, kind)
    _add(rules, ALLOW, "socketpair", Arg(0, EQ, AF_UNIX), is_kind)


def _add(rules: pyseccomp.SyscallFilter, action: int, name: str, *tests: Arg) -> None:
    """Add a rule, unless this machine's kind has no such call."""
    if pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name) >= 0:
        rules.add_rule(action, name, *tests)

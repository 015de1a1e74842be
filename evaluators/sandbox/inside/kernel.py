"""Calls of the kernel that Python does not offer: capabilities, mounts, Landlock, the clock."""

import ctypes
import errno
import os
import signal
import struct
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
IS_LINUX = sys.platform.startswith("linux")
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x00020000, 0x10000000, 0x20000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND = 0x2, 0x4, 0x8, 0x1000
MS_REC, MS_SLAVE = 0x4000, 0x80000
SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 0x1
CAPABILITIES_OF_SELF = (ctypes.c_uint32 * 2)(0x20080522, 0)
NO_CAPABILITIES = (ctypes.c_uint32 * 6)()
CAP_SYS_ADMIN = 1 << 21
SYS_LANDLOCK_CREATE_RULESET, SYS_LANDLOCK_ADD_RULE, SYS_LANDLOCK_RESTRICT_SELF = 444, 445, 446
LANDLOCK_RULE_PATH_BENEATH = 1
CLOCK_REALTIME, TFD_TIMER_ABSTIME, TFD_TIMER_CANCEL_ON_SET, TIMER_BYTES = 0, 1, 2, 8


def set_process_option(option: int, value: int) -> None:
    """Set an option of the calling process (prctl) on Linux."""
    if IS_LINUX:
        LIBC.prctl(option, value, 0, 0, 0)


def trim_memory() -> None:
    """Give the system back what is free in this process, where the C library can."""
    if hasattr(LIBC, "malloc_trim"):
        LIBC.malloc_trim(0)


def new_session() -> None:
    """Make this process the first of a new session.

    Like `os.setsid`, but without looking up its symbol again in every worker.
    """
    _check(min(LIBC.setsid(), 0))


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies (Linux only)."""
    set_process_option(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the kernel was asked: no signal would ever come
        os._exit(1)


def drop_privileges(*, retained: int = 0) -> None:
    """Give up the capabilities of root, in a user namespace too, and every way to new ones.

    Linux only. `retained` are the bits of those that `with_capability` may still use.
    """
    set_process_option(PR_SET_NO_NEW_PRIVS, 1)
    if retained:
        if held := _capabilities():
            _set_capabilities(0, held[1] & retained, 0, 0, 0, 0)
    elif IS_LINUX:
        LIBC.capset(CAPABILITIES_OF_SELF, NO_CAPABILITIES)


@contextmanager
def without_capabilities() -> Iterator[None]:
    """Have this thread do only what its user may do, even if that is root (Linux only)."""
    if not (held := _capabilities()):
        yield
        return
    _set_capabilities(0, *held[1:3], 0, *held[4:])
    try:
        yield
    finally:
        _set_capabilities(*held)


@contextmanager
def with_capability(capability: int) -> Iterator[None]:
    """Use a retained capability, a bit, in this thread (Linux only)."""
    held = _capabilities()
    _set_capabilities(capability & held[1], *held[1:])
    try:
        yield
    finally:
        _set_capabilities(*held)


def _capabilities() -> list[int]:
    """Effective, permitted and inheritable ones, twice 32 bits; nothing if not Linux."""
    held = (ctypes.c_uint32 * 6)()
    if not IS_LINUX or LIBC.capget(CAPABILITIES_OF_SELF, held) != 0:
        return []
    return list(held)


def _set_capabilities(*words: int) -> None:
    LIBC.capset(CAPABILITIES_OF_SELF, (ctypes.c_uint32 * 6)(*words))


def unshare(kinds: int) -> None:
    """Move to new namespaces, in a new user namespace if this user must (Linux only)."""
    user, group = os.geteuid(), os.getegid()
    if LIBC.unshare(kinds) == 0:
        return
    # Without the right to do so, only in a user namespace where this user keeps its own number.
    _check(LIBC.unshare(kinds | CLONE_NEWUSER))
    mapped = {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
    for name, text in mapped.items():
        Path(f"/proc/self/{name}").write_text(text)


def mount_proc() -> int:
    """Show this process its own pid namespace under /proc; 0."""
    return _mount(b"proc", b"/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, None)


def mount_tmpfs(folder: str, options: str) -> int:
    """Mount a file system in memory that only this process and its children see; 0."""
    return _mount(b"tmpfs", os.fsencode(folder), MS_NOSUID | MS_NODEV, options.encode())


def make_read_only() -> None:
    """Have all that is mounted in the mount namespace of this process refuse writing."""
    _set_mount(b"/", MOUNT_ATTR_RDONLY, 0)


def make_writable(folder: str) -> None:
    """Have what is mounted at a folder take files again, in the namespace of this process."""
    _set_mount(os.fsencode(folder), 0, MOUNT_ATTR_RDONLY)


def _set_mount(folder: bytes, added: int, removed: int) -> None:
    """Change the attributes of the mounts at and below a folder."""
    attributes = (ctypes.c_uint64 * 4)(added, removed, 0, 0)
    size = ctypes.sizeof(attributes)
    _check(LIBC.syscall(SYS_MOUNT_SETATTR, AT_FDCWD, folder, AT_RECURSIVE, attributes, size))


def cover_read_only(writable: list[str]) -> None:
    """Move to a mount namespace where all but some folders, and what is in them, is read-only."""
    unshare(CLONE_NEWNS)
    _check(LIBC.mount(None, b"/", None, MS_REC | MS_SLAVE, None))
    for folder in map(os.fsencode, writable):
        _check(LIBC.mount(folder, folder, None, MS_BIND | MS_REC, None))
    make_read_only()
    for folder in map(os.fsencode, writable):
        make_writable(os.fsdecode(folder))


def mount_overlay(folder: str, options: str) -> None:
    """Mount an overlay in the mount namespace of this process."""
    place, flags = os.fsencode(folder), MS_NOSUID | MS_NODEV
    _check(LIBC.mount(b"overlay", place, b"overlay", flags, options.encode()))


def _mount(kind: bytes, place: bytes, flags: int, options: bytes | None) -> int:
    unshare(CLONE_NEWNS)
    _check(LIBC.mount(None, b"/", None, MS_REC | MS_SLAVE, None))
    _check(LIBC.mount(kind, place, kind, flags, options))
    return 0


def landlock_rule(below_fd: int, access: int) -> bytes:
    """The rule that allows some access to an open file, or to what is in an open folder."""
    return struct.pack("=Qi", access, below_fd)


def landlock_ruleset(handled: bytes, rules: Iterable[bytes]) -> int:
    """The descriptor of a new set of Landlock rules.

    `handled` is what is denied except for the rules: three words of 64 bits for accesses to files,
    to the network, and scopes.
    """
    rules_fd: int = LIBC.syscall(SYS_LANDLOCK_CREATE_RULESET, handled, len(handled), 0)
    if rules_fd < 0:
        _check(rules_fd)
    for rule in rules:
        add_rule(rules_fd, rule)
    return rules_fd


def add_rule(rules_fd: int, rule: bytes) -> None:
    """Add a rule to a set of Landlock rules."""
    _check(LIBC.syscall(SYS_LANDLOCK_ADD_RULE, rules_fd, LANDLOCK_RULE_PATH_BENEATH, rule, 0))


def landlock(rules_fd: int) -> None:
    """Restrict this process, which gets no new privileges, to what a set of rules allows."""
    _check(LIBC.syscall(SYS_LANDLOCK_RESTRICT_SELF, rules_fd, 0))


def file_system(file_fd: int) -> int:
    """The magic number of the file system that an open file is on (statfs)."""
    found = (ctypes.c_long * 64)()
    _check(LIBC.fstatfs(file_fd, found))
    return found[0]


def clock_watch() -> int:
    """A descriptor from which `was_clock_set` learns whether the clock is set from now on."""
    watch_fd: int = LIBC.timerfd_create(CLOCK_REALTIME, os.O_NONBLOCK | os.O_CLOEXEC)
    _check(min(watch_fd, 0))
    never = (ctypes.c_long * 4)(0, 0, 2**40, 0)  # the timer itself does not expire
    _check(LIBC.timerfd_settime(watch_fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, never, None))
    return watch_fd


def was_clock_set(watch_fd: int) -> bool:
    """Whether the clock was set, other than by slowing it down or speeding it up."""
    try:
        os.read(watch_fd, TIMER_BYTES)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno != errno.ECANCELED:
            raise
    return True


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))

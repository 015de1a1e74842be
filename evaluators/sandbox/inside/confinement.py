"""What a candidate's process does to itself before it loads a candidate; there is no way back."""

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    import landlockpy

    from costada.evaluators.sandbox.inside import seccomp

LIBC = ctypes.CDLL(None, use_errno=True)
IS_LINUX = sys.platform.startswith("linux")
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x00020000, 0x10000000, 0x20000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND = 0x2, 0x4, 0x8, 0x1000
MS_REC, MS_SLAVE = 0x4000, 0x80000
SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 0x1
CAPABILITIES_OF_SELF = (ctypes.c_uint32 * 2)(0x20080522, 0)
CAP_SYS_ADMIN = 1 << 21
NUM_OPEN_FILES = 256
MEBIBYTE = 1024 * 1024
READABLE = (
    *("/dev/null", "/dev/random", "/dev/urandom", "/dev/zero", "/etc/ld.so.cache"),
    *("/etc/localtime", "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"),
    "/usr/share/zoneinfo",
)
"""What an interpreter and its libraries read beside their own folders."""

ABI_OF_SIGNAL_SCOPE = 6  # from this version on, Landlock itself keeps signals inside

Identity = tuple[int, int]
"""Device and inode of a file or folder."""

Order = Mapping[str, int]
"""The limits of one worker: memory_mb, scratch_mb, cpu_seconds, threads, processes.

With may_execute, it becomes another program; with keeps_files, what it leaves is put aside, and
each worker with has_built starts with a copy of that.
"""


class Permissions(NamedTuple):
    """What a worker may do beside computing."""

    may_start_processes: bool
    may_execute: bool  # other programs, in its own place or in processes

    @classmethod
    def of(cls, order: Order) -> Self:
        """What an order permits."""
        may_start = order["processes"] > 0
        return cls(may_start, may_start or "may_execute" in order)


def set_process_option(option: int, value: int) -> None:
    """Set an option of the calling process (prctl) on Linux."""
    if IS_LINUX:
        LIBC.prctl(option, value, 0, 0, 0)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies (Linux only)."""
    set_process_option(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def limit_resources(order: Order) -> None:
    """Set the limits of this process; those the system does not know are left out."""
    used = 0
    if IS_LINUX:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
    # Programs in other languages reserve far more addresses than they use.
    memory = resource.RLIMIT_DATA if "may_execute" in order else resource.RLIMIT_AS
    wanted = {
        memory: used + order["memory_mb"] * MEBIBYTE,
        resource.RLIMIT_CPU: order["cpu_seconds"],
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: order["scratch_mb"] * MEBIBYTE,
        resource.RLIMIT_NOFILE: NUM_OPEN_FILES,
    }
    if IS_LINUX:
        wanted[resource.RLIMIT_MSGQUEUE] = 0
    elif order["processes"] == 0:
        wanted[resource.RLIMIT_NPROC] = 1  # on Linux, it would count threads too
    for limit, value in wanted.items():
        _, hard = resource.getrlimit(limit)
        bounded = value if hard == resource.RLIM_INFINITY else min(value, hard)
        if IS_LINUX or limit != memory:
            resource.setrlimit(limit, (bounded, bounded))


def drop_privileges(*, retained: int = 0) -> None:
    """Give up the capabilities of root, in a user namespace too, and every way to new ones.

    Linux only. `retained` are the bits of those that `with_capability` may still use.
    """
    set_process_option(PR_SET_NO_NEW_PRIVS, 1)
    if held := _capabilities():
        _set_capabilities(0, held[1] & retained, 0, 0, 0, 0)


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
        _set_mount(folder, 0, MOUNT_ATTR_RDONLY)


def mount_overlay(folder: str, options: str) -> None:
    """Mount an overlay in the mount namespace of this process."""
    place, flags = os.fsencode(folder), MS_NOSUID | MS_NODEV
    _check(LIBC.mount(b"overlay", place, b"overlay", flags, options.encode()))


def _mount(kind: bytes, place: bytes, flags: int, options: bytes | None) -> int:
    unshare(CLONE_NEWNS)
    _check(LIBC.mount(None, b"/", None, MS_REC | MS_SLAVE, None))
    _check(LIBC.mount(kind, place, kind, flags, options))
    return 0


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def limiting_filter() -> "seccomp.Filter | None":
    """The filter of the layers without confinement; None without Linux or libseccomp."""
    if not IS_LINUX:
        return None
    try:
        from costada.evaluators.sandbox.inside import seccomp
    except (ImportError, RuntimeError):
        return None
    return seccomp.Filter(seccomp.limiting())


def _identity(path: str | Path) -> Identity | None:
    """What a path leads to; None if nothing."""
    with suppress(OSError):
        found = os.stat(path)
        return found.st_dev, found.st_ino
    return None


class Confinement:
    """Landlock and seccomp around candidates, prepared before each candidate's process starts.

    Raises:
        ImportError: If a package for them, or libseccomp, is not installed.
        OSError: If the kernel does not offer Landlock.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Prepare the rules for the first candidate, which may write to `scratch` only.

        Candidates may read the system's libraries and what is `readable`, but not what is
        `hidden` among it; read `files`, each given with the device and inode that it must have;
        list what is `listable`; read `programs` and `tools` if they may execute programs. With
        `owns_files`, the only files of which they may change the mode are their own.
        """
        import landlockpy

        from costada.evaluators.sandbox.inside import seccomp

        if not landlockpy.supported():
            raise OSError("the kernel does not offer Landlock")
        self._landlock = landlockpy
        has_scope = landlockpy.abi_version() >= ABI_OF_SIGNAL_SCOPE
        self._compile = partial(
            seccomp.confining, has_scope=has_scope, owns_files=settings["owns_files"]
        )
        self._filters: dict[Permissions, seccomp.Filter] = {}
        self._new_filter = seccomp.Filter
        self._readable: list[str] = []
        self._files = settings["files"]
        self._listable = list(settings["listable"])
        real = Path(settings["hidden"]).resolve()
        self._hidden, self._above = _identity(real), set(map(_identity, real.parents)) - {None}
        self._searched: set[Identity | None] = set()
        for path in dict.fromkeys((*READABLE, *settings["readable"])):
            self._add_readable(path)
        programs = (*settings["programs"], *settings["tools"])
        self._programs = [path for path in programs if os.path.exists(path)]
        self._scratch = settings["scratch"]
        self._slot_rules: dict[Permissions, landlockpy.Ruleset] = {}
        self._scratch_rules = self._writing(self._scratch, ["/"])

    def prepare(self, permissions: Permissions) -> list[int]:
        """The descriptors of the rules, which the candidate's process must keep open."""
        if permissions not in self._slot_rules:
            self._filters[permissions] = self._new_filter(self._compile(permissions))
            programs = self._programs if permissions.may_execute else []
            rules = self._writing(os.path.dirname(self._scratch), [*self._readable, *programs])
            for path, *identity in self._files:
                self._allow_file(rules, path, tuple(identity))
            for path in self._listable:
                rules.allow_path(path, self._landlock.AccessFS.READ_DIR)
            self._slot_rules[permissions] = rules
        return [self._slot_rules[permissions].fileno(), self._scratch_rules.fileno()]

    def renew(self) -> None:
        """Prepare the rules for the next candidate, which has a new scratch folder."""
        self._scratch_rules.close()
        self._scratch_rules = self._writing(self._scratch, ["/"])

    def enforce(self, permissions: Permissions) -> None:
        """Leave this process the libraries to read, scratch to write, and no one to talk to.

        There may be hundreds of libraries, so the rules that hold for all candidates of a slot are
        prepared once and allow the slot's folder; a second set allows only scratch in that.
        """
        for rules in (self._slot_rules[permissions], self._scratch_rules):
            with rules:
                rules.restrict()
        self._filters[permissions].enforce()

    def _writing(self, folder: str, readable: list[str]) -> "landlockpy.Ruleset":
        access, scope = self._landlock.AccessFS, self._landlock.Scope
        read = access.READ_FILE | access.READ_DIR | access.EXECUTE
        write = read | access.WRITE_FILE | access.TRUNCATE | access.REFER
        write |= access.REMOVE_DIR | access.REMOVE_FILE
        write |= access.MAKE_DIR | access.MAKE_REG | access.MAKE_SYM
        rules = self._landlock.Ruleset(scoped=scope.ABSTRACT_UNIX_SOCKET | scope.SIGNAL)
        for path in readable:
            rules.allow_path(path, read if os.path.isdir(path) else access.READ_FILE)
        rules.allow_path("/dev/null", access.READ_FILE | access.WRITE_FILE)
        rules.allow_path(folder, write)
        return rules

    def _allow_file(
        self, rules: "landlockpy.Ruleset", path: str, identity: tuple[int, ...]
    ) -> None:
        """Let candidates read a file, unless the path leads to another one by now."""
        try:
            file_fd = os.open(path, os.O_PATH)
        except OSError:
            return
        about = os.fstat(file_fd)
        if (about.st_dev, about.st_ino) == identity:
            rules.allow_path(f"/proc/self/fd/{file_fd}", self._landlock.AccessFS.READ_FILE)
        os.close(file_fd)

    def _add_readable(self, path: str) -> None:
        """Let candidates read a path if it exists, except for a hidden folder inside it.

        Landlock cannot take back what it allowed further up, so each folder on the way to the
        hidden one can only be listed, and everything else in it is allowed by itself. Links and
        mounts show these folders at several paths, so they are identified by device and inode.
        """
        identity = _identity(path)
        if identity in self._above:
            if identity not in self._searched:
                self._searched.add(identity)
                self._listable.append(path)
                for entry in os.scandir(path):
                    self._add_readable(entry.path)
        elif identity not in (None, self._hidden):
            self._readable.append(path)

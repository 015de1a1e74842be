"""What a candidate's process does to itself before it reads a candidate; there is no way back.

Runs in the sandbox, loaded by path; so it imports nothing of ours from outside this folder.
"""

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import landlockpy

    from costada.evaluators.sandbox.inside import system_calls

LIBC = ctypes.CDLL(None, use_errno=True)
IS_LINUX = sys.platform.startswith("linux")
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
CAPABILITIES_OF_SELF = (ctypes.c_uint32 * 2)(0x20080522, 0)
CAP_SYS_ADMIN = 1 << 21
CLONE_NEWUSER = 0x10000000
NUM_OPEN_FILES = 256
MEBIBYTE = 1024 * 1024
READABLE = (
    "/dev/null",
    "/dev/random",
    "/dev/urandom",
    "/dev/zero",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/share/zoneinfo",
)
"""What an interpreter and its libraries read beside their own folders."""

Identity = tuple[int, int]
"""Device and number of a file or folder."""

ABI_OF_SIGNAL_SCOPE = 6
"""From this version on, Landlock itself keeps signals inside."""


def set_process_option(option: int, value: int) -> None:
    """Set an option of the calling process (prctl), where the system is Linux."""
    if IS_LINUX:
        LIBC.prctl(option, value, 0, 0, 0)


def die_with_parent(parent: int) -> None:
    """Have the system kill this process when its parent dies (Linux only)."""
    set_process_option(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def limit_resources(memory_mb: int, scratch_mb: int, cpu_seconds: int) -> None:
    """Set the limits of this process; those the system does not know are left out."""
    wanted = {
        resource.RLIMIT_AS: _address_space() + memory_mb * MEBIBYTE,
        resource.RLIMIT_CPU: cpu_seconds,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: scratch_mb * MEBIBYTE,
        resource.RLIMIT_NOFILE: NUM_OPEN_FILES,
    }
    if IS_LINUX:
        wanted[resource.RLIMIT_MSGQUEUE] = 0
    for limit, value in wanted.items():
        _, hard = resource.getrlimit(limit)
        bounded = value if hard == resource.RLIM_INFINITY else min(value, hard)
        if IS_LINUX or limit != resource.RLIMIT_AS:
            resource.setrlimit(limit, (bounded, bounded))


def _address_space() -> int:
    if not IS_LINUX:
        return 0
    with open("/proc/self/statm", "rb", buffering=0) as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def drop_privileges(*, retained: int = 0) -> None:
    """Give up the powers of root, also of a user namespace, and every way to new ones (Linux only).

    Args:
        retained: Those that `with_power` may still use, as bits.
    """
    set_process_option(PR_SET_NO_NEW_PRIVS, 1)
    if held := _capabilities():
        _set_capabilities(0, held[1] & retained, 0, 0, 0, 0)


@contextmanager
def without_powers() -> Iterator[None]:
    """Have this thread do what its user may do, even if that is root (Linux only)."""
    if not (held := _capabilities()):
        yield
        return
    _set_capabilities(0, *held[1:3], 0, *held[4:])
    try:
        yield
    finally:
        _set_capabilities(*held)


@contextmanager
def with_power(power: int) -> Iterator[None]:
    """Use a power that was retained, a bit, in this thread (Linux only)."""
    held = _capabilities()
    _set_capabilities(power & held[1], *held[1:])
    try:
        yield
    finally:
        _set_capabilities(*held)


def _capabilities() -> list[int]:
    """Return effective, permitted and inheritable ones, twice 32 bits; nothing if not Linux."""
    held = (ctypes.c_uint32 * 6)()
    if not IS_LINUX or LIBC.capget(CAPABILITIES_OF_SELF, held) != 0:
        return []
    return list(held)


def _set_capabilities(*words: int) -> None:
    LIBC.capset(CAPABILITIES_OF_SELF, (ctypes.c_uint32 * 6)(*words))


def checked(result: int) -> None:
    """Check what a function of the C library returned.

    Raises:
        OSError: If it failed.
    """
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def unshare(kinds: int) -> None:
    """Leave namespaces for new ones, inside a new user namespace if this user must (Linux only).

    Args:
        kinds: The CLONE_NEW... flags of the namespaces.

    Raises:
        OSError: If the system refuses.
    """
    user, group = os.geteuid(), os.getegid()
    if LIBC.unshare(kinds) == 0:
        return
    checked(LIBC.unshare(kinds | CLONE_NEWUSER))
    mapped = {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
    for name, text in mapped.items():
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def limiting_filter() -> "system_calls.Filter | None":
    """Return what makes limits hold where no walls stand; None without Linux or libseccomp."""
    if not IS_LINUX:
        return None
    try:
        from costada.evaluators.sandbox.inside import system_calls
    except (ImportError, RuntimeError):
        return None
    return system_calls.Filter(system_calls.limiting())


def _identity(path: str | Path) -> Identity | None:
    """Return what a path leads to; None if nothing."""
    with suppress(OSError):
        found = os.stat(path)
        return found.st_dev, found.st_ino
    return None


class Walls:
    """Landlock and seccomp around candidates, prepared before the process of each is there.

    Raises:
        ImportError: If a package for them, or libseccomp, is not installed.
        OSError: If the kernel does not offer Landlock.
    """

    def __init__(
        self,
        readable: list[str],
        listed: list[str],
        programs: list[str],
        scratch: str,
        hidden: str,
    ) -> None:
        """Prepare the walls around the first candidate.

        Args:
            readable: What candidates may read beside the system's libraries.
            listed: Folders of which they may read the names of what is in them, and no more.
            programs: What they may read in addition where they may start processes.
            scratch: The folder that they may write to, in the folder of the slot.
            hidden: A folder that they may not read, although it may lie among the libraries.
        """
        import landlockpy

        from costada.evaluators.sandbox.inside import system_calls

        if not landlockpy.supported():
            raise OSError("the kernel does not offer Landlock")
        self._landlock = landlockpy
        has_signal_scope = landlockpy.abi_version() >= ABI_OF_SIGNAL_SCOPE
        self._filters = {
            is_allowed: system_calls.Filter(
                system_calls.confining(
                    may_start_processes=is_allowed, may_signal=is_allowed and has_signal_scope
                )
            )
            for is_allowed in (False, True)
        }
        self._readable: list[str] = []
        self._listed = list(listed)
        real = Path(hidden).resolve()
        self._hidden, self._above = _identity(real), set(map(_identity, real.parents)) - {None}
        self._searched: set[Identity | None] = set()
        for path in dict.fromkeys((*READABLE, *readable)):
            self._add_readable(path)
        self._programs = [path for path in programs if os.path.exists(path)]
        self._scratch = scratch
        self._around_slot: dict[bool, landlockpy.Ruleset] = {}
        self._around_scratch = self._writing(scratch, ["/"])

    def prepare(self, *, may_start_processes: bool) -> list[int]:
        """Return the descriptors of what is prepared, which the candidate's process must keep."""
        if may_start_processes not in self._around_slot:
            self._around_slot[may_start_processes] = self._slot_rules(may_start_processes)
        return [self._around_slot[may_start_processes].fileno(), self._around_scratch.fileno()]

    def renew(self) -> None:
        """Prepare the walls around the next candidate, whose scratch folder is another."""
        self._around_scratch.close()
        self._around_scratch = self._writing(self._scratch, ["/"])

    def close_in(self, *, may_start_processes: bool) -> None:
        """Leave this process the libraries to read, scratch to write, and no one to talk to.

        There may be hundreds of libraries, so what holds for all candidates of a slot is prepared
        once, and allows the slot's folder; another wall inside allows only scratch in that.
        """
        for rules in (self._around_slot[may_start_processes], self._around_scratch):
            with rules:
                rules.restrict()
        self._filters[may_start_processes].enforce()

    def _slot_rules(self, may_start_processes: bool) -> "landlockpy.Ruleset":
        programs = self._programs if may_start_processes else []
        rules = self._writing(os.path.dirname(self._scratch), [*self._readable, *programs])
        for path in self._listed:
            rules.allow_path(path, self._landlock.AccessFS.READ_DIR)
        return rules

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

    def _add_readable(self, path: str) -> None:
        """Let candidates read a path if it is there, but for a hidden folder inside it.

        Landlock cannot take back what it allowed further up, so each folder on the way to the
        hidden one can only be listed, and everything else in it is allowed by itself. Links and
        mounts show these folders at several paths, so they are identified by
        device and number.
        """
        identity = _identity(path)
        if identity in self._above:
            if identity not in self._searched:
                self._searched.add(identity)
                self._listed.append(path)
                for entry in os.scandir(path):
                    self._add_readable(entry.path)
        elif identity not in (None, self._hidden):
            self._readable.append(path)

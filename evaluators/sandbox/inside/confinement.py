"""What a candidate's process does to itself before it loads a candidate; there is no way back."""

import os
import resource
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costada.evaluators.sandbox.inside import kernel
from costada.evaluators.sandbox.inside.child_access import ChildAccess
from costada.evaluators.sandbox.inside.kernel import IS_LINUX
from costada.evaluators.sandbox.inside.orders import Order, Permissions
from costada.evaluators.sandbox.inside.system_call_filter import Filter

if TYPE_CHECKING:
    import landlockpy
    from landlockpy import AccessFS

NUM_OPEN_FILES = 256
MAX_DESCRIPTOR = 2**31 - 2
MEBIBYTE = 1024 * 1024
READABLE = (
    *("/dev/null", "/dev/random", "/dev/urandom", "/dev/zero", "/etc/ld.so.cache"),
    *("/etc/localtime", "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"),
    *("/proc", "/usr/share/zoneinfo"),
    *("/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"),
    "/sys/fs/cgroup/cpu/cpu.cfs_period_us",
)
"""What an interpreter and its libraries read beside their own folders; joblib counts cores so."""

OF_MACHINE = ("/proc/cpuinfo", "/proc/meminfo", "/proc/stat")
OF_ITSELF = ("maps", "stat", "statm", "status")
"""Of /proc, a process may read these: psutil asks for them, and threadpoolctl for maps."""

ABI_OF_SIGNAL_SCOPE = 6  # from this version on, Landlock itself keeps signals inside

STARTED = Permissions(may_start_processes=True, may_execute=True)
"""What those processes of an evaluator may do that run its candidate, as far as the evaluator."""

Identity = tuple[int, int]
"""Device and inode of a file or folder."""

ResourceLimit = tuple[int, tuple[int, int]]
"""Its number, and the soft and the hard limit."""


def resource_limits(order: Order) -> list[ResourceLimit]:
    """The limits of this process or a fork of it; those the system does not know are left out."""
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
    known = (each for each in wanted.items() if IS_LINUX or each[0] != memory)
    return [resource_limit(limit, value) for limit, value in known]


def resource_limit(limit: int, value: int) -> ResourceLimit:
    """A limit at a value, or at the hard limit of this process where that is lower."""
    _, hard = resource.getrlimit(limit)
    bounded = value if hard == resource.RLIM_INFINITY else min(value, hard)
    return limit, (bounded, bounded)


def close_others(kept: Iterable[int]) -> None:
    """Close all descriptors from 3 on, except for those that are `kept`."""
    first = 3
    for descriptor in (*sorted(kept), MAX_DESCRIPTOR):
        os.closerange(first, descriptor)
        first = descriptor + 1


def limiting_filters() -> dict[bool, Filter]:
    """The filters of the layers without confinement, by whether processes may be started.

    There are none without Linux or libseccomp.
    """
    if not IS_LINUX:
        return {}
    try:
        from costada.evaluators.sandbox.inside import seccomp
    except (ImportError, RuntimeError):
        return {}
    return {may: Filter(seccomp.limiting(may_start_processes=may)) for may in (False, True)}


def _identity(path: str | Path) -> Identity | None:
    """What a path leads to; None if nothing."""
    with suppress(OSError):
        found = os.stat(path)
        return found.st_dev, found.st_ino
    return None


class Confinement:
    """Landlock and seccomp around candidates, prepared before each candidate's process starts.

    What is done for each candidate goes to the kernel directly: landlockpy's classes of flags would
    take longer than the kernel does.

    Raises:
        ImportError: If a package for them, or libseccomp, is not installed.
        OSError: If the kernel does not offer Landlock.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Prepare the rules for the first candidate, which may write to `scratch` only.

        Candidates may read the system's libraries and what is `readable`, but not what is
        `hidden` among it; see the names of what is in `listable`; read `files`, each given with the
        device and inode that it must have; write to the folders `writable` too; read `programs` and
        `tools` if they may execute programs. With `owns_files`, the only files of which they may
        change the mode are their own; with `owns_processes`, no others are in /proc than theirs and
        those that started them.
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
        self._has_network = settings["has_network"]
        self._opens = {
            "has_network": settings["has_network"],
            "has_devices": bool(settings["devices"]),
            "has_engine": bool(settings["engine_socket"]),
        }
        self._filters: dict[Permissions, Filter] = {}
        self._readable: list[str] = []
        self._files = settings["files"]
        self._listable: list[str] = [*settings["listable"]]
        self._writable = settings["writable"]
        real = Path(settings["hidden"]).resolve()
        self._hidden, self._above = _identity(real), set(map(_identity, real.parents)) - {None}
        self._searched: set[Identity | None] = set()
        for path in dict.fromkeys((*READABLE, *settings["readable"])):
            self._add_readable(path)
        programs = (*settings["programs"], *settings["tools"])
        self._programs = [path for path in programs if os.path.exists(path)]
        self._slot = os.path.dirname(settings["scratch"])
        self._slot_rules: dict[Permissions, landlockpy.Ruleset] = {}
        with self._ruleset() as rules:
            handled = int(rules.handled_fs), int(rules.handled_net), int(rules.scoped)
        self._handled = struct.pack("=QQQ", *handled)
        kept = landlockpy.AccessFS(handled[0])
        read, write, use = (int(access & kept) for access in self._accesses())
        self._write = write
        of_file = landlockpy.AccessFS
        self._opened = dict.fromkeys(settings["devices"], kept & (use | of_file.IOCTL_DEV))
        if (engine := settings["engine_socket"]) and (resolving := kept & of_file.RESOLVE_UNIX):
            self._opened[engine] = resolving
        self._of_itself = [(f"/proc/self/{name}", int(of_file.READ_FILE)) for name in OF_ITSELF]
        self._of_all = [("/proc", read)] if settings["owns_processes"] else self._of_itself
        # Made once, of descriptors that stay open: these rules are the same for all candidates.
        below_root = [f"/{name}" for name in os.listdir("/") if name != "proc"]
        folders = filter(os.path.isdir, below_root)
        files = [*filter(os.path.isfile, below_root), *OF_MACHINE]
        self._beside_scratch = (
            *(kernel.landlock_rule(os.open(path, os.O_PATH), read) for path in folders),
            *(
                kernel.landlock_rule(os.open(path, os.O_PATH), int(of_file.READ_FILE))
                for path in files
            ),
            kernel.landlock_rule(os.open(os.devnull, os.O_PATH), use),
            *(kernel.landlock_rule(os.open(path, os.O_PATH), write) for path in self._writable),
            *(
                kernel.landlock_rule(os.open(path, os.O_PATH), int(access))
                for path, access in self._opened.items()
            ),
        )
        of_children = [seccomp.keeping_files()]
        if any(self._opens.values()):  # without the network that the evaluator has
            of_children.append(self._compile(STARTED))
        self.of_children = ChildAccess(
            handled=self._handled,
            list=int(of_file.READ_DIR),
            read=read,
            write=write & ~int(of_file.MAKE_SYM),
            of_file=use | (write & int(of_file.EXECUTE | of_file.TRUNCATE)),
            readable=self._beside_slot(),
            listable=tuple(self._listable),
            filters=tuple(map(Filter, of_children)),
        )
        self._scratch_fd = -1  # refused by the kernel: no worker begins without this set

    def _beside_slot(self) -> tuple[str, ...]:
        """What lies outside of the slot's folder, as far as candidates may read it."""
        outermost = "/" + self._slot.split("/")[1]
        others = (f"/{name}" for name in os.listdir("/") if name not in ("dev", "proc"))
        found = [path for path in others if path != outermost]
        found += OF_MACHINE
        for path in (*self._readable, *self._programs):
            is_around = f"{self._slot}/".startswith(f"{path}/")
            if path.startswith(f"{outermost}/") and not is_around:
                found.append(path)
        return tuple(found)

    def prepare(self, permissions: Permissions) -> None:
        """Prepare the rules and the filter for the next candidate, which may do this."""
        if permissions not in self._slot_rules:
            compiled = self._compile(permissions, **self._opens)
            self._filters[permissions] = Filter(compiled)
            programs = self._programs if permissions.may_execute else []
            rules = self._writing(self._slot, [*self._readable, *programs])
            for path, *identity in self._files:
                self._allow_file(rules, path, tuple(identity))
            for path in self._listable:
                rules.allow_path(path, self._landlock.AccessFS.READ_DIR)
            self._slot_rules[permissions] = rules
        self._slot_fd, self._filter = (
            self._slot_rules[permissions].fileno(),
            self._filters[permissions],
        )
        may_start = permissions.may_start_processes
        self._of_processes = self._of_all if may_start else self._of_itself

    def renew(self, folder_fd: int) -> None:
        """Prepare the rules for the next candidate, which has a new scratch folder."""
        if self._scratch_fd != -1:
            os.close(self._scratch_fd)
        own = kernel.landlock_rule(folder_fd, self._write)
        self._scratch_fd = kernel.landlock_ruleset(self._handled, (*self._beside_scratch, own))

    def enforce(self, kept: Iterable[int]) -> None:
        """Leave this process the libraries to read, scratch to write, and no one to talk to.

        There may be hundreds of libraries, so the rules that hold for all candidates of a slot are
        prepared once and allow the slot's folder and /proc; a second set allows only scratch and
        what this process may read of itself in those. Of the descriptors from 3 on, only those that
        are `kept` stay open.
        """
        for path, access in self._of_processes:
            rule = kernel.landlock_rule(os.open(path, os.O_PATH), access)
            kernel.add_rule(self._scratch_fd, rule)
        kernel.landlock(self._slot_fd)
        kernel.landlock(self._scratch_fd)
        close_others(kept)
        self._filter.enforce()

    def _accesses(self) -> "tuple[AccessFS, AccessFS, AccessFS]":
        """To folders that are read, to those that are written to, and to /dev/null."""
        access = self._landlock.AccessFS
        read = access.READ_FILE | access.READ_DIR | access.EXECUTE
        write = read | access.WRITE_FILE | access.TRUNCATE | access.REFER
        write |= access.REMOVE_DIR | access.REMOVE_FILE
        write |= access.MAKE_DIR | access.MAKE_REG | access.MAKE_SYM
        return read, write, access.READ_FILE | access.WRITE_FILE

    def _ruleset(self) -> "landlockpy.Ruleset":
        scope = self._landlock.Scope
        connecting = self._landlock.AccessNet.BIND_TCP if self._has_network else None
        return self._landlock.Ruleset(
            handled_net=connecting, scoped=scope.ABSTRACT_UNIX_SOCKET | scope.SIGNAL
        )

    def _writing(self, folder: str, readable: list[str]) -> "landlockpy.Ruleset":
        read, write, use = self._accesses()
        rules = self._ruleset()
        for path in readable:
            access = read if os.path.isdir(path) else self._landlock.AccessFS.READ_FILE
            rules.allow_path(path, access)
        rules.allow_path(os.devnull, use)
        for path in (folder, *self._writable):
            rules.allow_path(path, write)
        for path, access in self._opened.items():
            rules.allow_path(path, access)
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

"""A control group (cgroup v2) for each slot, where one is delegated to this process.

The kernel bounds the memory and the number of processes of a slot as a whole, as far as these
controllers are delegated, and ends everything in it at once. All other limits hold without it.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from time import sleep

from costada.evaluators.sandbox.limits import MEBIBYTE

MOUNTS = Path("/proc/self/mountinfo")
OWN_GROUPS = Path("/proc/self/cgroup")
UNIFIED = "0::"  # begins the line that names the group in the hierarchy of version 2
DELEGATE_MARKS = ("user.delegate", "trusted.delegate")
"""Attributes by which systemd marks what it delegates."""

NAME = "costada"
CONTROLLERS = ("memory", "pids")
SERVER_MB = 64  # memory that the server process takes while a candidate runs
SERVER_TASKS = 8
ENTER = 'echo $$ > "$0"; exec "$@"'
"""Enters before it becomes the server: what that starts is never outside of the group."""

MAX_REMOVALS, REMOVAL_SECONDS = 50, 0.01


class ControlGroup:
    """The group of one slot."""

    def __init__(self, above: Path) -> None:
        self._folder = above / f"{NAME}-{os.getpid()}-{token_hex(4)}"
        self._folder.mkdir()
        self._num_ooms = 0

    def entered_by(self, command: list[str]) -> list[str]:
        """A command that runs another one in the group."""
        return ["/bin/sh", "-c", ENTER, str(self._folder / "cgroup.procs"), *command]

    @property
    def is_empty(self) -> bool:
        """Whether no process is in it."""
        return not (self._folder / "cgroup.procs").read_text()

    def bound(self, limits: Mapping[str, int]) -> None:
        """Bound what one candidate adds to the slot; see `inside/fork_server.py` for the limits."""
        megabytes = limits["memory_mb"] + limits["scratch_mb"] + SERVER_MB
        num_tasks = (1 + limits["processes"]) * limits["threads"] + SERVER_TASKS
        for controller, more in {"memory": megabytes * MEBIBYTE, "pids": num_tasks}.items():
            with suppress(OSError):  # not delegated
                now = int((self._folder / f"{controller}.current").read_text())
                _write(self._folder / f"{controller}.max", str(now + more))
        with suppress(OSError):
            _write(self._folder / "memory.swap.max", "0")
        self._num_ooms = self._ooms()

    @property
    def has_run_out(self) -> bool:
        """Whether the kernel killed for lack of memory since the limits were set."""
        return self._ooms() > self._num_ooms

    def _ooms(self) -> int:
        with suppress(OSError):
            for line in (self._folder / "memory.events").read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        return 0

    def remove(self) -> None:
        """Kill all that is in it and remove it; what cannot be removed, a later process removes."""
        _kill(self._folder)
        for _ in range(MAX_REMOVALS):
            with suppress(OSError):
                self._folder.rmdir()
            if not self._folder.exists():
                return
            sleep(REMOVAL_SECONDS)


def new_group() -> ControlGroup | None:
    """A group for a slot; None where none is delegated to this process."""
    above = _delegated()
    if above is None:
        return None
    for group in above.glob(f"{NAME}-*-*"):  # left by processes that were killed
        owner = group.name.split("-")[1]
        if owner.isdigit() and not os.path.exists(f"/proc/{owner}"):
            _kill(group)
            with suppress(OSError):
                group.rmdir()
    for controller in CONTROLLERS:
        with suppress(OSError):  # not delegated, or processes are in the group, such as this one
            _write(above / "cgroup.subtree_control", f"+{controller}")
    try:
        return ControlGroup(above)
    except OSError:
        return None


def unified_mount() -> tuple[Path, str] | None:
    """Where the hierarchy of version 2 is mounted, and which of its groups is the root there."""
    with suppress(OSError):
        for line in MOUNTS.read_text().splitlines():
            before, _, after = line.partition(" - ")
            if after.startswith("cgroup2 "):
                root, place = before.split()[3:5]
                return Path(place), root
    return None


def _delegated() -> Path | None:
    """The group that is delegated to this process: its own, or the one above that."""
    mount = unified_mount()
    if mount is None:
        return None
    names = [line for line in OWN_GROUPS.read_text().splitlines() if line.startswith(UNIFIED)]
    if not names:
        return None
    own = mount[0] / os.path.relpath(names[0].removeprefix(UNIFIED), mount[1])
    for group in (own.parent, own):
        if group.is_relative_to(mount[0]) and _is_delegated(group):
            return group
    return None


def _is_delegated(group: Path) -> bool:
    """Whether a group is the root of what was given to this user."""
    if not os.access(group, os.W_OK) or not os.access(group / "cgroup.procs", os.W_OK):
        return False
    for mark in DELEGATE_MARKS:
        with suppress(OSError):
            return os.getxattr(group, mark) == b"1"
    owner, owner_above = group.stat().st_uid, group.parent.stat().st_uid
    return owner == os.geteuid() != owner_above


def _kill(group: Path) -> None:
    with suppress(OSError):
        _write(group / "cgroup.kill", "1")


def _write(path: Path, text: str) -> None:
    """Write to a file of a group, which exists only if its controller does."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)

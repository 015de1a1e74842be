"""A clean copy of a folder for each candidate: an overlay where the kernel allows one, else a copy.

In an overlay, what a candidate writes goes to a file system in memory that ends with its processes,
and the time does not depend on the number of files. A copy shares blocks with the original where
the file system can clone files. It never holds a hard link, so nothing leads to the original.
"""

import os
import shutil
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from costada.evaluators.sandbox.inside import confinement
from costada.evaluators.sandbox.inside.process_tree import run_in_fork
from costada.evaluators.sandbox.inside.scratch_folder import MAX_INODES, SlotFolder

TRIAL = "trial"
UPPER, INNER = "upper", "inner"
CAP_DAC_OVERRIDE = 1 << 1
CAPABILITIES = confinement.CAP_SYS_ADMIN | CAP_DAC_OVERRIDE
"""An overlay acts with those of the process that mounts it: one folder of its own is closed to its
owner. Candidates have none of them.
"""

FICLONE = 0x40049409


class CleanCopies:
    """Gives each candidate of a slot its copy of one folder.

    Attributes:
        is_overlay: Whether copies are overlays; their size is bounded by their own file system.
        num_files: Files and folders that a copy adds to a candidate's own.
        megabytes: Size that a copy adds to a candidate's own files, in MiB.
    """

    def __init__(self, settings: Mapping[str, Any], folder: str, *, may_mount: bool) -> None:
        """Find out, in the slot's folder, whether overlays can be mounted, where they may be.

        If so, this process moves to a mount namespace, so it must not have opened folders yet.
        """
        self._path = settings["path"]
        self._mount = partial(_mount_overlay, settings)
        self.is_overlay = may_mount and confinement.IS_LINUX and _succeeds(self._mount, folder)
        self.num_files = 0 if self.is_overlay else settings["num_files"]
        self.megabytes = 0 if self.is_overlay else settings["megabytes"]
        if self.is_overlay:
            confinement.unshare(confinement.CLONE_NEWNS)

    def enter(self, folder: SlotFolder, name: str) -> None:
        """Make a fresh copy the working folder of this process; `name` is a new folder.

        Other processes, except for children, do not see an overlay.
        """
        folder.enter(name)
        if self.is_overlay:
            self._mount(name)
        else:
            copy_folder(self._path, ".")


def _succeeds(mount: Callable[[str], None], folder: str) -> bool:
    trial = os.path.join(folder, TRIAL)
    os.mkdir(trial, stat.S_IRWXU)

    def attempt() -> int:
        os.chdir(trial)
        confinement.unshare(confinement.CLONE_NEWNS)
        confinement.drop_privileges(retained=CAPABILITIES)
        mount(TRIAL)
        return 0

    has_worked = run_in_fork(attempt) == 0
    os.rmdir(trial)
    return has_worked


def _mount_overlay(settings: Mapping[str, Any], name: str) -> None:
    """Cover the working folder, which has this name, and enter what covers it.

    All else is read-only from then on, so nothing but the copy can be changed in any layer.
    The file system that takes what is written is hidden below the overlay.
    """
    size, num_inodes = settings["upper_mb"], MAX_INODES + settings["num_files"]
    with confinement.with_capability(CAPABILITIES):
        confinement.unshare(confinement.CLONE_NEWNS)
        confinement.make_read_only()
        confinement.mount_tmpfs(".", f"size={size}m,nr_inodes={num_inodes},mode=700")
        os.chdir(f"../{name}")
        os.mkdir(UPPER, stat.S_IRWXU)
        os.mkdir(INNER, stat.S_IRWXU)
        lower_fd = os.open(settings["path"], os.O_PATH | os.O_DIRECTORY)
        # Named by its descriptor, as a path may hold the signs that separate options.
        options = f"lowerdir=/proc/self/fd/{lower_fd},upperdir={UPPER},workdir={INNER},userxattr"
        confinement.mount_overlay(".", options)
        os.close(lower_fd)
        os.chdir(f"../{name}")


def copy_folder(source: str, target: str) -> None:
    """Copy what is in a folder to another that exists; links stay links.

    The source is trusted: it holds files, folders and links alone.
    """
    folders = [("", os.stat(source).st_mode)]
    for inner, _ in folders:
        with os.scandir(os.path.join(source, inner)) as entries:
            for entry in entries:
                path = os.path.join(inner, entry.name)
                there = os.path.join(target, path)
                if entry.is_symlink():
                    os.symlink(os.readlink(entry.path), there)
                elif entry.is_dir():
                    os.mkdir(there, stat.S_IRWXU)
                    folders.append((path, 0))
                else:
                    copy_file(entry.path, there)


def copy_file(source: str, target: str) -> None:
    """Copy content and permissions, sharing blocks where the file system can."""
    with open(source, "rb") as given, open(target, "xb") as made:
        if not _clone(given.fileno(), made.fileno()):
            shutil.copyfileobj(given, made)
        os.fchmod(made.fileno(), stat.S_IMODE(os.fstat(given.fileno()).st_mode) | stat.S_IRUSR)


def _clone(source_fd: int, target_fd: int) -> bool:
    if not confinement.IS_LINUX:
        return False
    import fcntl

    with suppress(OSError):
        fcntl.ioctl(target_fd, FICLONE, source_fd)
        return True
    return False

"""The files that a candidate begins with: a clean copy of a folder, or of what a build has left.

The folder is a repository's, or holds the files of an evaluator that the server itself has copied.

A clean copy is an overlay where the kernel allows one: what a candidate writes goes to a file
system in memory that ends with its processes, and the time does not depend on the number of files.
Elsewhere files are copied, with blocks shared where the file system can clone them, or the copy of
a repository is kept from one candidate to the next (`kept_copy.py`). There is never a hard link to
the original.

What a build has left is put aside in the slot's folder, and copied for each call of the program. A
program may change its copy, which is deleted after the call, so that no call sees what an earlier
one wrote. Where programs are confined to their folder, they reach the copies of no other call.
"""

import os
import shutil
import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import IO, Any

from costada.evaluators.sandbox.inside import kernel
from costada.evaluators.sandbox.inside.orders import (
    ABSENT,
    CONTENT,
    FOLDER,
    HOME,
    MAX_COPIED_BYTES,
    PROGRAM,
)
from costada.evaluators.sandbox.inside.process_tree import run_in_fork
from costada.evaluators.sandbox.inside.scratch_folder import MAX_INODES, MEBIBYTE

TRIAL = "trial"
UPPER, INNER = "upper", "inner"
CAP_DAC_OVERRIDE = 1 << 1
CAPABILITIES = kernel.CAP_SYS_ADMIN | CAP_DAC_OVERRIDE
"""An overlay acts with those of the process that mounts it: one folder of its own is closed to its
owner. Candidates have none of them.
"""

FICLONE = 0x40049409

BUILT = "built"
"""Name of the folder beside that of the candidate."""

SHARED_MEMORY = "/dev/shm"  # noqa: S108  (covered by a file system of the slot)
"""Where the C library keeps semaphores and shared memory that have a name."""


class CleanCopies:
    """Gives each candidate of a slot its copy of one folder.

    Attributes:
        is_overlay: Whether copies are overlays; their size is bounded by their own file system.
        num_files: Files and folders that a copy adds to a candidate's own.
        megabytes: Size that a copy adds to a candidate's own files, in MiB.
        has_shared_memory: Whether candidates have a `SHARED_MEMORY` of their own.
    """

    def __init__(self, settings: Mapping[str, Any], folder: str, *, may_mount: bool) -> None:
        """Find out, in the slot's folder, whether overlays can be mounted, where they may be.

        If so, this process moves to a mount namespace, so it must not have opened folders yet.
        """
        self._path = settings["path"]
        self._mount = partial(_mount_overlay, settings)
        self.is_overlay = may_mount and kernel.IS_LINUX and _succeeds(self._mount, folder)
        self.num_files = 0 if self.is_overlay else settings["num_files"]
        self.megabytes = 0 if self.is_overlay else settings["megabytes"]
        self.has_shared_memory = False
        if self.is_overlay:
            kernel.unshare(kernel.CLONE_NEWNS)
            if settings["is_received"] and os.path.isdir(SHARED_MEMORY):
                kernel.mount_tmpfs(SHARED_MEMORY, _bounds(settings))
                self.has_shared_memory = True

    def enter(self, folder_fd: int, name: str) -> None:
        """Make a fresh copy the working folder of this process; in a new folder of this name.

        Other processes, except for children, do not see an overlay.
        """
        os.fchdir(folder_fd)
        if self.is_overlay:
            self._mount(name)
        else:
            copy_folder(self._path, ".")


def _succeeds(mount: Callable[[str], None], folder: str) -> bool:
    trial = os.path.join(folder, TRIAL)
    os.mkdir(trial, stat.S_IRWXU)

    def attempt() -> int:
        os.chdir(trial)
        kernel.unshare(kernel.CLONE_NEWNS)
        kernel.drop_privileges(retained=CAPABILITIES)
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
    with kernel.with_capability(CAPABILITIES):
        kernel.unshare(kernel.CLONE_NEWNS)
        kernel.make_read_only()
        if settings["is_received"]:
            with suppress(OSError):  # there is none
                kernel.make_writable(SHARED_MEMORY)
        kernel.mount_tmpfs(".", _bounds(settings))
        os.chdir(f"../{name}")
        os.mkdir(UPPER, stat.S_IRWXU)
        os.mkdir(INNER, stat.S_IRWXU)
        lower_fd = os.open(settings["path"], os.O_PATH | os.O_DIRECTORY)
        # Named by its descriptor, as a path may hold the signs that separate options.
        options = f"lowerdir=/proc/self/fd/{lower_fd},upperdir={UPPER},workdir={INNER},userxattr"
        kernel.mount_overlay(".", options)
        os.close(lower_fd)
        os.chdir(f"../{name}")


def _bounds(settings: Mapping[str, Any]) -> str:
    """The options of a file system for what one candidate writes."""
    size, num_inodes = settings["upper_mb"], MAX_INODES + settings["num_files"]
    return f"size={size}m,nr_inodes={num_inodes},mode=700"


def copy_evaluator(
    files: Iterable[tuple[str, str, list[int], bool]], target: str, contents: IO[bytes]
) -> list[str]:
    """Make the folder of which each candidate of an evaluator gets a copy; the places in it.

    Args:
        files: Path, place in the folder, and device and inode that the file must have, if files
            have the same here as where they were listed; and whether it is among the `contents`.
            One that is gone, or another file by now, is left out.
        target: The folder; an empty one may be there.
        contents: What files hold that are not seen here, one after the other.
    """
    for name in (FOLDER, HOME, PROGRAM):
        os.makedirs(os.path.join(target, name), exist_ok=True)
    places = []
    for path, place, identity, is_sent in files:
        there = os.path.join(target, place)
        os.makedirs(os.path.dirname(there), exist_ok=True)
        if _write_sent(contents, there) if is_sent else _copy_seen(path, there, identity):
            places.append(place)
    return places


def _write_sent(contents: IO[bytes], there: str) -> bool:
    """Write a file that is sent; whether it was."""
    mode, size = CONTENT.unpack(contents.read(CONTENT.size))
    if size == ABSENT:
        return False
    with open(there, "xb") as made:
        made.write(contents.read(size))
        _permit(made.fileno(), mode)
    return True


def _copy_seen(path: str, there: str, identity: list[int]) -> bool:
    """Copy a file, or link to a large one; whether it was there."""
    try:
        # A pipe in its place must not wait for a writer.
        given = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except OSError:
        return False
    with given:
        about = os.fstat(given.fileno())
        if identity and [about.st_dev, about.st_ino] != identity:
            return False
        if about.st_size > MAX_COPIED_BYTES:
            os.symlink(path, there)
            return True
        with open(there, "xb") as made:
            if not _clone(given.fileno(), made.fileno()):
                shutil.copyfileobj(given, made)
            _permit(made.fileno(), about.st_mode)
    return True


def _permit(file_fd: int, mode: int) -> None:
    mode = stat.S_IMODE(mode) & ~(stat.S_ISUID | stat.S_ISGID)
    os.fchmod(file_fd, mode | stat.S_IRUSR | stat.S_IWUSR)


def files_below(folder: str) -> list[str]:
    """The paths of the files below a folder, relative to it."""
    return [
        os.path.relpath(os.path.join(place, name), folder)
        for place, _, names in os.walk(folder)
        for name in names
    ]


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
                if entry.is_dir(follow_symlinks=False):
                    os.mkdir(there, stat.S_IRWXU)
                    folders.append((path, 0))
                else:
                    copy_entry(entry.path, there)


def copy_entry(source: str, target: str) -> None:
    """Copy a file, or a link as it is."""
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
    else:
        copy_file(source, target)


def copy_file(source: str, target: str) -> None:
    """Copy content and permissions, sharing blocks where the file system can."""
    with open(source, "rb") as given, open(target, "xb") as made:
        if not _clone(given.fileno(), made.fileno()):
            shutil.copyfileobj(given, made)
        os.fchmod(made.fileno(), stat.S_IMODE(os.fstat(given.fileno()).st_mode) | stat.S_IRUSR)


def _clone(source_fd: int, target_fd: int) -> bool:
    if not kernel.IS_LINUX:
        return False
    import fcntl

    with suppress(OSError):
        fcntl.ioctl(target_fd, FICLONE, source_fd)
        return True
    return False


def copy_built(source: str, max_mb: int) -> None:
    """Copy what a build has left to the working folder: its files, folders, links and times.

    Links are copied as they are. Hard links are preserved.

    Raises:
        OSError: If something cannot be read, or takes more than `max_mb`, or `source` is not a
            folder but, for instance, a link that a build has put there.
    """
    if not os.path.isdir(source) or os.path.islink(source):
        raise OSError("the working folder is gone: the program moved, removed or replaced it")
    copied: dict[int, str] = {}
    num_bytes = 0
    folders = [""]
    for inner in folders:
        with os.scandir(os.path.join(source, inner)) as entries:
            for entry in entries:
                path, about = os.path.join(inner, entry.name), entry.stat(follow_symlinks=False)
                if stat.S_ISLNK(about.st_mode):
                    os.symlink(os.readlink(entry.path), path)
                elif stat.S_ISDIR(about.st_mode):
                    os.mkdir(path, stat.S_IRWXU)
                    folders.append(path)
                elif stat.S_ISREG(about.st_mode):
                    if about.st_ino in copied:
                        os.link(copied[about.st_ino], path)
                        continue
                    num_bytes += about.st_size
                    if num_bytes > max_mb * MEBIBYTE:
                        raise OSError(f"the build left more than {max_mb} MB of files")
                    copy_file(entry.path, path)
                    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
                    copied[about.st_ino] = path

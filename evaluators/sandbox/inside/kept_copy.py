"""A copy of a folder that one candidate after the other gets, restored in between.

Where no overlay can be mounted, copying 10,000 files takes seconds for each candidate. Here the
copy stays. When a candidate and all its processes have ended, what has the same inode, size, mode
and times as before is moved to the folder of the next one. Everything else is copied again, a
folder with other permissions or attributes with all that is in it; what was added is left behind.

This relies on the time of the last change of an inode (ctime), which no system call can set. So a
copy is kept only

- on file systems of this machine, where a trial shows that the time also changes when a program
  writes through a mapping that it has read before (it does not on tmpfs);
- until the clock is set, of which the kernel tells;
- if the clock has ticked before a candidate begins: a change within the same tick would not show.

Some file systems exchange contents by requests of their own (ioctl), perhaps without a new time.
Confined candidates may make none; others could change the original as well.
"""

import marshal
import mmap
import os
import stat
import sys
from contextlib import suppress
from functools import partial
from secrets import token_hex
from time import monotonic, sleep, time_ns

from costada.evaluators.sandbox.inside import kernel
from costada.evaluators.sandbox.inside.file_copies import copy_entry
from costada.evaluators.sandbox.inside.process_tree import run_in_fork
from costada.evaluators.sandbox.inside.scratch_folder import open_permitted

LOCAL_FILE_SYSTEMS = (0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x794C7630)
"""Magic numbers of ext4, XFS, Btrfs, F2FS and overlayfs: times are by the clock of this machine."""

MAX_TICK_SECONDS = 0.1
PAUSE_SECONDS = 0.0005
YEAR_NS = 365 * 24 * 3600 * 10**9
TRIAL = "trial"
FS_IOC_GETFLAGS, FLAGS_BYTES = 0x80086601, 8
FLAGS_OF_FORMAT = 0x1000 | 0x80000 | 0x10000000
"""Index, extents and data in the inode: ext4 sets them as it needs them."""


About = tuple[int, ...]
"""Device, inode, mode, links, owners, size and times of a file, folder or link."""

Record = dict[str, dict[str, About]]
"""What is in each folder by name, each folder after the one that holds it; the first is ''."""

SAME, CHANGED, GONE = 0, 1, 2
"""States of a folder: as recorded with all in it; itself usable; of which nothing is used."""


class KeptCopy:
    """The copy of a slot. Only forks look at a candidate's files, as in `scratch_folder`.

    The record is in a file without a name, which candidates do not inherit.
    """

    def __init__(self, source: str) -> None:
        """Prepare to copy `source`, and watch the clock from now on (Linux only).

        Raises:
            OSError: If the kernel does not tell when the clock is set.
        """
        self._source = source
        self._clock_fd = kernel.clock_watch()
        self._record_fd = os.memfd_create("record")
        self.is_filled = False

    def fill(self, folder_fd: int) -> bool:
        """Copy everything to an empty folder; whether it can be kept there."""
        self.is_filled = run_in_fork(partial(self._fill, folder_fd)) == 0
        return self.is_filled

    def restore(self, old_fd: int, new_fd: int) -> bool:
        """Move the copy from a candidate's folder to an empty one, as it was; whether it worked."""
        return run_in_fork(partial(self._restore, old_fd, new_fd)) == 0

    def _fill(self, folder_fd: int) -> int:
        os.fchdir(folder_fd)
        if not (_is_local(folder_fd) and _shows_mapped_changes()):
            return 1
        record: Record = {"": {}}
        for folder in (folders := [""]):
            with os.scandir(os.path.join(self._source, folder)) as entries:
                for entry in entries:
                    record[folder][entry.name] = ()
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(path := os.path.join(folder, entry.name))
                        record[path] = {}
        states = {**dict.fromkeys(record, GONE), "": CHANGED}
        return self._make(record, states, set(), folder_fd)

    def _restore(self, old_fd: int, new_fd: int) -> int:
        size = os.fstat(self._record_fd).st_size
        record: Record = marshal.loads(os.pread(self._record_fd, size, 0))  # noqa: S302  (ours)
        states, same = _compared(record, old_fd, new_fd)
        if kernel.was_clock_set(self._clock_fd):
            return 1
        os.fchdir(new_fd)
        return self._make(record, states, same, old_fd)

    def _make(self, record: Record, states: dict[str, int], same: set[str], old_fd: int) -> int:
        """Make the copy in the working folder, which is empty, and record it; 0 if it can be kept.

        Folders that stay are moved from the old folder with all that is in them. What does not
        belong there is moved back, to be deleted with the old folder; so no link is followed.
        """
        changed = [folder for folder in record if states[folder] != SAME]
        kept = same | {folder for folder in record if states[folder] != GONE}
        here_fd, token = os.open(".", os.O_PATH), token_hex(8)
        for path in kept.intersection(record[""]):
            os.rename(path, path, src_dir_fd=old_fd, dst_dir_fd=here_fd)
        for number, folder in enumerate(changed):
            if states[folder] == GONE:
                os.mkdir(folder, stat.S_IRWXU)
            else:
                _move_out(set(_listed(folder)) - kept, here_fd, old_fd, f"{token}.{number}")
            for path in _paths(record, folder):
                if path not in kept and path not in record:
                    copy_entry(os.path.join(self._source, path), path)
        latest = 0
        # The time of the last access is after that of the last change, whenever that is: so reading
        # does not set it (relatime), and no candidate sees what another one read.
        times = time_ns() + YEAR_NS, time_ns()
        for folder in reversed(changed):
            for path in _paths(record, folder):
                if path in same or (folder and states.get(path) == SAME):
                    continue
                os.utime(path, ns=times, follow_symlinks=False)
                record[folder][os.path.basename(path)] = about = _about(path)
                latest = max(latest, about[-1])
        if not _ticks_after(latest):
            return 1
        os.ftruncate(self._record_fd, 0)
        os.pwrite(self._record_fd, marshal.dumps(record), 0)
        return 0


def _compared(record: Record, old_fd: int, new_fd: int) -> tuple[dict[str, int], set[str]]:
    """The state of each folder, and the paths of the files and links that are as recorded."""
    states, same = {"": CHANGED}, set()
    attributes = _attributes(new_fd)
    for folder, entries in record.items():
        for path, before in zip(_paths(record, folder), entries.values(), strict=True):
            about: About = ()
            with suppress(OSError):
                about = _about(path, old_fd) if states[folder] != GONE else ()
            if path not in record:
                if about == before:
                    same.add(path)
                elif states[folder] == SAME:
                    states[folder] = CHANGED
            elif about == before:
                states[path] = SAME
            elif _is_usable(path, about, before, old_fd, attributes):
                states[path] = CHANGED
            else:
                states[path] = GONE
    for folder in reversed(record):
        above = os.path.dirname(folder)
        if states[folder] != SAME and states[above] == SAME:
            states[above] = CHANGED
    return states, same


def _is_usable(
    path: str, about: About, before: About, old_fd: int, attributes: tuple[object, ...]
) -> bool:
    """Whether all that differs about a folder is its number of folders, its times and entries."""
    if not about or (*about[:3], *about[4:7]) != (*before[:3], *before[4:7]):
        return False
    folder_fd = open_permitted(path, old_fd)
    is_usable = _attributes(folder_fd) == attributes
    os.close(folder_fd)
    return is_usable


def _attributes(folder_fd: int) -> tuple[object, ...]:
    """What can be set of a folder beside mode and times: extended attributes, and flags."""
    import fcntl

    flags = 0
    with suppress(OSError):
        found = fcntl.ioctl(folder_fd, FS_IOC_GETFLAGS, bytes(FLAGS_BYTES))
        flags = int.from_bytes(found, sys.byteorder) & ~FLAGS_OF_FORMAT
    extended: list[tuple[str, bytes]] = []
    with suppress(OSError):
        names = sorted(os.listxattr(folder_fd))
        extended = [(name, os.getxattr(folder_fd, name)) for name in names]
    return flags, extended


def _move_out(paths: set[str], here_fd: int, old_fd: int, name: str) -> None:
    """Move what a candidate has left in the copy to the old folder, under this name and a number.

    A folder can be moved only by an owner who may write to it.
    """
    for number, path in enumerate(paths):
        if os.path.isdir(path) and not os.path.islink(path):
            os.close(open_permitted(path, here_fd))
        os.rename(path, f"{name}.{number}", src_dir_fd=here_fd, dst_dir_fd=old_fd)


def _listed(folder: str) -> list[str]:
    return [os.path.join(folder, name) for name in os.listdir(folder or ".")]


def _paths(record: Record, folder: str) -> list[str]:
    return [os.path.join(folder, name) for name in record[folder]]


def _about(path: str, folder_fd: int | None = None) -> About:
    found = os.stat(path, dir_fd=folder_fd, follow_symlinks=False)
    what = found.st_dev, found.st_ino, found.st_mode, found.st_nlink
    whose = found.st_uid, found.st_gid, found.st_size
    return (*what, *whose, found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns)


def _is_local(folder_fd: int) -> bool:
    """Whether a folder is on one of `LOCAL_FILE_SYSTEMS`."""
    return kernel.file_system(folder_fd) in LOCAL_FILE_SYSTEMS


def _shows_mapped_changes() -> bool:
    """Whether writing through a mapping sets a new time in the working folder, an empty one."""
    with open(TRIAL, "x+b") as file:
        file.write(b"before")
        file.flush()
        os.unlink(TRIAL)
        before = os.fstat(file.fileno()).st_ctime_ns
        with mmap.mmap(file.fileno(), 1) as mapped:
            if not _ticks_after(before) or mapped[0] != ord("b"):
                return False
            mapped[0] = ord("a")
        return os.fstat(file.fileno()).st_ctime_ns > before


def _ticks_after(latest: int) -> bool:
    """Wait until a change in the working folder gets a later time; whether it soon does."""
    end = monotonic() + MAX_TICK_SECONDS
    file_fd = os.open(TRIAL, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.unlink(TRIAL)
    while os.fstat(file_fd).st_ctime_ns <= latest:
        if monotonic() > end:
            return False
        sleep(PAUSE_SECONDS)
        os.utime(file_fd)
    return True

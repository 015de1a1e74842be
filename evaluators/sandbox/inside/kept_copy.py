"""A copy of a folder that one candidate after the other gets, restored in between.

Where no overlay can be mounted, copying 10,000 files takes seconds for each candidate. Here the
copy stays. When a candidate and all its processes have ended, what has the same inode, size, mode
and times as before is moved to the folder of the next one. Everything else is copied again, and
what was added is left behind.

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
from contextlib import suppress
from functools import partial
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

About = tuple[int, ...]
"""Device, inode, mode, links, owners, size and times of a file, folder or link."""

Record = dict[str, dict[str, About]]
"""What is in each folder by name, each folder after the one that holds it; the first is ''."""

SAME, CHANGED, GONE = 0, 1, 2
"""States of a folder: it and all in it are as recorded; something of it may be; nothing is used."""


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
        return self._make(record, dict.fromkeys(record, GONE), set(), folder_fd)

    def _restore(self, old_fd: int, new_fd: int) -> int:
        size = os.fstat(self._record_fd).st_size
        record: Record = marshal.loads(os.pread(self._record_fd, size, 0))  # noqa: S302  (ours)
        states, same = _compared(record, old_fd)
        if kernel.was_clock_set(self._clock_fd):
            return 1
        os.fchdir(new_fd)
        return self._make(record, states, same, old_fd)

    def _make(self, record: Record, states: dict[str, int], same: set[str], old_fd: int) -> int:
        """Make the copy in the working folder, which is empty, and record it; 0 if it can be kept.

        What is the same is moved from the old folder; there, all folders on the way to it were
        found in their places, so no link is followed.
        """
        remade = [folder for folder in record if states[folder] != SAME]
        here_fd = os.open(".", os.O_PATH)
        for folder in remade:
            if folder:
                os.mkdir(folder, stat.S_IRWXU)
            for path in _paths(record, folder):
                if path in same or states.get(path) == SAME:
                    os.rename(path, path, src_dir_fd=old_fd, dst_dir_fd=here_fd)
                elif path not in record:
                    copy_entry(os.path.join(self._source, path), path)
        latest = 0
        # The time of the last access is after that of the last change, whenever that is: so reading
        # does not set it (relatime), and no candidate sees what another one read.
        times = time_ns() + YEAR_NS, time_ns()
        for folder in reversed(remade):
            for path in _paths(record, folder):
                if path not in same:
                    os.utime(path, ns=times, follow_symlinks=False)
                record[folder][os.path.basename(path)] = about = _about(path)
                latest = max(latest, about[-1])
        if not _ticks_after(latest):
            return 1
        os.ftruncate(self._record_fd, 0)
        os.pwrite(self._record_fd, marshal.dumps(record), 0)
        return 0


def _compared(record: Record, old_fd: int) -> tuple[dict[str, int], set[str]]:
    """The state of each folder, and the paths of the files and links that are as recorded."""
    states, same = {"": CHANGED}, set()
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
            elif about[:2] == before[:2] and stat.S_ISDIR(about[2]):
                states[path] = CHANGED
                os.close(open_permitted(path, old_fd))
            else:
                states[path] = GONE
    for folder in reversed(record):
        above = os.path.dirname(folder)
        if states[folder] != SAME and states[above] == SAME:
            states[above] = CHANGED
    return states, same


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

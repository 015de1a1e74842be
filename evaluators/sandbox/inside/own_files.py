"""A file system of a slot's own, in memory: the most that its candidates can hold in files.

Only the slot's processes see it, so a program can neither hide files from its size nor leave any
where others look. Runs in the sandbox, loaded by path.
"""

import os
from contextlib import suppress

from costada.evaluators.sandbox.inside import walls
from costada.evaluators.sandbox.inside.home import Home
from costada.evaluators.sandbox.inside.leavings import MAX_FILES

CLONE_NEWNS = 0x00020000
MS_NOSUID, MS_NODEV, MS_REC, MS_SLAVE, MNT_DETACH = 0x2, 0x4, 0x4000, 0x80000, 2
MAX_INODES = 2 * MAX_FILES
"""Above the number that the watch over files allows, so that the watch reports it first."""


class OwnFiles:
    """The folder of a slot, with a file system in it where the system lets this user mount one.

    Elsewhere, in containers mostly, the folder is as it is, and the watch alone bounds its files.

    Attributes:
        home: The folder that holds the scratch folder.
        is_mounted: Whether it has a file system of its own.
    """

    def __init__(self, folder: str, megabytes: int) -> None:
        """Mount the file system, seen by this process and its children; none of size 0.

        Raises:
            OSError: If the folder cannot be opened.
        """
        self._below = Home(folder)
        self.is_mounted = megabytes > 0 and _is_mounted(folder, megabytes)
        self.home = Home(folder) if self.is_mounted else self._below

    def remove(self) -> None:
        """Remove the folder with all that is in it.

        Raises:
            OSError: If something cannot be deleted.
        """
        if self.is_mounted:
            with walls.with_power(walls.CAP_SYS_ADMIN):
                walls.LIBC.umount2(os.fsencode(self.home.descriptor_path), MNT_DETACH)
            self.home.close()
        self._below.remove()


def _is_mounted(folder: str, megabytes: int) -> bool:
    """Mount the file system if a fork of this process can; return whether that is done."""
    if not walls.IS_LINUX:
        return False
    number = os.fork()
    if number == 0:
        try:
            _mount(folder, megabytes)
            os._exit(0)
        finally:
            os._exit(1)
    if os.waitpid(number, 0)[1] != 0:
        return False
    with suppress(OSError):  # where this process, but not its fork, has several threads
        _mount(folder, megabytes)
        return True
    return False


def _mount(folder: str, megabytes: int) -> None:
    """Mount it in a mount namespace, and that in a user namespace if this user must.

    Raises:
        OSError: If the system refuses.
    """
    walls.unshare(CLONE_NEWNS)
    walls.checked(walls.LIBC.mount(None, b"/", None, MS_REC | MS_SLAVE, None))
    options = f"size={megabytes}m,nr_inodes={MAX_INODES},mode=700".encode()
    place, flags = os.fsencode(folder), MS_NOSUID | MS_NODEV
    walls.checked(walls.LIBC.mount(b"costada", place, b"tmpfs", flags, options))

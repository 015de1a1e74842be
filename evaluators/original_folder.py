"""The folder of which candidates get clean copies, as a copy of a repository itself.

It lies in the problem folder, named by the hash of its files, and stays for the next run. A lock is
held on it while a process uses it; the kernel releases that when the process ends, in whatever way,
and the next process that makes such a folder removes those that none uses.
"""

import fcntl
import os
import shutil
from collections.abc import Collection
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from math import ceil
from pathlib import Path, PurePosixPath
from threading import Lock
from time import sleep

from costada.evaluators.repository_files import RepositoryFiles, files_hash, whole_tree
from costada.evaluators.sandbox.inside.file_copies import copy_file
from costada.evaluators.sandbox.inside.orders import HOME, REPOSITORY
from costada.evaluators.sandbox.limits import MEBIBYTE
from costada.evaluators.sandbox.slot_kind import Original

HIDDEN_FOLDER, ORIGINALS = ".costada", "originals"
"""Where it is in the problem folder; hidden, so that it counts as none of the problem's files."""

LOCK_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
BLOCK_BYTES = 4096
MAX_TRIES = 600
WAIT_SECONDS = 0.1

_making = Lock()
_made: dict[Path, Original] = {}


@dataclass(frozen=True, slots=True)
class Base:
    """The files of a repository that no candidate changes.

    Attributes:
        repository: All files.
        paths: Those that count.
        folders: The folders around them, and around links.
        digest: Hash of those files and of the links.
    """

    repository: RepositoryFiles
    paths: frozenset[str]
    folders: frozenset[str]
    digest: str

    def conflict(self, path: str) -> str | None:
        """Why a candidate can have no file at a path; None if it can."""
        if path in self.folders:
            return f"{path!r} is a folder of the repository"
        for place in map(str, (PurePosixPath(path), *PurePosixPath(path).parents)):
            if place in self.repository.links:
                return f"{path!r} is at or below {place!r}, a link of the repository"
            if place in self.paths:
                return f"{path!r} is at or below {place!r}, a file that no candidate changes"
        return None

    def original(self, folder: Path) -> Original:
        """The folder that copies are made of; makes it in a problem folder if it is not there.

        Raises:
            OSError: If it cannot be made.
            ValueError: If the repository has changed since the problem was loaded, or a link is
                where a folder is to be.
        """
        place = hidden_folder(folder, ORIGINALS) / self.digest[:32]
        with _making:
            if place not in _made or _made[place].identity != _identity(place):
                self._make(place)
                _remove_unused(place.parent)
                _made[place] = self._described(place)
            return _made[place]

    def _make(self, place: Path) -> None:
        """Make the folder unless it is there, and keep a lock on it until this process ends.

        A lock counts only while its file is at its path: the process that removes the folder
        removes the file too. Changing the kind of a lock gives it up for a moment, so that a
        folder that was just made is looked at again.
        """
        if place.is_symlink():
            place.unlink()
        lock = place.with_name(f"{place.name}.lock")
        for _ in range(MAX_TRIES):
            with ExitStack() as unless_kept:
                lock_fd = os.open(lock, os.O_CREAT | LOCK_FLAGS, 0o600)
                unless_kept.callback(os.close, lock_fd)
                fcntl.flock(lock_fd, fcntl.LOCK_SH)
                if not _is_at(lock_fd, lock):
                    continue
                if _is_as_made(place) and _hash_of(place / REPOSITORY) == self.digest:
                    unless_kept.pop_all()
                    return
                with suppress(BlockingIOError):
                    fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if _is_at(lock_fd, lock):
                        self._copy(place)
                    continue
            sleep(WAIT_SECONDS)
        raise RuntimeError(
            f"{place} was changed while another process uses it; end that process, or remove it"
        )

    def _copy(self, place: Path) -> None:
        """Copy the files, and make sure that they are those that were hashed."""
        shutil.rmtree(place, ignore_errors=True)
        (place / HOME).mkdir(parents=True)
        inner = place / REPOSITORY
        inner.mkdir()
        for path in (*self.paths, *self.repository.links):
            (inner / path).parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            for path in self.paths:
                copy_file(str(self.repository.root / path), str(inner / path))
        for path, target in self.repository.links.items():
            (inner / path).symlink_to(target)
        if _hash_of(inner) != self.digest:
            shutil.rmtree(place, ignore_errors=True)
            raise ValueError(
                f"{self.repository.root}: its files have changed since the problem was loaded;"
                " expected them to stay until the run begins"
            )

    def _described(self, place: Path) -> Original:
        sizes = [ceil(self.repository.files[path] / BLOCK_BYTES) for path in self.paths]
        return Original(
            path=str(place),
            num_files=len(self.paths) + len(self.repository.links) + len(self.folders),
            megabytes=ceil(sum(sizes) * BLOCK_BYTES / MEBIBYTE),
            identity=_identity(place),
        )


def base_of(repository: RepositoryFiles, changed: Collection[str]) -> Base:
    """The files of a repository other than those that candidates may change.

    Raises:
        OSError: If a file cannot be read.
    """
    paths = frozenset(repository.files).difference(changed)
    around = (PurePosixPath(path).parents for path in (*paths, *repository.links))
    folders = frozenset(str(each) for parents in around for each in parents)
    digest = files_hash(repository.root, paths, repository.links)
    return Base(repository, paths, folders, digest)


def hidden_folder(folder: Path, name: str) -> Path:
    """A folder for what is kept in a problem folder; makes it if it is not there.

    Raises:
        OSError: If it cannot be made.
        ValueError: If it is a link, which would have files changed elsewhere.
    """
    hidden = folder / HIDDEN_FOLDER
    for place in (hidden, hidden / name):
        if place.is_symlink():
            raise ValueError(f"{place} is a link; expected a folder, or nothing")
        place.mkdir(exist_ok=True)
    with suppress(FileExistsError), open(hidden / ".gitignore", "x") as file:
        file.write("*\n")
    return hidden / name


def _identity(place: Path) -> tuple[int, int]:
    with suppress(FileNotFoundError):
        about = place.stat()
        return about.st_dev, about.st_ino
    return 0, 0


def _is_as_made(place: Path) -> bool:
    """Whether a folder holds what `_copy` makes: it may have come with the problem folder."""
    if not place.is_dir():
        return False
    with os.scandir(place) as entries:
        found = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
    return found == {HOME: True, REPOSITORY: True} and not os.listdir(place / HOME)


def _hash_of(folder: Path) -> str:
    """Hash of all that is in a folder; of what is not there, that of nothing."""
    if not folder.is_dir():
        return ""
    tree = whole_tree(folder)
    return files_hash(folder, tree.files, tree.links)


def _remove_unused(places: Path) -> None:
    """Remove the folders that no process uses, while others may do the same."""
    for lock in places.glob("*.lock"):
        with suppress(FileNotFoundError, BlockingIOError), ExitStack() as stack:
            lock_fd = os.open(lock, LOCK_FLAGS)
            stack.callback(os.close, lock_fd)
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(lock_fd, lock):
                shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                lock.unlink()


def _is_at(file_fd: int, path: Path) -> bool:
    """Whether a path still leads to an open file."""
    about = os.fstat(file_fd)
    return _identity(path) == (about.st_dev, about.st_ino)

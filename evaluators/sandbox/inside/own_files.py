"""The files of an evaluator as they were when the evaluation began."""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

Stamp = list[int]
"""Size, and when it was written to in nanoseconds."""


class OwnFiles:
    """The files of an evaluator, and the folders that hold them.

    A file that was written to since is none of them any more: it may be a copy of the candidate.
    It stays one that they began with, until the evaluator removes it.
    """

    def __init__(self, folder: str, evaluator: str, stamps: Mapping[str, Stamp | None]) -> None:
        """Take what the files were.

        Args:
            folder: The folder of them all.
            evaluator: The evaluator's own file.
            stamps: The files, or further folders, as `stamps_of` saw them.
        """
        self._stamps = {**stamps}
        for path in [*self._stamps]:
            self._stamps |= dict.fromkeys(_folders_around(path, folder))
        self.around = frozenset(_folders_around(evaluator, folder))
        """The folders that hold the evaluator: who may read them reads all."""
        self._stamps |= dict.fromkeys(self.around)

    @property
    def folders(self) -> list[str]:
        """The folders that hold them."""
        return [path for path, stamp in self._stamps.items() if stamp is None]

    def __contains__(self, path: object, /) -> bool:
        """Whether a path is a file or a folder of the evaluator, as it was."""
        if not isinstance(path, str) or path not in self._stamps:
            return False
        return _stamp(path) == self._stamps[path]

    def unchanged(self) -> Iterator[str]:
        """The files and folders that are as they were."""
        return (path for path in self._stamps if path in self)

    def began_with(self, path: str) -> bool:
        """Whether a path was the evaluator's, and is there since, whatever was written to it."""
        return path in self._stamps

    def forget_removed(self) -> None:
        """Leave out what the evaluator has removed: what is made there later is not its own."""
        self._stamps = {
            path: stamp for path, stamp in self._stamps.items() if not _is_removed(path)
        }


def stamps_of(paths: Iterable[str]) -> dict[str, Stamp | None]:
    """What shows later whether files were written to, by their paths."""
    return {path: _stamp(path) for path in paths}


def entries_below(folder: str) -> Iterator[os.DirEntry[str]]:
    """What is in a folder and those below, as far as it can be listed; no link is followed."""
    # A candidate may have made it: `os.walk` fails where folders are nested deeply.
    folders = [folder]
    for each in folders:
        with suppress(OSError), os.scandir(each) as entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)


def _folders_around(path: str, folder: str) -> list[str]:
    found = []
    while (path := os.path.dirname(path)).startswith(folder):
        found.append(path)
    return found


def _is_removed(path: str) -> bool:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # a folder around it is locked
        return False
    return False


def _stamp(path: str) -> Stamp | None:
    """What shows that a file was written to; None of a folder."""
    try:
        about = os.stat(path)
    except OSError:
        return [-1, -1]
    return None if stat.S_ISDIR(about.st_mode) else [about.st_size, about.st_mtime_ns]

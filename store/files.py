"""Files of a folder that somebody else may have filled: read within bounds, never through a link.

Whatever is written is readable by its owner only and gets a fresh name, which takes the place of
the old file at the end. So a link in the folder is replaced, and what it leads to stays as it is.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, BufferedWriter
from pathlib import Path
from secrets import token_hex
from typing import IO

OWNER_ONLY_FILE, OWNER_ONLY_FOLDER = 0o600, 0o700
UNFINISHED = "part"
LARGEST_FILE = 2**24
"""Bytes of a file that is read as a whole, if its reader knows no lower bound."""


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an error of the system say which file it is about: that of a full disk does not."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents for their owner only; an empty one becomes so.

    Raises:
        OSError: If that is not possible.
    """
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for folder in reversed(missing):
        folder.mkdir(OWNER_ONLY_FOLDER, exist_ok=True)
    if not missing and path.stat().st_uid == os.geteuid() and not any(path.iterdir()):
        path.chmod(OWNER_ONLY_FOLDER)


@contextmanager
def replacing(path: Path) -> Iterator[BufferedWriter]:
    """Lend a new file that takes the place of `path` when the block succeeds.

    A reader sees either the old file or the new one, never a part. Raises `OSError` naming the
    file when it cannot be written, or is a device, a pipe or a folder.
    """
    if path.exists() and not path.is_file():
        raise FileExistsError(errno.EEXIST, "is no ordinary file, expected one", str(path))
    with naming(path), _unfinished(path) as part:
        with created(part) as file:
            yield file
        os.replace(part, path)


def replace_text(path: Path, text: str) -> None:
    """Write a text in place of a file, as `replacing` does."""
    with replacing(path) as file:
        file.write(text.encode("utf-8", "surrogatepass"))


def create_text(path: Path, text: str) -> None:
    """Write a text to a file that must not exist yet, all of it at once.

    Raises:
        FileExistsError: If there is one, or a link.
        OSError: If it cannot be written.
    """
    with naming(path), _unfinished(path) as part:
        with created(part) as file:
            file.write(text.encode("utf-8"))
        os.link(part, path)


def append_text(path: Path, text: str) -> None:
    """Add a text to a file of ours; raises `OSError` if it is a link or cannot be written."""
    with naming(path), _opened(path, os.O_APPEND) as file:
        file.write(text.encode("utf-8"))


def opened_to_share(path: Path) -> IO[str]:
    """A file that several processes may open, for reading and writing; created if need be.

    Raises:
        ValueError: If it is a link, has another name elsewhere, or is no file.
        OSError: If it cannot be opened.
    """
    if path.is_symlink():
        raise ValueError(f"{path}: is a link, expected a file of this folder's own; remove it")
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with naming(path):
        descriptor = os.open(path, flags, OWNER_ONLY_FILE)
    found = os.fstat(descriptor)
    if found.st_nlink > 1 or not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise ValueError(f"{path}: expected a file with one name only; remove it")
    return open(descriptor, "r+", encoding="utf-8")


def created(path: Path) -> BufferedWriter:
    """A new file, open for writing; raises `OSError` if something has its name."""
    return _opened(path, os.O_EXCL)


def remove_unfinished(path: Path) -> None:
    """Remove what killed processes left beside a file that they were writing."""
    for part in path.parent.glob(f".{path.name}.*.{UNFINISHED}"):
        part.unlink(missing_ok=True)


def read_bytes(path: Path, largest: int = LARGEST_FILE) -> bytes:
    """What an ordinary file holds.

    Raises:
        ValueError: If it is larger than so many bytes, or no file: a pipe could keep its reader
            waiting for ever.
        OSError: If it cannot be read.
    """
    with naming(path), _opened_to_read(path) as file:
        found = file.read(largest + 1)
    if len(found) > largest:
        raise ValueError(f"{path}: larger than {largest:,} bytes, which no such file needs")
    return found


def read_end(path: Path, length: int) -> str:
    """At most so many bytes from the end of a text.

    Raises:
        ValueError: If it is no ordinary file.
        OSError: If it cannot be read.
    """
    with naming(path), _opened_to_read(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - length))
        return file.read(length).decode("utf-8", "replace")


def read_text(path: Path, largest: int = LARGEST_FILE) -> str:
    """The text of a file, as `read_bytes` does; also raises `ValueError` if it is none."""
    try:
        return read_bytes(path, largest).decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is no text in UTF-8") from None


@contextmanager
def _unfinished(path: Path) -> Iterator[Path]:
    """Lend a fresh name beside a file; whatever has it after the block is removed."""
    part = path.with_name(f".{path.name}.{token_hex(8)}.{UNFINISHED}")
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)


def _opened_to_read(path: Path) -> BufferedReader:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(f"{path}: is no ordinary file")
    return open(descriptor, "rb")


def _opened(path: Path, how: int) -> BufferedWriter:
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | how
    return open(os.open(path, flags, OWNER_ONLY_FILE), "wb")

"""Files of an untrusted folder: bounded reads, and owner-only atomic writes that follow no links.

A file is written under a fresh name that replaces the old one at the end, so a link in the folder
is replaced and its target stays as it is.
"""

import errno
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader, BufferedWriter
from pathlib import Path
from secrets import token_hex
from typing import IO

OWNER_ONLY_FILE, OWNER_ONLY_FOLDER = 0o600, 0o700
UNFINISHED = "part"
MAX_FILE = 2**24
"""Bytes of a file that is read as a whole, if its reader knows no lower bound."""


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in an `OSError`; that of a full disk has no name, others name the part."""
    try:
        yield
    except OSError as error:
        part = str(path.with_name(f".{path.name}."))
        if not error.filename or str(error.filename).startswith(part):
            error.filename = str(path)
        raise


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents, owner-only; an empty one becomes owner-only."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for folder in reversed(missing):
        try:
            folder.mkdir(OWNER_ONLY_FOLDER, exist_ok=True)
        except OSError as error:
            reason = f"cannot be created ({error.strerror})"
            raise OSError(error.errno, reason, str(folder)) from error
    if not missing and path.stat().st_uid == os.geteuid() and not any(path.iterdir()):
        path.chmod(OWNER_ONLY_FOLDER)


def result_folder(path: Path) -> None:
    """Create a folder for results and its missing parents; raises `ValueError` if it is a file."""
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path}: is a file, expected a folder")
    path.mkdir(parents=True, exist_ok=True)


def sync_folder(folder: Path) -> None:
    """Bring the names of new files to the disk: on some file systems they are lost without this."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def replacing(path: Path) -> Iterator[BufferedWriter]:
    """Open a new file that replaces `path` atomically when the block succeeds.

    Raises `OSError` naming the file when it cannot be written, or is a device, pipe or folder.
    """
    if path.exists() and not path.is_file():
        raise FileExistsError(errno.EEXIST, "is not a regular file", str(path))
    with naming(path), _unfinished(path) as part:
        with create_file(part) as file:
            yield file
        os.replace(part, path)


def replace_text(path: Path, text: str) -> None:
    """Replace a file by a text, as `replacing` does."""
    with replacing(path) as file:
        file.write(text.encode("utf-8", "surrogatepass"))


def replace_folder(path: Path, files: Mapping[str, str]) -> None:
    """Replace a folder by one with these files; a link in its place is replaced, not followed.

    A process that dies in between may leave no folder, and partial ones that `remove_unfinished`
    removes. Raises `OSError` naming what cannot be written, or `path` if a file is there.
    """
    if path.exists() and not path.is_dir() and not path.is_symlink():
        raise FileExistsError(errno.EEXIST, "is not a folder", str(path))
    with naming(path), _unfinished(path) as part, _unfinished(path) as old:
        make_folder(part)
        for name, text in files.items():
            make_folder((part / name).parent)
            with create_file(part / name) as file:
                file.write(text.encode("utf-8", "surrogatepass"))
        is_there = path.is_symlink() or path.exists()
        if is_there:
            os.rename(path, old)  # a folder with files in it cannot be replaced in one step
        try:
            os.rename(part, path)
        except BaseException:  # raised again: the old folder would be removed with its new name
            if is_there:
                os.rename(old, path)
            raise


def create_text(path: Path, text: str) -> None:
    """Write a text atomically to a file that must not exist, not even as a link."""
    with naming(path), _unfinished(path) as part:
        with create_file(part) as file:
            file.write(text.encode("utf-8"))
        # A rename would replace what is there; a link fails.
        os.link(part, path)


def append_text(path: Path, text: str) -> None:
    """Append a text to a file; raises `OSError` if it is a link or cannot be written."""
    with naming(path), _opened(path, os.O_APPEND) as file:
        file.write(text.encode("utf-8"))


def open_shared(path: Path) -> IO[str]:
    """Open a file for several processes to read and write; creates it if necessary.

    Raises `ValueError` if it is a link, has a second name, or is not an ordinary file.
    """
    if path.is_symlink():
        raise ValueError(f"{path}: is a link, expected a file of this folder's own; remove it")
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with naming(path):
        descriptor = os.open(path, flags, OWNER_ONLY_FILE)
    found = os.fstat(descriptor)
    # With a second name, a file elsewhere would be written through this one.
    if found.st_nlink > 1 or not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise ValueError(f"{path}: expected a file with one name only; remove it")
    return open(descriptor, "r+", encoding="utf-8")


def create_file(path: Path) -> BufferedWriter:
    """A new file, open for writing; raises `OSError` if its name exists."""
    return _opened(path, os.O_EXCL)


def remove_unfinished(path: Path) -> None:
    """Remove partial files and folders that killed processes left beside a file or folder."""
    for part in path.parent.glob(f".{path.name}.*.{UNFINISHED}"):
        _remove(part)


def _remove(path: Path) -> None:
    """Remove a file, a link or a folder, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def read_bytes(path: Path, largest: int = MAX_FILE) -> bytes:
    """Contents of an ordinary file.

    Raises `ValueError` if it is larger than so many bytes or not an ordinary file: reading a pipe
    could block for ever.
    """
    with naming(path), _opened_to_read(path) as file:
        found = file.read(largest + 1)
    if len(found) > largest:
        raise ValueError(f"{path}: larger than {largest:,} bytes, which no such file needs")
    return found


def read_end(path: Path, length: int) -> str:
    """At most so many bytes from the end of a text; raises as `read_bytes` does."""
    with naming(path), _opened_to_read(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - length))
        return file.read(length).decode("utf-8", "replace")


def read_text(path: Path, largest: int = MAX_FILE) -> str:
    """Text of a file, read as by `read_bytes`; raises `ValueError` if it is not UTF-8."""
    try:
        return read_bytes(path, largest).decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is not UTF-8 text") from None


@contextmanager
def _unfinished(path: Path) -> Iterator[Path]:
    """A fresh name beside a file or folder, removed after the block if it still exists."""
    part = path.with_name(f".{path.name}.{token_hex(8)}.{UNFINISHED}")
    try:
        yield part
    finally:
        _remove(part)


def _opened_to_read(path: Path) -> BufferedReader:
    # Without O_NONBLOCK, opening a pipe waits for a writer. The type is that of what was opened, as
    # the name may stand for something else by now.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(f"{path}: is not a regular file")
    return open(descriptor, "rb")


def _opened(path: Path, how: int) -> BufferedWriter:
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | how
    return open(os.open(path, flags, OWNER_ONLY_FILE), "wb")

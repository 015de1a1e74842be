"""The files of a problem folder as one archive, and the folder that a worker makes of it.

An archive is named by the hash of its files, their names and contents. A worker keeps the folders
that it has made, each under that name, and checks the hash whenever a process begins to use one.
"""

import io
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from tempfile import mkdtemp
from time import time

from costada.evaluators.folder_files import MAX_BYTES, MAX_FILES, content_files

CACHE_FOLDER = "XDG_CACHE_HOME"
"""Variable that names the folder of the user's caches; `~/.cache` where it does not."""

LARGEST_CACHE = 4 * 2**30
UNUSED_SECONDS = 24 * 3600.0
"""A folder that was used within this time is never removed: a process may still need it."""

FAST = 1
EXECUTABLE, PLAIN = 0o755, 0o644


@dataclass(frozen=True, slots=True)
class Bundle:
    """Files that a worker needs.

    Attributes:
        digest: Hash of the names and contents.
        archive: The files, compressed.
        folder: The problem folder, relative to the outermost folder in the archive.
    """

    digest: str
    archive: bytes
    folder: str


def bundle(folder: Path, others: tuple[Path, ...]) -> Bundle:
    """The files of a problem folder, and other files that its evaluator uses.

    Hidden files, and those that Python and runs leave behind, stay out.

    Raises:
        ValueError: If there are more files or bytes than can be sent.
    """
    outside = [path for path in others if not path.is_relative_to(folder)]
    root = Path(os.path.commonpath([folder, *(path.parent for path in outside)]))
    own = [(str((folder / name).relative_to(root)), file) for name, file in content_files(folder)]
    files = dict(sorted([*own, *((str(path.relative_to(root)), path) for path in outside)]))
    size = sum(file.stat().st_size for file in files.values())
    if len(files) > MAX_FILES or size > MAX_BYTES:
        raise ValueError(
            f"{folder} holds {len(files):,} files of {size:,} bytes; expected at most"
            f" {MAX_FILES:,} files of {MAX_BYTES:,} bytes to send to workers"
        )
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, file in files.items():
            content = file.read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = EXECUTABLE if os.access(file, os.X_OK) else PLAIN
            archive.addfile(entry, io.BytesIO(content))
    return Bundle(
        digest=_digest(files),
        archive=zlib.compress(written.getvalue(), FAST),
        folder=str(folder.relative_to(root)),
    )


def unpacked(digest: str, archive: bytes | None) -> Path | None:
    """The folder of a bundle on this machine, made of its archive if it is not there.

    Returns:
        The outermost folder; None if it is not there, or not as it should be, and no archive came.

    Raises:
        ValueError: If the archive is not that of the hash.
        OSError: If the folder cannot be made.
    """
    cache = cache_folder()
    place = cache / digest
    if place.is_dir():
        if _digest(dict(content_files(place))) == digest:
            touch(digest)
            return place
        shutil.rmtree(place, ignore_errors=True)
    if archive is None:
        return None
    _remove_unused(cache)
    made = Path(mkdtemp(prefix="unfinished-", dir=cache))
    try:
        _extract(archive, made)
        if (found := _digest(dict(content_files(made)))) != digest:
            raise ValueError(f"the problem's files have the hash {found}; expected {digest}")
        with suppress(OSError):  # another process was faster
            made.rename(place)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return place


def touch(digest: str) -> None:
    """Note that a folder is in use."""
    with suppress(FileNotFoundError):
        os.utime(cache_folder() / digest)


def cache_folder() -> Path:
    """The private folder of this machine for the files of problems.

    Raises:
        OSError: If it cannot be made.
    """
    given = os.environ.get(CACHE_FOLDER) or "~/.cache"
    folder = Path(given).expanduser() / "costada" / "problems"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.stat()
    if about.st_uid != os.geteuid() or about.st_mode & 0o022:
        raise OSError(f"{folder} can be written by other users; expected a folder of this user")
    return folder


def _extract(archive: bytes, folder: Path) -> None:
    """Write the files of an archive, none of them outside of the folder."""
    with tarfile.open(fileobj=io.BytesIO(zlib.decompress(archive))) as opened:
        for entry in opened:
            path = PurePosixPath(entry.name)
            content = opened.extractfile(entry) if entry.isreg() else None
            if content is None or path.is_absolute() or ".." in path.parts:
                raise ValueError(f"the problem's files have {entry.name!r}; expected a file below")
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as file:
                shutil.copyfileobj(content, file)
            target.chmod(EXECUTABLE if entry.mode & 0o100 else PLAIN)


def _digest(files: dict[str, Path]) -> str:
    """Hash of files by name, of their contents and of whether they are programs."""
    whole = sha256()
    for name, file in sorted(files.items()):
        is_program = bytes([os.access(file, os.X_OK)])
        whole.update(sha256(os.fsencode(name)).digest() + sha256(file.read_bytes()).digest())
        whole.update(is_program)
    return whole.hexdigest()


def _remove_unused(cache: Path) -> None:
    """Remove the folders that were not used for longest, while all are larger than allowed."""
    found = sorted(_folders(cache))
    total = sum(size for _, size, _ in found)
    for used, size, folder in found:
        if total <= LARGEST_CACHE or time() - used < UNUSED_SECONDS:
            return
        shutil.rmtree(folder, ignore_errors=True)
        total -= size


def _folders(cache: Path) -> Iterator[tuple[float, int, Path]]:
    """Each folder of the cache with the time of its last use, and its size in bytes."""
    for folder in cache.iterdir():
        with suppress(OSError):
            size = sum(file.stat().st_size for _, file in content_files(folder))
            yield folder.stat().st_mtime, size, folder

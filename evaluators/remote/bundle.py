"""The files of a problem as one archive, and the folder that a worker extracts it to.

An archive is named by the hash of its files, their names and contents. A worker keeps the folders
that it has made, each under that name, and checks the hash whenever a process begins to use one.
"""

import io
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from stat import S_IXUSR
from tempfile import mkdtemp
from time import time

from costada.evaluators.folder_files import MAX_BYTES, MAX_FILES, content_files
from costada.evaluators.folder_layout import TASK_FILE
from costada.evaluators.folder_settings import SETTINGS_FILE
from costada.evaluators.repository_files import RepositoryFiles, whole_tree
from costada.evaluators.shown_paths import read_shown, unshown_reason

CACHE_FOLDER = "XDG_CACHE_HOME"
"""Variable that names the folder of the user's caches; `~/.cache` where it does not."""

MAX_CACHE_BYTES = 4 * 2**30
UNUSED_SECONDS = 24 * 3600.0
"""A folder that was used within this time is never removed: a process may still need it."""

REPOSITORY = ".repository"
"""Where the files of a repository are in an archive; no other hidden folder is ever sent."""

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
        ValueError: If there are more files or bytes than can be sent, or one that may not be shown:
            a worker would leave it out, or it is none of the folder.
    """
    outside = [path for path in others if not path.is_relative_to(folder)]
    root = Path(os.path.commonpath([folder, *(path.parent for path in outside)]))
    _check(folder, root)
    files = {}
    for name, file in content_files(folder):
        _check(file, folder)
        files[str((folder / name).relative_to(root))] = file
    for path in outside:
        _check(path, root)
        files[str(path.relative_to(root))] = path
    return _packed(folder, root, dict(sorted(files.items())), {})


def repository_bundle(folder: Path, repository: RepositoryFiles) -> Bundle:
    """The files of a repository, with the task and the settings of its problem folder.

    Raises:
        ValueError: If there are more files or bytes than can be sent.
        OSError: If a file cannot be read.
    """
    files = {f"{REPOSITORY}/{path}": repository.root / path for path in repository.files}
    files |= {name: folder / name for name in (TASK_FILE, SETTINGS_FILE)}
    links = {f"{REPOSITORY}/{path}": target for path, target in repository.links.items()}
    return _packed(folder, folder, files, links, repository.root)


def _packed(
    folder: Path, root: Path, files: Mapping[str, Path], links: Mapping[str, str], *others: Path
) -> Bundle:
    """Pack files and links by their names.

    `root` is the outermost folder in the archive; all files are below it, or below the others.
    """
    size = sum(file.stat().st_size for file in files.values())
    if len(files) + len(links) > MAX_FILES or size > MAX_BYTES:
        raise ValueError(
            f"{folder} needs {len(files) + len(links):,} files of {size:,} bytes; expected at most"
            f" {MAX_FILES:,} files of {MAX_BYTES:,} bytes to send to workers"
        )
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, file in files.items():
            content = read_shown(file, root, *others, with_hidden=True)
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = EXECUTABLE if _is_program(file) else PLAIN
            archive.addfile(entry, io.BytesIO(content))
        for name, target in links.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    return Bundle(
        digest=_digest(files, links),
        archive=zlib.compress(written.getvalue(), FAST),
        folder=str(folder.relative_to(root)),
    )


def _check(file: Path, folder: Path) -> None:
    """Refuse a file that may not be shown."""
    if reason := unshown_reason(file, folder):
        raise ValueError(
            f"{file} {reason}; it cannot be sent to workers, expected a file or a copy below"
            f" {folder} that is not hidden"
        )


def unpacked(digest: str, archive: bytes | None) -> Path | None:
    """The folder of a bundle on this machine, extracted from its archive if it is missing.

    Returns:
        The outermost folder; None if it is missing or damaged and no archive is given.

    Raises:
        ValueError: If the archive has another hash.
        OSError: If the folder cannot be made.
    """
    cache = cache_folder()
    place = cache / digest
    if place.is_dir():
        if _digest_of(place) == digest:
            touch(digest)
            return place
        shutil.rmtree(place, ignore_errors=True)
    if archive is None:
        return None
    _remove_unused(cache)
    made = Path(mkdtemp(prefix="unfinished-", dir=cache))
    try:
        _extract(archive, made)
        if (found := _digest_of(made)) != digest:
            raise ValueError(f"the problem's files have the hash {found}; expected {digest}")
        try:
            made.rename(place)
        except OSError:  # another process was faster, or the folder cannot be replaced
            if _digest_of(place) != digest:
                raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return place


def touch(digest: str) -> bool:
    """Mark a folder as used now; False if it has been removed."""
    try:
        os.utime(cache_folder() / digest)
    except FileNotFoundError:
        return False
    return True


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
    links: dict[Path, str] = {}
    with tarfile.open(fileobj=io.BytesIO(zlib.decompress(archive))) as opened:
        for entry in opened:
            path = PurePosixPath(entry.name)
            if entry.issym() and _stays_inside(path, entry.linkname):
                links[folder / path] = entry.linkname
                continue
            content = opened.extractfile(entry) if entry.isreg() else None
            if content is None or path.is_absolute() or ".." in path.parts:
                raise ValueError(f"the problem's files have {entry.name!r}; expected a file below")
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as file:
                shutil.copyfileobj(content, file)
            target.chmod(EXECUTABLE if entry.mode & 0o100 else PLAIN)
    for link, leads_to in links.items():  # last, so that no file is written through one
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(leads_to)


def _stays_inside(path: PurePosixPath, target: str) -> bool:
    """Whether a link in an archive is in the repository and leads to something in it."""
    end = PurePosixPath(os.path.normpath(path.parent / target))
    is_plain = ".." not in path.parts and not target.startswith("/")
    return is_plain and path.is_relative_to(REPOSITORY) and end.is_relative_to(REPOSITORY)


def _digest_of(folder: Path) -> str:
    """Hash of the files that were sent, without those that evaluations have created."""
    tree = whole_tree(folder / REPOSITORY)
    inner = {f"{REPOSITORY}/{path}": tree.root / path for path in tree.files}
    links = {f"{REPOSITORY}/{path}": target for path, target in tree.links.items()}
    return _digest({**dict(content_files(folder)), **inner}, links)


def _is_program(file: Path) -> bool:
    return bool(file.stat().st_mode & S_IXUSR)


def _digest(files: Mapping[str, Path], links: Mapping[str, str]) -> str:
    """Hash of files by name, of their contents and of whether they are programs, and of links."""
    whole = sha256()
    for name, file in sorted(files.items()):
        whole.update(sha256(os.fsencode(name)).digest() + sha256(file.read_bytes()).digest())
        whole.update(bytes([_is_program(file)]))
    whole.update(b"links")
    for name, target in sorted(links.items()):
        whole.update(sha256(os.fsencode(name)).digest() + sha256(os.fsencode(target)).digest())
    return whole.hexdigest()


def _remove_unused(cache: Path) -> None:
    """Remove the folders that were not used for longest, while all are larger than allowed."""
    found = sorted(_folders(cache))
    total = sum(size for _, size, _ in found)
    for used, size, folder in found:
        if total <= MAX_CACHE_BYTES or time() - used < UNUSED_SECONDS:
            return
        shutil.rmtree(folder, ignore_errors=True)
        total -= size


def _folders(cache: Path) -> Iterator[tuple[float, int, Path]]:
    """Each folder of the cache with the time of its last use, and its size in bytes."""
    for folder in cache.iterdir():
        with suppress(OSError):
            size = sum(whole_tree(folder).files.values())
            yield folder.stat().st_mtime, size, folder

"""The content of files that an evaluator may load, as one hash."""

import json
import os
from collections.abc import Iterator
from functools import lru_cache
from hashlib import file_digest, sha256
from pathlib import Path
from stat import S_ISREG

MAX_FILES = 10_000
MAX_BYTES = 256 * 2**20
"""Most files and bytes of one folder that are read; beyond, its content counts as unknown."""

OUTPUT_FOLDERS = {"__pycache__", "runs-out"}
OUTPUT_SUFFIXES = (".pyc", ".log")
RUN_SETTINGS = "settings.json"
RUN_KEYS = {"problem", "method", "budget"}
"""Keys that distinguish the settings of a run from a data file of the same name."""

LARGEST_SETTINGS = 2**16


def content_hash(path: Path) -> bytes | None:
    """Return the hash of a file, or of all files in a folder with their names.

    Hidden files and what runs and Python leave behind are no content. Links are followed. Whatever
    is neither file nor folder counts as absent. `None` if there is more than the limits allow, or
    a file cannot be read.
    """
    size = 0
    whole = sha256()
    try:
        for number, (name, file) in enumerate(content_files(path)):
            found = file.stat()
            size += found.st_size
            if number >= MAX_FILES or size > MAX_BYTES:
                return None
            stamp = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            whole.update(sha256(os.fsencode(name)).digest() + _file_hash(file, stamp))
    except OSError:
        return None
    return whole.digest()


@lru_cache(maxsize=MAX_FILES)
def _file_hash(file: Path, stamp: tuple[int, ...]) -> bytes:
    """Return the hash of a file's bytes; it is read again only if its `stamp` is another."""
    with file.open("rb") as opened:
        return file_digest(opened, "sha256").digest()


def content_files(path: Path) -> Iterator[tuple[str, Path]]:
    """Yield each regular file at or below a path in a fixed order, with its name below it.

    Raises:
        OSError: If a folder cannot be read.
    """
    if not path.is_dir():
        if _is_regular(path):
            yield "", path
        return
    seen = set()
    for folder, folders, files in os.walk(path, followlinks=True, onerror=_raise):
        real = os.path.realpath(folder)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not is_output(Path(folder, name)))
        for name in sorted(files):
            file = Path(folder, name)
            if not is_output(file) and _is_regular(file):
                yield str(file.relative_to(path)), file


def is_output(path: Path) -> bool:
    """Return whether a file or folder is hidden, or left behind by runs or by Python."""
    if path.name.startswith(".") or path.name in OUTPUT_FOLDERS:
        return True
    return path.name.endswith(OUTPUT_SUFFIXES) or _is_run(path)


def _is_regular(file: Path) -> bool:
    return file.exists() and S_ISREG(file.stat().st_mode)


def _is_run(folder: Path) -> bool:
    """Return whether a folder is that of a run, whose files must not change what judges it."""
    settings = folder / RUN_SETTINGS
    if not settings.is_file() or settings.stat().st_size > LARGEST_SETTINGS:
        return False
    try:
        known = json.loads(settings.read_bytes())
    except (ValueError, RecursionError):
        return False
    return isinstance(known, dict) and known.keys() >= RUN_KEYS


def _raise(error: OSError) -> None:
    raise error

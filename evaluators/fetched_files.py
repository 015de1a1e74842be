"""The files that `costada prepare` has fetched for a folder, and whether they are still the same.

The record is kept with the user's data, as the folder may come from somebody else. Files that were
not written to since are not read again: there may be gigabytes.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from hashlib import file_digest
from pathlib import Path

from costada.evaluators.environment import user_place
from costada.evaluators.folder_files import matching
from costada.values.path_words import path_word

FETCHED = "fetched"


@dataclass(frozen=True, slots=True)
class FetchedFile:
    """A file that a command of `costada prepare` left in a problem folder.

    Attributes:
        path: Where it is, below the folder.
        size: Its size in bytes.
        sha256: SHA-256 of its content, in hexadecimal digits.
        changed: When it was written to, in nanoseconds.
    """

    path: str
    size: int
    sha256: str
    changed: int

    @classmethod
    def of(cls, path: str, folder: Path) -> "FetchedFile":
        """The file at a path below a folder, as it is now."""
        about = (folder / path).stat()
        with (folder / path).open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
        return cls(path, about.st_size, digest, about.st_mtime_ns)


def record_fetched(folder: Path, files: Iterable[FetchedFile]) -> None:
    """Keep what was fetched for a folder, in the place of what was recorded before."""
    place = user_place(folder, FETCHED).with_suffix(".json")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps([asdict(each) for each in files], indent=1), encoding="utf-8")


def fetched_files(folder: Path) -> tuple[FetchedFile, ...]:
    """What was recorded for a folder; nothing if nothing was fetched.

    Raises:
        ValueError: If the record cannot be read.
    """
    place = user_place(folder, FETCHED).with_suffix(".json")
    try:
        return tuple(FetchedFile(**each) for each in json.loads(place.read_bytes()))
    except FileNotFoundError:
        return ()
    except (TypeError, ValueError):
        raise ValueError(f"{place} is damaged; expected what costada prepare writes") from None


def check_fetched(folder: Path, command: str | None, declared: Iterable[str]) -> None:
    """Refuse declared paths or patterns that lead to nothing before a command has fetched them.

    Raises:
        ValueError: If there is a command, one of them is not there, and nothing is fetched yet.
    """
    absent = [each for each in declared if not matching(folder, each)]
    if command is not None and absent and not fetched_files(folder):
        raise ValueError(
            f"{folder} has no {absent[0]}, and nothing is fetched yet: {_command(folder)}"
        )


def fetched_fault(folder: Path) -> str | None:
    """Which fetched file is missing or another one than was recorded; None if all are the same."""
    for known in fetched_files(folder):
        path = folder / known.path
        if not path.is_file():
            return f"{path}, which was fetched, is missing: {_command(folder)}"
        about = path.stat()
        is_same = (about.st_size, about.st_mtime_ns) == (known.size, known.changed)
        if not is_same and FetchedFile.of(known.path, folder).sha256 != known.sha256:
            return (
                f"{path} is not as it was fetched; its SHA-256 was {known.sha256}:"
                f" {_command(folder)} fetches it again"
            )
    return None


def _command(folder: Path) -> str:
    return f"costada prepare {path_word(folder)} --confirm"

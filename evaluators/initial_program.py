"""The initial program of a problem folder: one file, a folder of files, or files by pattern."""

import io
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from stat import S_ISREG

from costada.evaluators.folder_settings import SETTINGS_FILE, FolderSettings, read_settings
from costada.evaluators.shown_paths import (
    OUTPUT_FOLDERS,
    OUTPUT_SUFFIXES,
    odd_file_reason,
    open_shown,
    read_shown,
    unshown_reason,
)
from costada.values.program_form import (
    MAX_FILES,
    PYTHON,
    invalid_path_reason,
    invalid_pattern_reason,
    language_of,
    matches,
)

PROGRAMS = ("initial_program", "init_program", "initial", "initial_prompt")
"""Names of the initial program where no setting names it: of a folder, or a file of any ending."""

WILDCARDS = "*?["
EVERYTHING: tuple[str, ...] = ("**",)
MAX_PROGRAM = 2**22
"""Bytes of all files of an initial program."""


@dataclass(frozen=True, slots=True)
class InitialProgram:
    """The program that a search starts from, as its folder describes it.

    Attributes:
        source: Its text, or the text of each file by relative path; None if there is none yet.
        editable: Patterns of the paths that candidates may add, change or delete.
        reserved: Patterns of the problem's own files, where candidates lie beside these.
        language: Name of its language, by the settings or the endings of its files.
        file_name: Name of a single file that is not in Python; empty otherwise.
    """

    source: str | dict[str, str] | None
    editable: tuple[str, ...]
    language: str
    reserved: tuple[str, ...] = ()
    file_name: str = ""


def read_initial_program(
    folder: Path,
    settings: FolderSettings,
    language: str | None = None,
    own_files: tuple[str, ...] = (),
) -> InitialProgram:
    """The initial program of a problem folder.

    `own_files` are patterns of the problem's own files, which are never part of a program.
    `language` is used where neither the settings nor the endings of files determine one.

    Paths of the files of a folder are relative to that; paths of files named by patterns are
    relative to the problem folder.

    Raises:
        ValueError: Naming what is missing, not text, or outside of the folder.
    """
    if settings.start:
        return _unwritten(settings)
    named = settings.program or _found(folder)
    if isinstance(named, str) and not any(sign in named for sign in WILDCARDS):
        place = folder / named
        if reason := unshown_reason(place, folder):
            raise ValueError(f"program is {named!r}, which {reason}; expected a path in {folder}")
        if not place.is_dir():
            found = language_of(named)
            by_name = language if found.is_text else None
            chosen = settings.language or by_name or found.name
            own_name = place.name if settings.program else f"candidate{place.suffix}"
            file_name = "" if place.suffix in PYTHON.endings else own_name
            text = read_text(place, folder, keeps_line_ends=True)
            return InitialProgram(text, (), chosen, file_name=file_name)
        root, editable = place, EVERYTHING
    else:
        root, editable = folder, (named,) if isinstance(named, str) else named
    reserved = own_files if root.resolve() == folder.resolve() else ()
    files = read_files(root, editable, reserved)
    chosen = settings.language or _language(files, settings)
    return InitialProgram(files, editable, chosen, reserved)


def _unwritten(settings: FolderSettings) -> InitialProgram:
    """The description of a program that the first attempts are to write."""
    name = settings.program
    if not isinstance(name, str) or any(sign in name for sign in f"{WILDCARDS}/"):
        raise ValueError(
            f"program is {name!r} in {SETTINGS_FILE}; expected the name of one file, as"
            " start is 'none'"
        )
    if not (name or settings.language or settings.entry_point):
        raise ValueError(
            f"start is 'none' in {SETTINGS_FILE}, but nothing says what a program is; expected"
            " entry_point, language, or program with the name of its file"
        )
    named = language_of(name).name if name else PYTHON.name
    file_name = "" if PurePosixPath(name).suffix in PYTHON.endings else name
    return InitialProgram(None, (), settings.language or named, file_name=file_name)


def program_place(folder: Path) -> str:
    """The initial program's file in a problem folder, or the folder that its paths begin in.

    Empty if they begin in the problem folder. Raises `ValueError` if the settings are malformed or
    do not say which of several files it is.
    """
    settings = read_settings(folder / SETTINGS_FILE)
    named = settings.program or ("" if settings.start else _found(folder))
    if settings.start and not named:
        return ""
    if not isinstance(named, str) or any(sign in named for sign in WILDCARDS):
        return ""
    return PurePosixPath(named).as_posix()


def other_programs(folder: Path, place: str) -> list[str]:
    """Further files in a problem folder that have the name of an initial program."""
    found = (path.name for path in folder.iterdir() if path.is_file() and path.stem in PROGRAMS)
    return sorted(name for name in found if name != place)


def _found(folder: Path) -> str:
    """The name of a folder's initial program; a Python file first."""
    for stem in PROGRAMS:
        usual = f"{stem}{PYTHON.endings[0]}"
        names = sorted(each.name for each in folder.glob(f"{stem}*") if each.stem == stem)
        if usual in names:
            return usual
        if len(names) > 1:
            raise ValueError(
                f"{folder} holds {' and '.join(names)}; expected one of them, or program = NAME in"
                f" {SETTINGS_FILE}"
            )
        if names:
            return names[0]
    others = ", ".join(f"{stem}.*" for stem in PROGRAMS[1:])
    raise ValueError(
        f"{PROGRAMS[0]}{PYTHON.endings[0]} is missing in {folder}; expected {PROGRAMS[0]}.*,"
        f" {others}, or program = NAME in {SETTINGS_FILE}. costada init makes a problem folder"
    )


def _language(files: dict[str, str], settings: FolderSettings) -> str:
    """Python where an entry point is called, else the language of most files."""
    if settings.entry_point is not None:
        return PYTHON.name
    return Counter(language_of(path).name for path in files).most_common(1)[0][0]


def read_files(
    folder: Path,
    patterns: Sequence[str],
    reserved: Sequence[str] = (),
    without: Collection[str] = (),
) -> dict[str, str]:
    """The text of each file below a folder whose path fits a pattern.

    None of those whose paths fit `reserved` patterns, or are among those of `without`.

    Raises:
        ValueError: A pattern is malformed or fits no file, or `files_in` refuses a file.
    """
    for pattern in patterns:
        if fault := invalid_pattern_reason(pattern):
            raise ValueError(f"program is {list(patterns)!r}; expected {fault}")

    def is_wanted(path: str) -> bool:
        is_reserved = path in without or any(matches(path, each) for each in reserved)
        return not is_reserved and any(matches(path, each) for each in patterns)

    found = files_in(folder, is_wanted)
    for pattern in patterns:
        if not any(matches(path, pattern) for path in found):
            own = " besides those of the problem itself" if reserved else ""
            raise ValueError(f"{folder} holds no file that fits {pattern!r}{own}; expected one")
    return found


def files_in(folder: Path, is_wanted: Callable[[str], bool]) -> dict[str, str]:
    """The text of each wanted file below a folder, by its path there.

    Hidden files and files left behind by Python and runs are ignored.

    Raises:
        ValueError: A file is a link or no text, or there are too many or too large ones.
    """
    found: dict[str, str] = {}
    size = 0
    for path in filter(is_wanted, _paths(folder)):
        content = _content(folder / path, folder)
        size += len(content)
        if len(found) == MAX_FILES or size > MAX_PROGRAM:
            raise ValueError(
                f"{folder} holds more than {MAX_FILES} files of a program, or more than"
                f" {MAX_PROGRAM:,} bytes; expected less"
            )
        try:
            found[path] = content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{folder / path} is not UTF-8 text: {error}") from None
    return found


def _paths(folder: Path) -> Iterator[str]:
    """Paths of the files below a folder, relative to it and sorted, without hidden ones."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name not in OUTPUT_FOLDERS
        )
        for name in sorted(names):
            path = Path(place, name).relative_to(folder).as_posix()
            if not name.endswith(OUTPUT_SUFFIXES) and invalid_path_reason(path) is None:
                yield path


def _content(path: Path, folder: Path) -> bytes:
    found = path.lstat()
    if not S_ISREG(found.st_mode):
        raise ValueError(f"{path} is not a regular file; expected one, links are not followed")
    if found.st_size > MAX_PROGRAM:
        raise ValueError(f"{path} has {found.st_size:,} bytes; expected at most {MAX_PROGRAM:,}")
    return read_shown(path, folder, with_hidden=True)


def read_text(path: Path, folder: Path, *, keeps_line_ends: bool = False) -> str:
    """The text of a file that a problem folder needs; lines end in LF unless the ends are kept.

    Raises:
        ValueError: It is missing, empty, too large or not a text, or may not be shown.
    """
    if reason := odd_file_reason(path):
        raise ValueError(f"{path} {reason}; expected a file")
    if not path.is_file():
        raise ValueError(f"{path.name} is missing in {path.parent}; a problem folder needs it")
    if (size := path.stat().st_size) > MAX_PROGRAM:
        raise ValueError(f"{path} has {size:,} bytes; expected at most {MAX_PROGRAM:,}")
    newline = "" if keeps_line_ends else None
    content = open_shown(path, folder)
    try:
        with io.TextIOWrapper(content, encoding="utf-8-sig", newline=newline) as file:
            text = file.read()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}") from None
    if not text.strip():
        raise ValueError(f"{path} is empty; a problem folder needs it")
    return text

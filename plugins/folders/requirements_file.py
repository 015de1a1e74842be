"""What a folder's `requirements.txt` asks for: names of packages with versions, and wheels.

The folder may come from somebody else. Where packages come from is for the user to say, so options
and addresses in the file are never followed, nor are variables put in.
"""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from costada.evaluators.shown_paths import read_shown, unshown_reason

REQUIREMENTS_FILE = "requirements.txt"
COMMENT = re.compile(r"(^|\s)#.*$")
CONTINUED = re.compile(r"\\\n")
HASH = re.compile(r"\s--hash[=\s]\s*(\S+)")
OTHER_FILE = re.compile(r"(?:-r|--requirement)[=\s]*(\S.*)")
WHEEL = ".whl"
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".zip")
MAX_FILES = 20
MAX_BYTES = 2**20
"""Of one file of requirements."""

OPTION_FAULT = (
    "is an option of the installer, which only you give: by a variable of uv, such as UV_INDEX or"
    " UV_FIND_LINKS"
)
ADDRESS_FAULT = "names an address; to install from there: --with PACKAGE"
OTHER_FAULT = "is not the name of a package with versions, nor a wheel of the folder"


@dataclass(frozen=True, slots=True)
class RequirementLine:
    """One line of a file of requirements.

    Attributes:
        text: The line, without comment.
        file: The file that it is in.
        number: The number of the line, from 1; 0 for the file itself.
        requirement: The package; None if the line names none.
        hashes: What its files must have, as `sha256:...`.
        wheel: Its file, if the line is the path of a wheel in the folder.
        fault: Why it is not installed; empty if it may be.
    """

    text: str
    file: Path
    number: int
    requirement: Requirement | None = None
    hashes: tuple[str, ...] = ()
    wheel: Path | None = None
    fault: str = ""

    @property
    def refusal(self) -> str:
        """Why it is not installed, with its place."""
        return f"{self.file}, line {self.number}: {self.text!r} {self.fault}"

    @property
    def is_option(self) -> bool:
        """Whether the line is for the installer alone."""
        return self.text.startswith("-")

    def __str__(self) -> str:
        """The line as an installer takes it, without anything that was not understood."""
        return " ".join([str(self.requirement), *(f"--hash={each}" for each in self.hashes)])


def requirement_lines(file: Path) -> list[RequirementLine]:
    """The lines of a file of requirements, and of others beside it that it names with `-r`.

    Lines for other systems are left out.
    """
    return list(_lines(file, file.parent, f"-r {file.name}", []))


def check_requirements(lines: Iterable[RequirementLine]) -> None:
    """Refuse lines that cannot be installed, each with its place."""
    if faults := [line.refusal for line in lines if line.fault]:
        raise ValueError("; ".join(faults))


def _lines(file: Path, folder: Path, named: str, seen: list[Path]) -> Iterator[RequirementLine]:
    if file in seen or len(seen) >= MAX_FILES:
        return
    seen.append(file)
    try:
        if (size := file.stat().st_size) > MAX_BYTES:
            raise ValueError(f"it has {size:,} bytes; expected at most {MAX_BYTES:,}")
        whole = read_shown(file, folder).decode("utf-8-sig", "replace")
    except (OSError, ValueError) as error:
        yield RequirementLine(named, file, 0, fault=f"cannot be read: {error}")
        return
    number = 1
    for text in CONTINUED.sub(" \0", whole).split("\n"):
        plain, own = COMMENT.sub("", text.replace("\0", "")).strip(), number
        number += 1 + text.count("\0")
        if not plain:
            continue
        if other := OTHER_FILE.fullmatch(plain):
            yield from _lines(file.parent / other[1], folder, plain, seen)
            continue
        line = _line(plain, file, own, folder)
        marker = line.requirement.marker if line.requirement else None
        if marker is None or marker.evaluate():
            yield line


def _line(text: str, file: Path, number: int, folder: Path) -> RequirementLine:
    hashes = tuple(HASH.findall(text))
    named = HASH.sub("", text)
    line = RequirementLine(text, file, number)
    if line.is_option:
        return replace(line, fault=OPTION_FAULT)
    if named.endswith(WHEEL) and "://" not in named:
        return _wheel_line(line, folder / named, folder)
    if named.endswith(ARCHIVES):
        return replace(line, fault=OTHER_FAULT)
    try:
        wanted = Requirement(named)
    except InvalidRequirement:
        return replace(line, fault=ADDRESS_FAULT if "://" in named else OTHER_FAULT)
    fault = ADDRESS_FAULT if wanted.url else ""
    return replace(line, requirement=wanted, hashes=hashes, fault=fault)


def _wheel_line(line: RequirementLine, wheel: Path, folder: Path) -> RequirementLine:
    if reason := unshown_reason(wheel, folder) or ("" if wheel.is_file() else "is not there"):
        return replace(line, fault=reason)
    real = Path(os.path.realpath(wheel))  # whose name the installer gets
    try:
        name, version, _, _ = parse_wheel_filename(real.name)
    except InvalidWheelFilename:
        return replace(line, fault=OTHER_FAULT)
    wanted = Requirement(f"{name}=={version}")
    return replace(line, requirement=wanted, wheel=real)

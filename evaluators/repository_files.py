"""The files of a repository that candidates get copies of: which they are, and their hash.

Of a git repository they are the tracked files, and others that are neither ignored nor hidden; of
any other folder all that are not hidden. Files that usually hold secrets never count, nor does
`.git`. A link that leads out of the repository is left out, so that no copy leads to the original.
"""

import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from shutil import which
from stat import S_ISLNK, S_ISREG, S_IXUSR

from costada.evaluators.sandbox.editable_packages import SECRET_FILES
from costada.evaluators.sandbox.helper_environment import helper_environment
from costada.evaluators.shown_paths import OUTPUT_FOLDERS, OUTPUT_SUFFIXES, unshown_reason
from costada.values.program_form import matches

GIT = ".git"
GIT_SECONDS = 60.0
LISTING = ("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
ONLY_LISTING = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0"}
"""Has git fetch nothing: the repository's own settings may name a program for it."""

TRACKED = ("ls-files", "-z", "--cached", "--deduplicate")
MAX_FILES = 200_000
MAX_BYTES = 4 * 2**30
CHUNK_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class RepositoryFiles:
    """What copies of a repository hold.

    Attributes:
        root: The repository.
        files: Paths of the files, relative to it, with the size of each in bytes.
        links: Paths of the links, with where they lead to, relative to the link's folder.
        left_out: Paths of the links that are left out, with where they lead to.
    """

    root: Path
    files: dict[str, int]
    links: dict[str, str]
    left_out: dict[str, str]


def repository_files(root: Path, without: Path, also: Sequence[str] = ()) -> RepositoryFiles:
    """Find the files of a repository.

    Args:
        root: The repository: its absolute path, without links.
        without: A folder that does not count, if it is inside: that of the problem.
        also: Patterns of ignored files that count too.

    Raises:
        ValueError: It is not a folder, git does not list it, a pattern fits nothing, or it is too
            large.
    """
    if not root.is_dir():
        raise ValueError(f"repository is '{root}'; expected a folder")
    is_inside = without.is_relative_to(root)
    listed = sorted({*_listed(root), *_fitting(root, also)})
    files: dict[str, int] = {}
    links: dict[str, str] = {}
    left_out: dict[str, str] = {}
    real: dict[Path, bool] = {}
    for path in listed:
        place = root / path
        if (is_inside and place.is_relative_to(without)) or _is_secret(path):
            continue
        if place.parent not in real:
            real[place.parent] = Path(os.path.realpath(place.parent)) == place.parent
        if not real[place.parent] or not os.path.lexists(place):
            continue  # deleted, or a folder on the way was replaced by a link since git saw it
        about = place.lstat()
        if S_ISLNK(about.st_mode):
            if unshown_reason(place, root, with_hidden=True) is None:
                target = Path(os.path.realpath(place))
                links[path] = os.path.relpath(target, place.parent)
            else:
                left_out[path] = os.readlink(place)
        elif S_ISREG(about.st_mode):
            files[path] = about.st_size
    if len(files) + len(links) > MAX_FILES or sum(files.values()) > MAX_BYTES:
        raise ValueError(
            f"repository is '{root}', with {len(files) + len(links):,} files of"
            f" {sum(files.values()):,} bytes; expected at most {MAX_FILES:,} files of"
            f" {MAX_BYTES:,} bytes that git does not ignore"
        )
    return RepositoryFiles(root, files, links, left_out)


def _listed(root: Path) -> Iterator[str]:
    """Paths of what git does not ignore, or of what is not hidden where there is no git."""
    if not any((folder / GIT).exists() for folder in (root, *root.parents)):
        yield from _visible(root)
        return
    tracked = set(_git_paths(root, TRACKED))
    for path in _git_paths(root, LISTING):
        place = root / path
        if place.is_dir() and not place.is_symlink():
            if (place / GIT).exists():  # a repository in the repository
                yield from (f"{path.rstrip('/')}/{inner}" for inner in _listed(place))
        elif path in tracked or not _is_hidden(path):
            yield path


def _git_paths(root: Path, words: Iterable[str]) -> list[str]:
    program = which("git")
    if program is None:
        raise ValueError(f"repository is '{root}'; expected git installed, to list its files")
    # Variables of git, which name another repository where this process runs in a hook, are not in
    # the environment.
    command = [program, "-C", str(root), "-c", "core.fsmonitor=false", *words]
    try:
        listed = subprocess.run(
            command,
            env={**helper_environment(), **ONLY_LISTING},
            capture_output=True,
            check=False,
            timeout=GIT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise ValueError(
            f"repository is '{root}', whose files git did not list in {GIT_SECONDS:g} s"
        ) from None
    if listed.returncode != 0:
        reason = listed.stderr.decode("utf-8", "replace").strip()
        raise ValueError(f"repository is '{root}', whose files git does not list: {reason}")
    return [os.fsdecode(path) for path in listed.stdout.split(b"\0") if path]


def _visible(root: Path) -> Iterator[str]:
    """Paths of files and links that are neither hidden nor left behind by Python."""
    for place, folders, names in os.walk(root):
        inner = [name for name in folders if not os.path.islink(os.path.join(place, name))]
        names += sorted(set(folders) - set(inner))
        folders[:] = [name for name in inner if name[:1] != "." and name not in OUTPUT_FOLDERS]
        for name in names:
            if not name.startswith(".") and not name.endswith(OUTPUT_SUFFIXES):
                yield Path(place, name).relative_to(root).as_posix()


def _fitting(root: Path, patterns: Sequence[str]) -> set[str]:
    """Paths of the files that fit patterns, ignored ones too."""
    if not patterns:
        return set()
    visible = list(_visible(root))
    found = {pattern: [path for path in visible if matches(path, pattern)] for pattern in patterns}
    if missing := [pattern for pattern, paths in found.items() if not paths]:
        raise ValueError(f"files has {missing[0]!r}; expected files of {root} that are not hidden")
    return {path for paths in found.values() for path in paths}


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))


def _is_secret(path: str) -> bool:
    parts = path.split("/")
    return GIT in parts or any(fnmatchcase(parts[-1], pattern) for pattern in SECRET_FILES)


def whole_tree(root: Path) -> RepositoryFiles:
    """All files and links below a folder, hidden ones too: those of a copy of a repository."""
    files: dict[str, int] = {}
    links: dict[str, str] = {}
    for place, folders, names in os.walk(root):
        for name in (*folders, *names):
            path = Path(place, name)
            if path.is_symlink():
                links[path.relative_to(root).as_posix()] = os.readlink(path)
            elif name in names:
                files[path.relative_to(root).as_posix()] = path.stat().st_size
    return RepositoryFiles(root, files, links, {})


def files_hash(root: Path, files: Iterable[str], links: dict[str, str]) -> str:
    """Hash of files, with their paths and whether they are executable, and of links.

    Raises:
        OSError: If a file cannot be read.
    """
    whole = sha256()
    for path in sorted(files):
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # never waits for the writer of a pipe
        with open(os.open(root / path, flags), "rb") as file:
            is_program = bool(os.fstat(file.fileno()).st_mode & S_IXUSR)
            content = sha256()
            while chunk := file.read(CHUNK_BYTES):
                content.update(chunk)
        whole.update(sha256(os.fsencode(path)).digest() + content.digest() + bytes([is_program]))
    whole.update(b"links")
    for path, target in sorted(links.items()):
        whole.update(sha256(os.fsencode(path)).digest() + sha256(os.fsencode(target)).digest())
    return whole.hexdigest()

"""The files of a problem folder: their content as one hash, and those its evaluator may read.

An evaluator that runs beside the candidate may read what its code imports or names, from
`evaluator.py` on, and what `problem.toml` declares, as far as `shown_paths` lets it.
"""

import ast
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from errno import ELOOP, ENOENT, ENOTDIR
from functools import lru_cache
from hashlib import file_digest, sha256
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from types import CodeType

from costada.evaluators.import_paths import (
    MAX_SOURCES,
    import_folders,
    imported_modules,
    module_files,
)
from costada.evaluators.sandbox.inside.command_words import BUILD_FILES
from costada.evaluators.sandbox.inside.orders import FOLDER
from costada.evaluators.sandbox.slot_kind import CopiedFile
from costada.evaluators.shown_paths import (
    Known,
    is_output,
    is_output_name,
    open_shown,
    unshown_reason,
)
from costada.values.python_syntax import parsed_module

EVALUATOR_FILE = "evaluator.py"
MAX_FILES = 10_000
MAX_BYTES = 256 * 2**20
"""Most files and bytes of one folder that are hashed; beyond, its content counts as unknown."""

MAX_LEVELS = 3
"""How far above a problem's folder the helpers of its evaluator may be."""

NOT_THERE = (ENOENT, ENOTDIR, ELOOP)
WILDCARDS = "*?["
COMMAND_WORD = re.compile(r"[\w./*+-]*\w[\w./*+-]*")
MODULE_RUN = re.compile(r"(?:\s-m|\bimport)\s+([\w.]+)")
TOOL_NAME = re.compile(rf"\b({'|'.join(BUILD_FILES)})\b")
SCRIPT_SUFFIX = ".sh"
SCRIPT_WORD = re.compile(r"[\w./+-]*\w[\w./+-]*")
MAX_NAME_CHARS = 255
MAX_PATH_CHARS = 4096
UNPARSABLE = (SyntaxError, ValueError, RecursionError)

OUTSIDE = frozenset(
    (
        *("environ", "getenv", "urlopen", "getcwd", "cwd", "home", "expanduser"),
        *("Popen", "run", "call", "check_call", "check_output", "system", "popen"),
    )
)
"""Names by which code accesses the environment, the network, other programs or other folders."""

READING = OUTSIDE.union(
    ("open", "read_text", "read_bytes", "load", "loadtxt", "genfromtxt", "fromfile", "memmap"),
    ("read_csv", "read_json", "read_parquet", "read_excel", "imread", "connect"),
    ("glob", "rglob", "iterdir", "listdir", "scandir", "globals", "modules"),
    ("exec", "eval", "__import__", "import_module", "run_path", "run_module"),
)
"""Names by which code reads what its own text does not show. A wrong guess costs an evaluation."""


def content_hash(path: Path) -> bytes | None:
    """Hash of a file, or of all files in a folder with their names.

    Hidden files and what runs and Python leave behind do not count. Links are followed. What is
    neither file nor folder counts as absent. `None` if there is more than the limits allow, or a
    file cannot be read.
    """
    size = 0
    whole = sha256()
    try:
        for number, (name, file) in enumerate(content_files(path)):
            found = os.stat(file)
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
    """Hash of a file's bytes; it is read again only if its `stamp` changed."""
    with file.open("rb") as opened:
        return file_digest(opened, "sha256").digest()


def content_files(path: Path, within: Path | None = None) -> Iterator[tuple[str, Path]]:
    """Each regular file at or below a path in a fixed order, with its name below it.

    Links are followed; with `within`, only to what may be shown of that folder.

    Raises:
        OSError: If a folder cannot be read.
    """
    if within is not None and unshown_reason(path, within):
        return
    if not path.is_dir():
        if _is_regular(path):
            yield "", path
        return
    seen = set()
    known: Known = set()
    for folder, folders, files in os.walk(path, followlinks=True, onerror=_raise):
        real = os.path.realpath(folder)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        if within is not None and unshown_reason(Path(folder), within):
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not is_output(Path(folder, name)))
        around = f"{folder[len(str(path)) :].lstrip('/')}/".lstrip("/")
        for name in sorted(files):
            if is_output_name(name) or not _is_regular(file := f"{folder}/{name}"):
                continue
            # The folder is shown, and so is what is in it, unless it leads to elsewhere.
            if (
                within is None
                or not os.path.islink(file)
                or unshown_reason(Path(file), within, known=known) is None
            ):
                yield f"{around}{name}", Path(file)


def _is_regular(file: str | Path) -> bool:
    try:
        return S_ISREG(os.stat(file).st_mode)
    except OSError as error:
        if error.errno not in NOT_THERE:
            raise
        return False


def _raise(error: OSError) -> None:
    raise error


@dataclass(frozen=True, slots=True)
class EvaluatorFile:
    """The evaluator of a folder, and how it is called.

    Attributes:
        folder: The problem's folder.
        path: The evaluator; files beside it can be imported.
        contract: How it is called; see `sandbox/inside/evaluator_contracts.py`.
        thresholds: What the metrics must reach after each stage for the next one.
        num_stages: How many stages it has; 0 if it has none.
        files: Further files that it may read, as paths or patterns below the folder.
        imported: Modules that the initial program imports. Where they are beside the evaluator,
            candidates may read them, as what it starts has no other files.
    """

    folder: Path
    path: Path
    contract: str = "evaluate"
    thresholds: tuple[float, ...] = ()
    num_stages: int = 0
    files: tuple[str, ...] = ()
    imported: tuple[str, ...] = ()

    def shown(self) -> dict[Path, Path]:
        """Each file that it may read, with the outermost folder around it that may be listed.

        Raises:
            ValueError: If something declared is hidden, outside of the folder, or absent.
        """
        return shown_files(self.folder, self.files, self.path)

    def copied(self) -> tuple[tuple[CopiedFile, ...], tuple[str, ...]]:
        """The same files, each with what was opened there, and the places of empty folders.

        What was opened counts, however links change. Files that this user cannot read are left out.
        In the copy they lie to each other as here, below `FOLDER`. Empty folders are those beside
        the evaluator.

        Raises:
            ValueError: As `shown` does, or if a file may no longer be shown.
        """
        found, shown = [], self.shown()
        known: Known = set()
        base = os.path.commonpath([self.folder, *{path.parent for path in shown}])

        def place_of(path: Path) -> str:
            return f"{FOLDER}/{str(path).removeprefix(base).lstrip('/')}"

        for path, listable in shown.items():
            with (
                suppress(PermissionError),
                open_shown(path, self.folder, listable, known=known) as file,
            ):
                about = os.fstat(file.fileno())
                found.append(
                    CopiedFile(
                        path=str(path),
                        place=place_of(path),
                        identity=(about.st_dev, about.st_ino),
                        size=about.st_size,
                        changed=about.st_mtime_ns,
                    )
                )
        return tuple(found), tuple(map(place_of, _empty_folders(self.path.parent)))

    def shared(self) -> set[Path]:
        """The files of the modules that are `imported`, and of those that these import.

        They are beside the evaluator, which is not one of them.
        """
        found: set[Path] = set()
        waiting = [*self.imported]
        while waiting:
            files = {*module_files(waiting.pop(), self.path.parent)} - found - {self.path}
            found |= files
            for file in files:
                waiting += imported_modules(file.read_text("utf-8", "replace"))
        return found

    def decided_by(self) -> tuple[object, ...]:
        """What evaluations depend on: every file of the folder, and helpers of other folders."""
        helpers = [path for path in self.shown() if not path.is_relative_to(self.folder)]
        return (self.folder, *sorted(helpers))


def _empty_folders(folder: Path) -> Iterator[Path]:
    """The folders in a folder below which there is no file to show, and those in them."""
    for entry in sorted(os.scandir(folder), key=lambda each: each.name):
        place = Path(entry.path)
        if not entry.is_dir(follow_symlinks=False) or is_output(place):
            continue
        with suppress(PermissionError):
            if next(content_files(place, folder), None) is None:
                for path, folders, _ in os.walk(place):
                    folders[:] = [name for name in folders if not is_output(Path(path, name))]
                    yield Path(path)


def shown_files(
    folder: Path, declared: Sequence[str] = (), evaluator: Path | None = None
) -> dict[Path, Path]:
    """Files that the evaluator of a folder may read, and those of folders that are shown whole.

    Args:
        folder: The problem's folder.
        declared: Further files or folders, as paths or patterns below the folder.
        evaluator: The evaluator, `evaluator.py` if None; of a folder of its own it may read all.

    Returns:
        Each file, with the outermost folder around it that may be listed.

    Raises:
        ValueError: If the evaluator may not be shown, or something declared is hidden, outside of
            the folder, or absent.
    """
    start = evaluator or folder / EVALUATOR_FILE
    if reason := unshown_reason(start, folder):
        raise ValueError(f"{start} {reason}; expected a file of {folder}, or a copy of it")
    first = [start] if start.is_file() else []
    listed: set[Path] = set()
    if start.parent != folder:
        first += _below([start.parent], folder, listed)
    for pattern in declared:
        roots = matching(folder, pattern)
        if not (found := [*_below(roots, folder, set())]):
            raise ValueError(
                f"files has {pattern!r}; expected files below the folder that are there, none of"
                " them hidden, left behind by runs, or a link that leads to elsewhere or to"
                " a folder around it"
            )
        first += found
        listed.update(roots)
    shown: dict[Path, Path] = {}
    added: dict[Path, Path] = {}
    known: set[tuple[Path, str]] = set()
    waiting = [(path, folder) for path in first]
    while waiting:
        path, listable = waiting.pop()
        if path in shown:
            continue
        shown[path] = listable
        if path.suffix not in (".py", SCRIPT_SUFFIX):
            continue
        source = path.read_text(encoding="utf-8", errors="replace")
        built = _build_places(source, path.parent)
        waiting += [(file, folder) for file in _below(built, folder, listed)]
        if path.suffix == SCRIPT_SUFFIX:
            words = {*SCRIPT_WORD.findall(source)}
            in_script = [place for word in words for place in matching(path.parent, word)]
            waiting += [(file, folder) for file in _below(in_script, folder, listed)]
            continue
        named = _named(source, folder)
        waiting += [(file, folder) for file in _below(named, folder, listed)]
        if path.parent != listable:  # not beside what is on the import path outside of the folder
            named = _named(source, path.parent)
            waiting += [(file, listable) for file in _below(named, folder, listed)]
        added |= _near(folder, import_folders(source, path))
        for name in imported_modules(source):
            level = len(name) - len(name.lstrip("."))
            if level:
                bases = path.parents[level - 1 : level]
                places = {base: listable for base in bases if base.is_relative_to(listable)}
            else:
                places = {base: added[base] for base in added if (base, name) not in known}
                known |= {(base, name) for base in places}
            waiting += _modules(name.lstrip("."), places, folder)
    return shown


def _build_places(source: str, folder: Path) -> list[Path]:
    """The folder, if code may start a tool that reads the files there."""
    tools = {*TOOL_NAME.findall(source)}
    names = (name for tool in tools for name in BUILD_FILES[tool])
    return [folder] if any((folder / name).is_file() for name in names) else []


def _modules(name: str, places: Mapping[Path, Path], folder: Path) -> Iterator[tuple[Path, Path]]:
    """The files of a module in some places that may be shown."""
    for base, listable in places.items():
        for file in module_files(name, base):
            if unshown_reason(file, listable, folder) is None:
                yield file, listable


def _named(source: str, base: Path) -> Iterator[Path]:
    """What a program's texts and imports lead to from a base."""
    names, patterns = _names_in(source)
    there = [name for name in names if os.path.lexists(f"{base}/{name}")]
    for name in (*there, *patterns):
        yield from matching(base, name)


def _below(places: Iterable[Path], folder: Path, listed: set[Path]) -> Iterator[Path]:
    """The files at or below some places that may be shown, but for the places `listed` before."""
    for place in places:
        if place not in listed:
            listed.add(place)
            yield from (file for _, file in content_files(place, folder))


def _near(folder: Path, added: Iterable[Path]) -> dict[Path, Path]:
    """Of the folders added to the import path those that count, each with what may be listed.

    They are in the problem's folder, or close: a folder around it, up to `MAX_LEVELS` above, or one
    in these. None is hidden, or reached by a link from there to elsewhere.
    """
    around = folder.parents[:MAX_LEVELS]
    found = {}
    for base in added:
        if unshown_reason(base, Path(os.path.commonpath([folder, base]))):
            continue
        if base.is_relative_to(folder):
            found[base] = folder
        elif (base in around or base.parent in around) and base not in (Path.home(), Path("/")):
            found[base] = base
    return found


def sources_in(paths: Iterable[Path]) -> list[str]:
    """The texts of the Python files among some."""
    return [path.read_text("utf-8", "replace") for path in paths if path.suffix == ".py"]


def reads_elsewhere(folder: Path, evaluator: Path | None = None) -> bool:
    """Whether the evaluator of a folder may read what is outside of the folder.

    It does not if it reads nothing, or only files beside `__file__`. Imports do not count.
    """
    return any(map(_reads_elsewhere, sources_in(shown_files(folder, (), evaluator))))


def _reads_elsewhere(source: str) -> bool:
    names = referred_names(source)
    if names is None:
        return True
    if not names & READING:
        return False
    if "__file__" not in names or names & OUTSIDE:
        return True
    nodes = _nodes_in(source)
    return not nodes or any(map(_leads_outside, nodes))


def _nodes_in(source: str) -> list[ast.AST]:
    """Syntax of a program; empty if it cannot be parsed."""
    try:
        return [*ast.walk(parsed_module(source))]
    except UNPARSABLE:
        return []


@lru_cache(maxsize=MAX_SOURCES)
def referred_names(source: str) -> frozenset[str] | None:
    """Globals and attributes that a program refers to, no local variables; None if unparsable."""
    try:
        waiting = [compile(source, EVALUATOR_FILE, "exec", dont_inherit=True)]
    except UNPARSABLE:
        return None
    names: set[str] = set()
    while waiting:
        code = waiting.pop()
        names.update(code.co_names)
        waiting += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
    return frozenset(names)


def _leads_outside(node: ast.AST) -> bool:
    """Whether an expression is a path outside of the folder, or a way upwards."""
    match node:
        case ast.Constant(value=str(text)):
            is_there = text.startswith("/") and len(text) <= MAX_PATH_CHARS and "\0" not in text
            return ".." in text.split("/") or (is_there and os.path.lexists(text))
        case ast.Attribute(attr="parents"):
            return True
        case (
            ast.Attribute(attr="parent", value=inner)
            | ast.Call(func=ast.Attribute(attr="dirname") | ast.Name(id="dirname"), args=[inner])
        ):
            return any(
                (isinstance(each, ast.Attribute) and each.attr in ("parent", "dirname"))
                or (isinstance(each, ast.Name) and each.id == "dirname")
                for each in ast.walk(inner)
            )
    return False


def matching(base: Path, name: str) -> list[Path]:
    """What a path or pattern leads to from a base."""
    if not _is_path(name):
        return []
    found = sorted(base.glob(name)) if _is_pattern(name) else [base / name]
    return [path for path in found if path.exists()]


def _is_pattern(name: str) -> bool:
    return any(letter in WILDCARDS for letter in name)


def _is_path(name: str) -> bool:
    """Whether a text may be the path of a file below a folder, or a pattern of such."""
    is_short = 0 < len(name) <= MAX_NAME_CHARS
    is_plain = is_short and name.isprintable() and not name.startswith("/")
    parts = PurePosixPath(name).parts
    return is_plain and not any(part == ".." or ("**" in part and part != "**") for part in parts)


@lru_cache(maxsize=MAX_SOURCES)
def _names_in(source: str) -> tuple[list[str], list[str]]:
    """What a program may name files by, its texts and imports: paths, and patterns."""
    texts = (name for node in _nodes_in(source) for name in _names_of(node))
    named = [name for name in texts if any(map(str.isalnum, name)) and _is_path(name)]
    paths = [name for name in dict.fromkeys(named) if not _is_pattern(name)]
    patterns = [name for name in dict.fromkeys(named) if _is_pattern(name) and " " not in name]
    return paths, patterns


def _names_of(node: ast.AST) -> list[str]:
    """Paths in an expression or import; what a formatted text fills in may be anything."""
    modules: list[str] = []
    names = []
    match node:
        case ast.Constant(value=str(text)):
            modules, names = [text, *_modules_run(text)], [text.lstrip("/"), *_words_of(text)]
        case ast.JoinedStr(values=parts):
            texts = [part.value if isinstance(part, ast.Constant) else "*" for part in parts]
            text = "".join(map(str, texts))
            modules, names = _modules_run(text), [text.lstrip("/"), *_words_of(text)]
        case ast.Import(names=imported):
            modules = [each.name for each in imported]
        case ast.ImportFrom(module=module, names=imported):
            modules = [".".join(filter(None, (module, each.name))) for each in imported]
    for module in modules:
        pieces = module.split(".")
        if all(part.isidentifier() for part in pieces):
            names += [f"{pieces[0]}.py", pieces[0]]
    return names


def _words_of(text: str) -> list[str]:
    """Paths in a text that may be a command of a shell; a word alone may be any word."""
    if len(text) > MAX_PATH_CHARS or len(text.split()) < 2:
        return []
    words = (word.removeprefix("*").lstrip("/") for word in COMMAND_WORD.findall(text))
    return [word for word in words if "/" in word or "." in word]


def _modules_run(text: str) -> list[str]:
    """The modules that a command of a shell in a text may have Python run or import."""
    return MODULE_RUN.findall(text) if len(text) <= MAX_PATH_CHARS else []

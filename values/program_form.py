"""What the files of a problem's candidates may be: their languages, paths and patterns."""

from collections.abc import Collection
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import PurePosixPath


@dataclass(frozen=True, slots=True)
class Language:
    """A language that files of candidates are written in.

    Attributes:
        name: The name that prompts and settings use, such as `C++`.
        fence: The word behind the backticks of a fenced text.
        endings: File name endings, the usual one first.
        comments: What begins a comment, and what ends it (empty: the end of the line).
        also: Further words for it in settings and fences, in lower case.
    """

    name: str
    fence: str
    endings: tuple[str, ...]
    comments: tuple[tuple[str, str], ...] = ()
    also: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """All words for it, in lower case."""
        return (self.name.lower(), self.fence, *self.also)

    @property
    def is_text(self) -> bool:
        """Whether it is plain text, without a known syntax."""
        return self.name == "text"

    @property
    def is_document(self) -> bool:
        """Whether its texts are read, not executed."""
        return self.name in _DOCUMENTS


_DOCUMENTS = ("text", "Markdown", "JSON", "YAML", "TOML", "HTML", "XML", "CSS", "LaTeX")

HASH = (("#", ""),)
SLASHES = (("//", ""), ("/*", "*/"))
DASHES = (("--", ""),)
TAGS = (("<!--", "-->"),)

LANGUAGES = (
    Language("Python", "python", (".py",), HASH, ("py", "python3")),
    Language("Triton", "python", (".py",), HASH),  # only where settings say so, after Python
    Language("C++", "cpp", (".cpp", ".cc", ".cxx", ".hpp", ".hh"), SLASHES, ("cxx", "cc")),
    Language("C", "c", (".c", ".h"), SLASHES),
    Language("CUDA", "cuda", (".cu", ".cuh"), SLASHES, ("cu",)),
    Language("Metal", "metal", (".metal",), SLASHES),
    Language("Rust", "rust", (".rs",), SLASHES, ("rs",)),
    Language("Go", "go", (".go",), SLASHES, ("golang",)),
    Language("Java", "java", (".java",), SLASHES),
    Language("Kotlin", "kotlin", (".kt",), SLASHES),
    Language("Swift", "swift", (".swift",), SLASHES),
    Language("Scala", "scala", (".scala",), SLASHES),
    Language("C#", "csharp", (".cs",), SLASHES, ("cs",)),
    Language("JavaScript", "javascript", (".js", ".mjs", ".cjs"), SLASHES, ("js",)),
    Language("TypeScript", "typescript", (".ts",), SLASHES, ("ts",)),
    Language("Zig", "zig", (".zig",), (("//", ""),)),
    Language("Verilog", "verilog", (".v", ".sv"), SLASHES, ("systemverilog",)),
    Language("R", "r", (".r", ".R"), HASH),
    Language("Julia", "julia", (".jl",), (("#", ""), ("#=", "=#")), ("jl",)),
    Language("Ruby", "ruby", (".rb",), HASH, ("rb",)),
    Language("Perl", "perl", (".pl",), HASH),
    Language("shell", "bash", (".sh", ".bash"), HASH, ("sh", "zsh")),
    Language("PHP", "php", (".php",), (*SLASHES, *HASH)),
    Language("Lua", "lua", (".lua",), (("--[[", "]]"), ("--", ""))),
    Language("Haskell", "haskell", (".hs",), (("--", ""), ("{-", "-}")), ("hs",)),
    Language("OCaml", "ocaml", (".ml",), (("(*", "*)"),), ("ml",)),
    Language("Lean", "lean", (".lean",), (("--", ""), ("/-", "-/"))),
    Language("Wolfram Language", "wolfram", (".wl", ".wls"), (("(*", "*)"),), ("wl",)),
    Language("Fortran", "fortran", (".f90", ".f95", ".f"), (("!", ""),), ("f90",)),
    Language("MATLAB", "matlab", (".m",), (("%", ""),)),
    Language("LaTeX", "latex", (".tex",), (("%", ""),), ("tex",)),
    Language("SQL", "sql", (".sql",), (*DASHES, ("/*", "*/"))),
    Language("JSON", "json", (".json",)),
    Language("YAML", "yaml", (".yaml", ".yml"), HASH, ("yml",)),
    Language("TOML", "toml", (".toml",), HASH),
    Language("HTML", "html", (".html", ".htm"), TAGS),
    Language("XML", "xml", (".xml", ".svg"), TAGS, ("svg",)),
    Language("CSS", "css", (".css",), (("/*", "*/"),)),
    Language("Markdown", "markdown", (".md",), TAGS, ("md",)),
    Language("text", "text", (".txt", ".prompt"), (*HASH, *SLASHES, *DASHES, *TAGS), ("txt", "")),
)
PYTHON, TEXT = LANGUAGES[0], LANGUAGES[-1]


def language_of(path: str) -> Language:
    """The language of a file by its name's ending; plain text if that is not known."""
    ending = PurePosixPath(path).suffix
    for language in LANGUAGES:
        if ending in language.endings:
            return language
    return next((each for each in LANGUAGES if ending.lower() in each.endings), TEXT)


def find_language(word: str) -> Language | None:
    """The language that settings or a fence name by a word, in any case."""
    return next((each for each in LANGUAGES if word.strip().lower() in each.words), None)


def file_ending(name: str, language: str) -> str:
    """The ending of a file's name, else the usual one of a language by its name."""
    return PurePosixPath(name).suffix or (find_language(language) or TEXT).endings[0]


MAX_FILES = 200
"""Most files of a candidate."""

MAX_PATH_BYTES = 200
MAX_PARTS = 12


def invalid_path_reason(path: object) -> str | None:
    """Why a path cannot be that of a candidate's file; None if it can.

    It must be relative, in its normal form, printable and short, and no part of it may be hidden.
    """
    if not isinstance(path, str) or not path.isprintable() or "\\" in path:
        return "a path of printable characters without a backslash"
    if not 0 < len(path.encode()) <= MAX_PATH_BYTES:
        return f"a path of 1 to {MAX_PATH_BYTES} bytes"
    parts = path.split("/")
    if path.startswith("/") or any(part in ("", ".", "..") for part in parts):
        return "a relative path without '.', '..' or empty parts"
    if any(part.startswith(".") or part != part.strip() for part in parts):
        return "a path without hidden parts or blanks around a part"
    if len(parts) > MAX_PARTS:
        return f"a path of at most {MAX_PARTS} parts"
    return None


def invalid_files_reason(paths: Collection[object]) -> str | None:
    """Why these cannot be the paths of one program's files; None if they can."""
    if not 0 < len(paths) <= MAX_FILES:
        return f"{len(paths)} files, expected 1 to {MAX_FILES}"
    for path in paths:
        if fault := invalid_path_reason(path):
            return f"a file {path!r}, expected {fault}"
        for folder in PurePosixPath(str(path)).parents:
            if str(folder) in paths:
                return f"a file {path!r} and a file {str(folder)!r}, expected the latter a folder"
    return None


def invalid_pattern_reason(pattern: object) -> str | None:
    """Why a pattern cannot match the path of a candidate's file; None if it can."""
    if not isinstance(pattern, str) or not 0 < len(pattern) <= MAX_PATH_BYTES:
        return f"patterns of 1 to {MAX_PATH_BYTES} characters"
    parts = pattern.split("/")
    if ".." in parts:
        return "patterns of relative paths without '..'"
    if len(parts) > MAX_PARTS or any(part.startswith(".") or not part for part in parts):
        return f"patterns of relative paths of at most {MAX_PARTS} parts, none hidden or empty"
    return None


def matches(path: str, pattern: str) -> bool:
    """Whether a path fits a pattern; `*` and `?` stop at a slash, `**` stands for any folders."""
    return _matches(tuple(path.split("/")), PurePosixPath(pattern).parts)


@lru_cache(maxsize=4096)  # without it, ten times `**` take seconds
def _matches(parts: tuple[str, ...], patterns: tuple[str, ...]) -> bool:
    if not patterns:
        return not parts
    if patterns[0] == "**":
        return any(_matches(parts[skip:], patterns[1:]) for skip in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], patterns[0]) and _matches(parts[1:], patterns[1:])


@dataclass(frozen=True, slots=True)
class Focus:
    """What of several files a prompt shows first.

    Attributes:
        functions: Functions to show in full, as `path::name`, the most important first.
        shares: The share of the measured time that each of them takes; empty if they were named by
            a user.
        tests: Texts beside the program that show how they are used, by where they are.
        near: Paths of files to show before others, the first one first.
    """

    functions: tuple[str, ...] = ()
    shares: tuple[float, ...] = ()
    tests: tuple[tuple[str, str], ...] = ()
    near: tuple[str, ...] = ()


NO_FOCUS = Focus()
WHOLE_CHARACTERS, FOCUSED_CHARACTERS = 60_000, 24_000
"""Characters of the files in a prompt, unless the problem says: of whole files, and of parts around
functions in focus."""


@dataclass(frozen=True, slots=True)
class ProgramForm:
    """What the candidates of a problem look like, for what writes, reads and runs them.

    Attributes:
        paths: Paths of the files that the start has; empty if a candidate is one text.
        patterns: Patterns of the paths that a candidate may add, change or delete; empty if it has
            the files of the start and no others.
        reserved: Patterns of paths that no candidate has, whatever `patterns` say.
        language: Language of a candidate of one text, and of files with an unknown ending.
        entry_point: Function that the evaluator calls; None if it does not say.
        build: Command that builds a candidate; None if there is nothing to build.
        run: Command that runs it; None if it is not run by a command.
        focus: What of several files is shown first.
        max_characters: Characters of the files that a prompt shows; None as the focus asks for.
    """

    paths: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    reserved: tuple[str, ...] = ()
    language: Language = field(default=PYTHON)
    entry_point: str | None = None
    build: str | None = None
    run: str | None = None
    focus: Focus = NO_FOCUS
    max_characters: int | None = None

    @property
    def shown_characters(self) -> int:
        """Characters of the files of a program that a prompt shows."""
        usual = FOCUSED_CHARACTERS if self.focus.functions else WHOLE_CHARACTERS
        return self.max_characters or usual

    @property
    def is_one_text(self) -> bool:
        """Whether a candidate is one text, not files by path."""
        return not self.paths

    def language_at(self, path: str) -> Language:
        """Language of a candidate's file."""
        found = language_of(path)
        is_unknown = found.is_text and PurePosixPath(path).suffix not in found.endings
        return self.language if is_unknown else found

    def allows(self, path: str) -> bool:
        """Whether a candidate may have a file of this path."""
        if not self.patterns:
            return path in self.paths
        if any(matches(path, pattern) for pattern in self.reserved):
            return False
        return any(matches(path, pattern) for pattern in self.patterns)

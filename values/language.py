"""Languages of candidates: their names, file endings, fences and comments."""

from dataclasses import dataclass
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
        """Whether it is plain text, of which no syntax is known."""
        return self.name == "text"


HASH = (("#", ""),)
SLASHES = (("//", ""), ("/*", "*/"))
DASHES = (("--", ""),)
TAGS = (("<!--", "-->"),)

LANGUAGES = (
    Language("Python", "python", (".py",), HASH, ("py", "python3")),
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
    Language("JavaScript", "javascript", (".js", ".mjs"), SLASHES, ("js",)),
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
    """The language that a word in settings or behind a fence stands for, in any case."""
    return next((each for each in LANGUAGES if word.strip().lower() in each.words), None)


def file_ending(name: str, language: str) -> str:
    """The ending of a file's name, else the usual one of the language that a word stands for."""
    return PurePosixPath(name).suffix or (find_language(language) or TEXT).endings[0]

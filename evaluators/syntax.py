"""A check of a candidate's syntax before it is built, run or judged."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec

from costada.evaluators.sandbox.candidate_runs import find_syntax_faults, named_files
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.values.candidate import Program
from costada.values.program_form import PYTHON, ProgramForm, language_of

CHECK_SECONDS = 10.0
"""Wall-clock limit of a check; one that takes longer finds nothing."""

LIBRARIES = ("Python", "JSON", "TOML", "YAML")
"""Languages that need no further package."""

GRAMMARS = {
    "C++": "tree_sitter_cpp.language",
    "C": "tree_sitter_c.language",
    "Rust": "tree_sitter_rust.language",
    "Go": "tree_sitter_go.language",
    "Java": "tree_sitter_java.language",
    "JavaScript": "tree_sitter_javascript.language",
    "TypeScript": "tree_sitter_typescript.language_typescript",
    "shell": "tree_sitter_bash.language",
    "Julia": "tree_sitter_julia.language",
    "Ruby": "tree_sitter_ruby.language",
}
"""Tree-sitter's grammars by language, of the packages that the extra `syntax` installs."""


def checker_of(language: str) -> str | None:
    """What checks a language here: its library, its grammar, or nothing."""
    if language in LIBRARIES:
        return language
    grammar = GRAMMARS.get(language, "")
    module = grammar.rpartition(".")[0]
    is_there = module and find_spec("tree_sitter") and find_spec(module)
    return grammar if is_there else None


@dataclass(frozen=True, slots=True)
class SyntaxCheck:
    """Finds the first syntax error of a candidate.

    Python files are not checked where an entry point is called: loading them does that. Nor is a
    language in which the start has errors: its grammar does not know all that the compiler takes.

    Attributes:
        start: The initial program.
        form: What the files of a candidate may be.
        file_name: Name of a candidate of one text in errors.
    """

    start: Program
    form: ProgramForm
    file_name: str

    def fault(self, source: str | Program, limits: Limits, layer: Layer) -> str | None:
        """The first error with its file and line; None if there is none, or no check.

        Raises:
            InterruptedError: If the evaluation was cancelled.
            OSError: If the scratch folder cannot be made.
            RuntimeError: If the sandbox itself does not work.
        """
        languages = self.languages_of(Program.of(source))
        if not languages:
            return None
        limits = replace(limits, wall_seconds=min(limits.wall_seconds, CHECK_SECONDS))
        unchecked = _start_faults(self, limits, layer)
        for path, fault in _faults(source, self.file_name, languages, limits, layer).items():
            if languages[path] not in unchecked:
                return fault
        return None

    def languages_of(self, program: Program) -> dict[str, str]:
        """What checks each file that can be checked, by path."""
        if program.is_one_text:
            languages = {self.file_name: self.form.language}
        else:
            languages = {path: language_of(path) for path in program}
        checkers = {
            path: checker_of(language.name)
            for path, language in languages.items()
            if language != PYTHON or self.form.entry_point is None
        }
        return {path: checker for path, checker in checkers.items() if checker}


@lru_cache(maxsize=64)
def _start_faults(check: SyntaxCheck, limits: Limits, layer: Layer) -> frozenset[str]:
    """What finds errors in the initial program."""
    languages = check.languages_of(check.start)
    found = _faults(check.start.source, check.file_name, languages, limits, layer)
    return frozenset(languages[path] for path in found)


def _faults(
    source: str | Program,
    file_name: str,
    languages: Mapping[str, str],
    limits: Limits,
    layer: Layer,
) -> dict[str, str]:
    program = named_files(source, file_name)
    return {} if program.fault(limits) else find_syntax_faults(program, languages, limits, layer)

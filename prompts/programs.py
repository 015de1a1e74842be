"""How a model is shown a program: one text in a fence, or its files below their paths."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from costada.prompts.evolve_blocks import BLOCK_START
from costada.prompts.fences import fenced
from costada.values.candidate import Program, changed_files
from costada.values.program_form import PYTHON, Language, ProgramForm

FILE_SIGN = "FILE:"
"""Begins the line above a file, and above the changes of it, with its path behind."""

DELETE_SIGN = "DELETE:"

FILES_LIMIT = 60_000
"""Characters of files that are shown whole; of further ones a model sees name and outline."""

OTHER_FILES_LIMIT = 20_000
"""The same of a program that is not the one to change."""

OUTLINE_LINES = 40
OUTLINE_WIDTH = 120

DOCUMENTS = ("text", "Markdown", "JSON", "YAML", "TOML", "HTML", "XML", "CSS", "LaTeX")
"""Languages of texts that are read, not executed."""

_DEFINING = (
    *("def ", "async def ", "class ", "fn ", "pub ", "func ", "function ", "struct ", "enum "),
    *("trait ", "impl ", "interface ", "type ", "namespace ", "module ", "template", "export "),
    *("public ", "private ", "protected ", "static ", "subroutine ", "CREATE ", "#"),
)


def main_language(form: ProgramForm) -> Language:
    """The language of a program of one text, or of most files that are not read as text."""
    if form.is_one_text:
        return form.language
    if form.entry_point is not None:
        return PYTHON
    languages = [form.language_at(path) for path in form.paths]
    executed = [each for each in languages if each.name not in DOCUMENTS]
    return Counter(executed or languages).most_common(1)[0][0]


def is_python_text(form: ProgramForm) -> bool:
    """Whether a program is one Python text that no command runs."""
    return form.is_one_text and form.language == PYTHON and form.run is None


def is_document(form: ProgramForm) -> bool:
    """Whether a program is read, not executed, as far as its form says."""
    is_run = form.run or form.build or form.entry_point
    return not is_run and main_language(form).name in DOCUMENTS


@dataclass(frozen=True, slots=True)
class ShownFiles:
    """The files of a program: those to show whole, and the paths of those to outline."""

    whole: Mapping[str, str]
    outlined: Mapping[str, str]


def choose_files(files: Mapping[str, str], form: ProgramForm, limit: int) -> ShownFiles:
    """The files that fit into a number of characters.

    First come the file of the entry point and those with marks around what is meant to change, then
    the shortest.
    """
    start = _path_begin(form)

    def rank(path: str) -> tuple[bool, int, str]:
        is_wanted = BLOCK_START in files[path] or (start != "" and path.startswith(start))
        return not is_wanted, len(files[path]), path

    room, chosen = limit, set()
    for path in sorted(files, key=rank):
        if len(files[path]) <= room:
            chosen.add(path)
            room -= len(files[path])
    return ShownFiles(
        {path: text for path, text in files.items() if path in chosen},
        {path: text for path, text in files.items() if path not in chosen},
    )


def _path_begin(form: ProgramForm) -> str:
    """How the path of the entry point's file begins; empty if there is none."""
    module, colon, _ = (form.entry_point or "").partition(":")
    return module.replace(".", "/") if colon else ""


def example_path(form: ProgramForm) -> str:
    """A path for an example of a change: the entry point's file, or the first."""
    start = _path_begin(form)
    found = (path for path in form.paths if start and path.startswith(start))
    return next(found, form.paths[0])


def outline(text: str) -> str:
    """The lines of a text that look like headings or definitions, with their numbers."""
    found = []
    for number, line in enumerate(text.split("\n"), start=1):
        bare = line.strip()
        is_outermost = line[:1].strip() != "" and bare.endswith(("{", ":", "("))
        if is_outermost or bare.startswith(_DEFINING):
            found.append(f"{number}: {line[:OUTLINE_WIDTH].rstrip()}")
    left_out = len(found) - OUTLINE_LINES
    more = [f"[{left_out} more]"] if left_out > 0 else []
    return "\n".join([*found[:OUTLINE_LINES], *more])


def program_block(
    code: str | Program,
    form: ProgramForm,
    base: str | Program | None = None,
    limit: int = FILES_LIMIT,
) -> str:
    """A program for a prompt.

    Args:
        code: Its text, or its files.
        form: What the files of a program may be.
        base: The program that a prompt shows beside it: of several files, those that are equal
            there are left out.
        limit: Characters of files shown whole.
    """
    program = Program.of(code)
    if program.is_one_text:
        return fenced(program.text, form.language.fence)
    known = Program(()) if base is None else Program.of(base)
    files = changed_files(program, known)
    view = choose_files(files, form, limit)
    parts = [
        f"{FILE_SIGN} {path}\n{fenced(text, form.language_at(path).fence)}"
        for path, text in view.whole.items()
    ]
    if view.outlined:
        parts.append(f"Files that do not fit into {limit} characters, by name and outline only:")
    for path, text in view.outlined.items():
        lines = f"\n{fenced(outline(text), 'text')}" if outline(text) else ""
        parts.append(f"- `{path}`, {len(text)} characters{lines}")
    if base is not None:
        gone = ", ".join(f"`{path}`" for path in known if path not in program)
        parts += [f"It does not have {gone}."] if gone else []
        same = len(program) - len(files)
        noun = "file is" if same == 1 else "files are"
        parts += [f"{same} {noun} as in the current program."] if same else []
    return "\n\n".join(parts)

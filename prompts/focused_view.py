"""Python files as a prompt shows them: functions in focus in full, an outline of the rest."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from costada.prompts.function_edits import FILE_SIGN, function_place
from costada.prompts.reply_parts import fenced
from costada.values.program_form import PYTHON, Focus, ProgramForm
from costada.values.python_source import FUNCTION_SIGN, Definition, PythonSource, read_python

FOCUS_SHARE, TESTS_SHARE, NEIGHBOUR_SHARE = 0.5, 0.25, 0.25
"""How much of a prompt's files the functions in focus, tests, and callers may take; the first
function is always shown."""

MAX_NEIGHBOUR = 3000
"""Characters of a caller, or of a function that is called, that is shown in full."""

MAX_HEAD, MAX_SUMMARY = 200, 80
MAX_STATEMENT = 6
"""Lines of a statement outside of functions that are shown in full; of a longer one the first."""

MAX_LISTED = 40
_WORD = re.compile(r"[^\W\d]\w*")
_SPECIAL = re.compile(r"__\w+__")


@dataclass(slots=True)
class _View:
    """What is shown of the files, and how many characters are left."""

    sources: Mapping[str, PythonSource]
    left: int
    shown: dict[str, list[Definition]] = field(default_factory=dict)

    def add(self, path: str, each: Definition, room: float) -> bool:
        """Show a definition in full if it fits; whether it is shown."""
        known = self.shown.get(path, [])
        if any(one.first <= each.first and each.end <= one.end for one in known):
            return True
        size = len(self.sources[path].text(each))
        if size > min(room, self.left):
            return False
        self.shown.setdefault(path, []).append(each)
        self.left -= size
        return True


def focused_files(files: Mapping[str, str], form: ProgramForm) -> str:
    """The files of a program around the functions in focus; empty if none of them is there.

    In this order, while there is room: the functions in focus, tests, the outline of their files,
    the functions that they call and that call them, and the outline of other files.
    """
    focus, limit = form.focus, form.shown_characters
    sources = python_sources(files, form)
    wanted = _found(focus, sources)
    if not wanted:
        return ""
    view = _View(sources, limit)
    room = FOCUS_SHARE * limit
    for number, (path, each) in enumerate(wanted):
        before = view.left
        # However long it is, the first one is what the task is about.
        view.left = max(view.left, len(sources[path].text(each))) if number == 0 else view.left
        view.add(path, each, view.left if number == 0 else room)
        room -= before - view.left
    tests = _tests(focus, min(TESTS_SHARE * limit, view.left))
    view.left -= len(tests)
    outlines = {path: folded(sources[path], view.shown[path]) for path in view.shown}
    view.left -= sum(map(len, outlines.values()))
    room = NEIGHBOUR_SHARE * limit
    for path, each in _neighbours(view, [each for _, each in wanted]):
        view.add(path, each, min(room, MAX_NEIGHBOUR))
    parts = [_lead(focus, wanted, view)]
    for path, definitions in view.shown.items():
        text = folded(sources[path], definitions)
        parts.append(f"{FILE_SIGN} {path}\n{fenced(text, PYTHON.fence)}")
    parts += _others(files, view, form)
    return "\n\n".join([*parts, *([tests] if tests else [])])


def python_sources(files: Mapping[str, str], form: ProgramForm) -> dict[str, PythonSource]:
    """The files that are Python, and can be read as such."""
    given = {path: text for path, text in files.items() if form.language_at(path) == PYTHON}
    read = {path: read_python(text.replace("\r\n", "\n")) for path, text in given.items()}
    return {path: source for path, source in read.items() if source is not None}


def _found(focus: Focus, sources: Mapping[str, PythonSource]) -> list[tuple[str, Definition]]:
    """The functions in focus that the files define."""
    places = [place for each in focus.functions if (place := function_place(each))]
    return [
        (place.path, found[0])
        for place in places
        if place.path in sources and (found := sources[place.path].find(place.name))
    ]


def _lead(focus: Focus, wanted: list[tuple[str, Definition]], view: _View) -> str:
    """What is in focus, and how to read what follows."""
    shares = dict(zip(focus.functions, focus.shares, strict=False))
    named = []
    for path, each in wanted:
        place = f"{path}{FUNCTION_SIGN}{each.name}"
        share = f" ({shares[place]:.0%})" if place in shares else ""
        named.append(f"`{place}`{share}")
    verb = "Most of the measured time is spent in" if shares else "In focus:"
    return (
        f"{verb} {', '.join(named)}. Other functions are shown by their heads, and `...` stands for"
        " what is left out."
    )


def _neighbours(view: _View, focused: list[Definition]) -> Iterator[tuple[str, Definition]]:
    """Functions that those in focus call, then those that call them; of their own files first."""
    texts = [view.sources[path].text(each) for path, shown in view.shown.items() for each in shown]
    called = set(_WORD.findall("\n".join(texts)))
    names = {_short(each) for each in focused}
    own = sorted(view.sources, key=lambda path: (path not in view.shown, path))
    functions = [
        (path, each)
        for path in own
        for each in view.sources[path].definitions
        if not each.is_class and not _SPECIAL.fullmatch(_last(each))
    ]
    yield from ((path, each) for path, each in functions if _last(each) in called)
    for path, each in functions:
        if names & set(_WORD.findall(view.sources[path].text(each))):
            yield path, each


def _last(each: Definition) -> str:
    return each.name.rpartition(".")[2]


def _short(each: Definition) -> str:
    """The word by which callers name a definition: of `__init__` and the like its class."""
    last = _last(each)
    return each.name.split(".")[-2] if _SPECIAL.fullmatch(last) and "." in each.name else last


def folded(source: PythonSource, shown: list[Definition]) -> str:
    """A file with some definitions in full; comments, docstrings and other bodies left out."""
    parts: dict[int, str] = {}
    hidden = [(each.first, each.end) for each in shown]
    for each in source.definitions:
        if each in shown:
            parts[each.first] = f"\n{source.text(each)}\n"
        elif not any(first <= each.first < end for first, end in hidden):
            parts[each.first] = "\n".join(_heads(source, each))
    for first, end in source.statements:
        if not any(begin <= first < behind for begin, behind in hidden):
            lines = source.lines[first:end]
            more = len(lines) - MAX_STATEMENT
            if more > 0:
                indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
                lines = (*lines[:2], f"{indent}    ...  # {len(lines) - 2} more lines")
            parts[first] = "\n".join(line[: 2 * MAX_HEAD] for line in lines)
    text = "\n".join(parts[first] for first in sorted(parts))
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n")


def _heads(source: PythonSource, each: Definition) -> Iterator[str]:
    """The decorators and the head of a definition, with its docstring's first line."""
    yield from (line[:MAX_HEAD] for line in source.lines[each.first : each.head])
    head = " ".join(line.strip() for line in source.lines[each.head : each.body])
    summary = f"  # {each.summary[:MAX_SUMMARY]}" if each.summary else ""
    body = "" if each.is_class or each.body == each.end else " ..."
    yield f"{each.indent}{head[:MAX_HEAD]}{body}{summary}"


def outline_of(source: PythonSource) -> str:
    """The heads of all definitions of a file."""
    return "\n".join(line for each in source.definitions for line in _heads(source, each))


def _others(files: Mapping[str, str], view: _View, form: ProgramForm) -> list[str]:
    """Outlines of the other files while there is room, and the paths of the rest."""
    near = {path: number for number, path in enumerate(form.focus.near)}
    others = sorted(
        (path for path in files if path not in view.shown),
        key=lambda path: (near.get(path, len(near)), len(files[path]), path),
    )
    parts, rest = [], []
    for path in others:
        text = outline_of(view.sources[path]) if path in view.sources else ""
        size = len(text) + len(path)
        if text and size <= view.left:
            view.left -= size
            parts.append(f"- `{path}`, {len(files[path])} characters\n{fenced(text, 'text')}")
        else:
            rest.append(path)
    outlined = ["Other files, by outline only:", *parts] if parts else []
    if rest:
        listed = ", ".join(f"`{path}`" for path in rest[:MAX_LISTED])
        more = len(rest) - MAX_LISTED
        outlined.append(f"Further files: {listed}{f' and {more} more' if more > 0 else ''}.")
    return outlined


def _tests(focus: Focus, room: float) -> str:
    """What uses the functions in focus and is not part of the program, as far as it fits."""
    parts = ["These use the functions in focus, and cannot be changed:"]
    for place, text in focus.tests:
        part = f"`{place}`:\n{fenced(text, PYTHON.fence)}"
        if len(part) <= room:
            parts.append(part)
            room -= len(part)
    return "\n\n".join(parts) if len(parts) > 1 else ""

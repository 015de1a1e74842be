"""What a reply does to several files: edits, whole files and deletions, each with its path."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from costada.prompts.function_edits import FILE_SIGN, function_place
from costada.prompts.reply_parts import (
    BLOCK,
    Edit,
    Fence,
    as_edit,
    find_fences,
    has_unfinished_edit,
)
from costada.values.program_form import MAX_PATH_BYTES

DELETE_SIGN = "DELETE:"
"""Word before the path of a file to delete; `FILE_SIGN` is that above a file or its changes."""

MAX_LINE_CHARS = 300
"""Longer lines are not read as headings."""

_NUMBERING = re.compile(r"\d{1,3}[.)][ \t]+")
_FILE_WORD = re.compile(
    r"(?:(?:new|changed|modified|updated|edited|full|complete|edit|create|add|update|in)[ \t]+)?"
    r"(?:(?:file[ \t]?name|file[ \t]?path|file|path|filename)[ \t]*[:=][ \t]*|file[ \t]+)",
    re.IGNORECASE,
)
# In capitals the word is enough. Otherwise it needs the colon: a sentence may weigh a deletion.
_DELETE = re.compile(r"(?:DELETE\b(?:[ \t]+FILE)?[ \t]*:?|(?i:delete)(?:[ \t]+file)?[ \t]*:)[ \t]*")
_SIGN = re.compile(rf"(?P<sign>{FILE_SIGN}|{DELETE_SIGN})[ \t]+(?P<path>[^`*]*?[^`*\s])")
_NOTE = re.compile(r"[ \t]*\([^()]*\)$")
_LEFT, _RIGHT = "#>*=-+ \t`\"'", "*`\"':=<>- \t,"
_COMMENT_SIGNS = ("#", "//", "/*", "--", "<!--", "%", ";", "(*", "{-")
_PATH = re.compile(r"(?:[\w.@+~-]+[/\\])*[\w.@+~-]*\w\.\w{1,12}|/?(?:[\w.@+~-]+[/\\])+[\w.@+~-]+")


@dataclass(frozen=True, slots=True)
class Heading:
    """A line that says which file or function follows, or which file to delete."""

    path: str
    is_deletion: bool = False


def read_heading(line: str, known: Collection[str]) -> Heading | None:
    """What a line says of a file, if that is all it says.

    It may be written as `FILE: a.py`, `### a.py`, `**a.py**`, "1. `a.py` (new file):",
    `==> a.py <==`, or the path alone. A path that is not known counts only if it looks like one,
    or behind the very words that prompts ask for, `FILE:` and `DELETE:`. Without capitals or the
    colon, `Delete a.py` deletes nothing: it may be one of the ideas that a reply weighs. A path may
    be followed by the name of a function, as in `a.py::name`.
    """
    if len(line) > MAX_LINE_CHARS:
        return None
    bare = _bare(line)
    deletion = _DELETE.match(bare)
    is_named = _FILE_WORD.match(bare)
    marked = line.strip()[:1] in tuple("#*`=>") or bool(deletion or is_named)
    for word in (deletion, is_named):
        if word:
            bare = _bare(bare[word.end() :])
    path = bare.removeprefix("./")
    if path in known or bare in known:
        return Heading(path if path in known else bare, bool(deletion))
    if sign := _SIGN.fullmatch(line.strip().strip("`*")):
        return Heading(sign["path"], sign["sign"] == DELETE_SIGN)
    place = function_place(path)
    file = place.path if place else path
    if file in known or (marked and looks_like_path(file)):
        return Heading(path, bool(deletion))
    return None


def names_function(text: str, known: Collection[str]) -> bool:
    """Whether a word names a function of a file, as in `a.py::name`."""
    place = function_place(text)
    return place is not None and (place.path in known or looks_like_path(place.path))


def _bare(line: str) -> str:
    """A line without what headings, lists, quotes and emphasis put around a path."""
    bare = _NUMBERING.sub("", line.strip().lstrip(_LEFT), count=1).lstrip(_LEFT)
    bare = bare.rstrip(_RIGHT)
    return _NOTE.sub("", bare, count=1).rstrip(_RIGHT)


def looks_like_path(text: str) -> bool:
    """Whether a word has the form of a path: a name with an ending, or folders."""
    is_short = 0 < len(text) <= MAX_PATH_BYTES + 1
    return is_short and "://" not in text and _PATH.fullmatch(text) is not None


def mentioned_path(line: str, known: Collection[str]) -> str | None:
    """The one known path that a sentence mentions; None if it mentions none or several."""
    if len(line) > MAX_LINE_CHARS:
        return None
    words = {word.strip("`*\"'()[],:;") for word in line.split()}
    found = {word for word in (*words, *(word.rstrip(".") for word in words)) if word in known}
    return found.pop() if len(found) == 1 else None


def path_comment(line: str, known: Collection[str]) -> str | None:
    """The path that a comment consists of, as models write it into the first line of a file."""
    bare = line.strip()
    if not bare.startswith(_COMMENT_SIGNS) or len(bare) > MAX_LINE_CHARS:
        return None
    bare = bare.strip("#/*-<!>%;(){} \t")
    word = _FILE_WORD.match(bare)
    path = (bare[word.end() :] if word else bare).strip().removeprefix("./")
    return path if path in known or ("/" in path and looks_like_path(path)) else None


_HOLE = "\0"
"""Stands in a reply where a block was taken out; a line of a reply holds no such character."""


@dataclass(frozen=True, slots=True)
class FileEdit:
    """A SEARCH/REPLACE block and the path that it names; None if it names none."""

    path: str | None
    edit: Edit


@dataclass(frozen=True, slots=True)
class WholeFile:
    """A file as a reply writes it.

    Attributes:
        path: Its path, or that of a function in it; None if the reply does not say.
        text: Its text, or that of the function.
        language: The word for its language behind the backticks, in lower case.
        is_closed: Whether the fence ends before the reply does.
        is_headed: Whether the last line above or the fence itself gives the path.
        is_mentioned: Whether only a sentence above mentions the path, as one above an example does.
    """

    path: str | None
    text: str
    language: str
    is_closed: bool
    is_headed: bool
    is_mentioned: bool = False


@dataclass(frozen=True, slots=True)
class Deletion:
    """The path of a file to delete."""

    path: str


FileChange = FileEdit | WholeFile | Deletion


@dataclass(frozen=True, slots=True)
class ReadChanges:
    """The changes of a reply in order, and whether a block is left without its end."""

    changes: tuple[FileChange, ...]
    is_unfinished: bool


def read_changes(reply: str, known: Collection[str]) -> ReadChanges:
    """The changes that a reply makes to files.

    A path is given in a line above (see `read_heading`), after the backticks of a fence, after
    SEARCH, in the sentence just above, or in a comment that begins the file. It holds for all
    blocks up to the next path, and for one fence.

    Args:
        reply: The answer, with every marker on a line of its own.
        known: Paths of the files that there are.
    """
    reply = reply.replace(_HOLE, "")
    blocks, holed = [*BLOCK.finditer(reply)], BLOCK.sub(_HOLE, reply)
    return ReadChanges(
        tuple(_Reader(holed, [(each[0], as_edit(each)) for each in blocks], known)),
        has_unfinished_edit(holed),
    )


class _Reader(Iterator[FileChange]):
    """Iterates over a reply's lines and tracks the current file."""

    def __init__(self, holed: str, blocks: list[tuple[str, Edit]], known: Collection[str]) -> None:
        self._lines, self._known = holed.split("\n"), known
        self._blocks = iter(blocks)
        # A fence around blocks is not the text of a file.
        fences = find_fences(holed)
        self._fences: Mapping[int, Fence] = {
            each.first: each for each in fences if _HOLE not in each.text
        }
        self._number = 0
        self._above = ""
        self._path: str | None = None
        self._is_used = self._is_headed = False

    def __next__(self) -> FileChange:
        while self._number < len(self._lines):
            line, fence = self._lines[self._number], self._fences.get(self._number)
            self._number = fence.last + 1 if fence else self._number + 1
            change: FileChange | None
            if line == _HOLE:
                change = self._edit()
            else:
                change = self._fence(fence) if fence else self._read_line(line)
            if line.strip():
                self._above = "" if line == _HOLE or fence else line
            if change is not None:
                return change
        raise StopIteration

    def _read_line(self, line: str) -> Deletion | None:
        """Note the path of a heading or of a fence around blocks."""
        bare = line.strip()
        if bare.startswith("```"):
            info = Fence(0, 0, bare.strip("`").strip(), "", is_closed=True)
            if info.path and self._is_path(info.path):
                self._path, self._is_used, self._is_headed = info.path, False, True
            return None
        heading = read_heading(line, self._known)
        if heading is None:
            return None
        if heading.is_deletion:
            return Deletion(heading.path)
        self._path, self._is_used, self._is_headed = heading.path, False, True
        return None

    def _is_path(self, word: str) -> bool:
        known = self._known
        return word in known or looks_like_path(word) or names_function(word, known)

    def _edit(self) -> FileEdit:
        block, edit = next(self._blocks)
        behind = block.split("\n", 1)[0].partition("SEARCH")[2]
        heading = read_heading(behind.strip(), self._known) if behind.strip() else None
        mentioned = mentioned_path(self._above, self._known)
        if heading is not None:
            self._path = heading.path
        elif mentioned is not None and (not self._is_headed or self._above.rstrip().endswith(":")):
            # Below a heading, sentences may mention other files; one with a colon names the next.
            self._path, self._is_headed = mentioned, False
        self._is_used = True
        return FileEdit(self._path, edit)

    def _fence(self, fence: Fence) -> WholeFile | None:
        if fence.is_diff or (not fence.text.strip() and fence.is_closed and not self._above):
            return None
        own = fence.path if self._is_path(fence.path) else None
        first, _, rest = fence.text.partition("\n")
        comment = path_comment(first, self._known)
        heading = read_heading(self._above, self._known) if self._above else None
        path, text, is_headed, is_mentioned = None, fence.text, True, False
        if own is not None:
            path = own.removeprefix("./")
        elif heading is not None and not heading.is_deletion:
            path = heading.path
        elif self._path is not None and not self._is_used:
            # A heading holds for one fence; a further fence below it may be an example.
            path, is_headed = self._path, False
        elif comment is not None:
            path = comment
        else:
            path, is_headed = mentioned_path(self._above, self._known), False
            is_mentioned = path is not None
        if comment is not None and comment == path:
            text = rest
        self._is_used = True
        return WholeFile(path, text, fence.language, fence.is_closed, is_headed, is_mentioned)

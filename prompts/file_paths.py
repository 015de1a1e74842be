"""Which file a part of a reply is for: paths in lines above it, behind backticks, in comments."""

import re
from collections.abc import Collection
from dataclasses import dataclass

from costada.values.program_form import MAX_PATH_BYTES

MAX_LINE_CHARS = 300
"""Longer lines are not read as headings."""

_NUMBERING = re.compile(r"\d{1,3}[.)][ \t]+")
_FILE_WORD = re.compile(
    r"(?:(?:new|changed|modified|updated|edited|full|complete|edit|create|add|update|in)[ \t]+)?"
    r"(?:(?:file[ \t]?name|file[ \t]?path|file|path|filename)[ \t]*[:=][ \t]*|file[ \t]+)",
    re.IGNORECASE,
)
_DELETE = re.compile(r"(?:DELETE\b(?:[ \t]+FILE)?[ \t]*:?|(?i:delete)(?:[ \t]+file)?[ \t]*:)[ \t]*")
_SIGN = re.compile(r"(?P<word>FILE|DELETE):[ \t]+(?P<path>[^`*]*?[^`*\s])")
_NOTE = re.compile(r"[ \t]*\([^()]*\)$")
_LEFT, _RIGHT = "#>*=-+ \t`\"'", "*`\"':=<>- \t,"
_COMMENT_SIGNS = ("#", "//", "/*", "--", "<!--", "%", ";", "(*", "{-")
_PATH = re.compile(r"(?:[\w.@+~-]+[/\\])*[\w.@+~-]*\w\.\w{1,12}|/?(?:[\w.@+~-]+[/\\])+[\w.@+~-]+")


@dataclass(frozen=True, slots=True)
class Heading:
    """A line that says which file follows, or which one to delete."""

    path: str
    is_deletion: bool = False


def read_heading(line: str, known: Collection[str]) -> Heading | None:
    """What a line says of a file, if that is all it says.

    It may be written as `FILE: a.py`, `### a.py`, `**a.py**`, "1. `a.py` (new file):",
    `==> a.py <==`, or the path alone. A path that is not known counts only if it looks like one,
    or behind the very words that prompts ask for, `FILE:` and `DELETE:`. Without capitals or the
    colon, `Delete a.py` deletes nothing: it may be one of the ideas that a reply weighs.
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
        return Heading(sign["path"], sign["word"] == "DELETE")
    if marked and looks_like_path(path):
        return Heading(path, bool(deletion))
    return None


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

"""The files of an evaluator that a build reads, beside those that its words or a makefile name."""

import os
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise

from costada.evaluators.sandbox.inside.evaluator_scripts import (
    MAKE,
    Script,
    make_options,
    path_of,
    text_of,
)

CMAKE, LISTS, CACHE = "cmake", "CMakeLists.txt", "CMakeCache.txt"
FOLDER_OPTION = re.compile(r"-([SB])(.*)|--(build)(?:=(.*))?")
"""The options of CMake that take a folder, in the same word or the next one."""

SOURCE_FOLDER = re.compile(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.+)$", re.MULTILINE)
SUBFOLDER = re.compile(r"\badd_subdirectory\s*\(\s*\"?([^\s\")]+)", re.IGNORECASE)
BELOW = re.compile(r"\bGLOB_RECURSE\b[^)]*", re.IGNORECASE)
VARIABLE = re.compile(r"\$[({](\w+)[)}]")
ASSIGNMENT = re.compile(
    r"^[ \t]*(?:(\w+)[ \t]*[:?]?:?=[ \t]*([\w./+-]+)"
    r"|set\s*\(\s*(\w+)\s+\"?([\w./+-]+)\"?\s*\))[ \t]*$",
    re.MULTILINE | re.IGNORECASE,
)
WORD = re.compile(r"[\w./+*?-]+")
WILDCARDS = frozenset("*?")
SOURCES = frozenset(
    (
        *(".c", ".cc", ".cpp", ".cxx", ".cu", ".h", ".hh", ".hpp", ".hxx", ".inc", ".s", ".asm"),
        *(".f", ".for", ".f90", ".f95", ".f03", ".f08", ".rs", ".go", ".java", ".kt", ".zig"),
    )
)
"""Endings of what a pattern lets a build read; other patterns, as in `rm *.txt`, do not count."""

MAX_LISTS = 100
MAX_STARS = 5
MAX_MATCHES = 1000


def cmake_lists(words: Sequence[str], folder: str, given: Container[str]) -> list[Script]:
    """The lists of CMake, of the `given` files, that a command carries out or builds by."""
    name = os.path.basename(words[0])
    if name == CMAKE:
        options = cmake_folders(words, folder)
        places = [folder, *options.values(), *(path_of(word, folder) for word in words[1:])]
    elif name in MAKE or name == "ninja":
        places = [make_options(words, folder)[0]]
    else:
        return []
    sources = [match[1] for place in places for match in SOURCE_FOLDER.finditer(_cache_of(place))]
    if name == CMAKE:
        sources += places
    return [*islice(_lists_below(dict.fromkeys(sources), given), MAX_LISTS)]


def cmake_folders(words: Sequence[str], folder: str) -> dict[str, str]:
    """The folders that a command of CMake names: `S`, `B` and `build`; none of another command."""
    found = dict[str, str]()
    if os.path.basename(words[0]) != CMAKE:
        return found
    for word, following in pairwise((*words, "")):
        if option := FOLDER_OPTION.fullmatch(word):
            found[option[1] or option[3]] = path_of(option[2] or option[4] or following, folder)
    return found


def with_values(text: str, values: Mapping[str, str]) -> str:
    """A makefile or list of CMake in which variables stand for the paths that they hold."""
    known = {each[1] or each[3]: each[2] or each[4] for each in ASSIGNMENT.finditer(text)}
    known |= values
    return VARIABLE.sub(lambda each: known.get(each[1], each[0]), text)


def matched(texts: Iterable[str], folder: str, given: Iterable[str]) -> list[str]:
    """The sources, of the `given` files, that patterns in texts fit.

    Folders are not looked through: a candidate may have written to them.
    """
    words = {word for text in texts for word in WORD.findall(text)}
    patterns = [
        path_of(word, folder)
        for word in sorted(words)
        if os.path.splitext(word)[1].lower() in SOURCES
        and not WILDCARDS.isdisjoint(word)
        and word.count("*") <= MAX_STARS
    ]
    if not patterns:
        return []
    fitting = re.compile("|".join(map(_expression, patterns)))
    return [*islice(filter(fitting.fullmatch, given), MAX_MATCHES)]


def _expression(pattern: str) -> str:
    """A regular expression for the paths that a pattern fits."""
    parts = re.split(r"(\*\*/|\*|\?)", pattern)
    meant = {"**/": "(?:[^/]+/)*", "*": "[^/]*", "?": "[^/]"}
    return "".join(meant.get(part, re.escape(part)) for part in parts)


def _lists_below(folders: Iterable[str], given: Container[str]) -> Iterator[Script]:
    """The lists of folders, and of those below that they add."""
    places = [(each, each) for each in folders]
    for place, top in places:
        path = os.path.join(place, LISTS)
        if path not in given or not (text := text_of(path)):
            continue
        values = {"CMAKE_SOURCE_DIR": top, "PROJECT_SOURCE_DIR": top}
        text = with_values(text, values | {"CMAKE_CURRENT_SOURCE_DIR": place})
        text = BELOW.sub(lambda each: each[0].replace("*.", "**/*."), text)
        yield Script(path, text, place)
        added = (path_of(each, place) for each in SUBFOLDER.findall(text))
        places += [(each, top) for each in added if (each, top) not in places]


def _cache_of(folder: str) -> str:
    path = os.path.join(folder, CACHE)
    return (text_of(path) or "") if os.path.isfile(path) else ""

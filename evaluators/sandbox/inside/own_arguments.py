"""Which of its files an evaluator's own code gives to the command that it starts.

A candidate may print the name of an answer, and the evaluator pass it on to the next command. So
what counts is not the word of a command but the texts in the evaluator's code of which it is made:
those in the call that is being carried out, and in what its names stand for.
"""

import ast
import os
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from costada.evaluators.sandbox.inside.evaluator_scripts import text_of
from costada.evaluators.sandbox.inside.own_sources import LISTING, Reached, called_name

PATH_IN_TEXT = re.compile(r"[^\s'\"=,;()<>|&]+")
FILLED_IN = re.compile(r"%[-+ #0\d.]*[a-zA-Z]|\{[^{}]*\}")
FILLING, WILDCARDS = "\0", "*?["
ANY, NUMBER = "*", "[0-9]*"
"""What may be filled in: beside a text anything, alone a number."""

DATA_SUFFIXES = (".json", ".toml", ".yaml", ".yml", ".csv", ".txt", ".ini", ".cfg")


class OwnArguments:
    """The names of files that the evaluator's code gives to a command."""

    def __init__(self, reached: Reached, folder: str, files: Iterable[str]) -> None:
        """Take what the command is given, and the evaluator's files with their folder."""
        self._folder = folder
        self._around, self._last = Names(), Names()
        for text, is_beginning in texts_in(reached):
            self._add(FILLED_IN.sub(FILLING, text), is_beginning=is_beginning)
        for path in [each for each in files if each.endswith(DATA_SUFFIXES) and self._spell(each)]:
            self._add(text_of(path) or "")

    def name(self, path: str) -> bool:
        """Whether they name a file or a folder of the evaluator, also in a list that they name.

        Where the code lists a folder, what is in it may have any name, but not the folder itself.
        """
        *around, last = self._parts(path)
        is_listed = bool(around) and ANY in self._last.patterns
        return all(map(self._around.fit, around)) and (is_listed or self._last.fit(last))

    def _spell(self, path: str) -> bool:
        """Whether they name a file, and not only fit its name."""
        *around, last = self._parts(path)
        return last in self._last.words and self._around.words.issuperset(around)

    def _parts(self, path: str) -> list[str]:
        return path.removeprefix(self._folder).strip(os.sep).split(os.sep)

    def _add(self, text: str, *, is_beginning: bool = False) -> None:
        """Take the names in a text, whose last path goes on if it is a beginning."""
        paths = PATH_IN_TEXT.findall(text)
        is_open = is_beginning and paths and text.endswith(paths[-1])
        for path in paths:
            for name in path.split(os.sep):
                self._around.add(name)
        for path in paths[:-1] if is_open else paths:
            self._last.add(os.path.basename(path))


class Names:
    """Names of files and folders, and patterns of them where something is filled in."""

    def __init__(self) -> None:
        """Begin without any."""
        self.words, self.patterns = set[str](), set[str]()

    def add(self, name: str) -> None:
        """Take a name."""
        if FILLING in name and not any(map(str.isalnum, name)):
            self.patterns.add(NUMBER)
        elif any(sign in name for sign in (FILLING, *WILDCARDS)):
            self.patterns.add(name.replace(FILLING, ANY))
        else:
            self.words.add(name)
            # A module is named without the ending of its file.
            self.words |= {f"{each}.py" for each in name.split(".") if each.isidentifier()}

    def fit(self, name: str) -> bool:
        """Whether a name is one of them, or fits a pattern that says more than `*`."""
        clear = (each for each in self.patterns if any(map(str.isalnum, each)))
        return name in self.words or any(fnmatchcase(name, each) for each in clear)


def texts_in(reached: Reached) -> Iterator[tuple[str, bool]]:
    """The texts of which the arguments are made, and whether a path goes on behind them."""
    for part in reached.parts():
        match part.node:
            case ast.Constant(value=str()) | ast.JoinedStr() | ast.BinOp():
                yield _text(part.node), part.is_beginning
            case ast.Call(func=function) if called_name(function) in LISTING:
                yield ANY, False


def _text(node: ast.AST) -> str:
    """The text that an expression is, as far as its code shows it."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(map(_text, parts))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left) + _text(right)
        case ast.BinOp(left=left, op=ast.Mod()):
            return _text(left)
        case ast.BinOp():
            return ""
    return "{}"

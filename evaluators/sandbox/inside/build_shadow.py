"""A folder in which a build works in the place of the evaluator's.

A build makes, replaces and removes files beside its sources, under names that only it knows, and
Landlock can allow that in a folder only for all files of it. So the build gets another folder, with
links to those files that it may read. Its words lead there, and when it has ended, what it made
is moved to the evaluator's folder, and what it removed is removed there.

It may have run the candidate, and some of that may still run. So the folder is taken out of its
reach first, no file of the evaluator is replaced, and only those are moved whose names its words or
its scripts show, or that no evaluator takes for its own.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain, pairwise
from tempfile import mkdtemp

from costada.evaluators.sandbox.inside.command_words import is_compiler
from costada.evaluators.sandbox.inside.own_files import OwnFiles, entries_below
from costada.evaluators.sandbox.inside.program_outputs import IMPORTED

NAME = re.compile(r"[\w.+-]+")
OUTPUT = re.compile(r"(?<!\S)-o\s*([\w./+-]+)|^([\w./+-]+)[ \t]*:(?!=)", re.MULTILINE)
"""What is built, in a command or a makefile: after `-o`, or as a target."""

PRODUCTS = (
    *(".o", ".obj", ".out", ".a", ".d", ".s", ".i", ".ii", ".mod", ".smod", ".class"),
    *(".gcno", ".gcda", ".rlib", ".rmeta", ".hi", ".cmi", ".cmo", ".cmx", ".wasm"),
)
"""Endings of files that compilers name by themselves, and that nothing loads unless it is told."""

OF_LOADER = re.compile(r"((?<!\S)\S*-rpath[,=]\S*)")
RUN_TIME = re.compile(rf"((?<![^\s='\"])-D\S*|{OF_LOADER.pattern[1:-1]})")
"""What a compiler only writes into a program: macros, and where its libraries are looked for."""

LIBRARY = re.compile(r".+\.so[\d.]*")
"""A library that a compiler is given, whose path it may write into a program."""

TOOLS_OF_FOLDERS = re.compile(r"\b(cmake|meson)\b")
"""Tools that take folders by the option for macros."""

REFUSED = (
    "sandbox: what a build has made is removed, as no word of the command or its script names it,"
    " something else is there, or its folder is read-only: {}. Build in a folder that the evaluator"
    " makes, as by os.mkdir('build'), or in a temporary one\n"
)
REPLACED = (
    "sandbox: a build fails that makes files in the place of the evaluator's: {}. Remove these from"
    " the folder, or build under other names\n"
)
MOVED = "sandbox: what a build has made is lost, as it moved or locked the folder it works in\n"
MAX_TOLD = 5
"""How many names a message shows."""


class BuildShadow:
    """What stands for the evaluator's folder while a build runs."""

    def __init__(self, folder: str, home: str, own: OwnFiles, texts: Iterable[str]) -> None:
        """Make it, still without files.

        Args:
            folder: The evaluator's folder.
            home: A folder to which the build may write.
            own: The evaluator's files.
            texts: The words of the build, and its scripts.
        """
        self._folder, self._own = folder, own
        # Neither a folder beside it, nor a path that leads up from it.
        self._named = re.compile(rf"{re.escape(folder)}(?![\w.+-]|/\.\.(?:/|$))")
        self._place = mkdtemp(prefix="build-", dir=home)
        said = "\n".join(texts)
        self._kept = RUN_TIME if TOOLS_OF_FOLDERS.search(said) is None else OF_LOADER
        self._stems = {*map(_stem, NAME.findall(said))}
        outputs = chain(*OUTPUT.findall(said))
        self._outputs = tuple(f"/{path.lstrip('./')}" for path in outputs)
        self._linked = set[str]()
        for each in own.folders:
            os.makedirs(self.path_of(each), exist_ok=True)

    def path_of(self, path: str) -> str:
        """A path with this folder in the place of the evaluator's."""
        return self._named.sub(lambda _: self._place, path)

    def words_of(self, words: Iterable[str]) -> list[str]:
        """The words of the build with this folder in the place of the evaluator's.

        What a program is given to use when it runs, after the build, stays as it is.
        """
        words = [*words]
        is_linking = is_compiler(words)
        return [
            word
            if is_linking and before != "-o" and LIBRARY.fullmatch(word) and os.path.exists(word)
            else self._moved(word)
            for before, word in pairwise(("", *words))
        ]

    def _moved(self, word: str) -> str:
        parts = enumerate(self._kept.split(word))
        return "".join(part if number % 2 else self.path_of(part) for number, part in parts)

    def show(self, paths: Iterable[str]) -> None:
        """Link to what the build may read or write below the evaluator's folder.

        Not to links that were made: by one of these, an evaluator could be led to its own answers.
        """
        for path in paths:
            is_own, link = path in self._own, self.path_of(path)
            if is_own and os.path.isdir(path) and not os.path.islink(path):
                self.show(entry.path for entry in os.scandir(path))
            elif (
                link != path and not os.path.lexists(link) and (is_own or not os.path.islink(path))
            ):
                os.makedirs(os.path.dirname(link), exist_ok=True)
                os.symlink(path, link)
                self._linked.add(path)

    def end(self) -> bool:
        """Move what was made to the evaluator's folder, and remove there what was removed.

        Returns:
            Whether nothing was made in the place of a file of the evaluator.
        """
        # What still runs of the build reaches nothing there: rules hold for where a file is.
        ended = mkdtemp(prefix=".build-", dir=os.path.dirname(self._folder))
        try:
            os.rename(self._place, ended)
        except OSError:  # nothing, or a file, is in its place, or it is in another one
            os.rmdir(ended)
            sys.stderr.write(MOVED)
            return True
        self._place = ended
        for path in self._linked:
            if not (os.path.islink(self.path_of(path)) or self._own.began_with(path)):
                _remove(path)
        refused = [path for path in self._made() if not self._is_moved(path)]
        replaced = [path for path in refused if self._own.began_with(self._target(path))]
        for text, paths in ((REPLACED, replaced), (REFUSED, {*refused} - {*replaced})):
            if names := [repr(os.path.relpath(path, ended)) for path in sorted(paths)[:MAX_TOLD]]:
                sys.stderr.write(text.format(", ".join(names)))
        _remove(ended)
        return not replaced

    def _made(self) -> list[str]:
        entries = entries_below(self._place)
        return [
            entry.path
            for entry in entries
            if not (entry.is_symlink() or entry.is_dir(follow_symlinks=False))
        ]

    def _target(self, path: str) -> str:
        return self._folder + path.removeprefix(self._place)

    def _is_moved(self, path: str) -> bool:
        """Move a file to the evaluator's folder; whether it may be there."""
        target = self._target(path)
        folder = around = os.path.dirname(target)
        while not os.path.lexists(around):
            around = os.path.dirname(around)
        is_free = os.path.isdir(around) and os.path.realpath(around) == around
        can_move = all(os.access(each, os.W_OK) for each in (os.path.dirname(path), around))
        if os.path.lexists(target) or not (is_free and can_move and self._is_output(target)):
            return False
        os.makedirs(folder, exist_ok=True)
        os.rename(path, target)
        return True

    def _is_output(self, path: str) -> bool:
        if path in self._linked or path.endswith(self._outputs):
            return True
        name = os.path.basename(path)
        is_likely = name.endswith(PRODUCTS) or _stem(name) in self._stems
        return is_likely and not (name.endswith(IMPORTED) or name.startswith("."))


def _stem(name: str) -> str:
    return name.partition(".")[0].partition("$")[0]


def _remove(path: str) -> None:
    """Remove a file, or a folder with all that is in it, if it is still there."""
    if os.path.isdir(path) and not os.path.islink(path):
        with suppress(RecursionError):  # what is nested too deeply ends with the evaluation
            shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)

"""A folder in which a build works in the place of the evaluator's.

A build makes, replaces and removes files beside its sources, under names that only it knows, and
Landlock can allow that in a folder only for all files of it. So the build gets another folder, with
links to those files that it may read. Its words lead there, and when it has ended, what it made
is moved to the evaluator's folder, and what it removed is removed there.

It may have run the candidate, so no file of the evaluator is replaced, and only those are moved
whose names its words or its scripts show, or that no evaluator takes for its own.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from tempfile import mkdtemp

from costada.evaluators.sandbox.inside.own_files import OwnFiles
from costada.evaluators.sandbox.inside.program_outputs import IMPORTED

NAME = re.compile(r"[\w.+-]+")
OUTPUT = re.compile(r"(?<!\S)-o\s*([\w./+-]+)|^([\w./+-]+)[ \t]*:(?!=)", re.MULTILINE)
"""What is built, in a command or a makefile: after `-o`, or as a target."""

PRODUCTS = (
    *(".o", ".obj", ".out", ".a", ".d", ".s", ".i", ".ii", ".mod", ".smod", ".class"),
    *(".gcno", ".gcda", ".rlib", ".rmeta", ".hi", ".cmi", ".cmo", ".cmx", ".wasm"),
)
"""Endings of files that compilers name by themselves, and that nothing loads unless it is told."""

REFUSED = (
    "sandbox: what a build has made is removed, as it is a file of the evaluator, or no word of the"
    " command or its script names it: {}. Build in a folder that the evaluator makes, as by"
    " os.mkdir('build'), or in a temporary one\n"
)
MAX_REFUSED = 5
"""No more names are told."""


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
        self._place = mkdtemp(prefix="build-", dir=home)
        said = "\n".join(texts)
        self._stems = {*map(_stem, NAME.findall(said))}
        self._outputs = {*map(os.path.basename, chain(*OUTPUT.findall(said)))}
        self._linked: list[str] = []
        for each in own.folders:
            os.makedirs(self.path_of(each), exist_ok=True)

    def path_of(self, text: str) -> str:
        """A path or a text with this folder in the place of the evaluator's."""
        return text.replace(self._folder, self._place)

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
                self._linked.append(path)

    def end(self) -> None:
        """Move what was made to the evaluator's folder, and remove there what was removed."""
        for path in self._linked:
            if not (os.path.lexists(self.path_of(path)) or path in self._own):
                _remove(path)
        refused = [path for path in [*self._made()] if not self._is_moved(path)]
        if refused:
            names = (
                repr(os.path.relpath(path, self._place)) for path in sorted(refused)[:MAX_REFUSED]
            )
            sys.stderr.write(REFUSED.format(", ".join(names)))
        shutil.rmtree(self._place, ignore_errors=True)

    def _made(self) -> Iterator[str]:
        for folder, _, names in os.walk(self._place):
            for name in names:
                if not os.path.islink(path := os.path.join(folder, name)):
                    yield path

    def _is_moved(self, path: str) -> bool:
        """Move a file to the evaluator's folder; whether it may be there."""
        folder, name = os.path.split(os.path.relpath(path, self._place))
        folder = os.path.realpath(os.path.join(self._folder, folder))
        target = os.path.join(folder, name)
        is_inside = f"{folder}/".startswith(f"{self._folder}/")
        is_free = target not in self._own and not os.path.isdir(target)
        if not (is_inside and is_free and self._is_output(name)):
            return False
        os.makedirs(folder, exist_ok=True)
        os.replace(path, target)
        if os.path.islink(target) or os.path.isdir(target):  # exchanged just now
            _remove(target)
        return True

    def _is_output(self, name: str) -> bool:
        is_likely = name.endswith(PRODUCTS) or _stem(name) in self._stems
        is_loaded = name.endswith(IMPORTED) or name.startswith(".")
        return name in self._outputs or (is_likely and not is_loaded)


def _stem(name: str) -> str:
    return name.partition(".")[0].partition("$")[0]


def _remove(path: str) -> None:
    """Remove a file, or a folder with all that is in it, if it is still there."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)

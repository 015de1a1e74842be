"""Tells which commands run the candidate: its file, a copy, what was built of it, code in a pipe.

A command may start others, so the texts of shells, of shell scripts and of makefiles are read too,
as far as their words show what they run. Where they do not, a command counts as the candidate's.
"""

import os
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress

from costada.evaluators.sandbox.inside.evaluator_scripts import (
    CODE_OPTION,
    MAKE,
    MAX_DEPTH,
    SHELL,
    is_shell_script,
    makefiles,
    path_of,
    text_of,
)
from costada.evaluators.sandbox.inside.shell_text import UNKNOWN, commands_in, unwrapped

INTERPRETER = re.compile(
    r"(python|ruby|perl|lua|php)[\d.]*|node(js)?|deno|bun|julia|Rscript|(ba|da|z|k)?sh"
)
NAME = re.compile(r"[\w.+-]+")
STANDARD_INPUT = "-"
MODULE_OPTION = "-m"
MIN_CODE_CHARS = 8
"""Shorter programs are not looked for in the words of a command: they may be part of any."""


class StartedCommands:
    """Decides which commands run the candidate."""

    def __init__(
        self,
        root: str,
        given: Container[str],
        program: str,
        codes: Sequence[str],
        made: Callable[[], Iterator[str]],
    ) -> None:
        """Take what is known of an evaluation.

        Args:
            root: The working folder, with a slash behind it.
            given: The evaluator's files, and folders around them.
            program: The folder of the candidate's files.
            codes: Their texts.
            made: The paths of what was made in the evaluator's folder.
        """
        self._root, self._given, self._program = root, given, program
        stripped = map(str.strip, codes)
        self._codes = [text for text in stripped if len(text) >= MIN_CODE_CHARS]
        self._made = made

    def holds_code(self, word: str) -> bool:
        """Whether a word of a command holds a text of the candidate."""
        return any(code in word for code in self._codes)

    def run_candidate(
        self, words: Sequence[str], folder: str, environment: Mapping[str, str], depth: int = 0
    ) -> bool:
        """Whether a command may execute the candidate's code, or reads it.

        A script of the evaluator in another language than a shell's is a part of the evaluator,
        whatever it is given.
        """
        words = unwrapped(words)
        if not words:
            return False
        if depth > MAX_DEPTH or UNKNOWN.search(words[0]):
            return True
        name = os.path.basename(words[0])
        paths = [path_of(word, folder) for word in words]
        if paths[0] in self._given:
            if not is_shell_script(paths[0]):
                return False
            return self._by_script(paths[0], words[1:], folder, environment, depth)
        if SHELL.fullmatch(name) and CODE_OPTION in words[1:-1]:
            text = words[words.index(CODE_OPTION) + 1]
            if self._by_text(text, folder, environment, depth):
                return True
        elif INTERPRETER.fullmatch(name):
            rest = [number for number, word in enumerate(words) if word[:1] != "-"][1:2]
            is_unknown = not rest or STANDARD_INPUT in words or UNKNOWN.search(words[rest[0]])
            if is_unknown or self._is_made(words[: rest[0] + 1], folder):
                return True  # it reads code from a pipe, or nobody knows which
            if paths[rest[0]] in self._given and CODE_OPTION not in words[: rest[0]]:
                if SHELL.fullmatch(name):
                    others = words[rest[0] + 1 :]
                    return self._by_script(paths[rest[0]], others, folder, environment, depth)
                return False
        elif name in MAKE and self._by_makefile(words, folder):
            return True
        return self._reach_candidate(words, folder, environment)

    def _is_made(self, words: Sequence[str], folder: str) -> bool:
        """Whether the last word names a module that was made since the evaluation began."""
        if MODULE_OPTION not in words:
            return False
        place = os.path.join(folder, *words[-1].split("."))
        paths = (path_of(name, folder) for name in (place, f"{place}.py"))
        return any(os.path.exists(path) and not self.is_given(path) for path in paths)

    def is_given(self, path: str) -> bool:
        """Whether a path is the evaluator's, or outside of the working folder."""
        return path in self._given or not path.startswith(self._root)

    def _reach_candidate(
        self, words: Sequence[str], folder: str, environment: Mapping[str, str]
    ) -> bool:
        """Whether words, or variables, lead to the candidate's files or to what was made."""
        if not self.is_given(folder):
            return True
        if any(self._program in text for text in (*words, *environment.values())):
            return True
        if any(map(self.holds_code, words)):
            return True
        paths = (path_of(word, folder) for word in words)
        return any(not self.is_given(path) and os.path.isfile(path) for path in paths)

    def _by_script(
        self,
        path: str,
        arguments: Sequence[str],
        folder: str,
        environment: Mapping[str, str],
        depth: int,
    ) -> bool:
        """Whether a shell script of the evaluator runs the candidate, which it may be given."""
        if self._reach_candidate(arguments, folder, environment):
            return True
        text = text_of(path)
        return text is None or self._by_text(text, folder, environment, depth)

    def _by_text(self, text: str, folder: str, environment: Mapping[str, str], depth: int) -> bool:
        """Whether a command in the text of a shell runs the candidate."""
        commands = commands_in(text)
        if commands is None:
            return True
        for words in commands:
            if words[:1] == ["cd"] and len(words) > 1:
                if UNKNOWN.search(words[1]):
                    return True
                folder = path_of(words[1], folder)
            elif self.run_candidate(words, folder, environment, depth + 1):
                return True
        return False

    def _by_makefile(self, words: Sequence[str], folder: str) -> bool:
        """Whether a makefile, or a word beside it, names what was made or the candidate.

        Rules that make knows by itself turn `name` into `name.cpp`, so endings do not count.
        """
        texts = [*words, *(script.text for script in makefiles(words, folder))]
        stems = {name.partition(".")[0] for text in texts for name in NAME.findall(text)}
        made = [os.path.basename(path) for path in self._made()]
        with suppress(OSError):
            made += os.listdir(self._program)
        return any(name.partition(".")[0] in stems for name in made)

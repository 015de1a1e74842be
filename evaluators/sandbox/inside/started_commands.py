"""Tells which commands run the candidate: its file, a copy, what was built of it, or its code.

A command may start others, so the texts of shells, of shell scripts and of makefiles are read too,
as far as their words show what they run. Where they do not, a command counts as the candidate's.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from costada.evaluators.sandbox.inside.evaluator_scripts import (
    MAKE,
    is_shell_script,
    makefiles,
    path_of,
    text_of,
)
from costada.evaluators.sandbox.inside.interpreter_words import Source, Told, is_shell, told
from costada.evaluators.sandbox.inside.own_arguments import texts_in
from costada.evaluators.sandbox.inside.own_code import is_own_code
from costada.evaluators.sandbox.inside.own_files import OwnFiles
from costada.evaluators.sandbox.inside.own_sources import Reached
from costada.evaluators.sandbox.inside.shell_text import UNKNOWN, commands_in, unwrapped

NAME = re.compile(r"[\w.+-]+")
PROGRAM = re.compile(r"[\w./+-]+")
MIN_CODE_CHARS = 8
"""Shorter programs are not looked for in the words of a command: they may be part of any."""

MAX_DEPTH = 4


class Place(NamedTuple):
    """Where a command is started.

    Attributes:
        folder: The folder in which it runs.
        environment: Its variables.
        reached: What the evaluator's code makes it of.
        depth: How many commands are around it.
        is_own: Whether the evaluator wrote its words, as in a script.
    """

    folder: str
    environment: Mapping[str, str]
    reached: Reached
    depth: int = 0
    is_own: bool = False


class StartedCommands:
    """Decides which commands run the candidate."""

    def __init__(
        self,
        root: str,
        own: OwnFiles,
        program: str,
        codes: Sequence[str],
        made: Callable[[], Iterable[str]],
    ) -> None:
        """Take what is known of an evaluation.

        Args:
            root: The working folder, with a slash behind it.
            own: The evaluator's files, and folders around them.
            program: The folder of the candidate's files.
            codes: Their texts.
            made: The paths of what was made in the evaluator's folder.
        """
        self._root, self._own, self._program = root, own, program
        stripped = map(str.strip, codes)
        self._codes = [text for text in stripped if len(text) >= MIN_CODE_CHARS]
        self._made = made

    def holds_code(self, word: str) -> bool:
        """Whether a word of a command holds a text of the candidate."""
        return any(code in word for code in self._codes)

    def run_candidate(self, words: Sequence[str], place: Place) -> bool:
        """Whether a command may execute the candidate's code, or reads it.

        A script of the evaluator in another language than a shell's is a part of the evaluator,
        whatever it is given.
        """
        words = unwrapped(words)
        if not words:
            return False
        if place.depth > MAX_DEPTH or UNKNOWN.search(words[0]):
            return True
        file = path_of(words[0], place.folder)
        if file in self._own:
            return is_shell_script(file) and self._by_script(file, words[1:], place)
        if (run := told(words)) is not None:
            return self._by_interpreter(run, words, place)
        if os.path.basename(words[0]) in MAKE and self._by_makefile(words, place.folder):
            return True
        return self._reach_candidate(words, place)

    def _by_interpreter(self, run: Told, words: Sequence[str], place: Place) -> bool:
        """Whether the code that an interpreter is told to run is the candidate's, or reads it."""
        match run.source:
            case Source.INPUT:
                return True  # a pipe, and nobody knows what is written to that
            case Source.WORD if is_shell(words[0]):
                is_own = place.is_own or is_own_code(run.text, place.reached, is_shell=True)
                is_theirs = self._by_text(run.text, place._replace(is_own=is_own))
            case Source.WORD:
                is_own = place.is_own or is_own_code(run.text, place.reached)
                is_theirs = not is_own or self._name_made([run.text])
            case Source.MODULE:
                module = os.path.join(place.folder, *run.text.split("."))
                found = [path_of(name, "") for name in (module, f"{module}.py")]
                if any(path in self._own for path in found):
                    return False
                is_theirs = any(map(os.path.exists, found))
            case Source.FILE:
                file = path_of(run.text, place.folder)
                if file in self._own:
                    return is_shell(words[0]) and self._by_script(file, run.arguments, place)
                is_theirs = UNKNOWN.search(run.text) is not None
        return is_theirs or self._reach_candidate(words, place)

    def _by_script(self, file: str, arguments: Sequence[str], place: Place) -> bool:
        """Whether a shell script of the evaluator runs the candidate, which it may be given."""
        text = text_of(file)
        if text is None or self._reach_candidate(arguments, place):
            return True
        return self._by_text(text, place._replace(is_own=True))

    def _by_text(self, text: str, place: Place) -> bool:
        """Whether a command in the text of a shell runs the candidate, or is the candidate's."""
        commands = commands_in(text)
        if commands is None:
            return True
        for words in commands:
            if words[:1] == ["cd"] and len(words) > 1:
                if UNKNOWN.search(words[1]):
                    return True
                place = place._replace(folder=path_of(words[1], place.folder))
                continue
            is_named = place.is_own or self._is_named(words, place)
            if not is_named or self.run_candidate(words, place._replace(depth=place.depth + 1)):
                return True
        return False

    def _is_named(self, words: Sequence[str], place: Place) -> bool:
        """Whether the evaluator's code names the program of a command, or it is its own."""
        program, *_ = [*unwrapped(words), ""]
        if not program or told([program]) or path_of(program, place.folder) in self._own:
            return True
        named = {word for text, _ in texts_in(place.reached) for word in PROGRAM.findall(text)}
        return os.path.basename(program) in map(os.path.basename, named)

    def _by_makefile(self, words: Sequence[str], folder: str) -> bool:
        """Whether a makefile, or a word beside it, names what was made or the candidate."""
        return self._name_made([*words, *(script.text for script in makefiles(words, folder))])

    def _name_made(self, texts: Iterable[str]) -> bool:
        """Whether texts name what was made or the candidate.

        An import names a module, and rules that make knows by itself turn `name` into `name.cpp`,
        so endings do not count.
        """
        stems = {name.partition(".")[0] for text in texts for name in NAME.findall(text)}
        made = [os.path.basename(path) for path in self._made()]
        with suppress(OSError):
            made += os.listdir(self._program)
        return any(name.partition(".")[0] in stems for name in made)

    def _reach_candidate(self, words: Sequence[str], place: Place) -> bool:
        """Whether words, or variables, lead to the candidate's files or to what was made."""
        if not self._is_own(place.folder):
            return True
        if any(self._program in text for text in (*words, *place.environment.values())):
            return True
        if any(map(self.holds_code, words)):
            return True
        paths = (path_of(word, place.folder) for word in words)
        return any(not self._is_own(path) and os.path.isfile(path) for path in paths)

    def _is_own(self, path: str) -> bool:
        """Whether a path is the evaluator's, or outside of the working folder."""
        return path in self._own or not path.startswith(self._root)

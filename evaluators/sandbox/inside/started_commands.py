"""Tells which commands run the candidate: its file, a copy, what was built of it, code in a pipe.

A command may start others, so the texts of shells, of shell scripts and of makefiles are read too,
as far as their words show what they run. Where they do not, a command counts as the candidate's.
"""

import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

INTERPRETER = re.compile(
    r"(python|ruby|perl|lua|php)[\d.]*|node(js)?|deno|bun|julia|Rscript|(ba|da|z|k)?sh"
)
SHELL = re.compile(r"(ba|da|z|k)?sh")
SHEBANG = re.compile(rb"#![^\n]*\b(ba|da|z|k)?sh\b")
MAKE = ("make", "gmake")
MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
WRAPPERS = frozenset(
    (".", "builtin", "command", "env", "exec", "eval", "nice", "nohup", "setsid", "source")
) | {"stdbuf", "time", "timeout", "taskset", "xargs"}
KEYWORDS = frozenset(("if", "then", "elif", "else", "while", "until", "do", "!", "{"))
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
NUMBER = re.compile(r"[\d.]+[smhd]?")
SEPARATORS = ";&|()<>\n"
COMMENT = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
UNKNOWN = re.compile(r"[$`*?\[]")
"""Signs in a word that a shell replaces."""

OUTPUT = re.compile(r"(?<!\S)-o\s*([\w./+-]+)")
RULE = re.compile(r"^([\w./+-]+)[ \t]*:(?!=)[^\n]*\n((?:\t[^\n]*\n?)+)", re.MULTILINE)
TARGET = "$@"
NAME = re.compile(r"[\w.+-]+")
STANDARD_INPUT = "-"
CODE_OPTION = "-c"
MODULE_OPTION = "-m"
MIN_CODE_CHARS = 8
"""Shorter programs are not looked for in the words of a command: they may be part of any."""

MAX_DEPTH = 4
MAX_SCRIPT_BYTES = 2**20
MAX_PATH_CHARS = 4096


class Script(NamedTuple):
    """A script or makefile, and the folder in which its commands run."""

    path: str
    text: str
    folder: str


class StartedCommands:
    """Decides which commands run the candidate."""

    def __init__(
        self,
        root: str,
        given: Collection[str],
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
        words = _unwrapped(words)
        if not words:
            return False
        if depth > MAX_DEPTH or UNKNOWN.search(words[0]):
            return True
        name = os.path.basename(words[0])
        paths = [self.path(word, folder) for word in words]
        if paths[0] in self._given:
            if not _is_shell_script(paths[0]):
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
        paths = (self.path(name, folder) for name in (place, f"{place}.py"))
        return any(os.path.exists(path) and not self.is_given(path) for path in paths)

    def path(self, word: str, folder: str) -> str:
        """Where a word leads, without links; empty if it is not a path."""
        if not word or "\0" in word or len(word) > MAX_PATH_CHARS:
            return ""
        return os.path.realpath(os.path.join(folder, word))

    def is_given(self, path: str) -> bool:
        """Whether a path is the evaluator's, or outside of the working folder."""
        return path in self._given or not path.startswith(self._root)

    def scripts(self, words: Sequence[str], folder: str) -> list[Script]:
        """The scripts and makefiles of the evaluator that a command carries out."""
        words = _unwrapped(words)
        if not words:
            return []
        if os.path.basename(words[0]) in MAKE:
            return _makefiles(words, folder)
        paths = [self.path(word, folder) for word in words]
        is_shell = SHELL.fullmatch(os.path.basename(words[0])) is not None
        scripts = [
            path
            for path in paths[: 1 + is_shell]
            if path in self._given and (is_shell or _is_shell_script(path))
        ]
        return [Script(path, text, folder) for path in scripts if (text := _text_of(path))]

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
        paths = (self.path(word, folder) for word in words)
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
        text = _text_of(path)
        return text is None or self._by_text(text, folder, environment, depth)

    def _by_text(self, text: str, folder: str, environment: Mapping[str, str], depth: int) -> bool:
        """Whether a command in the text of a shell runs the candidate."""
        commands = _commands_in(text)
        if commands is None:
            return True
        for words in commands:
            if words[:1] == ["cd"] and len(words) > 1:
                if UNKNOWN.search(words[1]):
                    return True
                folder = self.path(words[1], folder)
            elif self.run_candidate(words, folder, environment, depth + 1):
                return True
        return False

    def _by_makefile(self, words: Sequence[str], folder: str) -> bool:
        """Whether a makefile, or a word beside it, names what was made or the candidate.

        Rules that make knows by itself turn `name` into `name.cpp`, so endings do not count.
        """
        texts = [*words, *(script.text for script in _makefiles(words, folder))]
        stems = {name.partition(".")[0] for text in texts for name in NAME.findall(text)}
        made = [os.path.basename(path) for path in self._made()]
        with suppress(OSError):
            made += os.listdir(self._program)
        return any(name.partition(".")[0] in stems for name in made)


def _unwrapped(words: Sequence[str]) -> list[str]:
    """The words of a command without what only sets it up."""
    rest = list(words)
    while rest and (rest[0] in KEYWORDS or ASSIGNMENT.fullmatch(rest[0])):
        rest.pop(0)
    while rest and os.path.basename(rest[0]) in WRAPPERS:
        rest.pop(0)
        while rest and (rest[0][:1] == "-" or NUMBER.fullmatch(rest[0]) or "=" in rest[0]):
            rest.pop(0)
    return rest


def _commands_in(text: str) -> list[list[str]] | None:
    """The words of each command in the text of a shell; None if they cannot be told."""
    if "`" in text or "$(" in text or "<<" in text:
        return None
    plain = COMMENT.sub("", text.replace("\\\n", " "))
    lexer = shlex.shlex(plain, posix=True, punctuation_chars=SEPARATORS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    commands: list[list[str]] = [[]]
    is_target = False
    try:
        for token in lexer:
            if not set(token) <= set(SEPARATORS):
                if not is_target:
                    commands[-1].append(token)
                is_target = False
            elif not (is_target := token[0] in "<>" or token[-1] in "<>"):
                commands.append([])
    except ValueError:
        return None
    return [words for words in commands if words]


def _makefiles(words: Sequence[str], folder: str) -> list[Script]:
    """The makefiles that a command reads."""
    if "-C" in words[:-1]:
        folder = os.path.join(folder, words[words.index("-C") + 1])
    named = [words[words.index("-f") + 1]] if "-f" in words[:-1] else MAKEFILES
    paths = (os.path.realpath(os.path.join(folder, name)) for name in named)
    return [Script(path, text, folder) for path in paths if (text := _text_of(path))]


def outputs_in(text: str) -> list[str]:
    """What a script or a makefile builds, as far as it names that: after `-o`, or as a target."""
    targets = [match[1] for match in RULE.finditer(text) if TARGET in match[2]]
    return [*targets, *(name for name in OUTPUT.findall(text))]


def _is_shell_script(path: str) -> bool:
    with suppress(OSError), open(path, "rb") as file:
        return path.endswith(".sh") or SHEBANG.match(file.readline(MAX_PATH_CHARS)) is not None
    return False


def _text_of(path: str) -> str | None:
    """The text of a script; None if it is not one, or too large."""
    with suppress(OSError, UnicodeDecodeError), open(path, "rb") as file:
        text = file.read(MAX_SCRIPT_BYTES + 1)
        return text.decode() if len(text) <= MAX_SCRIPT_BYTES else None
    return None

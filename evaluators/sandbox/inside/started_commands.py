"""Tells which commands run the candidate: its file, a copy, what was built of it, code in a pipe.

A command may start others, so the texts of shells, of shell scripts and of makefiles are read too,
as far as their words show what they run. Where they do not, a command counts as the candidate's.
"""

import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from costada.evaluators.sandbox.inside.command_words import (
    SEARCHED,
    files_run,
    is_compiler,
    is_interpreter,
    is_tool,
)
from costada.evaluators.sandbox.inside.evaluator_scripts import (
    MAKE,
    MAX_DEPTH,
    PATH,
    SHELL,
    interpreter_of,
    is_shell_script,
    make_options,
    makefiles,
    path_of,
    shell_code,
    text_of,
    with_included,
    with_value,
)
from costada.evaluators.sandbox.inside.own_files import entries_below
from costada.evaluators.sandbox.inside.shell_text import UNKNOWN, commands_in, unwrapped

NAME = re.compile(r"[\w.+-]+")
NAMED_PART = re.compile(r"[=:@\s]")
STANDARD_INPUT = frozenset(("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"))
WITHOUT_SITE = re.compile(
    r"(?<![${(])\bPYTHONPATH\b(?!([ \t]*[:?]?=[ \t]*)?\S*\$[{(]*PYTHONPATH\b)"
    r"|\benv(\s+(\w+=\S*|-u\s*\w+|--unset=\w+))*\s+-(?!u\s*\w|-unset=\w)|(?i:(?<![.\w])py(thon|py)?)[\d.]*[)}\"']*"
    r"((\s|\\\s)+-([WX](\s|\\\s)+|(?![WX]\\?\s))([^\s\\]|\\\S)+)*?(\s|\\\s)+-\w*[EIS]"
)
"""Variables, or options of a Python, by which it may not confine what it starts.

An option matches in one way only: trying many ways takes exponential time, and a candidate may have
written the text.
"""

SETTERS = ("export", "unset", "declare", "typeset", "local", "readonly")
UNSHOWN = re.compile(
    r"\$[({](MAKE|shell|wildcard)|\bg?make\b|^-?s?include\b|(?<!\$)(\*|\?(?!=))",
    re.MULTILINE,
)
"""What of a makefile may run or find more than it names."""

INCLUDING = re.compile(r"^.*(define|import|include|\b(mod|use)\b).*$", re.MULTILINE)
"""Lines of a source by which a compiler may read another one."""

COMPUTED = re.compile(r"^\s*#\s*include(_next)?\s+\w", re.MULTILINE)
"""A line of a source by which a compiler reads one that a macro names."""

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
        environment: Mapping[str, str],
    ) -> None:
        """Take what is known of an evaluation.

        Args:
            root: The working folder, with a slash behind it.
            given: The evaluator's files, and folders around them.
            program: The folder of the candidate's files.
            codes: Their texts.
            made: The paths of what was made in the evaluator's folder.
            environment: The variables as the evaluation began: what they name was not made since.
        """
        self._root, self._given, self._program = root, given, program
        stripped = map(str.strip, codes)
        self._codes = [text for text in stripped if len(text) >= MIN_CODE_CHARS]
        self._made = made
        self._known = frozenset(_places(searched(environment).values(), root))

    def holds_code(self, word: str) -> bool:
        """Whether a word of a command holds a text of the candidate."""
        return any(code in word for code in self._codes)

    def run_candidate(
        self,
        words: Sequence[str],
        folder: str,
        environment: Mapping[str, str],
        depth: int = 0,
        *,
        is_fed: bool = False,
    ) -> bool:
        """Whether a command may execute the candidate's code, or reads it.

        A program of the evaluator that is no shell script is a part of it, whatever it is given,
        unless what carries it out was made. All others may run what they find, or code in their
        words, but for a few tools. A command `is_fed` if its standard input is not empty.
        """
        command = unwrapped(words)
        is_setter = not command or command[0] in SETTERS
        setting = words if is_setter else words[: len(words) - len(command)]
        if WITHOUT_SITE.search(" ".join(setting)):
            return True
        if not command:
            return False
        if depth > MAX_DEPTH or UNKNOWN.search(command[0]):
            return True
        assigned = command if command[0] == "export" else words[: len(words) - len(command)]
        programs = words[: len(words) - len(command) + 1]
        were_made = self._were_made(programs, folder, environment)
        if were_made or self._lead_to_made(assigned, folder):
            return True
        files = files_run(command) if is_interpreter(command) else command[:1]
        paths = (path_of(word, folder) for word in files)
        if script := next(filter(self._is_own_file, paths), None):
            return self._by_script(script, command, folder, environment, depth, is_fed=is_fed)
        if (code := shell_code(command)) is not None:
            command.remove(code)
            if self._program in code or self.holds_code(code):
                return True
        if self._reach_candidate(command, folder, environment):
            return True
        if code is not None:
            return self._by_text(code, folder, environment, depth, is_fed=is_fed)
        if os.path.basename(command[0]) in MAKE:
            return self._by_makefile(command, folder)
        if is_tool(command):
            reads_input = is_fed or not STANDARD_INPUT.isdisjoint(command)
            return is_compiler(command) and (reads_input or self._include_made(command, folder))
        runs_it = is_fed or is_interpreter(command) or any(self._made())
        runs_it = runs_it or self._lead_elsewhere(command, folder)
        return runs_it or self._leave_out_site([" ".join(command)], folder)

    def _by_script(
        self,
        script: str,
        command: Sequence[str],
        folder: str,
        environment: Mapping[str, str],
        depth: int,
        *,
        is_fed: bool,
    ) -> bool:
        """Whether a file of the evaluator, run by a command, may run the candidate."""
        if path_of(command[0], folder) == script:
            first = interpreter_of(script)
            if WITHOUT_SITE.search(" ".join(first)) or self._were_made(first, folder, environment):
                return True
        if not (SHELL.fullmatch(os.path.basename(command[0])) or is_shell_script(script)):
            return False
        others = [word for word in command[1:] if path_of(word, folder) != script]
        if self._reach_candidate(others, folder, environment):
            return True
        text = text_of(script)
        return text is None or self._by_text(text, folder, environment, depth, is_fed=is_fed)

    def _leave_out_site(self, texts: Iterable[str], folder: str) -> bool:
        """Whether texts, or scripts that they name, start a Python that confines no children."""
        texts = [*texts]
        paths = {path_of(name, folder) for text in texts for name in {*PATH.findall(text)}}
        for path in filter(self._is_own_file, paths):
            is_shell = is_shell_script(path)
            texts.append(text_of(path) or "" if is_shell else " ".join(interpreter_of(path)))
        return any(map(WITHOUT_SITE.search, texts))

    def _is_own_file(self, path: str) -> bool:
        """Whether a file is the evaluator's, and in no package that was made."""
        if path not in self._given or os.path.isdir(path):
            return False
        while (path := os.path.dirname(path)) in self._given:
            init = os.path.join(path, "__init__.py")
            if init not in self._given and os.path.lexists(init):
                return False
        return True

    def is_given(self, path: str) -> bool:
        """Whether a path is the evaluator's, or outside of the working folder."""
        return path in self._given or not path.startswith(self._root)

    def _reach_candidate(
        self, words: Sequence[str], folder: str, environment: Mapping[str, str]
    ) -> bool:
        """Whether words, or variables, lead to the candidate's files or to what was made."""
        if not self.is_given(folder):
            return True
        texts = (*words, *environment.values())
        if any(self._program in text or self.holds_code(text) for text in texts):
            return True
        if self._lead_to_made(searched(environment).values(), folder):
            return True
        whole = (path_of(word, folder) for word in words)
        return any(map(self._is_made, (*whole, *_places(words, folder))))

    def _lead_elsewhere(self, words: Sequence[str], folder: str) -> bool:
        """Whether a word may lead, in any way, to files that are not the evaluator's."""
        leading = (word for word in words if self._root in word or ".." in word)
        return any(path_of(word, folder) not in self._given for word in leading)

    def _lead_to_made(self, texts: Iterable[str], folder: str) -> bool:
        """Whether variables, or assignments to them, name something that was made."""
        return any(map(self._is_made, {*_places(texts, folder)} - self._known))

    def _were_made(
        self, programs: Iterable[str], folder: str, environment: Mapping[str, str]
    ) -> bool:
        """Whether a program of these names was made, in the folder or where programs are found."""
        places = [folder, *environment.get("PATH", os.defpath).split(os.pathsep)]
        found = (os.path.join(place, name) for name in programs for place in places)
        return any(self._is_made(path_of(path, folder)) for path in found)

    def _is_made(self, path: str) -> bool:
        """Whether a path is there and was made since."""
        return not self.is_given(path) and os.path.lexists(path)

    def _by_text(
        self, text: str, folder: str, environment: Mapping[str, str], depth: int, *, is_fed: bool
    ) -> bool:
        """Whether a command in the text of a shell runs the candidate."""
        commands = commands_in(text)
        if commands is None:
            return True
        for words in commands:
            if words[:1] == ["cd"] and len(words) > 1:
                if UNKNOWN.search(words[1]):
                    return True
                folder = path_of(words[1], folder)
            elif self.run_candidate(words, folder, environment, depth + 1, is_fed=is_fed):
                return True
        return False

    def _by_makefile(self, words: Sequence[str], folder: str) -> bool:
        """Whether a makefile, or a word beside it, names what was made or the candidate.

        Rules that make knows by itself turn `name` into `name.cpp`, so endings do not count.
        """
        scripts = makefiles(words, folder)
        place, named = make_options(words, folder)
        if not (self.is_given(place) and STANDARD_INPUT.isdisjoint(named)):
            return True
        if any(each.path not in self._given for each in scripts):
            return True
        texts = [*words, *(script.text for script in scripts)]
        if any(self._program in text for text in texts):
            return True
        if self._leave_out_site(texts, place):
            return True
        if any(map(UNSHOWN.search, texts[len(words) :])) and any(self._made()):
            return True
        if self._name_made(texts):
            return True
        with suppress(OSError):
            stems = _stems(texts)
            texts += [name for name in os.listdir(place) if name.partition(".")[0] in stems]
        return self._include_made(texts, place)

    def _name_made(self, texts: Iterable[str]) -> bool:
        """Whether texts name what was made or the candidate's files, but for the endings."""
        paths = [*self._made()]
        made = [os.path.basename(path) for path in paths]
        for folder in (*paths, self._program):
            made += [entry.name for entry in entries_below(folder)]
        return not _stems(texts).isdisjoint(name.partition(".")[0] for name in made)

    def _include_made(self, texts: Sequence[str], folder: str) -> bool:
        """Whether sources of the evaluator that texts name include what was made."""
        paths = {path_of(name, folder) for text in texts for name in PATH.findall(text)}
        sources = with_included(filter(self._is_own_file, paths), texts, folder, self._given)
        read = [text_of(path) or "" for path in sources]
        if any(map(COMPUTED.search, read)) and any(self._made()):
            return True
        return self._name_made(line[0] for text in read for line in INCLUDING.finditer(text))


def _stems(texts: Iterable[str]) -> set[str]:
    names = (name for text in texts for name in NAME.findall(text))
    return {each.partition(".")[0] for name in names for each in with_value(name)}


def searched(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables by which programs find modules, libraries and other programs."""
    return {name: text for name, text in environment.items() if SEARCHED.fullmatch(name)}


def _places(texts: Iterable[str], folder: str) -> Iterator[str]:
    """The paths that lists of paths, or assignments of them, may name."""
    parts = (part for text in texts for part in NAMED_PART.split(text))
    return (path_of(each, folder) for part in parts for each in with_value(part))

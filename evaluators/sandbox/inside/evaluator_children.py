"""Confines what an evaluator starts that runs its candidate: a program, a script, or a build.

The evaluator may read the answers, a candidate may not. So a process that the evaluator starts
restricts itself before it executes a command that runs the candidate's code. Of the working folder
it reaches the candidate's files, what is temporary, what was made since the evaluation began, the
modules that the initial program imports, and the files that the command names; of the folders of
these, the names of all files. It cannot signal the evaluator or read its memory. Nor can it make
symbolic links: by one in the place of its output, the evaluator would read its own answers as the
candidate's.

See `started_commands` for which commands count, and `confined_starts` for where this happens.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Self

from costada.evaluators.sandbox.inside.build_files import (
    CMAKE,
    cmake_folders,
    cmake_lists,
    matched,
    with_values,
)
from costada.evaluators.sandbox.inside.build_shadow import BuildShadow
from costada.evaluators.sandbox.inside.child_access import ChildAccess
from costada.evaluators.sandbox.inside.command_words import is_builder
from costada.evaluators.sandbox.inside.evaluator_scripts import (
    Script,
    carried_out,
    path_of,
    scripts,
    text_of,
    with_included,
)
from costada.evaluators.sandbox.inside.orders import FOLDER, HOME, PROGRAM, REPOSITORY
from costada.evaluators.sandbox.inside.own_files import OwnFiles, Stamp
from costada.evaluators.sandbox.inside.program_outputs import named_outputs, quoted_names
from costada.evaluators.sandbox.inside.started_commands import StartedCommands, searched

SHOWN = ("sitecustomize.py", "semaphores.py", "start_methods.py")
"""What is shown of the folder that has pools work."""

BYTE_CODE = "__pycache__"
USABLE = ("/dev/null", "/dev/random", "/dev/urandom", "/dev/zero")
PATH_IN_TEXT = re.compile(r"[^\s'\"=,;()<>|&]+")
MAX_NAMED = 1000


class Confined(NamedTuple):
    """What holds for a command that runs the candidate."""

    rules_fd: int
    outputs: list[str]  # files that were made for it, still empty
    shadow: BuildShadow | None  # where it works, if it is a build

    def end(self) -> bool:
        """Leave the evaluator what the command has made, and no output that it has not written.

        Returns:
            Whether it replaced none of the evaluator's files.
        """
        for path in self.outputs:
            with suppress(FileNotFoundError):
                if (about := os.stat(path)).st_size == about.st_mtime_ns == 0:
                    os.unlink(path)
        return self.shadow is None or self.shadow.end()


class EvaluatorChildren:
    """Decides what those commands may reach that run the candidate."""

    def __init__(
        self,
        access: ChildAccess,
        given: Mapping[str, Stamp | None],
        evaluator: str,
        texts: Iterable[str],
        keys: Collection[str] = (),
        *,
        shared: Iterable[str] = (),
        root: str = "",
        folder: str = FOLDER,
        confines_all: bool = False,
        environment: Mapping[str, str] | None = None,
        site: str = "",
    ) -> None:
        """Take what is known of an evaluation.

        Args:
            access: What the rules are made of.
            given: The evaluator's files, as paths below the working folder, with their stamps as
                the evaluation began.
            evaluator: The evaluator's own file among them.
            texts: The candidate's files.
            keys: Variables that only the evaluator has.
            shared: Those of the given files that every candidate may read.
            root: The working folder; the present one if empty.
            folder: Where the given files are in it. Of a repository, all may be read.
            confines_all: Whether all commands count as running the candidate.
            environment: The variables as the evaluation began; `None` for those of this process.
            site: A folder whose modules have pools work in a Python that starts, and have it
                confine what it starts; empty for none.
        """
        self._access = access
        self._keys = frozenset(keys)
        self._confines_all = confines_all
        self._site = site
        root = root or os.getcwd()
        self._root = os.path.join(root, "")
        places = (os.path.join(root, name) for name in (folder, HOME, PROGRAM))
        self._folder, self._home, self._program = places
        self._is_repository = folder == REPOSITORY
        self._readable = [*access.readable, *([self._folder] if self._is_repository else [])]
        self._shared = [os.path.join(root, path) for path in shared]
        stamps = {os.path.join(root, path): stamp for path, stamp in given.items()}
        self._own = OwnFiles(self._folder, os.path.join(root, evaluator), stamps)
        texts = [*texts]
        self._commands = StartedCommands(
            self._root,
            self._own,
            self._program,
            texts,
            self._made,
            os.environ if environment is None else environment,
        )
        in_both = map(
            quoted_names, (text_of(os.path.join(root, evaluator)) or "", "\n".join(texts))
        )
        self._agreed = set.intersection(*in_both)

    @staticmethod
    def plan(access: ChildAccess, **settings: Any) -> dict[str, Any]:
        """What another process makes such an object of, as JSON can hold it."""
        return {"environment": searched(os.environ), **settings, "access": access.plain()}

    @classmethod
    def planned(cls, plan: Mapping[str, Any]) -> Self:
        """Make it of what `plan` returned."""
        return cls(**{**plan, "access": ChildAccess.of(plan["access"])})

    def rules_for(
        self,
        words: Sequence[str],
        folder: str,
        environment: Mapping[str, str],
        *,
        is_fed: bool,
        may_move: bool = False,
    ) -> Confined | None:
        """The rules for a command; None if it does not run the candidate.

        It `may_move` if it can be given other words, and its end is seen.
        """
        runs = self._commands.run_candidate
        if not (self._confines_all or runs(words, folder, environment, is_fed=is_fed)):
            return None
        self._own.forget_removed()
        commands = [*carried_out(words, folder, self._own)]
        own = [script for each in commands for script in self._scripts(*each)]
        outputs, shadow = list[str](), None
        if may_move and self._is_build(words, folder, commands):
            texts = [word for word in words if not self._commands.holds_code(word)]
            texts += [*self._agreed, *(script.text for script in own)]
            shadow = BuildShadow(self._folder, self._home, self._own, texts)
        else:
            outputs = self._make_outputs(words, folder)
        access = self._access
        # An import finds a module by the names in its folder.
        importing = [*map(os.path.dirname, self._shared), *self._importing(words, folder)]
        if folder in self._own:  # pytest lists what is above its tests and the working folder
            importing.append(os.path.dirname(self._folder))
        wanted = dict.fromkeys((*access.listable, *importing), access.list)
        wanted |= dict.fromkeys((*self._shared, *self._read(words, folder)), access.read)
        if self._site:
            shown = (os.path.join(self._site, name) for name in SHOWN)
            wanted |= {self._site: access.list, **dict.fromkeys(shown, access.read)}
        for each, place in commands:
            texts = [word for word in each if not self._commands.holds_code(word)]
            sources = self._read([*matched(texts, place, self._own.unchanged())], place)
            wanted |= dict.fromkeys(sources, access.read)
        for script in own:
            texts = [with_values(script.text, {})]
            texts += matched(texts, script.folder, self._own.unchanged())
            named = (script.path, *self._read(texts, script.folder))
            wanted |= {script.folder: access.list, **dict.fromkeys(named, access.read)}
        wanted |= dict.fromkeys(self._readable, access.read)
        wanted |= dict.fromkeys((*USABLE, self._home, self._program), access.write)
        for path in self._made():
            if not self._own.began_with(path):
                wanted[path] = access.write
            elif self._is_copy(path):
                wanted[path] = access.read
        if shadow is not None:
            shadow.show(path for path, allowed in wanted.items() if allowed != access.list)
        return Confined(access.ruleset(wanted), outputs, shadow)

    def _is_build(
        self, words: Sequence[str], folder: str, commands: Sequence[tuple[list[str], str]]
    ) -> bool:
        """Whether a command builds, and may do so in the evaluator's folder.

        CMake keeps the paths that it is given. So it works in the place itself if it builds in a
        folder that was made, or that it would make.
        """
        if not (folder in self._own or any(self._folder in text for text in words)):
            return False
        for each, place in commands:
            target = cmake_folders(each, place).get("B", "")
            if target.startswith(f"{self._folder}{os.sep}"):
                with suppress(OSError):  # a file may be in its place, or on the way
                    os.makedirs(target)
        return any(is_builder(each[0]) and not self._builds_apart(*each) for each in commands)

    def _builds_apart(self, words: Sequence[str], folder: str) -> bool:
        """Whether a command of CMake builds in a folder that is not the evaluator's."""
        found = cmake_folders(words, folder)
        target = found.get("build") or found.get("B") or folder
        is_cmake = os.path.basename(words[0]) == CMAKE
        return is_cmake and target not in self._own and os.path.isdir(target)

    def _scripts(self, words: Sequence[str], folder: str) -> list[Script]:
        """The scripts, makefiles and lists of the evaluator that a command carries out."""
        own = self._own
        return [*scripts(words, folder, own), *cmake_lists(words, folder, own)]

    def _make_outputs(self, words: Sequence[str], folder: str) -> list[str]:
        """Make the files that a program writes beside the evaluator's: it can make no others.

        These are what its words name, and what the texts of the evaluator and of the candidate both
        name.
        """
        made = []
        for name in (*named_outputs(self._names_in(words)), *self._agreed):
            output = os.path.join(folder, name)
            around = os.path.realpath(os.path.dirname(output))
            there = around
            while not os.path.isdir(there):
                there = os.path.dirname(there)
            if there in self._own and not os.path.lexists(output):
                os.makedirs(around, exist_ok=True)
                os.close(os.open(output, os.O_CREAT | os.O_WRONLY, 0o755))
                os.utime(output, (0, 0))
                made.append(output)
        return made

    def restrict(self, rules_fd: int) -> None:
        """Have this process keep to the rules, for good."""
        self._access.restrict(rules_fd)

    def with_site(self, environment: Mapping[Any, Any]) -> Mapping[Any, Any]:
        """The variables of a process that does not run the candidate, but may start it."""
        if not self._site:
            return environment
        texts = {os.fsdecode(name): os.fsdecode(text) for name, text in environment.items()}
        paths = texts.get("PYTHONPATH", "")
        if self._site not in paths.split(os.pathsep):
            texts["PYTHONPATH"] = f"{self._site}{os.pathsep}{paths}" if paths else self._site
        # A program that is started could change the code that Python would keep.
        return texts | {"PYTHONDONTWRITEBYTECODE": "1"}

    def without_keys(self, environment: Mapping[Any, Any]) -> dict[Any, Any]:
        """The variables of a process that runs the candidate, which has a home of its own."""
        return {
            name: self._home if os.fsdecode(name) == "HOME" else value
            for name, value in environment.items()
            if os.fsdecode(name) not in self._keys
        }

    def _made(self) -> Iterator[str]:
        """What was made, or written to, in the evaluator's folder or beside it since the beginning.

        Not the code that Python keeps of the evaluator's modules.
        """
        if not self._is_repository:  # beside it is what its commands print
            with os.scandir(self._root) as entries:
                known = (self._folder, self._home, self._program)
                yield from (
                    entry.path
                    for entry in entries
                    if entry.path not in known and not entry.name.startswith(".")
                )
        folders = [self._folder]
        for folder in folders:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name == BYTE_CODE:
                        continue
                    if entry.path not in self._own:
                        yield entry.path
                    elif entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)

    def _is_copy(self, path: str) -> bool:
        """Whether a file holds a text of the candidate, in the place of the evaluator's."""
        return os.path.isfile(path) and self._commands.holds_code(text_of(path) or "")

    def _importing(self, words: Sequence[str], folder: str) -> list[str]:
        """The evaluator's folders in which a command may look for modules that were made there."""
        found = [folder, *(os.path.dirname(path_of(word, folder)) for word in words)]
        return [place for place in found if place in self._own]

    def _names_in(self, words: Sequence[str]) -> list[str]:
        """The words of a command, and what may be a path in them.

        A word that holds code of the candidate names nothing: the candidate wrote it.
        """
        texts = [word for word in words if not self._commands.holds_code(word)]
        names = (name for text in texts for name in PATH_IN_TEXT.findall(text))
        return [*dict.fromkeys((*words, *names))][: len(words) + MAX_NAMED]

    def _named(self, words: Sequence[str], folder: str) -> list[str]:
        """The evaluator's files, and folders in its own, that a command names."""
        own = self._own
        paths = (path_of(name, folder) for name in self._names_in(words))
        return [path for path in paths if own.began_with(path) and path not in own.around]

    def _read(self, words: Sequence[str], folder: str) -> list[str]:
        """What a command names of the evaluator, and what such sources include."""
        return with_included(self._named(words, folder), words, folder, self._own)

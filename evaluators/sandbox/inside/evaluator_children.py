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
from typing import Any, Self

from costada.evaluators.sandbox.inside.build_outputs import (
    FORTRAN,
    outputs_in,
    outputs_of,
    with_modules_in,
)
from costada.evaluators.sandbox.inside.child_access import ChildAccess
from costada.evaluators.sandbox.inside.evaluator_scripts import Script, path_of, scripts
from costada.evaluators.sandbox.inside.orders import FOLDER, HOME, PROGRAM, REPOSITORY
from costada.evaluators.sandbox.inside.own_files import OwnFiles
from costada.evaluators.sandbox.inside.started_commands import StartedCommands

USABLE = ("/dev/null", "/dev/random", "/dev/urandom", "/dev/zero")
PATH_IN_TEXT = re.compile(r"[^\s'\"=,;()<>|&]+")
MAX_NAMED = 1000


class EvaluatorChildren:
    """Decides what those commands may reach that run the candidate."""

    def __init__(
        self,
        access: ChildAccess,
        given: Collection[str],
        evaluator: str,
        texts: Iterable[str],
        keys: Collection[str] = (),
        *,
        shared: Iterable[str] = (),
        root: str = "",
        folder: str = FOLDER,
        confines_all: bool = False,
    ) -> None:
        """Take what is known of an evaluation.

        Args:
            access: What the rules are made of.
            given: The evaluator's files, as paths below the working folder.
            evaluator: The evaluator's own file among them.
            texts: The candidate's files.
            keys: Variables that only the evaluator has.
            shared: Those of the given files that every candidate may read.
            root: The working folder; the present one if empty.
            folder: Where the given files are in it. Of a repository, all may be read.
            confines_all: Whether all commands count as running the candidate.
        """
        self._access = access
        self._keys = frozenset(keys)
        self._confines_all = confines_all
        root = root or os.getcwd()
        self._root = os.path.join(root, "")
        places = (os.path.join(root, name) for name in (folder, HOME, PROGRAM))
        self._folder, self._home, self._program = places
        self._readable = [*access.readable, *([self._folder] if folder == REPOSITORY else [])]
        self._shared = [os.path.join(root, path) for path in shared]
        files = [os.path.join(root, path) for path in given]
        self._own = OwnFiles(self._folder, os.path.join(root, evaluator), files)
        self._commands = StartedCommands(self._root, self._own, self._program, [*texts], self._made)

    @staticmethod
    def plan(access: ChildAccess, **settings: Any) -> dict[str, Any]:
        """What another process makes such an object of, as JSON can hold it."""
        return {**settings, "access": access.plain()}

    @classmethod
    def planned(cls, plan: Mapping[str, Any]) -> Self:
        """Make it of what `plan` returned."""
        return cls(**{**plan, "access": ChildAccess.of(plan["access"])})

    def rules_for(
        self, words: Sequence[str], folder: str, environment: Mapping[str, str]
    ) -> int | None:
        """The descriptor of the rules for a command; None if it does not run the candidate."""
        runs = self._commands.run_candidate
        if not (self._confines_all or runs(words, folder, environment)):
            return None
        own = scripts(words, folder, self._own)
        self._make_outputs(words, folder, own)
        access = self._access
        # An import finds a module by the names in its folder.
        importing = (*map(os.path.dirname, self._shared), *self._importing(words, folder))
        wanted = dict.fromkeys((*access.listable, *importing), access.list)
        wanted |= dict.fromkeys((*self._shared, *self._named(words, folder)), access.read)
        for script in own:
            named = (script.path, *self._named([script.text], script.folder))
            wanted |= {script.folder: access.list, **dict.fromkeys(named, access.read)}
        wanted |= dict.fromkeys(self._readable, access.read)
        wanted |= dict.fromkeys((*USABLE, self._home, self._program, *self._made()), access.write)
        return access.ruleset(wanted)

    def _make_outputs(self, words: Sequence[str], folder: str, own: Iterable[Script]) -> None:
        """Make the files that a build names beside those of the evaluator: it can make no others.

        They are older than all else, so that make builds them.
        """
        places = [(name, each.folder) for each in own for name in outputs_in(each.text)]
        places += [(name, folder) for name in outputs_of(words)]
        for name, place in places:
            output = os.path.join(place, name)
            is_beside = os.path.realpath(os.path.dirname(output)) in self._own
            if is_beside and not os.path.lexists(output):
                os.close(os.open(output, os.O_CREAT | os.O_WRONLY, 0o755))
                os.utime(output, (0, 0))

    def restrict(self, rules_fd: int) -> None:
        """Have this process keep to the rules, for good."""
        self._access.restrict(rules_fd)

    def with_modules_elsewhere(self, words: Sequence[str], folder: str) -> list[str]:
        """A compiler's command that makes no module files beside those of the evaluator."""
        is_fortran = FORTRAN.fullmatch(os.path.basename(words[0])) and folder in self._own
        return with_modules_in(self._home, words) if is_fortran else [*words]

    def without_keys(self, environment: Mapping[Any, Any]) -> dict[Any, Any]:
        """The variables of a process that runs the candidate."""
        return {
            name: value
            for name, value in environment.items()
            if os.fsdecode(name) not in self._keys
        }

    def _made(self) -> Iterator[str]:
        """What was made in the evaluator's folder since the evaluation began."""
        folders = [self._folder]
        for folder in folders:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.path not in self._own:
                        yield entry.path
                    elif entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)

    def _importing(self, words: Sequence[str], folder: str) -> list[str]:
        """The evaluator's folders in which a command may look for modules that were made there."""
        found = [folder, *(os.path.dirname(path_of(word, folder)) for word in words)]
        return [place for place in found if place in self._own]

    def _named(self, words: Sequence[str], folder: str) -> list[str]:
        """The evaluator's files, and folders in its own, that a command names.

        A word that holds code of the candidate names nothing: the candidate wrote it.
        """
        texts = [word for word in words if not self._commands.holds_code(word)]
        names = dict.fromkeys(name for text in texts for name in PATH_IN_TEXT.findall(text))
        paths = (path_of(name, folder) for name in [*words, *names][:MAX_NAMED])
        return [path for path in paths if path in self._own and path not in self._own.around]

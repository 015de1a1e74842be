"""Confines what an evaluator starts that runs its candidate: a program, a script, or a build.

The evaluator may read the answers, a candidate may not. So a process that the evaluator starts
restricts itself before it executes a command that runs the candidate's code. Of the working folder
it reaches the candidate's files, what is temporary, what was made since the evaluation began, the
modules that the initial program imports, and the files that the command names; of the folders of
these, the names of all files. It cannot signal the evaluator or read its memory. Nor can it make
symbolic links: by one in the place of its output, the evaluator would read its own answers as the
candidate's.

This happens where the evaluator's Python starts a command: in `subprocess` and what uses it, in
`os.system`, `os.posix_spawn*` and `os.exec*`. The evaluator does not resist, but its children may:
what they have given up, they cannot get back. See `started_commands` for which commands count.
"""

import inspect
import os
import re
import stat
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, NoReturn, Self

from costada.evaluators.sandbox.inside.kernel import landlock, landlock_rule, landlock_ruleset
from costada.evaluators.sandbox.inside.orders import FOLDER, HOME, PROGRAM, REPOSITORY
from costada.evaluators.sandbox.inside.started_commands import (
    Script,
    StartedCommands,
    outputs_in,
)
from costada.evaluators.sandbox.inside.system_call_filter import Filter

USABLE = ("/dev/null", "/dev/random", "/dev/urandom", "/dev/zero")
PATH_IN_TEXT = re.compile(r"[^\s'\"=,;()<>|&]+")
OUTPUT_OPTION, OBJECT_OPTION, MODULES_OPTION = "-o", "-c", "-J"
COMPILER = re.compile(r"(.*-)?(cc|c\+\+|gcc|g\+\+|clang|clang\+\+|gfortran)(-[\d.]+)?")
FORTRAN = re.compile(r"(.*-)?gfortran(-[\d.]+)?")
MAX_NAMED = 1000


class ChildAccess(NamedTuple):
    """What Landlock's rules for such processes are made of: sets of accesses, as bits."""

    handled: bytes  # what is denied but for the rules
    list: int
    read: int
    write: int
    of_file: int  # those that a rule for a file may have
    readable: tuple[str, ...]  # paths outside of the working folder
    own_filter: Filter | None = None  # without the network that the evaluator has


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
        self._given = {os.path.join(root, path) for path in given}
        self._shared = [os.path.join(root, path) for path in shared]
        for path in [*self._given]:
            while (path := os.path.dirname(path)).startswith(self._folder):
                self._given.add(path)
        above = os.path.join(root, evaluator)
        self._around = set[str]()
        while (above := os.path.dirname(above)).startswith(self._folder):
            self._around.add(above)
        self._given |= self._around
        self._commands = StartedCommands(
            self._root, self._given, self._program, [*texts], self._made
        )

    @staticmethod
    def plan(access: ChildAccess, **settings: Any) -> dict[str, Any]:
        """What another process makes such an object of, as JSON can hold it."""
        own = access.own_filter
        numbers = access._replace(own_filter=None, handled=b"")._asdict()
        texts = {"handled": access.handled.hex(), "own_filter": own and own.program.hex()}
        return {**settings, "access": numbers | texts}

    @classmethod
    def planned(cls, plan: Mapping[str, Any]) -> Self:
        """Make it of what `plan` returned."""
        told = {**plan["access"], "handled": bytes.fromhex(plan["access"]["handled"])}
        if told["own_filter"]:
            told["own_filter"] = Filter(bytes.fromhex(told["own_filter"]))
        return cls(**{**plan, "access": ChildAccess(**told)})

    def rules_for(
        self, words: Sequence[str], folder: str, environment: Mapping[str, str]
    ) -> int | None:
        """The descriptor of the rules for a command; None if it does not run the candidate."""
        runs = self._commands.run_candidate
        if not (self._confines_all or runs(words, folder, environment)):
            return None
        scripts = self._commands.scripts(words, folder)
        self._make_outputs(words, folder, scripts)
        access = self._access
        # An import finds a module by the names in its folder.
        importing = (*map(os.path.dirname, self._shared), *self._importing(words, folder))
        wanted = dict.fromkeys(importing, access.list)
        wanted |= dict.fromkeys((*self._shared, *self._named(words, folder)), access.read)
        for script in scripts:
            named = (script.path, *self._named([script.text], script.folder))
            wanted |= {script.folder: access.list, **dict.fromkeys(named, access.read)}
        wanted |= dict.fromkeys(self._readable, access.read)
        wanted |= dict.fromkeys((*USABLE, self._home, self._program, *self._made()), access.write)
        return landlock_ruleset(access.handled, self._rules(wanted))

    def _rules(self, wanted: Mapping[str, int]) -> Iterator[bytes]:
        """A rule for each path that exists, valid until the next one is taken.

        There may be more paths than files that can be open at once.
        """
        for path, allowed in wanted.items():
            try:
                path_fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            except (FileNotFoundError, PermissionError):  # gone, or another user's
                continue
            try:
                mode = os.fstat(path_fd).st_mode
                kept = allowed if stat.S_ISDIR(mode) else allowed & self._access.of_file
                if not stat.S_ISLNK(mode):
                    yield landlock_rule(path_fd, kept)
            finally:
                os.close(path_fd)

    def _make_outputs(self, words: Sequence[str], folder: str, scripts: Iterable[Script]) -> None:
        """Make the files that a build names beside those of the evaluator: it can make no others.

        They are older than all else, so that make builds them.
        """
        places = [(name, each.folder) for each in scripts for name in outputs_in(each.text)]
        places += [(name, folder) for name in _outputs(words)]
        for name, place in places:
            output = os.path.join(place, name)
            is_beside = os.path.realpath(os.path.dirname(output)) in self._given
            if is_beside and not os.path.lexists(output):
                os.close(os.open(output, os.O_CREAT | os.O_WRONLY, 0o755))
                os.utime(output, (0, 0))

    def restrict(self, rules_fd: int) -> None:
        """Have this process keep to the rules, for good."""
        landlock(rules_fd)
        if self._access.own_filter is not None:
            self._access.own_filter.enforce()

    def with_modules_elsewhere(self, words: Sequence[str], folder: str) -> list[str]:
        """A compiler's command that makes no module files beside those of the evaluator."""
        is_fortran = FORTRAN.fullmatch(os.path.basename(words[0])) and folder in self._given
        if not is_fortran or any(word.startswith(MODULES_OPTION) for word in words):
            return [*words]
        return [words[0], f"{MODULES_OPTION}{self._home}", *words[1:]]

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
                    if entry.path not in self._given:
                        yield entry.path
                    elif entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)

    def _importing(self, words: Sequence[str], folder: str) -> list[str]:
        """The evaluator's folders in which a command may look for modules that were made there."""
        found = [folder, *(os.path.dirname(self._commands.path(word, folder)) for word in words)]
        return [place for place in found if place in self._given]

    def _named(self, words: Sequence[str], folder: str) -> list[str]:
        """The evaluator's files, and folders in its own, that a command names.

        A word that holds code of the candidate names nothing: the candidate wrote it.
        """
        texts = [word for word in words if not self._commands.holds_code(word)]
        names = dict.fromkeys(name for text in texts for name in PATH_IN_TEXT.findall(text))
        paths = (self._commands.path(name, folder) for name in [*words, *names][:MAX_NAMED])
        return [path for path in paths if path in self._given - self._around]


def confine_children(children: EvaluatorChildren) -> None:
    """Have what this process starts from now on restrict itself if it runs the candidate."""
    _confine_popen(children)
    _confine_system()
    _confine_exec(children)
    _confine_spawn(children)


def _confine_popen(children: EvaluatorChildren) -> None:
    begin = subprocess.Popen.__init__
    parameters = inspect.signature(begin)

    def begin_confined(self: Any, *args: Any, **named: Any) -> None:
        given = parameters.bind(self, *args, **named)
        given.apply_defaults()
        own = given.arguments
        words = _words(own["args"])
        if own["shell"]:
            words = [own["executable"] or "sh", "-c", *words]
        elif own["executable"]:
            words = [os.fsdecode(own["executable"]), *words[1:]]
        folder = os.path.realpath(own["cwd"] or os.getcwd())
        environment = os.environ if own["env"] is None else own["env"]
        rules_fd = children.rules_for(words, folder, _texts(environment))
        if rules_fd is None:
            begin(*given.args, **given.kwargs)
            return
        if not own["shell"] and isinstance(own["args"], list | tuple):
            own["args"] = children.with_modules_elsewhere(_words(own["args"]), folder)
        theirs = own["preexec_fn"]

        def restrict() -> None:
            if theirs is not None:
                theirs()
            children.restrict(rules_fd)

        own["preexec_fn"] = restrict
        own["env"] = children.without_keys(environment)
        try:
            begin(*given.args, **given.kwargs)
        finally:
            os.close(rules_fd)

    subprocess.Popen.__init__ = begin_confined  # type: ignore[method-assign]


def _confine_system() -> None:
    """Have `os.system` start its shell as `subprocess` does."""

    def system(command: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> int:
        status = subprocess.run(command, shell=True, check=False).returncode  # noqa: S602
        return -status if status < 0 else status << 8

    os.system = system


def _confine_exec(children: EvaluatorChildren) -> None:
    """Have a fork of the evaluator restrict itself before it executes a program."""
    execute = os.execve

    def execve(path: Any, args: Any, env: Mapping[Any, Any]) -> NoReturn:
        program = f"/proc/self/fd/{path}" if isinstance(path, int) else os.fsdecode(path)
        words = [program, *_words(args)[1:]]
        rules_fd = children.rules_for(words, os.getcwd(), _texts(env))
        if rules_fd is not None:
            children.restrict(rules_fd)
            os.close(rules_fd)
            env = children.without_keys(env)
        execute(path, args, env)

    os.execve = execve  # type: ignore[assignment]
    os.execv = lambda path, args: execve(path, args, os.environ)


def _confine_spawn(children: EvaluatorChildren) -> None:
    """Have what `os.posix_spawn` starts inherit the rules from a thread that keeps to them."""
    for name in ("posix_spawn", "posix_spawnp"):
        if hasattr(os, name):
            setattr(os, name, _spawning(getattr(os, name), children))


def _spawning(begin: Callable[..., int], children: EvaluatorChildren) -> Callable[..., int]:
    def spawn(path: Any, argv: Any, env: Mapping[Any, Any], /, **named: Any) -> int:
        words = [os.fsdecode(path), *_words(argv)[1:]]
        rules_fd = children.rules_for(words, os.getcwd(), _texts(env))
        if rules_fd is None:
            return begin(path, argv, env, **named)

        def begin_restricted() -> int:
            children.restrict(rules_fd)
            return begin(path, argv, children.without_keys(env), **named)

        try:
            # Rules and filters belong to a thread, and end with it.
            with ThreadPoolExecutor(1) as thread:
                return thread.submit(begin_restricted).result()
        finally:
            os.close(rules_fd)

    return spawn


def _outputs(words: Sequence[str]) -> list[str]:
    """The files that a build makes, as far as its command says."""
    if OUTPUT_OPTION in words[:-1]:
        return [words[words.index(OUTPUT_OPTION) + 1]]
    if not COMPILER.fullmatch(os.path.basename(words[0])):
        return []
    if OBJECT_OPTION not in words:
        return ["a.out"]
    sources = [word for word in words[1:] if word[:1] != "-" and "." in os.path.basename(word)]
    return [f"{os.path.splitext(os.path.basename(each))[0]}.o" for each in sources]


def _words(given: Any) -> list[str]:
    """The words of a command that is given as one text, a path or a list."""
    if isinstance(given, str | bytes | os.PathLike):
        return [os.fsdecode(given)]
    return [os.fsdecode(word) for word in given]


def _texts(environment: Mapping[Any, Any]) -> dict[str, str]:
    return {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}

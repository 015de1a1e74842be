"""Confines what an evaluator starts that runs its candidate: a program, a script, or a build.

The evaluator may read the answers, a candidate may not. So a process that the evaluator starts
restricts itself before it executes a command that runs the candidate's code. Of the working folder
it reaches the candidate's files, what is temporary, what was made since the evaluation began, and
the files that the command names. It cannot signal the evaluator or read its memory.

This happens where the evaluator's Python starts a command: in `subprocess` and what uses it, in
`os.system` and in `os.exec*`. The evaluator does not resist, but its children may: what they have
given up, they cannot get back.
"""

import inspect
import os
import re
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from costada.evaluators.sandbox.inside import kernel
from costada.evaluators.sandbox.inside.orders import FOLDER, HOME, PROGRAM

if TYPE_CHECKING:
    from costada.evaluators.sandbox.inside.seccomp import Filter

USABLE = ("/dev/null", "/dev/random", "/dev/urandom", "/dev/zero")
PATH_IN_TEXT = re.compile(r"[^\s'\"=,;()<>|&]+")
INTERPRETER = re.compile(
    r"(python|ruby|perl|lua|php)[\d.]*|node(js)?|deno|bun|julia|Rscript|(ba|da|z)?sh"
)
STANDARD_INPUT = "-"
OUTPUT_OPTION = "-o"
MIN_CODE_CHARS = 40
"""Shorter programs are not looked for in the words of a command: they may be part of any."""

MAX_NAMED = 1000
MAX_PATH_CHARS = 4096


class ChildAccess(NamedTuple):
    """What Landlock's rules for such processes are made of: sets of accesses, as bits."""

    handled: bytes  # what is denied but for the rules
    read: int
    write: int
    of_file: int  # those that a rule for a file may have
    readable: tuple[str, ...]  # paths outside of the working folder
    own_filter: "Filter | None" = None  # without the network that the evaluator has


class EvaluatorChildren:
    """Decides which commands run the candidate, and what these may reach."""

    def __init__(
        self,
        access: ChildAccess,
        given: Collection[str],
        evaluator: str,
        texts: Iterable[str],
        keys: Collection[str] = (),
    ) -> None:
        """Begin in the working folder.

        Args:
            access: What the rules are made of.
            given: The evaluator's files, as paths below the working folder.
            evaluator: The evaluator's own file among them.
            texts: The candidate's files.
            keys: Variables that only the evaluator has.
        """
        self._access = access
        self._keys = frozenset(keys)
        root = os.getcwd()
        self._root = os.path.join(root, "")
        places = (os.path.join(root, name) for name in (FOLDER, HOME, PROGRAM))
        self._folder, self._home, self._program = places
        self._given = {os.path.join(root, path) for path in given}
        for path in [*self._given]:
            while (path := os.path.dirname(path)).startswith(self._folder):
                self._given.add(path)
        above = os.path.join(root, evaluator)
        self._around = set[str]()
        while (above := os.path.dirname(above)).startswith(self._folder):
            self._around.add(above)
        self._given |= self._around
        self._codes = [text for text in texts if len(text) >= MIN_CODE_CHARS]

    def rules_for(
        self, words: Sequence[str], folder: str, environment: Mapping[str, str]
    ) -> int | None:
        """The descriptor of the rules for a command; None if it does not run the candidate."""
        if not self._runs_candidate(words, folder, environment):
            return None
        if OUTPUT_OPTION in words[:-1]:
            # A build may not make files beside those of the evaluator, except for this one.
            output = os.path.join(folder, words[words.index(OUTPUT_OPTION) + 1])
            if os.path.realpath(os.path.dirname(output)) in self._given:
                os.close(os.open(output, os.O_CREAT | os.O_WRONLY, 0o755))
        access = self._access
        wanted = dict.fromkeys(self._named(words, folder), access.read)
        wanted |= dict.fromkeys(access.readable, access.read)
        wanted |= dict.fromkeys((*USABLE, self._home, self._program, *self._made()), access.write)
        opened: list[int] = []
        rules = []
        try:
            for path, allowed in wanted.items():
                if os.path.islink(path) or not os.path.exists(path):
                    continue
                opened.append(os.open(path, os.O_PATH | os.O_CLOEXEC))
                kept = allowed if os.path.isdir(path) else allowed & access.of_file
                rules.append(kernel.landlock_rule(opened[-1], kept))
            return kernel.landlock_ruleset(access.handled, rules)
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def restrict(self, rules_fd: int) -> None:
        """Have this process keep to the rules, for good."""
        kernel.landlock(rules_fd)
        if self._access.own_filter is not None:
            self._access.own_filter.enforce()

    def without_keys(self, environment: Mapping[Any, Any]) -> dict[Any, Any]:
        """The variables of a process that runs the candidate."""
        return {
            name: value
            for name, value in environment.items()
            if os.fsdecode(name) not in self._keys
        }

    def _runs_candidate(
        self, words: Sequence[str], folder: str, environment: Mapping[str, str]
    ) -> bool:
        """Whether a command may execute the candidate's code, or reads it.

        A script of the evaluator is a part of that, whatever it is given.
        """
        paths = [self._path(word, folder) for word in words]
        if paths[0] in self._given:
            return False
        if INTERPRETER.fullmatch(os.path.basename(words[0])):
            rest = [number for number, word in enumerate(words) if word[:1] != "-"][1:2]
            if not rest or STANDARD_INPUT in words:
                return True  # it reads code from a pipe
            if paths[rest[0]] in self._given:
                return False
        if not self._is_given(folder):
            return True
        if any(self._program in text for text in (*words, *environment.values())):
            return True
        if any(code in word for code in self._codes for word in words):
            return True
        return any(not self._is_given(path) and os.path.isfile(path) for path in paths)

    def _path(self, word: str, folder: str) -> str:
        """Where a word leads, without links; empty if it is not a path."""
        if not word or "\0" in word or len(word) > MAX_PATH_CHARS:
            return ""
        return os.path.realpath(os.path.join(folder, word))

    def _is_given(self, path: str) -> bool:
        """Whether a path is the evaluator's, or outside of the working folder."""
        return path in self._given or not path.startswith(self._root)

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

    def _named(self, words: Sequence[str], folder: str) -> list[str]:
        """The evaluator's files, and folders in its own, that a command names.

        A word that holds code of the candidate names nothing: the candidate wrote it.
        """
        texts = [word for word in words if not any(code in word for code in self._codes)]
        names = dict.fromkeys(name for text in texts for name in PATH_IN_TEXT.findall(text))
        paths = (self._path(name, folder) for name in [*words, *names][:MAX_NAMED])
        return [path for path in paths if path in self._given - self._around]


def confine_children(children: EvaluatorChildren) -> None:
    """Have what this process starts from now on restrict itself if it runs the candidate."""
    _confine_popen(children)
    _confine_system()
    _confine_exec(children)


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
        words = [os.fsdecode(path), *_words(args)[1:]]
        rules_fd = children.rules_for(words, os.getcwd(), _texts(env))
        if rules_fd is not None:
            children.restrict(rules_fd)
            os.close(rules_fd)
            env = children.without_keys(env)
        execute(path, args, env)

    os.execve = execve  # type: ignore[assignment]
    os.execv = lambda path, args: execve(path, args, os.environ)


def _words(given: Any) -> list[str]:
    """The words of a command that is given as one text, a path or a list."""
    if isinstance(given, str | bytes | os.PathLike):
        return [os.fsdecode(given)]
    return [os.fsdecode(word) for word in given]


def _texts(environment: Mapping[Any, Any]) -> dict[str, str]:
    return {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}

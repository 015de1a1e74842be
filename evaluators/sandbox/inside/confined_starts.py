"""Has a process confine what it starts that runs the candidate, wherever Python starts a command.

That is in `subprocess` and what uses it, in `os.system`, `os.posix_spawn*` and `os.exec*`. The
process itself does not resist, but its children may: what they have given up, they cannot get back.
Loops of `uvloop` start processes in C, so those of `asyncio` take their place.
"""

import inspect
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from fcntl import F_DUPFD_CLOEXEC, fcntl
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

from costada.evaluators.sandbox.inside.evaluator_children import Confined, EvaluatorChildren

LOOPS = "uvloop"
OF_ASYNCIO = {
    "EventLoopPolicy": "DefaultEventLoopPolicy",
    "Loop": "SelectorEventLoop",
    "new_event_loop": "new_event_loop",
    "run": "run",
}
"""What `uvloop` offers, by the names of the same in `asyncio`."""


def confine_children(children: EvaluatorChildren) -> None:
    """Have what this process starts from now on restrict itself if it runs the candidate.

    All else gets their site folder on its import path: a Python then does the same.
    """
    _confine_popen(children)
    _confine_system()
    _confine_exec(children)
    _confine_spawn(children)
    if spec := find_spec(LOOPS):
        sys.modules[LOOPS] = _loops_of_asyncio(spec)


def _loops_of_asyncio(spec: ModuleSpec) -> ModuleType:
    """A module in the place of `uvloop`; `asyncio` takes long to import, so it waits for a use."""
    module = ModuleType(LOOPS)

    def get(name: str) -> Any:
        import asyncio

        if name not in OF_ASYNCIO:
            raise AttributeError(f"module {LOOPS!r} has no attribute {name!r} in the sandbox")
        return getattr(asyncio, OF_ASYNCIO[name])

    vars(module).update(__getattr__=get, __spec__=spec, install=lambda: None)
    return module


def _confine_popen(children: EvaluatorChildren) -> None:
    begin = subprocess.Popen.__init__
    parameters = inspect.signature(begin)
    begun: WeakKeyDictionary[Any, Confined] = WeakKeyDictionary()

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
        is_fed = _is_fed(own["stdin"])
        confined = children.rules_for(
            words, folder, _texts(environment), is_fed=is_fed, may_move=True
        )
        if confined is None:
            own["env"] = children.with_site(environment)
            begin(*given.args, **given.kwargs)
            return
        begun[self] = confined
        if confined.shadow is not None:
            own["args"] = confined.shadow.words_of(_words(own["args"]))
            own["cwd"] = confined.shadow.path_of(folder)
        theirs = own["preexec_fn"]

        def restrict() -> None:
            if theirs is not None:
                theirs()
            children.restrict(confined.rules_fd)

        own["preexec_fn"] = restrict
        own["env"] = children.without_keys(environment)
        try:
            begin(*given.args, **given.kwargs)
        finally:
            os.close(confined.rules_fd)

    def ended(self: Any, status: int | None) -> None:
        vars(self)["returncode"] = status
        if status is not None and (confined := begun.pop(self, None)):
            is_sound = confined.end()
            vars(self)["returncode"] = status or int(not is_sound)

    subprocess.Popen.__init__ = begin_confined  # type: ignore[method-assign]
    # asyncio waits for a process by itself, and sets this as well.
    status = property(lambda self: vars(self).get("returncode"), ended)
    subprocess.Popen.returncode = status


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
        confined = children.rules_for(words, os.getcwd(), _texts(env), is_fed=_is_fed(None))
        if confined is None:
            execute(path, args, children.with_site(env))
        children.restrict(confined.rules_fd)
        os.close(confined.rules_fd)
        execute(path, args, children.without_keys(env))

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
        actions = [*(named.get("file_actions") or ())]
        is_fed = _is_fed(None) or any(0 in _descriptors(each) for each in actions)
        confined = children.rules_for(words, os.getcwd(), _texts(env), is_fed=is_fed)
        if confined is None:
            return begin(path, argv, children.with_site(env), **named)

        def begin_restricted() -> int:
            children.restrict(confined.rules_fd)
            return begin(path, argv, children.without_keys(env), **named)

        with ExitStack() as files:
            files.callback(os.close, confined.rules_fd)
            if actions:
                free = 1 + max(number for each in actions for number in _descriptors(each))
                named["file_actions"] = [_opened(each, free, files) for each in actions]
            # Rules and filters belong to a thread, and end with it.
            with ThreadPoolExecutor(1) as thread:
                return thread.submit(begin_restricted).result()

    return spawn


def _is_fed(stdin: Any) -> bool:
    """Whether a command reads something, as far as `stdin` of `subprocess` says."""
    if stdin in (subprocess.PIPE, subprocess.DEVNULL):
        return bool(stdin == subprocess.PIPE)
    given = 0 if stdin is None else stdin if isinstance(stdin, int) else stdin.fileno()
    with suppress(OSError):
        return not stat.S_ISCHR(os.fstat(given).st_mode)
    return False


def _descriptors(action: tuple[Any, ...]) -> tuple[int, ...]:
    """The descriptors that an action of `os.posix_spawn` names."""
    return action[1:3] if action[0] == os.POSIX_SPAWN_DUP2 else action[1:2]


def _opened(action: tuple[Any, ...], free: int, files: ExitStack) -> tuple[Any, ...]:
    """An action of `os.posix_spawn`; the evaluator itself opens the file of one that opens.

    Its descriptor is at least `free`, which no action names: none closes or replaces it.
    """
    if action[0] != os.POSIX_SPAWN_OPEN:
        return action
    lowest = os.open(*action[2:])
    try:
        descriptor = fcntl(lowest, F_DUPFD_CLOEXEC, free)
    finally:
        os.close(lowest)
    files.callback(os.close, descriptor)
    return (os.POSIX_SPAWN_DUP2, descriptor, action[1])


def _words(given: Any) -> list[str]:
    """The words of a command that is given as one text, a path or a list."""
    if isinstance(given, str | bytes | os.PathLike):
        return [os.fsdecode(given)]
    return [os.fsdecode(word) for word in given]


def _texts(environment: Mapping[Any, Any]) -> dict[str, str]:
    return {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}

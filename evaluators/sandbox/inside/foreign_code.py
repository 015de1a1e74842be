"""Runs foreign code in this process: loads a file as a module, and captures what it raises."""

import os
import re
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType, TracebackType
from typing import Self


def load_module(name: str, path: str, moved: tuple[str, str] = ("", "")) -> ModuleType:
    """Run the file at path as a module that sys.modules knows under the name given.

    String literals in it that begin with the first folder of `moved` begin with the second instead.
    """
    # Read and compiled by hand: the loader would leave a folder of byte code beside the file.
    with open(path, "rb") as file:
        source = file.read()
    old, new = map(os.fsencode, moved)
    if old:
        source = re.sub(rb"""(?<=["'])%s(?=[/"'])""" % re.escape(old), lambda _: new, source)
    module = new_module(name, path)
    run_module(module, source)
    return module


def new_module(name: str, path: str) -> ModuleType:
    """A module for the file at path that has not run yet."""
    module = ModuleType(name)
    module.__file__, module.__package__ = path, ""
    module.__loader__ = SourceFileLoader(name, path)
    module.__spec__ = ModuleSpec(name, module.__loader__, origin=path)
    return module


def run_module(module: ModuleType, source: bytes) -> None:
    """Run the source of a new module's file."""
    # Before it runs: dataclasses with postponed annotations and multiprocessing look it up there.
    sys.modules[module.__name__] = module
    code = compile(source, str(module.__file__), "exec", dont_inherit=True)
    exec(code, module.__dict__)  # noqa: S102  (this process is there for it)


class capture_exception:
    """Captures the error of the code under `with`: any `Exception`, and the kinds named.

    A class, as `suppress` is one: what `__exit__` is given needs no broad `except`.
    """

    def __init__(
        self,
        also: tuple[type[BaseException], ...] = (),
        but: tuple[type[BaseException], ...] = (),
    ) -> None:
        """Capture errors of the kinds in `also` too; let those in `but` propagate."""
        self.error: BaseException | None = None
        self._captured: tuple[type[BaseException], ...] = (Exception, *also)
        self._passed = but

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if isinstance(error, self._captured) and not isinstance(error, self._passed):
            self.error = error
        return self.error is not None

"""Runs a file as a module, without writing beside it."""

import os
import re
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType


def load_module(name: str, path: str, moved: tuple[str, str] = ("", "")) -> ModuleType:
    """Run the file at path as a module that sys.modules knows under the name given.

    In its texts, a path that begins with the first of the folders `moved` begins with the second.
    """
    module = ModuleType(name)
    module.__file__, module.__package__ = path, ""
    module.__loader__ = SourceFileLoader(name, path)
    module.__spec__ = ModuleSpec(name, module.__loader__, origin=path)
    sys.modules[name] = module
    with open(path, "rb") as file:
        source = file.read()
    old, new = map(os.fsencode, moved)
    if old:
        source = re.sub(rb"""(?<=["'])%s(?=[/"'])""" % re.escape(old), lambda _: new, source)
    code = compile(source, path, "exec", dont_inherit=True)
    exec(code, module.__dict__)  # noqa: S102  (this process is there for it)
    return module

"""The `sitecustomize` of a Python that a command starts; see `command_models`.

It runs as the interpreter starts, and then the module of this name that would run otherwise. The
modules that it needs lie beside it: those of an installed package cannot be read here.
"""

import os
import stat
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

PACKAGE = "costada.evaluators.sandbox.inside"
FILES = ("orders", "multiplexer", "model_connections")
VARIABLE = "COSTADA_MODELS"
FOLDER = os.path.dirname(__file__)


def channel() -> int | None:
    """The descriptor of the channel; None if this process has none."""
    number, _, inode = os.environ.get(VARIABLE, "").partition(":")
    try:
        about = os.fstat(int(number))
    except (OSError, ValueError):
        return None
    is_same = stat.S_ISSOCK(about.st_mode) and about.st_ino == int(inode)
    return int(number) if is_same else None


def load(name: str) -> ModuleType:
    """Load a module from the file beside this one, under its usual name."""
    full = f"{PACKAGE}.{name}"
    file = os.path.join(FOLDER, f"{name}.py")
    spec = spec_from_file_location(full, file)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name!r} at {file}", name=name)
    sys.modules[full] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def offer() -> None:
    """Have sockets of this process reach the models, if it has a channel."""
    if (channel_fd := channel()) is None:
        return
    os.set_inheritable(channel_fd, False)
    modules = [load(name) for name in FILES]
    modules[-1].offer_models(channel_fd, may_fork=True, claim=FOLDER)
    for name in FILES:
        del sys.modules[f"{PACKAGE}.{name}"]


def run_next() -> None:
    """Run the module of this name that is found without this one, if there is any."""
    sys.path[:] = [path for path in sys.path if path != FOLDER]
    del sys.modules["sitecustomize"]
    try:
        import_module("sitecustomize")
    except ModuleNotFoundError:
        sys.modules["sitecustomize"] = ModuleType("sitecustomize")


if __name__ == "sitecustomize":
    offer()
    run_next()

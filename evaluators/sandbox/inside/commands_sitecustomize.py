"""The `sitecustomize` of a Python that a command starts; see `command_site`.

It runs as the interpreter starts, and then the module of this name that would run otherwise. The
modules that it needs lie beside it: those of an installed package cannot be read here.
"""

import json
import os
import stat
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

PACKAGE = "costada.evaluators.sandbox.inside"
MODELS = ("orders", "multiplexer", "model_connections")
CHILDREN = (
    *("orders", "kernel", "system_call_filter", "child_access", "shell_text"),
    *("evaluator_scripts", "command_words", "build_outputs", "own_files", "started_commands"),
    *("evaluator_children", "confined_starts"),
)
"""Modules in the order in which they import each other."""

VARIABLE = "COSTADA_MODELS"
"""Descriptor and inode of the channel: a process that has not inherited it has no models."""

PLAN = "children.json"
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
    modules = [load(name) for name in MODELS]
    modules[-1].offer_models(channel_fd, may_fork=True, claim=FOLDER)
    for name in MODELS:
        del sys.modules[f"{PACKAGE}.{name}"]


def confine() -> None:
    """Have this process confine what it starts that runs the candidate, where that is planned.

    A process that is confined already cannot read the plan.
    """
    try:
        with open(os.path.join(FOLDER, PLAN), "rb") as file:
            plan = json.load(file)
    except OSError:
        return
    paths = plan["environment"].get("PYTHONPATH", "")
    plan["environment"]["PYTHONPATH"] = os.pathsep.join((FOLDER, paths))
    try:
        modules = [load(name) for name in CHILDREN]
        modules[-1].confine_children(modules[-1].EvaluatorChildren.planned(plan))
    except (ImportError, OSError, TypeError, ValueError) as error:
        # Python would go on without this module, and start the candidate unconfined.
        raise SystemExit(f"sandbox: what is started cannot be confined: {error}") from None
    for name in CHILDREN:
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
    confine()
    run_next()

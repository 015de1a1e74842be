"""The `sitecustomize` of a Python that a command starts; see `command_site`.

It runs as the interpreter starts, and then the module of this name that would run otherwise. The
modules that it needs lie beside it: those of an installed package cannot be read here.
"""

import os
import stat
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from types import ModuleType

PACKAGE = "costada.evaluators.sandbox.inside"
MODELS = ("orders", "multiplexer", "model_connections")
CHILDREN = (
    *("orders", "kernel", "system_call_filter", "child_access", "shell_text"),
    *("evaluator_scripts", "command_words", "program_outputs", "own_files", "build_files"),
    *("build_shadow", "started_commands", "evaluator_children", "confined_starts"),
)
"""Modules in the order in which they import each other."""

POOLS = ("semaphores", "start_methods")
"""Modules that a process which is confined may read, too."""

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
            text = file.read()
    except (FileNotFoundError, PermissionError):
        return
    # Not imported for a candidate: it would start later by that.
    import json

    plan = json.loads(text)
    paths = plan["environment"].get("PYTHONPATH", "")
    plan["environment"]["PYTHONPATH"] = os.pathsep.join((FOLDER, paths))
    plan["site"] = FOLDER
    modules = [load(name) for name in CHILDREN]
    modules[-1].confine_children(modules[-1].EvaluatorChildren.planned(plan))
    for name in CHILDREN:
        del sys.modules[f"{PACKAGE}.{name}"]


class PoolsFinder:
    """Has `multiprocessing` work in this process once it is imported, as in the evaluator's."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """Where the module is that knows the start methods, which changes them when it has run."""
        if name != "multiprocessing.context":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_offer(module: ModuleType) -> None:
                run(module)
                semaphores, start_methods = map(load, POOLS)
                if semaphores.offer_semaphores():
                    start_methods.offer_start_methods()

            spec.loader.exec_module = run_and_offer  # type: ignore[method-assign]
        return spec


def offer_pools() -> None:
    """Have pools work in this process where the system has no semaphores for it."""
    if os.path.exists(os.path.join(FOLDER, f"{POOLS[0]}.py")):
        sys.meta_path.insert(0, PoolsFinder())


def run_next() -> None:
    """Run the module of this name that is found without this one, if there is any."""
    sys.path[:] = [path for path in sys.path if path != FOLDER]
    del sys.modules["sitecustomize"]
    try:
        import_module("sitecustomize")
    except ModuleNotFoundError:
        sys.modules["sitecustomize"] = ModuleType("sitecustomize")


if __name__ == "sitecustomize":
    try:
        offer()
        confine()
    # Python would go on without this module, and start the candidate unconfined.
    except Exception as error:  # noqa: BLE001
        raise SystemExit(f"sandbox: what is started cannot be confined: {error!r}") from None
    offer_pools()
    run_next()

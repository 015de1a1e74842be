"""Entry point of a slot's process: it has the libraries loaded and knows no secrets.

Started by path in a fresh interpreter with an empty environment. It takes orders over a socket,
one line of JSON each, together with three descriptors: the request, the result pipe and the log
pipe. They go to the worker alone, so that nothing of a candidate ever stays in the memory which the
next one inherits. When the worker has ended, whatever it left is killed and removed, and one line
reports how it ended. The end of the socket is the end of this process.

The role is `fork_server`; where a loaded process must not be forked, it is `spawn_server`, which
loads no libraries and starts this file again, as a `worker`, for each candidate. With the role
`build` it becomes an installer instead, which takes no orders.
"""

import json
import os
import site
import socket
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

if __name__ == "__main__":
    # Makes the sandbox's folder importable by its usual name; of all else, only what is listed in
    # `INSIDE_FILES` of `launch.py` is there in every layer.
    root = Path(__file__).parents[3]
    for name in ("", "evaluators", "evaluators.sandbox", "values"):
        package = ModuleType(f"costada.{name}".rstrip("."))
        folder = root.joinpath(*name.split("."))
        package.__path__ = [str(folder)] if name in ("evaluators.sandbox", "values") else []
        sys.modules[package.__name__] = package

from costada.evaluators.sandbox.inside import fork_hooks

if __name__ == "__main__":
    fork_hooks.intercept()  # before a module that has a hook is imported

from costada.evaluators.sandbox.inside import confined_build, process_tree
from costada.evaluators.sandbox.inside.candidate_process import CandidateProcess
from costada.evaluators.sandbox.inside.fork_server import (
    ForkServer,
    freeze_memory,
    seed_random_numbers,
)
from costada.evaluators.sandbox.inside.import_finders import Guards, PublicModules, load_file
from costada.evaluators.sandbox.inside.spawn_server import SpawnedWorker, SpawnServer


def main() -> None:
    """Load what is asked for, then serve until the socket ends."""
    settings = json.loads(sys.argv[1])
    for name in set(os.environ) - set(settings["environment"]):
        del os.environ[name]
    guards = Guards(settings["guards"])
    sys.meta_path.insert(0, guards)
    if settings["role"] == "build":
        confined_build.run(settings)
    if "control_path" in settings:
        control = socket.socket(socket.AF_UNIX)
        control.connect(settings["control_path"])
        settings["control_fd"] = control.detach()
    if settings["is_supervised"] and settings["role"] != "worker":
        process_tree.supervise(settings["control_fd"], has_namespace=settings["has_namespace"])
    if sys.flags.no_site:
        set_up_site(settings["prefix"])
    sys.path[:0] = [path for path in settings["import_path"] if path not in sys.path]
    if settings["role"] != "spawn_server":
        for name in settings["preload"]:
            import_module(name)
        seed_random_numbers()
    compat_modules = [load_file(*each) for each in settings["compat_modules"].items()]
    process = CandidateProcess(compat_modules, has_limits=settings["has_limits"])
    server = started(settings, process)
    # Candidates find no module of ours, by whose functions they could see or change answers.
    for name in [name for name in sys.modules if name.partition(".")[0] == "costada"]:
        del sys.modules[name]
    # Nor this file, which the interpreters of a pool, such as joblib's, would run again.
    sys.modules["__main__"] = ModuleType("__main__")
    sys.meta_path.remove(guards)
    sys.meta_path.insert(0, PublicModules())
    fork_hooks.stop_intercepting()
    freeze_memory()
    server.serve()
    os._exit(0)


def started(
    settings: Mapping[str, Any], process: CandidateProcess
) -> ForkServer | SpawnServer | SpawnedWorker:
    """The server, or the worker, that the settings name."""
    match settings["role"]:
        case "fork_server":
            return ForkServer(settings, process)
        case "spawn_server":
            return SpawnServer(settings)
    return SpawnedWorker(settings, process)


def set_up_site(prefix: str) -> None:
    """Do what Python does at its start, without the code that packages add to that."""
    sys.prefix = sys.exec_prefix = prefix
    site.setquit()
    site.setcopyright()
    site.sethelper()


if __name__ == "__main__":
    main()

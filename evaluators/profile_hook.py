"""The `sitecustomize` of a Python whose functions are timed; see `profiled_command.py`.

Its text alone reaches the sandbox, so it shares no function with `commands_sitecustomize.py`.

At the end of the process it writes seconds by `path:line` of each function below the working
folder. The time of functions elsewhere, such as built-in ones, counts for those that call them.
Then it lets the module run that would be the `sitecustomize` otherwise.
"""

import atexit
import cProfile
import json
import os
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

FOLDER = "COSTADA_PROFILE"
BUILT_IN = "~"


def write(profile: cProfile.Profile, folder: str, root: str) -> None:
    """Write the times of a profile."""
    profile.create_stats()
    stats: dict[Any, Any] = profile.stats
    seconds: dict[str, float] = {}

    def add(function: tuple[str, int, str], own: float) -> None:
        path, line, name = function
        if path.startswith(root) and not name.startswith("<module"):
            place = f"{path.removeprefix(root)}:{line}"
            seconds[place] = seconds.get(place, 0.0) + own

    for function, (_, _, own, _, callers) in stats.items():
        add(function, own)
        if not function[0].startswith(root):
            for caller, (_, _, direct, inside) in callers.items():
                add(caller, direct if function[0] == BUILT_IN else inside)
    with open(os.path.join(folder, f"{os.getpid()}.json"), "w") as file:
        json.dump(seconds, file)


def run_next(folder: str) -> None:
    """Run the module of this name that is found without this one, if there is any."""
    sys.path[:] = [path for path in sys.path if path != folder]
    del sys.modules["sitecustomize"]
    try:
        import_module("sitecustomize")
    except ModuleNotFoundError:
        sys.modules["sitecustomize"] = ModuleType("sitecustomize")


if __name__ == "sitecustomize":
    place = os.environ[FOLDER]
    run_next(place)
    began = cProfile.Profile()
    atexit.register(write, began, place, os.path.join(os.getcwd(), ""))
    began.enable()

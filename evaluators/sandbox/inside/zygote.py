"""The process that candidates are forked from: it has the libraries loaded and knows no secrets.

Started by path in a fresh interpreter with an empty environment. It takes orders over a socket,
one line of JSON each, together with three descriptors: the request, the result pipe and the log
pipe. They go to the child alone, so that nothing of a candidate ever stays in the memory which the
next one inherits. When the child has ended, whatever it left is killed and removed, and one line
tells how it ended. The end of the socket is the end of this process.

Where nothing warm must be forked it plays other roles: the nursery, which loads no libraries and
starts this file anew for each candidate, and the single-use interpreter that is started so.
"""

import gc
import json
import os
import socket
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parents[1]


def name_ourselves() -> None:
    """Make this folder importable by its usual name, and nothing else of the package."""
    for name in ("costada", "costada.evaluators", "costada.evaluators.sandbox"):
        module = ModuleType(name)
        module.__path__ = [str(HERE)] if name.endswith("sandbox") else []
        sys.modules[name] = module


if __name__ == "__main__":
    name_ourselves()

from costada.evaluators.sandbox.inside import guard  # noqa: E402
from costada.evaluators.sandbox.inside.child import seed_numpy  # noqa: E402
from costada.evaluators.sandbox.inside.nursery import Nursery  # noqa: E402
from costada.evaluators.sandbox.inside.single import Single  # noqa: E402
from costada.evaluators.sandbox.inside.ward import Ward  # noqa: E402

ROLES: dict[str, type[Ward | Nursery | Single]] = {
    "ward": Ward,
    "nursery": Nursery,
    "single": Single,
}


def connected(path: str) -> int:
    """Return the descriptor of a connection with the socket that lies at a path."""
    control = socket.socket(socket.AF_UNIX)
    control.connect(path)
    return control.detach()


def main() -> None:
    """Load what is asked for, then serve until the socket ends."""
    settings = json.loads(sys.argv[1])
    for name in set(os.environ) - set(settings["environment"]):
        del os.environ[name]
    if "control_path" in settings:
        settings["control_fd"] = connected(settings["control_path"])
    if settings["is_guarded"] and settings["role"] != "single":
        guard.stand(settings["control_fd"], has_namespace=settings["has_namespace"])
    sys.path[:0] = [path for path in settings["import_path"] if path not in sys.path]
    if settings["role"] != "nursery":
        for name in settings["preload"]:
            import_module(name)
        seed_numpy()
    role = ROLES[settings["role"]](settings)
    for name in [name for name in sys.modules if name.partition(".")[0] == "costada"]:
        del sys.modules[name]
    gc.collect()
    gc.freeze()
    role.serve()
    os._exit(0)


if __name__ == "__main__":
    main()

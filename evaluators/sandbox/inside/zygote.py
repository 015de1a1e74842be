"""The process that candidates are forked from: it has the libraries loaded and knows no secrets.

Started by path in a fresh interpreter with an empty environment. It takes orders over a socket,
one line of JSON each, together with three descriptors: the request, the result pipe and the log
pipe. They go to the child alone, so that nothing of a candidate ever stays in the memory which the
next one inherits. When the child has ended, whatever it left is killed and removed, and one line
tells how it ended. The end of the socket is the end of this process.
"""

import gc
import json
import os
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

from costada.evaluators.sandbox.inside.ward import Ward  # noqa: E402


def main() -> None:
    """Load what is asked for, then serve until the socket ends."""
    settings = json.loads(sys.argv[1])
    sys.path[:0] = [path for path in settings["import_path"] if path not in sys.path]
    for name in settings["preload"]:
        import_module(name)
    ward = Ward(settings)
    for name in [name for name in sys.modules if name.partition(".")[0] == "costada"]:
        del sys.modules[name]
    gc.collect()
    gc.freeze()
    ward.serve()
    os._exit(0)


if __name__ == "__main__":
    main()

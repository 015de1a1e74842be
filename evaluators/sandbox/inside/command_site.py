"""Code that a Python runs as it starts, where a command starts it: see `commands_sitecustomize`.

It offers models to the Python that inherits their channel, and confines what the score command of a
repository starts. Programs in other languages have neither: they would need a network, and what
they start is not seen.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from costada.evaluators.sandbox.inside.commands_sitecustomize import PLAN, VARIABLE

SITE = {"sitecustomize.py": "commands_sitecustomize.py"}
"""What is written for the interpreter, by the file that it is a copy of."""


def code_of(*names: str) -> Mapping[str, bytes]:
    """The files of modules by which a Python does this; confined, this process cannot read them."""
    folder = Path(__file__).parent
    sources = SITE | {f"{name}.py": f"{name}.py" for name in names}
    return {name: (folder / source).read_bytes() for name, source in sources.items()}


def offer_to_commands(code: Mapping[str, bytes], channel_fd: int) -> None:
    """Have each Python that inherits the channel of this process, and its variables, use it."""
    os.environ["PYTHONPATH"] = _written(code)
    os.environ[VARIABLE] = f"{channel_fd}:{os.fstat(channel_fd).st_ino}"
    os.set_inheritable(channel_fd, True)


def confine_in_commands(code: Mapping[str, bytes], plan: Mapping[str, Any]) -> str:
    """Write what has a Python confine what it starts; the folder for its import path.

    `plan` is what `EvaluatorChildren.planned` takes.
    """
    return _written({**code, PLAN: json.dumps(plan).encode()})


def _written(code: Mapping[str, bytes]) -> str:
    folder = mkdtemp(prefix=".site-", dir=os.getcwd())
    for name, text in code.items():
        with open(os.path.join(folder, name), "xb") as file:
            file.write(text)
    return folder

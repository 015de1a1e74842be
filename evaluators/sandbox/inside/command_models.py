"""Offers models to a Python that a command starts, by code that the interpreter runs as it starts.

Programs in other languages have none: they would need a network.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp

VARIABLE = "COSTADA_MODELS"
"""Descriptor and inode of the channel: a process that has not inherited it has no models."""

SITE = "sitecustomize.py"
FILES = {
    SITE: "models_sitecustomize.py",
    **{name: name for name in ("model_connections.py", "multiplexer.py", "orders.py")},
}
"""What is written for the interpreter, by the file that it is a copy of."""


def models_code() -> Mapping[str, bytes]:
    """The files by which a Python reaches models; confined, this process could not read them."""
    folder = Path(__file__).parent
    return {name: (folder / source).read_bytes() for name, source in FILES.items()}


def offer_to_commands(code: Mapping[str, bytes], channel_fd: int) -> None:
    """Have each Python that inherits the channel of this process, and its variables, use it."""
    folder = mkdtemp(prefix=".models-", dir=os.getcwd())
    for name, text in code.items():
        with open(os.path.join(folder, name), "xb") as file:
            file.write(text)
    os.environ["PYTHONPATH"] = folder
    os.environ[VARIABLE] = f"{channel_fd}:{os.fstat(channel_fd).st_ino}"
    os.set_inheritable(channel_fd, True)

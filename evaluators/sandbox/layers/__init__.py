"""The layers of the sandbox: one row each, with the class that `protocol.py` describes."""

from enum import StrEnum
from typing import Self

from costada.evaluators.sandbox.layers.bubblewrap import Bubblewrap
from costada.evaluators.sandbox.layers.container import Container
from costada.evaluators.sandbox.layers.direct import Landlock, Process, Unlimited
from costada.evaluators.sandbox.layers.protocol import SandboxLayer


class Layer(StrEnum):
    """What confines a candidate's process.

    AUTO stands for the strongest of BUBBLEWRAP, LANDLOCK and PROCESS that passes its probe.
    """

    _value_: str
    implementation: type[SandboxLayer]

    def __new__(cls, name: str, implementation: type[SandboxLayer] | None = None) -> Self:
        """Make a row: the name that users write, and the class; AUTO has none."""
        layer = str.__new__(cls, name)
        layer._value_ = name
        if implementation is not None:
            layer.implementation = implementation
        return layer

    AUTO = "auto"
    PROCESS = "process", Process
    LANDLOCK = "landlock", Landlock
    BUBBLEWRAP = "bubblewrap", Bubblewrap
    CONTAINER = "container", Container
    NONE = "none", Unlimited


NAMED = tuple(layer for layer in Layer if layer is not Layer.AUTO)
UNCONFINED = tuple(layer for layer in NAMED if not layer.implementation.confines)
"""Those under which a program can do whatever its user can."""

WITH_FILESYSTEM = tuple(layer for layer in NAMED if layer.implementation.has_filesystem)
BY_STRENGTH = tuple(
    sorted(
        (layer for layer in NAMED if layer.implementation.is_automatic),
        key=lambda layer: layer.implementation.strength,
        reverse=True,
    )
)
"""Those that AUTO tries, in this order."""

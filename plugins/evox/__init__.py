"""EvoX: one population, searched by a strategy that the model rewrites; blind to cost."""

from costada.controller.methods import Method
from costada.plugins.evox.controller import EvoX
from costada.plugins.evox.evolution import INNER
from costada.plugins.evox.nodes import NODES

METHOD = Method(
    "evox",
    EvoX,
    "search strategies written by the model, blind to cost",
    switches={},
    nodes=NODES,
    inner=INNER,
)

__all__ = ["METHOD", "EvoX"]

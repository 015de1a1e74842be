"""Methods of other packages, written anew from their rules: OpenEvolve and GEPA."""

from costada.controller.methods import Method
from costada.plugins.peers.peer import Gepa, OpenEvolve
from costada.plugins.peers.peer_nodes import NODES

OPENEVOLVE = Method(
    "openevolve",
    OpenEvolve,
    "five islands with a MAP-Elites grid each, blind to cost",
    switches={"max_attempts": 1},
    nodes=NODES,
)

GEPA = Method(
    "gepa",
    Gepa,
    "parents from the Pareto front over examples and objectives, blind to cost",
    switches={"max_attempts": 1},
    nodes=NODES,
)

PEERS = (OPENEVOLVE, GEPA)
"""The methods of this plug-in."""

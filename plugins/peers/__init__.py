"""Methods of other packages, written anew from their rules: OpenEvolve, GEPA, ShinkaEvolve."""

from costada.controller.methods import Method
from costada.plugins.peers.notes import INNER
from costada.plugins.peers.peer import Gepa, OpenEvolve, ShinkaEvolve
from costada.plugins.peers.peer_nodes import CHOOSING, NODES

GROUP = "peers"
"""What `--methods` is given for all of them."""

OPENEVOLVE = Method(
    "openevolve",
    OpenEvolve,
    "five islands with a MAP-Elites grid each, blind to cost",
    switches={"max_attempts": 1},
    nodes=NODES,
    group=GROUP,
)

GEPA = Method(
    "gepa",
    Gepa,
    "parents from the Pareto front over examples and objectives, blind to cost",
    switches={"max_attempts": 1},
    nodes=NODES,
    group=GROUP,
)

SHINKAEVOLVE = Method(
    "shinkaevolve",
    ShinkaEvolve,
    "two islands with one archive, notes by a guide model, blind to cost",
    switches={"max_attempts": 1},
    nodes=CHOOSING,
    inner=INNER,
    group=GROUP,
)

PEERS = (OPENEVOLVE, GEPA, SHINKAEVOLVE)
"""The methods of this plug-in."""

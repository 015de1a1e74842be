"""CostAda: LLM-driven discovery under a dollar budget, as a LangGraph graph.

The public names are loaded on first use, so that `import costada` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from costada.controller.constants import Constants
    from costada.controller.ledger import Price
    from costada.evaluators.contract import Evaluation
    from costada.evaluators.problem import Problem
    from costada.evaluators.registry import problem
    from costada.evaluators.sandbox.layers import Layer
    from costada.evaluators.sandbox.limits import Limits
    from costada.evaluators.sandbox.result import CandidateResult
    from costada.graph.build import create_discovery_graph
    from costada.models.chat_models import chat_model
    from costada.models.errors import UnmeteredCall
    from costada.models.offline import OfflineModel
    from costada.nodes.settings import Settings
    from costada.runs.discovery import Discovery, discover
    from costada.runs.interruption import interrupting_evaluations
    from costada.store.run_store import RunStore

__all__ = [
    "CandidateResult",
    "Constants",
    "Discovery",
    "Evaluation",
    "Layer",
    "Limits",
    "OfflineModel",
    "Price",
    "Problem",
    "RunStore",
    "Settings",
    "UnmeteredCall",
    "chat_model",
    "create_discovery_graph",
    "discover",
    "interrupting_evaluations",
    "problem",
]

_HOMES = {
    "CandidateResult": "costada.evaluators.sandbox.result",
    "Constants": "costada.controller.constants",
    "Discovery": "costada.runs.discovery",
    "Evaluation": "costada.evaluators.contract",
    "Layer": "costada.evaluators.sandbox.layers",
    "Limits": "costada.evaluators.sandbox.limits",
    "OfflineModel": "costada.models.offline",
    "Price": "costada.controller.ledger",
    "Problem": "costada.evaluators.problem",
    "RunStore": "costada.store.run_store",
    "Settings": "costada.nodes.settings",
    "UnmeteredCall": "costada.models.errors",
    "chat_model": "costada.models.chat_models",
    "create_discovery_graph": "costada.graph.build",
    "discover": "costada.runs.discovery",
    "interrupting_evaluations": "costada.runs.interruption",
    "problem": "costada.evaluators.registry",
}


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'costada' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)

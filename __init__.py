"""CostAda: LLM-driven discovery under a dollar budget, as a LangGraph graph.

The public names are loaded on first use, so that `import costada` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from costada.agents.middleware import BudgetMiddleware
    from costada.agents.node import as_discovery_node
    from costada.agents.tool import create_discovery_tool
    from costada.agents.toolkit import DiscoveryToolkit, create_discovery_toolkit
    from costada.controller.constants import Constants
    from costada.evaluators.feedback import log
    from costada.evaluators.problem import Problem
    from costada.evaluators.problem_fields import Holdout
    from costada.evaluators.registry import problem
    from costada.evaluators.sandbox.candidate_results import CandidateResult
    from costada.evaluators.sandbox.layers import Layer
    from costada.evaluators.sandbox.limits import Limits
    from costada.evaluators.scoring import normalize
    from costada.graph.graph_input import SearchContext
    from costada.models.chat_models import chat_model
    from costada.models.errors import UnmeteredCall
    from costada.models.menu import MenuModel
    from costada.plugins.offline import OfflineModel
    from costada.runs.choices import Choices
    from costada.runs.discovery import Discovery, discover
    from costada.runs.interruption import interrupting_evaluations
    from costada.runs.loaded_run import LoadedRun, load_run
    from costada.runs.plan import menu_models
    from costada.runs.search_graph import create_discovery_graph
    from costada.store.purse import OverBudget, Purse
    from costada.store.run_store import RunStore
    from costada.values.candidate import Candidate
    from costada.values.evaluation import Direction, Evaluation, failed
    from costada.values.usage import Price

__all__ = [
    "BudgetMiddleware",
    "Candidate",
    "CandidateResult",
    "Choices",
    "Constants",
    "Direction",
    "Discovery",
    "DiscoveryToolkit",
    "Evaluation",
    "Holdout",
    "Layer",
    "Limits",
    "LoadedRun",
    "MenuModel",
    "OfflineModel",
    "OverBudget",
    "Price",
    "Problem",
    "Purse",
    "RunStore",
    "SearchContext",
    "UnmeteredCall",
    "as_discovery_node",
    "chat_model",
    "create_discovery_graph",
    "create_discovery_tool",
    "create_discovery_toolkit",
    "discover",
    "failed",
    "interrupting_evaluations",
    "load_run",
    "log",
    "menu_models",
    "normalize",
    "problem",
]

_HOMES = {
    "BudgetMiddleware": "costada.agents.middleware",
    "Candidate": "costada.values.candidate",
    "CandidateResult": "costada.evaluators.sandbox.candidate_results",
    "Choices": "costada.runs.choices",
    "Constants": "costada.controller.constants",
    "Direction": "costada.values.evaluation",
    "Discovery": "costada.runs.discovery",
    "DiscoveryToolkit": "costada.agents.toolkit",
    "Evaluation": "costada.values.evaluation",
    "Layer": "costada.evaluators.sandbox.layers",
    "Purse": "costada.store.purse",
    "Holdout": "costada.evaluators.problem_fields",
    "LoadedRun": "costada.runs.loaded_run",
    "Limits": "costada.evaluators.sandbox.limits",
    "MenuModel": "costada.models.menu",
    "OfflineModel": "costada.plugins.offline",
    "OverBudget": "costada.store.purse",
    "Price": "costada.values.usage",
    "Problem": "costada.evaluators.problem",
    "RunStore": "costada.store.run_store",
    "SearchContext": "costada.graph.graph_input",
    "UnmeteredCall": "costada.models.errors",
    "as_discovery_node": "costada.agents.node",
    "chat_model": "costada.models.chat_models",
    "create_discovery_graph": "costada.runs.search_graph",
    "create_discovery_tool": "costada.agents.tool",
    "create_discovery_toolkit": "costada.agents.toolkit",
    "discover": "costada.runs.discovery",
    "failed": "costada.values.evaluation",
    "interrupting_evaluations": "costada.runs.interruption",
    "load_run": "costada.runs.loaded_run",
    "log": "costada.evaluators.feedback",
    "menu_models": "costada.runs.plan",
    "normalize": "costada.evaluators.scoring",
    "problem": "costada.evaluators.registry",
}


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'costada' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)

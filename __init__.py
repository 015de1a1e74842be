"""CostAda: LLM-driven discovery under a dollar budget, as a LangGraph graph.

The public names are loaded on first use, so that `import costada` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from costada.agents.job_clients import JobStatus, enqueue, job_status
    from costada.agents.middleware import BudgetMiddleware
    from costada.agents.node import DiscoveryNode, as_discovery_node
    from costada.agents.run_answers import BestProgram, RunList, RunResult, RunStatus
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
    from costada.graph.compiled import DiscoveryGraph
    from costada.graph.graph_input import SearchContext
    from costada.models.chat_models import chat_model
    from costada.models.errors import UnmeteredCall
    from costada.models.menu import MenuModel, ModelEntry
    from costada.models.providers import RetryPolicy
    from costada.nodes.context import ChatModel
    from costada.nodes.state import SearchInput, SearchOutput
    from costada.plugins.offline import OfflineModel
    from costada.runs.choices import Choices
    from costada.runs.configured_models import menu_models
    from costada.runs.discovery import Discovery, discover
    from costada.runs.interruption import interrupting_evaluations
    from costada.runs.keywords import DiscoverKeywords, GraphKeywords
    from costada.runs.loaded_run import LoadedRun, load_run
    from costada.runs.search_graph import create_discovery_graph
    from costada.store.accounts import Account, Entry, OverBudget
    from costada.store.purse import Purse
    from costada.store.run_store import RunStore
    from costada.values.candidate import Candidate, Program
    from costada.values.evaluation import Direction, Evaluation, FrontMember, failed
    from costada.values.example_score import ExampleScore
    from costada.values.usage import Price

__all__ = [
    "Account",
    "BestProgram",
    "BudgetMiddleware",
    "Candidate",
    "CandidateResult",
    "ChatModel",
    "Choices",
    "Constants",
    "Direction",
    "DiscoverKeywords",
    "Discovery",
    "DiscoveryGraph",
    "DiscoveryNode",
    "DiscoveryToolkit",
    "Entry",
    "Evaluation",
    "ExampleScore",
    "FrontMember",
    "GraphKeywords",
    "Holdout",
    "JobStatus",
    "Layer",
    "Limits",
    "LoadedRun",
    "MenuModel",
    "ModelEntry",
    "OfflineModel",
    "OverBudget",
    "Price",
    "Problem",
    "Program",
    "Purse",
    "RetryPolicy",
    "RunList",
    "RunResult",
    "RunStatus",
    "RunStore",
    "SearchContext",
    "SearchInput",
    "SearchOutput",
    "UnmeteredCall",
    "as_discovery_node",
    "chat_model",
    "create_discovery_graph",
    "create_discovery_tool",
    "create_discovery_toolkit",
    "discover",
    "enqueue",
    "failed",
    "interrupting_evaluations",
    "job_status",
    "load_run",
    "log",
    "menu_models",
    "normalize",
    "problem",
]

_HOMES = {
    "Account": "costada.store.accounts",
    "BestProgram": "costada.agents.run_answers",
    "BudgetMiddleware": "costada.agents.middleware",
    "Candidate": "costada.values.candidate",
    "CandidateResult": "costada.evaluators.sandbox.candidate_results",
    "ChatModel": "costada.nodes.context",
    "Choices": "costada.runs.choices",
    "Constants": "costada.controller.constants",
    "Direction": "costada.values.evaluation",
    "DiscoverKeywords": "costada.runs.keywords",
    "Discovery": "costada.runs.discovery",
    "DiscoveryGraph": "costada.graph.compiled",
    "DiscoveryNode": "costada.agents.node",
    "DiscoveryToolkit": "costada.agents.toolkit",
    "Entry": "costada.store.accounts",
    "Evaluation": "costada.values.evaluation",
    "ExampleScore": "costada.values.example_score",
    "FrontMember": "costada.values.evaluation",
    "GraphKeywords": "costada.runs.keywords",
    "Holdout": "costada.evaluators.problem_fields",
    "JobStatus": "costada.agents.job_clients",
    "Layer": "costada.evaluators.sandbox.layers",
    "Limits": "costada.evaluators.sandbox.limits",
    "LoadedRun": "costada.runs.loaded_run",
    "MenuModel": "costada.models.menu",
    "ModelEntry": "costada.models.menu",
    "OfflineModel": "costada.plugins.offline",
    "OverBudget": "costada.store.accounts",
    "Price": "costada.values.usage",
    "Problem": "costada.evaluators.problem",
    "Program": "costada.values.candidate",
    "Purse": "costada.store.purse",
    "RetryPolicy": "costada.models.providers",
    "RunList": "costada.agents.run_answers",
    "RunResult": "costada.agents.run_answers",
    "RunStatus": "costada.agents.run_answers",
    "RunStore": "costada.store.run_store",
    "SearchContext": "costada.graph.graph_input",
    "SearchInput": "costada.nodes.state",
    "SearchOutput": "costada.nodes.state",
    "UnmeteredCall": "costada.models.errors",
    "as_discovery_node": "costada.agents.node",
    "chat_model": "costada.models.chat_models",
    "create_discovery_graph": "costada.runs.search_graph",
    "create_discovery_tool": "costada.agents.tool",
    "create_discovery_toolkit": "costada.agents.toolkit",
    "discover": "costada.runs.discovery",
    "enqueue": "costada.agents.job_clients",
    "failed": "costada.values.evaluation",
    "interrupting_evaluations": "costada.runs.interruption",
    "job_status": "costada.agents.job_clients",
    "load_run": "costada.runs.loaded_run",
    "log": "costada.evaluators.feedback",
    "menu_models": "costada.runs.configured_models",
    "normalize": "costada.evaluators.scoring",
    "problem": "costada.evaluators.registry",
}


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'costada' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)

"""A search as a tool for an agent, within the limits of its host."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from langchain_core.tools import BaseTool, StructuredTool

from costada.agents.arguments import arguments_schema, refusal_text
from costada.agents.searches import Searches
from costada.evaluators.problem import Problem
from costada.evaluators.registry import problem as problem_named
from costada.graph.build import create_discovery_graph
from costada.nodes.context import ChatModel
from costada.nodes.settings import Settings
from costada.store.purse import Ledger
from costada.store.run_store import RunStore

GivenProblem = Problem | str | Path

DESCRIPTION = (
    "Improve a program by a search with language models within a budget of dollars. An evaluator"
    " judges every program. Returns the best program, its score, what was spent and why the search"
    " stopped."
)


def create_discovery_tool(
    problems: GivenProblem | Sequence[GivenProblem] | None,
    model: ChatModel,
    *,
    max_budget: float,
    evaluators: Mapping[str, Problem] | None = None,
    guide_model: ChatModel | None = None,
    settings: Settings | None = None,
    ledger: Ledger | None = None,
    store: RunStore | None = None,
    name: str = "discover",
) -> BaseTool:
    """Return a tool for `langchain.agents.create_agent` that runs a search.

    The agent names one of the `problems`, or gives a program to start from and names one of the
    `evaluators`; nothing that a model writes ever judges. It also says what the search may cost.
    The answer is text, with the search's `SearchOutput` as its artifact. Wrong arguments, a program
    that its evaluator rejects and a purse with too little left are answered with an error text,
    before any money is spent.

    Trace rows come out of the agent's custom stream. Under a saver of the agent a stopped search
    goes on where it was; `on_exhausted="interrupt"` needs one, and asks the agent's caller.

    Args:
        problems: What can be named: a `Problem`, a benchmark's name, a folder, or several of them.
        model: The chat model that proposes programs.
        max_budget: Dollars of one call of the tool at most; all calls together spend what the
            `ledger` allows, and without one there is no end to them.
        evaluators: Problems by the name of their evaluator; the agent's program takes the place of
            their initial program.
        guide_model: The chat model that is asked for tactics; `model` when not given.
        settings: Controller constants, seed and prices.
        ledger: The purse that every search draws its budget from.
        store: Where programs and calls are kept; in memory, as long as the tool is, when not given.
        name: Name of the tool.

    Raises:
        ValueError: There is nothing to improve, two problems have the same name, or the arguments
            are such that `create_discovery_graph` refuses them.
    """
    known, judges = _by_name(problems), dict(evaluators or {})
    if not known and not judges:
        raise ValueError("problems: got none and no evaluators, expected at least one of either")
    graph_of = partial(
        create_discovery_graph,
        model=model,
        guide_model=guide_model,
        settings=settings,
        checkpointer=True,
        store=store or RunStore(),
        ledger=ledger,
        name=name,
    )
    searches = Searches(known, judges, max_budget, graph_of)
    searches.check()
    return StructuredTool.from_function(
        searches.run,
        searches.arun,
        name=name,
        description=DESCRIPTION,
        args_schema=arguments_schema(known, judges, max_budget),
        response_format="content_and_artifact",
        handle_tool_error=True,
        handle_validation_error=refusal_text,
    )


def _by_name(problems: GivenProblem | Sequence[GivenProblem] | None) -> dict[str, Problem]:
    if problems is None:
        return {}
    given = [problems] if isinstance(problems, Problem | str | Path) else problems
    found: dict[str, Problem] = {}
    for each in given:
        one = each if isinstance(each, Problem) else problem_named(each)
        if one.name in found:
            raise ValueError(f"problems: got two named {one.name!r}, expected different names")
        found[one.name] = one
    return found

"""A search as a tool for an agent, within the limits of its host."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, Self, TypedDict, cast

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, model_validator
from typing_extensions import Unpack

from costada.agents.node import afollow, follow
from costada.evaluators.problem import Problem, check_problem
from costada.evaluators.registry import problem as problem_named
from costada.graph.build import create_discovery_graph
from costada.graph.compiled import DiscoveryGraph
from costada.nodes.context import ChatModel
from costada.nodes.settings import Settings
from costada.nodes.state import SearchInput, SearchOutput
from costada.store.purse import OverBudget, Purse
from costada.store.run_store import RunStore
from costada.values.evaluation import Evaluation

LONGEST_SHOWN = 80
"""Characters of a wrong value that are repeated to the model."""

PROBLEM = "Name of the problem whose program is to be improved."
PROGRAM = "Complete source text of the program to start from."
EVALUATOR = "Name of the evaluator that judges the programs; goes with `program`."


class Arguments(BaseModel):
    """The arguments of every discovery tool."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="after")
    def _check_start(self) -> Self:
        given = {name for name in ("problem", "program", "evaluator") if getattr(self, name, None)}
        if given not in ({"problem"}, {"program", "evaluator"}):
            ways = "a problem, or a program together with an evaluator"
            raise ValueError(f"got {' and '.join(sorted(given)) or 'neither'}, expected {ways}")
        return self


def arguments_schema(
    problems: Iterable[str], evaluators: Iterable[str], max_budget: float
) -> type[Arguments]:
    """Return the arguments that a host allows: its names, and a budget.

    A single problem need not be named where there is no other way.

    Args:
        problems: Names to choose from; may be empty.
        evaluators: Names to choose from for a program of one's own; may be empty.
        max_budget: Dollars of one call at most.
    """
    names, judges = tuple(problems), tuple(evaluators)
    fields: dict[str, Any] = {}
    if names:
        is_only = len(names) == 1 and not judges
        default = names[0] if is_only else (None if judges else ...)
        fields["problem"] = (_one_of(names, judges), Field(default, description=PROBLEM))
    if judges:
        default = None if names else ...
        text = str | None if names else str
        fields["program"] = (text, Field(default, description=PROGRAM))
        fields["evaluator"] = (_one_of(judges, names), Field(default, description=EVALUATOR))
    limit = f"Dollars to spend, at most {max_budget:g}; a higher budget is lowered to that."
    fields["budget"] = (float, Field(gt=0, allow_inf_nan=False, description=limit))
    return create_model("DiscoveryArguments", __base__=Arguments, **fields)


def _one_of(names: tuple[str, ...], others: tuple[str, ...]) -> object:
    """Return the type of a name to choose, which may be missing where there is another way."""
    literal: Any = Literal
    choice: Any = literal[names]
    return choice | None if others else choice


def refusal_text(error: object) -> str:
    """Return what is wrong with arguments, argument by argument, for the model to read."""
    if not isinstance(error, ValidationError):
        return f"wrong arguments: {error}"
    lines = [_line(dict(each)) for each in error.errors(include_url=False)]
    return "wrong arguments: " + "; ".join(lines)


def _line(problem: Mapping[str, Any]) -> str:
    place = ".".join(map(str, problem["loc"]))
    what = str(problem["msg"]).removeprefix("Value error, ")
    if not place:
        return what
    value = repr(problem["input"])
    shown = value if len(value) <= LONGEST_SHOWN else f"{value[:LONGEST_SHOWN]}..."
    return f"{place}: {what}" if problem["type"] == "missing" else f"{place}: got {shown}. {what}"


Answer = tuple[str, SearchOutput]

REASONS = {
    "budget": "the budget is used up",
    "iterations": "all iterations are done",
    "failures": "too many attempts in a row failed",
}


class GraphOf(Protocol):
    """Makes the graph of a search for a problem and a budget in dollars."""

    def __call__(self, problem: Problem, *, budget: float) -> DiscoveryGraph:
        """Return the graph."""
        ...


class Order(TypedDict, total=False):
    """What a model sends; checked by the tool's schema before it gets here."""

    problem: str | None
    program: str | None
    evaluator: str | None
    budget: float


@dataclass(frozen=True, slots=True)
class Searches:
    """The searches that an agent may run."""

    problems: Mapping[str, Problem]
    evaluators: Mapping[str, Problem]
    max_budget: float
    graph_of: GraphOf

    def check(self) -> None:
        """Refuse what no search could begin with."""
        for each in (*self.problems.values(), *self.evaluators.values()):
            self.graph_of(each, budget=self.max_budget)

    def run(self, config: RunnableConfig, **order: Unpack[Order]) -> Answer:
        """Return what a search finds, as text and as it is."""
        problem = self._chosen(order)
        try:
            found = follow(self._graph(problem, order), SearchInput(), config)
        except OverBudget as error:
            raise ToolException(str(error)) from None
        return answer_text(problem, found), found

    async def arun(self, config: RunnableConfig, **order: Unpack[Order]) -> Answer:
        """Return what `run` returns, without blocking the event loop."""
        problem = await asyncio.to_thread(self._chosen, order)
        try:
            found = await afollow(self._graph(problem, order), SearchInput(), config)
        except OverBudget as error:
            raise ToolException(str(error)) from None
        return answer_text(problem, found), found

    def _graph(self, problem: Problem, order: Order) -> DiscoveryGraph:
        """Return the graph of one call: below the agent's saver, with a place for each call."""
        graph = self.graph_of(problem, budget=min(order["budget"], self.max_budget))
        return graph.copy({"checkpointer": None})

    def _chosen(self, order: Order) -> Problem:
        """Return the problem with the verdict on its initial program.

        An agent's program must be valid, unless its evaluator allows an invalid start.
        """
        program = order.get("program")
        if not program:
            named = self.problems[cast(str, order.get("problem"))]
            return replace(named, seed_evaluation=check_problem(named))
        judge = self.evaluators[cast(str, order.get("evaluator"))]
        own = replace(judge, initial_program=program, seed_evaluation=None)
        verdict = _verdict(own)
        if not (verdict.is_valid or own.allow_invalid_start):
            raise ToolException(f"program: the evaluator rejects it: {verdict.error}")
        return replace(own, seed_evaluation=verdict)


def _verdict(problem: Problem) -> Evaluation:
    """Return the verdict on an agent's program, also one that rejects it."""
    try:
        return check_problem(replace(problem, allow_invalid_start=True))
    except ValueError as error:
        raise ToolException(f"program: no verdict on it: {error}") from None


def answer_text(problem: Problem, found: SearchOutput) -> str:
    """Return a search's result in words, with its program, for a model to read."""
    seed = problem.seed_evaluation
    before = f", {_judged(seed.score, seed.objective)} before" if seed else ""
    reason = REASONS[found["stop_reason"]]
    if found["stop_reason"] == "failures":
        reason += f", the last one: {found['last_failure']}"
    return (
        f"{problem.name}: {_judged(found['best_score'], found['best_objective'])}{before}"
        f" (objective to {problem.direction}).\n"
        f"Spent ${found['spent']:.6f} in {found['iterations']} iterations,"
        f" ${found['remaining']:.6f} left of its budget; stopped because {reason}.\n"
        f"Best program:\n```python\n{found['best_program'].rstrip()}\n```"
    )


def _judged(score: float, objective: float | None) -> str:
    return f"score {score:.6g}" + ("" if objective is None else f", objective {objective:.6g}")


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
    purse: Purse | None = None,
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
            `purse` allows, and without one there is no end to them.
        evaluators: Problems by the name of their evaluator; the agent's program takes the place of
            their initial program.
        guide_model: The chat model that is asked for tactics; `model` when not given.
        settings: Controller constants, seed and prices.
        purse: The purse that every search draws its budget from.
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
        purse=purse,
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

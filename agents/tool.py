"""A search as a tool for an agent, within the limits of its host."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, model_validator
from typing_extensions import Unpack

from costada.agents.node import arun_search, run_search
from costada.evaluators.problem import Problem, check_problem
from costada.evaluators.remote.backend import evaluated_by
from costada.evaluators.remote.engine import IN_PROCESS
from costada.graph.compiled import DiscoveryGraph
from costada.models.menu import MenuModel, ModelEntry
from costada.nodes.context import ChatModel
from costada.nodes.pool import NODE_THREADS
from costada.nodes.state import SearchInput, SearchOutput
from costada.prompts.reply_parts import fenced
from costada.reports.summary import end_text
from costada.runs.keywords import GraphKeywords
from costada.runs.search_graph import create_discovery_graph
from costada.runs.search_request import GivenProblem, problems_by_name
from costada.store.accounts import OverBudget
from costada.store.purse import Purse
from costada.store.run_store import RunStore
from costada.values.program_form import ProgramForm

MAX_VALUE = 80
"""Characters of a wrong value that the model is shown."""

DESCRIPTION = (
    "Improve a program by a search with language models within a budget in dollars. An evaluator"
    " scores every program. Returns the best program, its score, what was spent and why the search"
    " stopped."
)
PROBLEM = "Name of the problem whose program is to be improved."
PROGRAM = "Complete source text of the program to start from."
FILES = " For an evaluator of several files, the text of each file by its path."
EVALUATOR = "Name of the evaluator of the programs; goes with `program`."
TARGET = "Objective that is good enough: the search stops once its best program reaches it."


class Arguments(BaseModel):
    """The arguments of every discovery tool."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="after")
    def _check_start(self) -> Self:
        given = {name for name in ("problem", "program", "evaluator") if getattr(self, name, None)}
        if given not in ({"problem"}, {"program", "evaluator"}):
            ways = "a problem, or a program together with an evaluator"
            raise ValueError(f"got {' and '.join(sorted(given)) or 'neither'}, expected {ways}")
        return self


def arguments_schema(
    problems: Iterable[str],
    evaluators: Iterable[str],
    max_budget: float,
    *,
    has_files: bool = False,
) -> type[Arguments]:
    """The arguments that a host allows: its names, a budget, and a target.

    A single problem is the default where there is no alternative.

    Args:
        problems: Names to choose from; may be empty.
        evaluators: Names to choose from for the agent's own program; may be empty.
        max_budget: Maximum dollars of one call.
        has_files: Whether an evaluator takes programs of several files.
    """
    names, offered = tuple(problems), tuple(evaluators)

    def choice(names: tuple[str, ...], is_optional: bool) -> object:
        literal: Any = Literal
        one: Any = literal[names]
        return one | None if is_optional else one

    fields: dict[str, Any] = {}
    if names:
        default = None if offered else names[0] if len(names) == 1 else ...
        kind = choice(names, is_optional=bool(offered))
        fields["problem"] = (kind, Field(default, description=PROBLEM))
    if offered:
        default = None if names else ...
        text: Any = str | dict[str, str] if has_files else str
        about = PROGRAM + FILES * has_files
        kind = choice(offered, is_optional=bool(names))
        fields["program"] = (text | None if names else text, Field(default, description=about))
        fields["evaluator"] = (kind, Field(default, description=EVALUATOR))
    limit = f"Dollars to spend, at most {max_budget:g}; a higher budget is lowered to that."
    fields["budget"] = (float, Field(gt=0, allow_inf_nan=False, description=limit))
    fields["target"] = (float | None, Field(None, allow_inf_nan=False, description=TARGET))
    return create_model("DiscoveryArguments", __base__=Arguments, **fields)


def refusal_text(error: object) -> str:
    """What is wrong with arguments, one by one, for the model to read."""
    if not isinstance(error, ValidationError):
        return f"wrong arguments: {error}"
    lines = []
    for each in error.errors(include_url=False):
        name = ".".join(map(str, each["loc"]))
        message = str(each["msg"]).removeprefix("Value error, ")
        value = repr(each["input"])
        shown = value if len(value) <= MAX_VALUE else f"{value[:MAX_VALUE]}..."
        if not name:
            lines.append(message)
        elif each["type"] == "missing":
            lines.append(f"{name}: {message}")
        else:
            lines.append(f"{name}: got {shown}. {message}")
    return "wrong arguments: " + "; ".join(lines)


def answer_text(problem: Problem, found: SearchOutput, purse: Purse | None = None) -> str:
    """A search's result in words, with its program, for a model to read."""
    seed = problem.seed_evaluation
    before = f", {_score_text(seed.score, seed.objective)} before" if seed else ""
    reason = end_text(found["stop_reason"], found["remaining"])
    if found["stop_reason"] == "failures":
        reason += f", the last one: {found['last_failure']}"
    return (
        f"{problem.name}: {_score_text(found['best_score'], found['best_objective'])}{before}"
        f" (objective to {problem.direction}).\n"
        f"Spent ${found['spent']:.6f} in {found['iterations']} iterations,"
        f" ${found['remaining']:.6f} left of its budget; stopped because {reason}.\n"
        f"{_purse_text(purse)}"
        f"Best program:\n{_best(problem.form, found)}"
    )


def _purse_text(purse: Purse | None) -> str:
    """What the purse holds after a search, in a line; empty without one."""
    if purse is None:
        return ""
    return f"{purse.name}: ${max(purse.remaining, 0):f} left of ${purse.budget:f}.\n"


def _best(form: ProgramForm, found: SearchOutput) -> str:
    """The best program between fences, each file of several below its path."""
    if files := found.get("best_files"):
        return "\n".join(
            f"{path}\n{fenced(text.rstrip(), form.language_at(path).fence)}"
            for path, text in files.items()
        )
    return fenced(found["best_program"].rstrip(), form.language.fence)


def _score_text(score: float, objective: float | None) -> str:
    return f"score {score:.6g}" + ("" if objective is None else f", objective {objective:.6g}")


def create_discovery_tool(
    problems: GivenProblem | Sequence[GivenProblem] | None,
    model: str | ChatModel | MenuModel | None = None,
    *,
    max_budget: float,
    models: str | Sequence[str | ModelEntry | ChatModel | MenuModel] = (),
    models_file: str | Path | None = None,
    evaluators: Mapping[str, Problem] | None = None,
    guide_model: str | ChatModel | None = None,
    purse: Purse | None = None,
    store: RunStore | None = None,
    name: str = "discover",
    **settings: Unpack[GraphKeywords],
) -> BaseTool:
    """Create a tool for `langchain.agents.create_agent` that runs a search.

    The agent names one of the `problems`, or gives a program to start from and names one of the
    `evaluators`; a model never writes an evaluator. It also chooses the budget, and may choose a
    `target` in place of the host's. The answer is text, with what the purse has left, and the
    search's `SearchOutput` is its artifact. Wrong arguments, a program that its evaluator rejects
    and a purse with too little left are answered with an error text, before any money is spent.

    The agent's custom stream has the trace rows. Under a saver of the agent a stopped search is
    resumed; `on_exhausted="interrupt"` needs one, and asks the agent's caller.

    Args:
        problems: What can be named: a `Problem`, a benchmark's name, a folder, or several of them.
        model: A model id or a chat model that proposes programs.
        max_budget: Maximum budget of one call of the tool, in dollars; all calls together share
            the `purse`, and without one there is no limit to them. By default the step that
            crosses a budget completes; `budget_policy="hard"` keeps to it.
        models: Models to choose from before each attempt, in place of `model`.
        models_file: TOML file that explains texts in `models`.
        evaluators: Problems by the name of their evaluator; the agent's program replaces their
            initial program.
        guide_model: The model that is asked for tactics; by default `model`.
        purse: The purse that pays for every search.
        store: Keeps programs and calls; by default in memory, as long as the tool exists.
        name: Name of the tool.
        **settings: Further settings, as for `create_discovery_graph`.

    Raises:
        ValueError: There is nothing to improve, two problems have the same name, or
            `create_discovery_graph` refuses the arguments.
    """
    place, endpoint = settings.get("evaluate_on", IN_PROCESS), settings.get("endpoint")
    given = [problems] if isinstance(problems, GivenProblem) else problems or ()
    known, offered = (
        {each: evaluated_by(one, place, endpoint) for each, one in found.items()}
        for found in (problems_by_name(given), dict(evaluators or {}))
    )
    if not known and not offered:
        raise ValueError("problems: got none and no evaluators, expected at least one of either")
    graph_of: Callable[..., DiscoveryGraph] = partial(
        create_discovery_graph,
        model=model,
        models=models,
        models_file=models_file,
        guide_model=guide_model,
        checkpointer=True,
        store=store or RunStore(),
        purse=purse,
        name=name,
        **settings,
    )
    for each in (*known.values(), *offered.values()):
        graph_of(each, budget=max_budget)

    def graph_for(problem: Problem, budget: float, target: float | None) -> DiscoveryGraph:
        # The search runs under the agent's saver, with a separate namespace for each call.
        chosen = {} if target is None else {"target": target}
        try:
            graph = graph_of(problem, budget=min(budget, max_budget), **chosen)
        except ValueError as error:  # no request can be paid, or no objective reaches the target
            raise ToolException(str(error)) from None
        return graph.copy({"checkpointer": None})

    def problem_of(
        problem: str | None = None,
        program: str | Mapping[str, str] | None = None,
        evaluator: str | None = None,
    ) -> Problem:
        if not program:
            named = known[str(problem)]
            return replace(named, seed_evaluation=check_problem(named))
        return _with_program(offered[str(evaluator)], program)

    def run(
        config: RunnableConfig, budget: float, target: float | None = None, **names: Any
    ) -> tuple[str, SearchOutput]:
        problem = problem_of(**names)
        try:
            found = run_search(graph_for(problem, budget, target), SearchInput(), config)
        except OverBudget as error:
            raise ToolException(str(error)) from None
        return answer_text(problem, found, purse), found

    async def arun(
        config: RunnableConfig, budget: float, target: float | None = None, **names: Any
    ) -> tuple[str, SearchOutput]:
        loop = asyncio.get_running_loop()
        choice = partial(copy_context().run, partial(problem_of, **names))
        problem = await loop.run_in_executor(NODE_THREADS, choice)
        try:
            graph = graph_for(problem, budget, target)
            found = await arun_search(graph, SearchInput(), config)
        except OverBudget as error:
            raise ToolException(str(error)) from None
        text = await loop.run_in_executor(NODE_THREADS, answer_text, problem, found, purse)
        return text, found

    return StructuredTool.from_function(
        run,
        arun,
        name=name,
        description=DESCRIPTION,
        args_schema=arguments_schema(
            known,
            offered,
            max_budget,
            has_files=any(not each.form.is_one_text for each in offered.values()),
        ),
        response_format="content_and_artifact",
        handle_tool_error=True,
        handle_validation_error=refusal_text,
    )


def _with_program(evaluator: Problem, program: str | Mapping[str, str]) -> Problem:
    """A problem that starts from an agent's program.

    The program must be valid, unless the problem allows an invalid start.
    """
    if isinstance(program, str) is not evaluator.form.is_one_text:
        expected = "one text" if evaluator.form.is_one_text else "the text of each file by its path"
        raise ToolException(f"program: this evaluator takes {expected}")
    try:
        problem = replace(evaluator, initial_program=program, seed_evaluation=None)
    except ValueError as error:
        raise ToolException(f"program: {error}") from None
    try:
        evaluation = check_problem(replace(problem, allow_invalid_start=True))
    except ValueError as error:
        raise ToolException(f"program: it cannot be evaluated: {error}") from None
    if not (evaluation.is_valid or problem.allow_invalid_start):
        raise ToolException(f"program: the evaluator rejects it: {evaluation.error}")
    return replace(problem, seed_evaluation=evaluation)

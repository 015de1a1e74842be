"""The searches that the discovery tool may run, and their results in words."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol, TypedDict, cast

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import ToolException
from typing_extensions import Unpack

from costada.agents.following import afollow, follow
from costada.evaluators.check import check_problem
from costada.evaluators.problem import Problem
from costada.graph.compiled import DiscoveryGraph
from costada.graph.state import SearchInput, SearchOutput
from costada.store.purse import OverBudget
from costada.values.evaluation import Evaluation

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

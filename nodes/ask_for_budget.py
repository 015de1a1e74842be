"""Node: ask the caller for more budget when the run has used up what it had."""

from collections.abc import Mapping
from math import inf
from typing import TypedDict, cast

from langgraph.types import interrupt

from costada.controller.money import remaining
from costada.nodes.calls.purse import extend, settle
from costada.nodes.context import RunContext, budget_of
from costada.nodes.state import SearchState

EXPECTED = 'Command(resume={"budget": DOLLARS}) to go on or Command(resume={"stop": True}) to end'


class BudgetQuestion(TypedDict):
    """What the interrupt carries: the state of the run, and why it cannot go on.

    `reason` is `"budget"`, `spent` and `budget` are dollars, `best_score` is normalised,
    `best_objective` in the benchmark's units. `refused` says what was wrong with the answer before,
    empty when this is the first time of asking.
    """

    reason: str
    spent: float
    budget: float
    iterations: int
    best_score: float
    best_objective: float | None
    refused: str


def ask_for_budget(state: SearchState, *, context: RunContext) -> SearchState:
    """Return the run with the budget that the caller grants, or as it is when it is to end.

    Interrupts the graph with a `BudgetQuestion`; executed anew with the answer. One that is neither
    a budget above what was spent and allowed, nor a stop, is refused, and so is one that the purse
    of the run cannot pay for: the caller is asked again.
    LangGraph would keep an answer that raises, and no other could be given.
    """
    question = BudgetQuestion(
        reason=state["stop_reason"],
        spent=state["spent"],
        budget=budget_of(state, context),
        iterations=state["iterations"],
        best_score=state["best_score"],
        best_objective=state["best_objective"],
        refused=state.get("refused_answer", ""),
    )
    answer: object = interrupt(dict(question))
    if answer in ("stop", {"stop": True}):
        settle(state["run_id"], context)
        return SearchState(refused_answer="")
    refusal = _refusal(answer, question)
    if refusal:
        return SearchState(refused_answer=refusal)
    return _granted(float(cast(Mapping[str, float], answer)["budget"]), state, context)


def _granted(budget: float, state: SearchState, context: RunContext) -> SearchState:
    """Return the run with a higher budget, or as it is where its purse has not that much left."""
    refusal = extend(state["run_id"], budget, context)
    if refusal:
        return SearchState(refused_answer=refusal)
    return SearchState(
        refused_answer="",
        extended_budget=budget,
        remaining=remaining(budget, state["spent"]),
        stop_reason="",
    )


def _refusal(answer: object, question: BudgetQuestion) -> str:
    """Return what is wrong with a grant, nothing if it can be accepted."""
    if not isinstance(answer, dict) or answer.keys() != {"budget"}:
        return f"answer: got {answer!r}, expected {EXPECTED}"
    budget, least = answer["budget"], max(question["spent"], question["budget"])
    is_number = isinstance(budget, int | float) and not isinstance(budget, bool)
    if is_number and least < budget < inf:
        return ""
    return (
        f"budget: got {budget!r}, expected finite dollars above {least:g}"
        f" (spent: {question['spent']:g}, budget so far: {question['budget']:g})"
    )

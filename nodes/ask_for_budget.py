"""Node: ask the caller for more budget when the run has used up what it had."""

from dataclasses import replace
from math import inf
from typing import TypedDict

from langgraph.types import interrupt

from costada.controller.credit import remaining
from costada.nodes.calls.run_account import close_account, extend_account
from costada.nodes.context import SearchRuntime, balance_of
from costada.nodes.state import SearchState
from costada.values.numbering import Iteration

EXPECTED = (
    'Command(resume={"budget": DOLLARS}) to continue or Command(resume={"stop": True}) to end'
)


class BudgetQuestion(TypedDict):
    """Value of the interrupt: the state of the run, and why it cannot continue.

    `reason` is `"budget"`, `spent` and `budget` are dollars, `best_score` is normalised,
    `best_objective` in the benchmark's units. `refused` says what was wrong with the previous
    answer, if anything.
    """

    reason: str
    spent: float
    budget: float
    iterations: Iteration
    best_score: float
    best_objective: float | None
    refused: str


def ask_for_budget(state: SearchState, runtime: SearchRuntime) -> SearchState:
    """Interrupt the graph with a `BudgetQuestion`; executed again with the answer.

    An answer that is neither a higher budget nor a stop is refused, and so is a budget that the
    graph's choices do not allow or the purse of the run cannot pay for: the caller is asked again.
    LangGraph would keep an answer that raises, and no other could be given.
    """
    context, balance = runtime.context, balance_of(state, runtime.context)
    spent, budget = balance.spent, balance.budget
    question = BudgetQuestion(
        reason=state["stop_reason"],
        spent=spent,
        budget=budget,
        iterations=state["iterations"],
        best_score=state["best_score"],
        best_objective=state["best_objective"],
        refused=state.get("refused_answer", ""),
    )
    answer: object = interrupt(dict(question))
    if answer in ("stop", {"stop": True}):
        close_account(state["run"].id, context)
        return SearchState(refused_answer="")
    if not isinstance(answer, dict) or answer.keys() != {"budget"}:
        return SearchState(refused_answer=f"answer: got {answer!r}, expected {EXPECTED}")
    granted, least = answer["budget"], max(spent, budget)
    is_number = isinstance(granted, int | float) and not isinstance(granted, bool)
    if not is_number or not least < granted < inf:
        refused = (
            f"budget: got {granted!r}, expected finite dollars above {least:g}"
            f" (spent: {spent:g}, budget so far: {budget:g})"
        )
        return SearchState(refused_answer=refused)
    if granted > context.max_budget:
        refused = (
            f"budget: got {granted!r}, expected at most {context.max_budget:g}, the most that the"
            " caller of a run may choose"
        )
        return SearchState(refused_answer=refused)
    refused = extend_account(state["run"].id, float(granted), context)
    if refused:
        return SearchState(refused_answer=refused)
    return {
        "refused_answer": "",
        "account": replace(state["account"], extended=float(granted)),
        "remaining": remaining(float(granted), spent),
        "stop_reason": "",
    }

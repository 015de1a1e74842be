"""Node: ask the caller whether the guide that was decided on is to be bought."""

from typing import TypedDict

from langgraph.types import interrupt

from costada.controller.money import remaining
from costada.nodes.calls.bounds import expected_cost, upper_bound
from costada.nodes.context import RunContext, budget_of
from costada.nodes.guide import first_prompt, go_without
from costada.nodes.state import SearchState

EXPECTED = 'Command(resume=True) or "buy" to buy it, Command(resume=False) or "skip" to do without'


class GuideQuestion(TypedDict):
    """What the interrupt carries: which call is to be bought, what it may cost, and the account.

    `reason` is `"guide"`, `guide` what the call is for: `"breakthrough"` or `"refinement"` tactics,
    or with EvoX `"labels"` or a `"strategy"`. `stagnation` counts the steps without progress and
    `low_yield_cost` the dollars in a row that earned nothing. `estimate` are the dollars that the
    first request will cost with an ordinary answer, `at_most` with the longest possible; a guide
    whose answer cannot be used is asked again. `spent`, `remaining` and `budget` are dollars,
    `best_score` is normalised. `refused` says what was wrong with the answer before, empty when
    this is the first time of asking.
    """

    reason: str
    guide: str
    iteration: int
    stagnation: int
    low_yield_cost: float
    estimate: float
    at_most: float
    spent: float
    remaining: float
    budget: float
    best_score: float
    refused: str


def approve_guide(state: SearchState, *, context: RunContext) -> SearchState:
    """Return the run as it is when the guide is to be bought, or as it goes on without one.

    Interrupts the graph with a `GuideQuestion`; executed anew with the answer, and nothing happens
    before that. A guide that is not bought counts as one that yielded nothing. Any other answer
    is refused: the caller is asked again.
    """
    answer: object = interrupt(dict(_question(state, context)))
    if answer is True or answer == "buy":
        return SearchState(refused_answer="")
    if answer is False or answer == "skip":
        return SearchState(**{**go_without(state, context), "refused_answer": ""})
    return SearchState(refused_answer=f"answer: got {answer!r}, expected {EXPECTED}")


def _question(state: SearchState, context: RunContext) -> GuideQuestion:
    controller = state["controller"]
    prompt, spent = first_prompt(state, context), state.get("spent", 0.0)
    budget, evidence = budget_of(state, context), controller.record()
    return GuideQuestion(
        reason="guide",
        guide=str(controller.pending),
        iteration=controller.iteration + 1,
        stagnation=evidence.stagnation,
        low_yield_cost=evidence.low_yield_cost,
        estimate=float(expected_cost(context.guide_model, prompt, context)),
        at_most=float(upper_bound(context.guide_model, prompt, context)),
        spent=spent,
        remaining=max(0.0, remaining(budget, spent)),
        budget=budget,
        best_score=controller.incumbent_score,
        refused=state.get("refused_answer", ""),
    )

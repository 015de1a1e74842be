"""Node: ask the caller whether to buy the guide that was decided on."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypedDict

from langgraph.types import interrupt

from costada.controller.credit import remaining
from costada.controller.methods import InnerGraph
from costada.nodes.calls.bounds import expected_cost, prompt_tokens, upper_bound
from costada.nodes.context import RunContext, SearchRuntime, balance_of, guides_of
from costada.nodes.state import SearchState
from costada.nodes.tactic_batch import accept_tactics, tactics_prompt
from costada.prompts.render import Prompt
from costada.values.numbering import Iteration, next_iteration

EXPECTED = 'Command(resume=True) or "buy" to buy it, Command(resume=False) or "skip" to do without'


class GuideQuestion(TypedDict):
    """Value of the interrupt: which call is to be bought, what it may cost, and the account.

    `reason` is `"guide"`, `guide` what the call is for: `"breakthrough"` or `"refinement"` tactics,
    or what else the method of a plug-in buys. `stagnation` counts the steps without progress and
    `low_yield_cost` the dollars in a row that earned nothing. `estimate` is what the first request
    costs with an ordinary answer, in dollars, `at_most` with the longest possible; a guide whose
    answer cannot be used is asked again. `spent`, `remaining` and `budget` are dollars,
    `best_score` is normalised. `refused` says what was wrong with the previous answer, if anything.
    """

    reason: str
    guide: str
    iteration: Iteration
    stagnation: int
    low_yield_cost: float
    estimate: float
    at_most: float
    spent: float
    remaining: float
    budget: float
    best_score: float
    refused: str


def approve_guide(state: SearchState, runtime: SearchRuntime) -> SearchState:
    """Ask the caller whether to buy tactics; see `ask_for_approval`."""
    context = runtime.context
    return ask_for_approval(
        tactics_prompt(state, context), partial(accept_tactics, ()), state, context
    )


def ask_for_approval(
    prompt: Prompt,
    skip: Callable[[SearchState, RunContext], SearchState],
    state: SearchState,
    context: RunContext,
) -> SearchState:
    """Interrupt the graph with a `GuideQuestion`; executed again with the answer.

    An answer that is neither yes nor no is refused: the caller is asked again. After a no, `skip`
    updates the state as after a guide that yielded nothing.
    """
    controller, (asked, *_) = state["controller"], guides_of(state, context)
    evidence = controller.record()
    balance = balance_of(state, context)
    question = GuideQuestion(
        reason="guide",
        guide=str(controller.pending),
        iteration=next_iteration(controller.iteration),
        stagnation=evidence.stagnation,
        low_yield_cost=evidence.low_yield_cost,
        estimate=float(expected_cost(asked, prompt_tokens(prompt))),
        at_most=float(upper_bound(asked, prompt)),
        spent=balance.spent,
        remaining=max(0.0, remaining(balance.budget, balance.spent)),
        budget=balance.budget,
        best_score=controller.incumbent_score,
        refused=state.get("refused_answer", ""),
    )
    answer: object = interrupt(dict(question))
    if answer is True or answer == "buy":
        return SearchState(refused_answer="")
    if answer is False or answer == "skip":
        return {**skip(state, context), "refused_answer": ""}
    return SearchState(refused_answer=f"answer: got {answer!r}, expected {EXPECTED}")


def approved_purchase(nodes: Mapping[str, Callable[..., Any]], edge: str) -> InnerGraph:
    """Between the last attempt of a step and its charge, buy what the controller has pending.

    Args:
        nodes: Three by their names. The first looks at the landed step and says what is `pending`,
            the second asks the caller with `ask_for_approval`, the third buys.
        edge: The one that leads to the third node.
    """
    look, approve, buy = nodes

    def after_look(state: SearchState, context: RunContext) -> str:
        if not state["controller"].pending:
            return "charge"
        return "approval" if context.settings.approve_guides else edge

    def after_answer(state: SearchState, context: RunContext) -> str:
        if state["refused_answer"]:
            return "question"
        return edge if state["controller"].pending else "charge"

    def after_purchase(state: SearchState, context: RunContext) -> str:
        return "charge"

    return InnerGraph(
        nodes,
        routes={
            look: (after_look, {"approval": approve, edge: buy}),
            approve: (after_answer, {"question": approve, edge: buy}),
            buy: (after_purchase, {}),
        },
    )

"""The small graph of ShinkaEvolve before the charge of a step: its program lands, and notes.

Notes are the meta-calls of `core/summarizer.py`, `MetaSummarizer`, of `shinka-evolve` 0.0.7: a
summary of each program since the last notes, insights from all of them, and recommendations. They
belong to the step that brought the last of the programs, which is charged for them.
"""

from dataclasses import replace
from itertools import count

from langchain_core.runnables import RunnableConfig

from costada.models.asking import ModelFailure
from costada.models.reply_content import answer_text
from costada.nodes.approve_guide import approved_purchase, ask_for_approval
from costada.nodes.calls.paid_calls import ask_for_guide
from costada.nodes.context import RunContext, SearchRuntime, candidate_of, prompt_view
from costada.nodes.state import SearchState
from costada.nodes.step_end import as_charged, why_it_stops
from costada.plugins.peers.peer import NOTES, ShinkaEvolve
from costada.plugins.peers.peer_nodes import (
    landed_candidate,
    peer_of,
    remembered,
    take_in,
    with_memory,
)
from costada.plugins.peers.peer_prompts import (
    insights_prompt,
    recommendations_prompt,
    summary_prompt,
)
from costada.plugins.peers.shinkaevolve import Islands, numbered_points
from costada.prompts.render import Prompt
from costada.prompts.requests import ProgramView
from costada.store.call_log import CallKey
from costada.values.roles import GUIDE


def remember_program(state: SearchState, runtime: SearchRuntime) -> SearchState:
    """Let the program of a step land, and ask for notes if enough of them are unread.

    Only a run with a guide model takes notes, as the package takes them only with
    `meta_llm_models` (`core/async_runner.py`), and none follow the last step.
    """
    context, search = runtime.context, _islands(state, runtime.context)
    landed = landed_candidate(state, context)
    take_in(landed, search, state, context)
    is_due = False
    if landed is not None and context.guide_model is not None:
        search.unread.append(landed.id)
        is_due = search.has_notes_due and not why_it_stops(as_charged(state, context), context)
    return {"controller": _with_islands(state, search, context, pending=NOTES if is_due else None)}


def approve_notes(state: SearchState, runtime: SearchRuntime) -> SearchState:
    """Ask the caller whether to buy notes; see `ask_for_approval`.

    The question counts the cost and the score of the step, which is charged and told later. After a
    no, the programs so far are never read.
    """
    context, attempt = runtime.context, state["step"].attempt
    search = _islands(state, context)
    first, *_ = _summary_prompts(search, state, context)
    told = peer_of(state).with_score(None if attempt.failure else attempt.score)
    then: SearchState = {**as_charged(state, context), "controller": told}
    return ask_for_approval(first, lambda *_: _without_unread(state, context), then, context)


def write_notes(state: SearchState, runtime: SearchRuntime, config: RunnableConfig) -> SearchState:
    """Ask for summaries, insights and recommendations.

    Summaries that fail are left out; where nothing else comes, the notes stay as they are, and the
    next program makes them due again.
    """
    context, search = runtime.context, _islands(state, runtime.context)
    problem, best = context.problem, _view(search.best.candidate, state, context)
    run_id, ticket, numbers = state["run"].id, state["step"].ticket, count(1)

    def ask(prompt: Prompt) -> str:
        key = CallKey(run_id, ticket, GUIDE, next(numbers))
        answer = ask_for_guide(prompt, key, state, config, context, is_further=True)
        return "" if isinstance(answer, ModelFailure) else answer_text(answer).strip()

    summaries = [text for each in _summary_prompts(search, state, context) if (text := ask(each))]
    shown = best, problem.form
    insights = reply = ""
    if summaries:
        insights = ask(insights_prompt(problem.task, summaries, search.insights, *shown))
    if insights:
        reply = ask(recommendations_prompt(problem.task, insights, search.recommendations, *shown))
    if reply:
        search.take_notes(insights, numbered_points(reply))
    return {"controller": _with_islands(state, search, context)}


INNER = approved_purchase(
    {
        "remember_program": remember_program,
        "approve_notes": approve_notes,
        "write_notes": write_notes,
    },
    edge="notes",
)


def _islands(state: SearchState, context: RunContext) -> Islands:
    search = remembered(state, context)
    if not isinstance(search, Islands):
        raise TypeError(f"search: got {type(search).__name__}, expected Islands")
    return search


def _with_islands(
    state: SearchState, search: Islands, context: RunContext, pending: str | None = None
) -> ShinkaEvolve:
    peer = peer_of(state)
    if not isinstance(peer, ShinkaEvolve):
        raise TypeError(f"controller: got {type(peer).__name__}, expected ShinkaEvolve")
    return replace(peer, memory=with_memory(state, search, context).memory, pending=pending)


def _without_unread(state: SearchState, context: RunContext) -> SearchState:
    search = _islands(state, context)
    search.unread = []
    return {"controller": _with_islands(state, search, context)}


def _view(name: str, state: SearchState, context: RunContext) -> ProgramView:
    return prompt_view(candidate_of(name, state, context), context.problem)


def _summary_prompts(search: Islands, state: SearchState, context: RunContext) -> list[Prompt]:
    problem = context.problem
    views = [_view(name, state, context) for name in search.unread]
    return [summary_prompt(problem.task, each, problem.form) for each in views]

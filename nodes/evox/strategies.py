"""What an attempt of EvoX starts from: the search strategy in use chooses."""

from collections.abc import Sequence
from itertools import islice

from costada.controller.baselines.evox import EvoX
from costada.controller.method import Controller
from costada.controller.sampling import draws
from costada.evaluators.problem import Problem, layer_of
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.strategies import (
    Selection,
    StrategyRecord,
    initial_strategy,
    select_sources,
)
from costada.nodes.candidates import lasting_metrics, load_candidate
from costada.nodes.context import RunContext
from costada.nodes.sources import Sources
from costada.nodes.state import SearchState
from costada.prompts.evox import Labels, PopulationRow, label_text
from costada.prompts.requests import MAX_PREVIOUS, PreviousAttempt
from costada.store.rows import CandidateRow

RECENT_ITERATIONS = 100
"""How far back the previous attempts of a prompt may lie."""


def population(state: SearchState, context: RunContext) -> Sequence[CandidateRow]:
    """Return the initial program and all valid candidates up to the step under way."""
    table = context.store.candidates
    before = state["iteration"] + state["step"]["is_credited"]
    return table.population(state["run_id"], before)


def strategy_record(row: CandidateRow, problem: Problem) -> StrategyRecord:
    """Return what a strategy gets to see of a candidate."""
    return StrategyRecord(
        id=row.id,
        code=row.code,
        score=row.score,
        metrics=lasting_metrics(row.metrics, problem),
        error=row.error,
        parent_id=row.parent_id,
        iteration=row.iteration,
        generation=row.generation,
    )


def population_row(row: CandidateRow) -> PopulationRow:
    """Return what the statistics need of a candidate."""
    return PopulationRow(
        row.id, row.iteration, row.score, row.parent_id, row.label, row.inspirations
    )


def previous_attempts(
    rows: Sequence[CandidateRow], state: SearchState, context: RunContext
) -> tuple[PreviousAttempt, ...]:
    """Return the best of the recent candidates, the best first."""
    first = state["iteration"] - RECENT_ITERATIONS
    recent = [row for row in rows if row.parent_id and row.iteration >= first]
    recent.sort(key=lambda row: (-row.score, -row.iteration))
    return tuple(_previous(row, state, context) for row in islice(recent, MAX_PREVIOUS))


def _previous(row: CandidateRow, state: SearchState, context: RunContext) -> PreviousAttempt:
    parent = load_candidate(str(row.parent_id), state, context)
    return PreviousAttempt(
        iteration=row.iteration,
        score=row.score,
        parent_score=parent.score,
        changes=row.changes,
        metrics=lasting_metrics(row.metrics, context.problem),
    )


def evox_of(state: SearchState) -> EvoX:
    """Return the controller of EvoX.

    Raises:
        TypeError: It is another method's.
    """
    controller = state["controller"]
    if not isinstance(controller, EvoX):
        raise TypeError(f"controller: got {type(controller).__name__}, expected EvoX")
    return controller


def strategy_layer(context: RunContext) -> Layer:
    """Return what holds strategies: what holds the problem's candidates."""
    return layer_of(context.problem) or Layer.AUTO


def strategy_text(name: str, context: RunContext) -> str:
    """Return the text of a strategy."""
    return context.store.text(name) or initial_strategy()


def chosen_sources(state: SearchState, context: RunContext) -> tuple[Controller, Sources]:
    """Return what the next attempt starts from, and the controller after any fall-back.

    A strategy that fails to choose is given up for the one before it. All attempts of a step
    start from the same choice.
    """
    rows = population(state, context)
    records = [strategy_record(row, context.problem) for row in rows]
    working, selection = _selection(evox_of(state), records, state, context)
    ids = selection.context_ids
    return working, Sources(
        parent=load_candidate(selection.parent_id, state, context),
        inspirations=tuple(load_candidate(name, state, context) for name in ids),
        siblings=None,
        label=selection.label,
        wording=label_text(selection.label, _labels(state, context)),
        previous=previous_attempts(rows, state, context),
    )


def _selection(
    controller: EvoX, records: list[StrategyRecord], state: SearchState, context: RunContext
) -> tuple[EvoX, Selection]:
    count = context.settings.constants.num_inspirations
    seed = draws(state["run_seed"], state["iteration"], "strategy").getrandbits(32)
    source = strategy_text(controller.strategy, context)
    choice = select_sources(source, records, count, seed, strategy_layer(context))
    if isinstance(choice, Selection):
        return controller, choice
    if not controller.strategy:
        raise RuntimeError(f"the initial strategy failed: {choice.reason}")
    return _selection(controller.fall_back(), records, state, context)


def _labels(state: SearchState, context: RunContext) -> Labels:
    known = state["labels"]
    return Labels(context.store.text(known["diverge"]), context.store.text(known["refine"]))

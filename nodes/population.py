"""The population of a run as EvoX sees it: every valid candidate, whatever its frontier."""

from collections.abc import Sequence
from itertools import islice

from costada.evaluators.problem import Problem
from costada.evaluators.strategies import StrategyRecord
from costada.graph.state import SearchState
from costada.nodes.candidates import lasting_metrics, load_candidate
from costada.nodes.context import RunContext
from costada.prompts.population import PopulationRow
from costada.prompts.request import MAX_PREVIOUS, PreviousAttempt
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

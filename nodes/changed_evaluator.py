"""A run that is resumed with another evaluator: what it builds on must keep its scores.

Scores of two evaluators cannot be compared: under a stricter one nothing new would ever become the
incumbent. Whether a change matters is found out, without a model call, before anything is paid for.
"""

import logging
from dataclasses import replace
from math import isclose

from costada.controller.method import ParentRule
from costada.evaluators.problem import Problem
from costada.nodes.context import RunContext, archives_of, candidate_of, population_of
from costada.nodes.settings import evaluator_texts, problem_texts
from costada.nodes.state import SearchState
from costada.store.candidates import SEED_ID
from costada.store.rows import changes
from costada.values.candidate import Candidate, Program
from costada.values.evaluation import Evaluation, objective_values, read_objectives

SCORE_TOLERANCE = 1e-9
"""Relative difference of scores that other versions of a library cause by rounding."""

WAYS_OUT = (
    "Restore the evaluator, or start a new run and give it the best program with costada submit"
)
_LOG = logging.getLogger("costada.runs")


def check_evaluator(state: SearchState, context: RunContext) -> None:
    """Refuse to resume a run whose evaluator has changed, unless its programs keep their scores.

    Where the evaluator is another one than that of the run's start, the programs that the run
    builds on are evaluated again, best first. If all keep validity, score and objectives, the run
    goes on with the new evaluator, which its record then names.

    Raises:
        ValueError: A program has another score, naming both.
        InterruptedError: The evaluation was asked to stop.
    """
    run_id = state["run"].id
    setup = context.store.setup(run_id)
    if setup is None:
        return
    before, now = evaluator_texts(setup.problem), evaluator_texts(problem_texts(context.problem))
    if not (changed := changes(before, now)):
        return
    programs = _programs(state, context)
    _LOG.warning(
        "The evaluator has changed since this run started (%s). All programs that the run builds on"
        " (%d) are evaluated again and must keep their scores; this makes no model call",
        "; ".join(changed),
        len(programs),
    )
    for program, candidate in programs.items():
        evaluation = context.problem.evaluate_program(program, state["run"].holdout_key)
        if not _is_same(candidate, evaluation, context.problem):
            raise ValueError(
                f"evaluator of {context.problem.name!r}: program {candidate.id} scores"
                f" {_verdict(evaluation)}, expected {_verdict(candidate)}, as when the run"
                f" evaluated it; scores of two evaluators cannot be compared. {WAYS_OUT}"
            )
    others = {name: text for name, text in setup.problem.items() if name not in before}
    context.store.put_setup(run_id, replace(setup, problem={**others, **now}))


def _programs(state: SearchState, context: RunContext) -> dict[Program, Candidate]:
    """The programs that a run builds on, best first, each with a candidate."""
    table, run_id = context.store.candidates, state["run"].id
    found = [candidate_of(state["best"], state, context), candidate_of(SEED_ID, state, context)]
    found += [member for archive in archives_of(state, context) for member in archive.members]
    found += table.front(run_id, state["archives"].seq)
    if state["controller"].parents is ParentRule.POPULATION:
        found += population_of(state, context)
    if evaluated := state["step"].attempt.candidate:  # in a step that has not ended
        found.append(candidate_of(evaluated, state, context))
    programs: dict[Program, Candidate] = {}
    for each in sorted(found, key=lambda each: (-each.is_valid, -each.score)):
        programs.setdefault(each.program, each)
    return programs


def _is_same(candidate: Candidate, evaluation: Evaluation, problem: Problem) -> bool:
    objectives = read_objectives(problem.objectives)
    before, after = (
        {"score": each.score, **objective_values(objectives, each.metrics)}
        for each in (candidate, evaluation)
    )
    return candidate.is_valid == evaluation.is_valid and all(
        _is_close(value, after[name]) for name, value in before.items()
    )


def _is_close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return isclose(one, other, rel_tol=SCORE_TOLERANCE)


def _verdict(verdict: Candidate | Evaluation) -> str:
    return f"{verdict.score:.6g}" if verdict.is_valid else f"invalid ({verdict.error})"

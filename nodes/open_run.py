"""The beginning of a run: the starting program is evaluated once and put on every frontier."""

from time import sleep
from typing import cast
from uuid import UUID, uuid4

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.runtime import get_runtime

from costada.controller.credit import NO_CREDIT
from costada.controller.method import Controller
from costada.controller.step import num_seeds, seed_archives
from costada.evaluators.contract import new_key
from costada.evaluators.problem import check_problem, layer_of
from costada.models.runnable_tree import model_facts
from costada.nodes.calls.purse import drawn
from costada.nodes.candidates import candidate_row, save_archive, to_candidate
from costada.nodes.context import RunContext, budget_of
from costada.nodes.settings import problem_texts, settings_texts
from costada.nodes.state import SearchState, StepRecord
from costada.store.rows import CandidateRow
from costada.store.setup import RunSetup, as_texts
from costada.values.evaluation import Evaluation

PATIENCE_SECONDS = 1.0
"""How far behind a clock may be to be waited for, as those of two machines may be."""

TICKS_PER_SECOND = 10_000_000
"""Resolution of the time in an id."""


def newest_checkpoint(state: SearchState) -> str:
    """Return the highest id of a checkpoint that a run knows of, once the clock is beyond it.

    Raises:
        ValueError: The clock is behind it; the message says by how much.
    """
    now = get_runtime().execution_info
    if now is None or now.thread_id is None:
        return ""
    newest = max(now.checkpoint_id, state.get("newest_checkpoint", ""))
    await_clock(newest, now.thread_id)
    return newest


def await_clock(newest: str, thread: str) -> None:
    """Wait until a new checkpoint has a higher id than the newest one of a thread.

    Raises:
        ValueError: That takes more than a second.
    """
    while (made := empty_checkpoint()["id"]) <= newest:
        behind = seconds_after(made, newest)
        if behind > PATIENCE_SECONDS:
            raise ValueError(
                f"clock: it is {behind:.0f} seconds before the newest checkpoint of thread"
                f" {thread!r}, so it was set back. The saver takes the checkpoint with the latest"
                " time for the newest, and would never find what is saved now. Correct the clock"
                " or wait until then, and resume; no request was sent"
            )
        sleep(behind)


def seconds_after(earlier: str, later: str) -> float:
    """Return how many seconds after one checkpoint another one was made, by their ids."""
    first, second = (UUID(name).int for name in (earlier, later))
    return (_ticks(second) - _ticks(first)) / TICKS_PER_SECOND


def _ticks(number: int) -> int:
    """Return the time in an id: its first 60 bits without the four that name the version."""
    return (number >> 80) << 12 | (number >> 64) & 0xFFF


def opened(state: SearchState, context: RunContext) -> SearchState:
    """Return the keys of a run that begins: F(initial program) is y_0 and every b^(k) (Sec. 3).

    Costs no model call. An invalid starting program, where allowed, has score 0. Where the thread
    holds an earlier run, every key of it is overwritten.

    Raises:
        ValueError: The seed is no whole number, the evaluator comes to no verdict or rejects the
            starting program though no invalid start is allowed, or the purse that the run is to
            draw from has nothing left for it.
    """
    run_seed = state.get("seed", context.settings.seed)
    if not isinstance(run_seed, int):
        raise ValueError(f"seed: got {run_seed!r}, expected a whole number")
    problem = context.problem
    evaluation = check_problem(problem)
    run_id = uuid4().hex
    granted = drawn(run_id, context)
    budget = budget_of(granted, context)
    controller = context.method.start(evaluation.score, context.settings.constants)
    begun = SearchState(
        **{**_without_earlier_run(state, evaluation, budget), **granted},
        run_id=run_id,
        run_seed=run_seed,
        holdout_key=new_key(),
        iteration=0,
        archive_seq=0,
        extended_budget=0.0,
        failures=0,
        labels={"diverge": "", "refine": ""},
        stop_reason="",
        controller=controller,
    )
    layer, setup = layer_of(problem) or "", _setup(context, granted.get("granted_budget"))
    context.store.open_run(begun["run_id"], context.name, problem.name, layer, setup)
    begun["best"] = _plant(evaluation, controller, begun, context)
    return begun


def _without_earlier_run(state: SearchState, evaluation: Evaluation, budget: float) -> SearchState:
    """Return what replaces the results of an earlier run on the thread, nothing without one."""
    fresh = SearchState(
        best_program="",
        best_score=evaluation.score,
        best_objective=evaluation.objective,
        best_metrics=dict(evaluation.metrics),
        spent=0.0,
        remaining=budget,
        iterations=0,
        last_failure="",
        refused_answer="",
        granted_budget=None,
        trace={},
        step=cast(StepRecord, {}),
        credit=NO_CREDIT,
    )
    return cast(SearchState, {name: value for name, value in fresh.items() if name in state})


def _setup(context: RunContext, granted_budget: float | None) -> RunSetup:
    """Return the setup of a run that begins.

    Args:
        context: Of the run.
        granted_budget: Dollars that a purse granted; `None` if the run draws from none.
    """
    models = {"model": model_facts(context.model)}
    if context.guide_model is not context.model:
        models["guide_model"] = model_facts(context.guide_model)
    budget = context.budget if granted_budget is None else granted_budget
    return RunSetup(
        problem_texts(context.problem),
        {**settings_texts(context.settings, budget), **as_texts(models)},
    )


def _plant(
    evaluation: Evaluation, controller: Controller, state: SearchState, context: RunContext
) -> str:
    """Put the starting program on every frontier and return its candidate id on the first."""
    seeds = [_seed(frontier, evaluation, context) for frontier in range(num_seeds(controller))]
    archives = seed_archives(controller, list(map(to_candidate, seeds)), context.constants)
    for frontier, (seed, archive) in enumerate(zip(seeds, archives, strict=True)):
        context.store.candidates.put(state["run_id"], seed)
        save_archive(archive, frontier, state, context)
    return seeds[0].id


def _seed(frontier: int, evaluation: Evaluation, context: RunContext) -> CandidateRow:
    problem = context.problem
    return candidate_row(
        f"0.{frontier + 1}", 0, problem.initial_program, evaluation, problem.fingerprint
    )

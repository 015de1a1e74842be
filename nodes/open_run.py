"""The beginning of a run: the starting program is evaluated once and put on every frontier."""

from time import sleep
from typing import cast
from uuid import NAMESPACE_OID, UUID, uuid4, uuid5

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.runtime import get_runtime

from costada.controller.method import Controller
from costada.controller.router import Router, start_router
from costada.controller.step import num_seeds, seed_archives
from costada.evaluators.problem import check_problem, layer_of
from costada.evaluators.sandboxed import new_key
from costada.models.runnable_tree import model_facts
from costada.nodes.calls.purse_charges import draw_budget
from costada.nodes.context import RunContext, budget_of, num_archives
from costada.nodes.pareto_front import front_members
from costada.nodes.seal import new_seal_key
from costada.nodes.settings import check_seed, problem_texts, settings_texts
from costada.nodes.state import (
    Account,
    ArchiveVersion,
    Flight,
    Observed,
    Run,
    SearchState,
    Step,
)
from costada.store.candidates import FRONT
from costada.store.rows import RunSetup, as_texts
from costada.values.candidate import Candidate
from costada.values.evaluation import Evaluation
from costada.values.numbering import START

PATIENCE_SECONDS = 1.0
"""How long to wait for a clock that is behind, as those of two machines may be."""

TICKS_PER_SECOND = 10_000_000
"""Resolution of the time in an id."""


def newest_checkpoint(state: SearchState) -> str:
    """Highest id of a checkpoint that a run knows of; raises as `await_clock` does."""
    now = get_runtime().execution_info
    if now is None or now.thread_id is None:
        return ""
    newest = max(now.checkpoint_id, state.get("newest_checkpoint", ""))
    await_clock(newest, now.thread_id)
    return newest


def await_clock(newest: str, thread: str) -> None:
    """Wait until a new checkpoint has a higher id than the newest one of a thread.

    Raises:
        ValueError: That takes more than a second; the message says how far the clock is behind.
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
    """Seconds between two checkpoints by their ids, whose first 60 bits hold the time."""
    numbers = (UUID(name).int for name in (earlier, later))
    # Between the two parts of the time stand four bits that name the version.
    first, second = ((number >> 80) << 12 | (number >> 64) & 0xFFF for number in numbers)
    return (second - first) / TICKS_PER_SECOND


def open_run(state: SearchState, context: RunContext) -> SearchState:
    """The keys of a new run: F(initial program) is y_0 and every b^(k) (Sec. 3).

    Makes no model call. An invalid starting program, where allowed, has score 0. Where the thread
    holds an earlier run, all its keys are overwritten.

    Raises:
        ValueError: The seed is not an integer or out of range, the evaluator gives no verdict or
            rejects the starting program though no invalid start is allowed, or the purse that the
            run is to draw from has nothing left for it.
    """
    run_seed = check_seed(state.get("seed", context.settings.seed))
    problem = context.problem
    evaluation = check_problem(problem)
    run_id = _new_id(context)
    account = Account(granted=draw_budget(run_id, context))
    budget = budget_of({"account": account}, context)
    controller = context.method.start(evaluation.score, context.settings.constants)
    begun: SearchState = {
        **_first_results(state, evaluation, budget, context),
        "run": Run(run_id, run_seed, new_key()),
        "controller": controller,
        "step": Step(),
        "flight": Flight(parallel=context.parallel),
        "archives": ArchiveVersion(num_frontiers=num_archives(controller)),
        "account": account,
        "observed": Observed(),
        "failures": 0,
        "stopping": "",
        "stop_reason": "",
    }
    if context.chosen or "chosen" in state:
        begun["chosen"] = dict(context.chosen)
    facts = {each.name: model_facts(each.model) for each in context.menu}
    models: dict[str, object] = {"model": facts[context.menu[0].name]}
    if context.has_choice:
        models = {"models": facts, "router": context.router}
        begun["router"] = start_router(context.router, list(facts))
    elif "router" in state:
        begun["router"] = Router(context.router, ())
    if context.guide_model is not None:
        models["guide_model"] = model_facts(context.guide_model.model)
    settings = settings_texts(context.settings, budget)
    task = context.store.put_text(problem.task)
    facts_of_models = {**settings, **as_texts(models)}
    setup = RunSetup(problem_texts(problem), facts_of_models, task, new_seal_key())
    context.store.open_run(run_id, context.name, problem.name, layer_of(problem) or "", setup)
    begun["best"] = _seed_frontiers(evaluation, controller, run_id, context)
    if problem.objectives:
        front = context.store.candidates.front(run_id, 0)
        begun["pareto_front"] = front_members(front, context)
    return begun


def _new_id(context: RunContext) -> str:
    """The id of a run that begins.

    A run that draws from a purse gets the same id if a process is killed here and the run resumes
    from the same checkpoint: the account with the budget that it has drawn is named by the id.
    """
    now = get_runtime().execution_info
    if context.purse is None or now is None or now.thread_id is None:
        return uuid4().hex
    place = "/".join((now.thread_id, now.checkpoint_ns, now.checkpoint_id))
    return uuid5(NAMESPACE_OID, place).hex


def _first_results(
    state: SearchState, evaluation: Evaluation, budget: float, context: RunContext
) -> SearchState:
    """The results before the first step, and what replaces the rest of an earlier run."""
    program = context.problem.start
    fresh = SearchState(
        best_program=program.text,
        best_files=program.by_path,
        best_score=evaluation.score,
        best_objective=evaluation.objective,
        best_metrics=dict(evaluation.metrics),
        pareto_front=[],
        spent=0.0,
        in_doubt=0.0,
        remaining=budget,
        iterations=START,
        last_failure="",
        refused_answer="",
    )
    own = {"best_program", "best_score", "best_objective", "best_metrics", "spent", "remaining"}
    own |= {"in_doubt"} | {"best_files" for _ in program.by_path}
    return cast(
        SearchState, {name: value for name, value in fresh.items() if name in own or name in state}
    )


def _seed_frontiers(
    evaluation: Evaluation, controller: Controller, run_id: str, context: RunContext
) -> str:
    """Put the starting program on every frontier; returns its id on the first."""
    problem, table = context.problem, context.store.candidates
    program = problem.start
    seeds = [
        Candidate.judged(f"0.{frontier + 1}", program, evaluation, problem.fingerprint)
        for frontier in range(num_seeds(controller))
    ]
    archives = seed_archives(controller, seeds, context.constants)
    for frontier, (seed, archive) in enumerate(zip(seeds, archives, strict=True)):
        table.put(run_id, seed)
        table.put_archive(run_id, frontier, 0, [member.id for member in archive.members])
    if problem.objectives and seeds[0].is_valid:
        table.put_archive(run_id, FRONT, 0, [seeds[0].id])
    return seeds[0].id

"""The beginning of a run, and what is checked when it is resumed by another graph.

The starting program is evaluated once and put on every frontier. Scores of two evaluators cannot be
compared: under a stricter one nothing new would ever become the incumbent. Whether a change matters
is found out, without a model call, before anything is paid for.
"""

import logging
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from itertools import count, takewhile
from math import isclose
from typing import NamedTuple, cast
from uuid import NAMESPACE_OID, uuid4, uuid5

from langgraph.runtime import get_runtime

from costada.controller.credit import remaining
from costada.controller.experiment import prepare
from costada.controller.method import Controller, ParentRule
from costada.controller.router import Router, start_router
from costada.controller.step import num_seeds, seed_archives
from costada.evaluators.problem import Problem, check_problem, layer_of
from costada.evaluators.sandboxed import new_key
from costada.models.runnable_tree import model_facts
from costada.nodes.calls.bounds import compute_cost
from costada.nodes.calls.compute import compute_row
from costada.nodes.calls.paid_evaluations import evaluate_start
from costada.nodes.calls.run_account import draw_budget, open_account, report_cost
from costada.nodes.context import (
    RunContext,
    archives_of,
    budget_of,
    candidate_of,
    front_members,
    is_estimated,
    num_archives,
    population_of,
)
from costada.nodes.saved_state import new_seal_key
from costada.nodes.settings import check_seed, evaluator_texts, problem_texts, settings_texts
from costada.nodes.state import (
    Account,
    ArchiveVersion,
    Flight,
    Observed,
    Run,
    SearchState,
    Step,
)
from costada.store.candidates import FRONT, SEED_ID
from costada.store.rows import CallStatus, Charge, RunSetup, as_texts, changes
from costada.values.candidate import Candidate, Program
from costada.values.evaluation import Evaluation, objective_values, read_objectives
from costada.values.numbering import START, START_TICKET


def open_run(state: SearchState, context: RunContext) -> SearchState:
    """The keys of a new run: F(initial program) is y_0 and every b^(k) (Sec. 3).

    Makes no model call, but those of a problem that asks models, which are charged to the start. An
    invalid starting program, where allowed, has score 0, and so has a missing one. Where the thread
    holds an earlier run, all its keys are overwritten. A run of a thread whose server has lost its
    checkpoints begins as it did: its steps take calls and evaluations from the store.

    Raises:
        ValueError: The seed is not an integer or out of range, the evaluator fails or
            rejects the starting program though no invalid start is allowed, its evaluation costs
            the whole budget, or the purse that the run is to draw from has nothing left for it.
    """
    problem, lost = context.problem, _lost_run(state, context)
    given = state.get("seed", context.settings.seed)
    run_seed = check_seed(int(lost.setup.seed) if lost else given)
    # Before the run has any row, unless it is to pay for calls of the evaluation.
    evaluation = None if context.granted else check_problem(problem)
    # The account first: a purse that has nothing left refuses before the run has any row.
    run_id = lost.run_id if lost else _new_id(context)
    account = Account(granted=draw_budget(run_id, context))
    budget = budget_of({"account": account}, context)
    start: SearchState = {
        "run": Run(run_id, run_seed, lost.setup.holdout_key if lost else new_key()),
        "step": Step(),
        "flight": Flight(parallel=context.parallel),
        "account": account,
    }
    if not lost:
        _put_run(start["run"], budget, context)
    if evaluation is None:
        evaluation = evaluate_start({**start, "iterations": START}, context)
    charged = _charge_start(evaluation, run_id, budget, context)
    started = context.method.start(evaluation.score, context.settings.constants)
    controller = prepare(started, context.settings.experiment)
    begun: SearchState = {
        **_first_results(state, evaluation, budget, charged, context),
        **start,
        "controller": controller,
        "archives": ArchiveVersion(num_frontiers=num_archives(controller)),
        "observed": Observed(),
        "failures": 0,
        "stopping": "",
        "stop_reason": "",
    }
    if context.chosen or "chosen" in state:
        begun["chosen"] = dict(context.chosen)
    if context.has_choice:
        begun["router"] = start_router(context.router, [each.name for each in context.menu])
    elif "router" in state:
        begun["router"] = Router(context.router, ())
    begun["best"] = _seed_frontiers(evaluation, controller, run_id, context)
    if problem.validation or "result" in state:
        begun["result"] = begun["best"]
    if problem.objectives:
        front = context.store.candidates.front(run_id, 0)
        begun["pareto_front"] = front_members(front, context)
    return begun


def _put_run(run: Run, budget: float, context: RunContext) -> None:
    """Store the run with its setup, before its calls and candidates refer to it."""
    problem = context.problem
    facts = {each.name: model_facts(each.model) for each in context.menu}
    models: dict[str, object] = {"model": facts[context.menu[0].name]}
    if context.has_choice:
        models = {"models": facts, "router": context.router}
    if context.guide_model is not None:
        models["guide_model"] = model_facts(context.guide_model.model)
    for role, granted in context.granted.items():
        models[f"{role}_models"] = {name: model_facts(each.model) for name, each in granted.items()}
    settings = settings_texts(context.settings, budget)
    task = context.store.put_text(problem.task)
    facts_of_models = {**settings, **as_texts(models)}
    secrets = new_seal_key(), run.holdout_key
    purse = context.purse.root if context.purse else ""
    setup = RunSetup(problem_texts(problem), facts_of_models, task, *secrets, str(run.seed), purse)
    context.store.open_run(run.id, context.name, problem.name, layer_of(problem) or "", setup)


def _charge_start(
    evaluation: Evaluation, run_id: str, budget: float, context: RunContext
) -> Charge | None:
    """Charge what the evaluation of the initial program has cost; `None` if it was free.

    Raises:
        ValueError: It costs the whole budget.
    """
    seconds = evaluation.worker_seconds
    if start_cost := compute_cost(seconds, context.problem, context.settings):
        row = compute_row(START_TICKET, CallStatus.DONE, start_cost, seconds=seconds)
        context.store.call_log.put_call(run_id, row)
    elif not context.granted:
        return None
    charged = context.store.ledger.charge(
        run_id, START, [START_TICKET], counts_lost=context.counts_lost
    )
    report_cost(open_account(run_id, context), run_id, START_TICKET, context)
    if charged.spent >= Decimal(str(budget)):
        raise ValueError(
            f"budget: got ${budget:g}, expected more than the ${charged.spent:.6f} that the"
            " evaluation of the initial program has cost: these dollars are spent, and the run"
            " stops before its first iteration"
        )
    return charged


class LostRun(NamedTuple):
    """A run whose state is lost, with its setup."""

    run_id: str
    setup: RunSetup


def _lost_run(state: SearchState, context: RunContext) -> LostRun | None:
    """The last run of the thread in the store, where its server has lost the thread's checkpoints.

    `langgraph dev` keeps them in memory. A caller that gives another seed, or another problem,
    begins another run. One that had ended takes all its steps from the store, and ends again.
    """
    if "run" in state or not _is_served(context):
        return None
    begun = list(takewhile(context.store.setup, _ids_of_thread(context)))
    setup = context.store.setup(begun[-1]) if begun else None
    if setup is None or not setup.seed or str(state.get("seed", setup.seed)) != setup.seed:
        return None
    if setup.problem != problem_texts(context.problem):
        return None
    return LostRun(begun[-1], setup)


def _is_served(context: RunContext) -> bool:
    """Whether a LangGraph server executes the run; only there no other program has the thread."""
    runtime = get_runtime()
    now, is_server = runtime.execution_info, runtime.server_info is not None
    has_thread = now is not None and now.thread_id is not None
    return is_server and has_thread and not context.store.is_in_memory


def _ids_of_thread(context: RunContext) -> Iterator[str]:
    """The ids of the runs that a thread begins, one after another."""
    now = get_runtime().execution_info
    # The last part is this node's, with an id that another checkpoint changes.
    parts = (now.thread_id or "", now.checkpoint_ns.rpartition(NS_SEP)[0]) if now else ()
    place = "/".join((context.store.place, *parts))
    return (uuid5(NAMESPACE_OID, f"{place}/{number}").hex for number in count())


def _new_id(context: RunContext) -> str:
    """The id of a run that begins.

    On a server with a lasting store it says which run of its thread it is, see `_lost_run`.
    Elsewhere a run that draws from a purse gets the same id if a process is killed here and the run
    resumes from the same checkpoint: the account with the budget that it has drawn is named by the
    id. One whose evaluator asks models gets that of the run which a killed process began in its
    thread: the calls that were paid for are in the journal of it.
    """
    now, store = get_runtime().execution_info, context.store
    if now is None or now.thread_id is None:
        return uuid4().hex
    if _is_served(context):
        return next(each for each in _ids_of_thread(context) if store.setup(each) is None)
    if context.granted and not store.is_in_memory:
        ids = _ids_of_thread(context)
        return next(each for each in ids if not store.call_log.has_steps(each))
    if context.purse is None:
        return uuid4().hex
    place = "/".join((now.thread_id, now.checkpoint_ns, now.checkpoint_id))
    return uuid5(NAMESPACE_OID, place).hex


def _first_results(
    state: SearchState,
    evaluation: Evaluation,
    budget: float,
    charged: Charge | None,
    context: RunContext,
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
        spent=float(charged.spent) if charged else 0.0,
        in_doubt=float(charged.in_doubt) if charged else 0.0,
        remaining=max(0.0, remaining(budget, float(charged.spent))) if charged else budget,
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
        Candidate.from_evaluation(f"0.{frontier + 1}", program, evaluation, problem.fingerprint)
        for frontier in range(num_seeds(controller))
    ]
    archives = seed_archives(controller, seeds, context.constants)
    for frontier, (seed, archive) in enumerate(zip(seeds, archives, strict=True)):
        table.put(run_id, seed)
        table.put_archive(run_id, frontier, 0, [member.id for member in archive.members])
    if (problem.objectives or problem.examples) and seeds[0].is_valid:
        table.put_archive(run_id, FRONT, 0, [seeds[0].id])
    return seeds[0].id


WAYS_OUT = (
    "Restore the evaluator, or start a new run and give it the best program with costada submit"
)

_LOG = logging.getLogger("costada.runs")


def check_evaluator(state: SearchState, context: RunContext) -> None:
    """Refuse to resume a run whose evaluator has changed, unless its programs keep their scores.

    Where the evaluator is another one than that of the run's start, the programs that the run
    builds on are evaluated again, best first. If all keep validity, score and objectives, the run
    continues with the new evaluator, and its record names that one.

    Raises:
        ValueError: A program has another score, naming both, or the evaluator asks models.
        InterruptedError: The evaluation was asked to stop.
    """
    run_id = state["run"].id
    setup = context.store.setup(run_id)
    if setup is None:
        return
    before, now = evaluator_texts(setup.problem), evaluator_texts(problem_texts(context.problem))
    if not (changed := changes(before, now)):
        return
    if context.granted:
        # Its models would have to be paid for every program, and may answer otherwise each time.
        raise ValueError(
            f"evaluator of {context.problem.name!r}: has changed since this run started"
            f" ({'; '.join(changed)}); scores of two evaluators cannot be compared. {WAYS_OUT}"
        )
    seed, num_examples = candidate_of(SEED_ID, state, context), len(context.problem.examples)
    if seed.is_valid and len(seed.examples) != num_examples:
        raise ValueError(
            f"evaluator of {context.problem.name!r}: got {num_examples} examples, expected"
            f" {len(seed.examples)}, as when the run started; scores on other examples cannot be"
            f" compared. {WAYS_OUT}"
        )
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
                f" {_score_text(evaluation)}, expected {_score_text(candidate)}, as when the run"
                f" evaluated it; scores of two evaluators cannot be compared. {WAYS_OUT}"
            )
    # Only now, when all scores are kept: a run that was refused asks again when it is resumed.
    others = {name: text for name, text in setup.problem.items() if name not in before}
    context.store.put_setup(run_id, replace(setup, problem={**others, **now}))


def _programs(state: SearchState, context: RunContext) -> dict[Program, Candidate]:
    """The programs that a run builds on, best first, each with a candidate.

    One that was rejected before it was judged on all examples has an estimate as score, which
    another evaluation does not repeat.
    """
    table, run_id = context.store.candidates, state["run"].id
    found = [candidate_of(state["best"], state, context), candidate_of(SEED_ID, state, context)]
    found += [member for archive in archives_of(state, context) for member in archive.members]
    found += table.front(run_id, state["archives"].seq)
    if state["controller"].parents is ParentRule.POPULATION:
        found += population_of(state, context)
    if evaluated := state["step"].attempt.candidate:  # in a step that has not ended
        found.append(candidate_of(evaluated, state, context))
    # Best first: where scores have changed, the run is refused for the program that it returns.
    programs: dict[Program, Candidate] = {}
    judged = [
        each for each in found if not (each.program.is_empty or is_estimated(each, context.problem))
    ]
    for each in sorted(judged, key=lambda each: (-each.is_valid, -each.score)):
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


def _score_text(scored: Candidate | Evaluation) -> str:
    return f"{scored.score:.6g}" if scored.is_valid else f"invalid ({scored.error})"


NS_SEP = "|"
"""What LangGraph puts between the nodes of a checkpoint's namespace."""

SCORE_TOLERANCE = 1e-9
"""Relative difference of scores that other versions of a library cause by rounding."""

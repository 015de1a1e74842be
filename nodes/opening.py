"""The beginning of a run: the starting program is evaluated once and put on every frontier."""

from uuid import uuid4

from costada.controller.algorithm import start
from costada.controller.archive import Archive
from costada.controller.state import to_record
from costada.evaluators.confine import layer_of
from costada.evaluators.contract import Evaluation
from costada.graph.state import SearchState
from costada.nodes.candidates import candidate_row, save_archive, to_candidate
from costada.nodes.context import RunContext
from costada.store.rows import CandidateRow


def opened(state: SearchState, context: RunContext) -> SearchState:
    """Return the keys of a run that begins: F(initial program) is y_0 and every b^(k) (Sec. 3).

    Costs no model call. An invalid starting program has score 0.
    """
    run_seed = state.get("seed", context.settings.seed)
    if not isinstance(run_seed, int):
        raise ValueError(f"seed: got {run_seed!r}, expected a whole number")
    run_id = uuid4().hex
    constants = context.settings.constants
    problem = context.problem
    evaluation = problem.seed_evaluation or problem.evaluate(problem.initial_program)
    seeds = [_seed(frontier, evaluation, context) for frontier in range(constants.num_frontiers)]
    context.store.open_run(run_id, context.name, problem.name, layer_of(problem) or "")
    for seed in seeds:
        context.store.candidates.put(run_id, seed)
    begun = SearchState(
        run_id=run_id,
        run_seed=run_seed,
        archive_seq=0,
        best=seeds[0].id,
        stop_reason="",
        controller=to_record(start(evaluation.score, context.budget, constants)),
    )
    for frontier, seed in enumerate(seeds):
        archive = Archive((to_candidate(seed),), constants.archive_size)
        save_archive(archive, frontier, begun, context)
    return begun


def _seed(frontier: int, evaluation: Evaluation, context: RunContext) -> CandidateRow:
    problem = context.problem
    return candidate_row(
        f"0.{frontier + 1}", 0, problem.initial_program, evaluation, problem.fingerprint
    )

"""Evaluations of a run: with the models that they ask, again after an outage, of the start."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import inf

from costada.evaluators.problem import check_problem
from costada.models.asking import FailureKind, ModelFailure, RequestNotSent
from costada.nodes.calls.allowance import Allowance, allowance_of_evaluation
from costada.nodes.calls.health import Outages, Pause, PauseText, outlast
from costada.nodes.context import PerRun, RunContext
from costada.nodes.state import SearchState
from costada.store.candidates import SEED_ID
from costada.values.candidate import Program
from costada.values.evaluation import EVALUATOR_FAULT, EVALUATOR_OUTAGE, Evaluation
from costada.values.numbering import TicketNumber

MAX_ALONE = 3
"""How often an evaluator's model may fail for a program just before it serves another request."""

MAX_REASON_CHARS = 500
"""How much of an evaluator's error the log of a pause shows."""

OUTAGES = PerRun(Outages)
"""The outages of the model that the evaluator of a run asks."""


def measure(
    name: str,
    program: Program,
    state: SearchState,
    context: RunContext,
    allowance: Allowance,
    incumbent: float | None = None,
    rival: tuple[float, ...] = (),
    earlier: Sequence[tuple[TicketNumber, int]] = (),
    on_permit: Callable[[], None] = lambda: None,
) -> Evaluation:
    """Evaluate a program once, with the models that the problem asks, within an allowance.

    `earlier` are ticket and attempt of the calls of steps that evaluated it under the same name,
    oldest first: what the models answered then is not asked again. `on_permit` is called when the
    evaluation begins, after it waited for others.

    Raises:
        RequestNotSent: What is left of a hard budget cannot pay for it.
        ValueError: A request of its models showed what ends the run.
        InterruptedError: The evaluation was asked to stop.
    """
    evaluate = partial(
        context.problem.evaluate_program,
        program,
        state["run"].holdout_key,
        incumbent,
        rival,
        on_permit=on_permit,
    )
    if not context.granted:
        return evaluate()
    # Not imported at the start: other runs need neither the endpoint nor its server.
    from costada.nodes.calls.evaluation_calls import open_grants

    with open_grants(name, state, context, allowance, earlier) as models:
        evaluation = evaluate(models)
    return models.final_evaluation(evaluation)


def evaluate_start(state: SearchState, context: RunContext) -> Evaluation:
    """Evaluate the initial program of a run, when the provider of its models is available.

    Raises:
        ValueError: The evaluator fails, or rejects the program though no invalid start is allowed.
        InterruptedError: The evaluation was asked to stop.
    """
    problem = context.problem
    evaluation = problem.seed_evaluation
    if evaluation is None:
        allowance = allowance_of_evaluation(state, context)
        evaluate = partial(measure, SEED_ID, problem.start, state, context, allowance, -inf)
        try:
            evaluation = evaluate_when_up(evaluate, None, allowance, state, context)
        except RequestNotSent as error:
            raise ValueError(f"budget: cannot pay for the initial program: {error}") from None
    return check_problem(replace(problem, seed_evaluation=evaluation))


def evaluate_when_up(
    evaluate: Callable[[], Evaluation],
    is_available: Callable[[Evaluation], bool] | None,
    allowance: Allowance,
    state: SearchState,
    context: RunContext,
) -> Evaluation:
    """Evaluate a program, when the provider of a model that the evaluator asks is available.

    While it is not, the run is paused as for its own models, and the program is evaluated again.
    One for which the model does not answer although it answers others, time and again, has made the
    evaluator fail by itself: its request may be too large. `is_available` finds out whether it
    answers others now, given the evaluation that failed.

    All evaluations share the allowance. What requests may have cost that an outage has ended counts
    for it no longer once the program is evaluated again, unless the model answered others.

    Raises:
        ModelUnusable: The pause lasted too long.
        InterruptedError: The run was asked to stop while it waited.
    """
    num_alone, was_alone = 0, False

    def repeat(failure: ModelFailure) -> Evaluation:
        nonlocal num_alone, was_alone
        if not was_alone:
            allowance.forget_doubts()
        evaluation = evaluate()
        was_alone = bool(is_available and _outage_in(evaluation) and is_available(evaluation))
        if was_alone:
            num_alone += 1
            if num_alone == MAX_ALONE:
                others = {**evaluation.artifacts}
                del others[EVALUATOR_OUTAGE]
                return replace(evaluation, artifacts=others)
        return evaluation

    outages = OUTAGES.of(context.store, state["run"].id)
    pause = Pause(context.retry_policy, PauseText("the provider of the evaluator's model"))
    return outlast(evaluate, repeat, _outage_in, outages, pause)


def _outage_in(evaluation: Evaluation) -> ModelFailure | None:
    seconds = evaluation.artifacts.get(EVALUATOR_OUTAGE)
    if seconds is None:
        return None
    reason = " ".join(evaluation.artifacts[EVALUATOR_FAULT].split())[:MAX_REASON_CHARS]
    return ModelFailure(reason, FailureKind.DOWN, float(seconds) or None)

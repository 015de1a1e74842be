"""What the search knows about a problem, and the checks before money is spent on it."""

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from time import monotonic
from typing import Any, Protocol, cast

from costada.evaluators.data_set import DataSet
from costada.evaluators.data_set_evaluator import DataSetEvaluator
from costada.evaluators.fingerprint import fingerprint
from costada.evaluators.granted_models import FunctionCall, GrantedModels, SendableModels
from costada.evaluators.named_functions import resolve_focus
from costada.evaluators.problem_checks import (
    check_called_function,
    check_calls,
    check_data_set,
    check_fields,
    check_measuring,
    check_preload,
    check_running,
)
from costada.evaluators.problem_fields import Evaluator, ProblemFields
from costada.evaluators.sandbox.concurrency import FairSemaphore, available_cores
from costada.evaluators.sandbox.inside.error_reports import PROCESS_REFUSED, outage_seconds
from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import MIN_MEMORY_MB
from costada.evaluators.sandbox.minimum_time import check_minimum_time
from costada.evaluators.sandbox.slot import SLOTS
from costada.evaluators.sandboxed import (
    CHECK_SECONDS,
    PROCESS_KEY,
    CandidateRunner,
    Confined,
    SandboxedEvaluator,
    SyntaxCheck,
)
from costada.evaluators.scoring import aggregate_measurements, check_evaluation
from costada.evaluators.setup_hints import UNSCORED_HINT
from costada.values.candidate import Program
from costada.values.evaluation import (
    FAULTS,
    LOG,
    NOT_STORABLE,
    REJECTED_AT,
    UNSCORED,
    UNSHOWN,
    Direction,
    Evaluation,
    failed,
    failed_evaluator,
    is_storable,
)
from costada.values.program_form import PYTHON

LOG_LINES, LOG_LINE_CHARS = 15, 300
"""How much of the end of a log follows a message."""

NUM_REPORTED, REPORTED_CHARS = 5, 600
"""How many texts of the evaluator follow a fault, and how much of each."""


class EvaluationBackend(Protocol):
    """Evaluates the programs of problems in other processes."""

    @property
    def name(self) -> str:
        """Its name for users."""

    def evaluate(
        self,
        problem: "Problem",
        program: Program,
        key: str,
        incumbent: float | None,
        rival: tuple[float, ...] = (),
        models: SendableModels | None = None,
    ) -> Evaluation:
        """Do what `Problem.evaluate_program` does."""


@dataclass(frozen=True, kw_only=True)
class Problem(ProblemFields):
    """A task, the program to start from, and the evaluator (F, Sec. 3) of candidates.

    Give `score`, `score_example` or `evaluate`. With `score`, candidates run in the sandbox: their
    entry point is called with `arguments`, and `score` evaluates the plain data that comes back, in
    this process. Candidates with a `run` command are built and run there as programs, and `score`
    evaluates what they write; see `run_commands`. Candidates with neither, in another language
    than Python or of several files, are never run: `score` gets their text. With `score_example`
    all this happens for each of some `examples`; see `data_set_evaluator.py`. `evaluate` takes over
    everything, the running of the candidate too.

    The fields are declared in `problem_fields.py`, with their ranges; the last three are here.
    """

    backend: EvaluationBackend | None = field(default=None, repr=False, compare=False)
    """Evaluates programs in other processes; None to evaluate them in this one."""
    fingerprint: str = field(init=False, repr=False, compare=False)
    """Hash of all that evaluations depend on."""
    turns: FairSemaphore = field(init=False, repr=False, compare=False)
    """Holds evaluations back while `evaluations_at_once` programs are evaluated."""

    def __post_init__(self) -> None:
        """Check every field and complete evaluate, evaluator_source and fingerprint.

        Raises:
            ValueError: Naming the field, its value and what was expected.
        """
        check_fields(self)
        check_measuring(self)
        object.__setattr__(self, "direction", Direction(self.direction))
        object.__setattr__(self, "sandbox", Layer(self.sandbox))
        check_preload(self.preload, self.sandbox, self.interpreter)
        check_running(self)
        check_calls(self)
        if self.initial_program is None:
            object.__setattr__(self, "seed_evaluation", failed("there is no program yet"))
        if self.focus:
            object.__setattr__(self, "focus", resolve_focus(self.focus, self.start))
        for name in ("examples", "validation"):
            object.__setattr__(self, name, DataSet.of(name, getattr(self, name)))
        check_data_set(self)
        by_default = available_cores() if self.repeats == 1 else 1
        object.__setattr__(self, "turns", FairSemaphore(self.evaluations_at_once or by_default))
        SLOTS.allow(self.turns.limit)
        object.__setattr__(self, "evaluate", self._evaluator())
        object.__setattr__(self, "evaluator_source", self.evaluator_source or _source(self))
        object.__setattr__(self, "fingerprint", fingerprint(self))

    def evaluate_program(
        self,
        program: Program,
        key: str = PROCESS_KEY,
        incumbent: float | None = None,
        rival: tuple[float, ...] = (),
        models: SendableModels | None = None,
        on_permit: Callable[[], None] = lambda: None,
    ) -> Evaluation:
        """Evaluate a program in a run whose secret is `key`; see `Holdout`.

        A problem that asks models asks those that the caller grants, and is not evaluated without;
        its own functions are called in a process that has no key. `on_permit` is called when the
        evaluation begins, after it waited for others; what it raises ends the evaluation.

        Where scores are noisy, a program that is better than `incumbent`, the best score so far, is
        measured again; see `aggregate_measurements`. With a data set, such a program is judged on
        the validation examples too, and one that loses its race with `rival`, the scores of another
        program on all examples, is not judged on all of them.

        Any number of threads may call it: as many programs as `evaluations_at_once` are evaluated,
        others wait, first come, first served. Waiting counts neither as a program's time nor
        towards its limits. A program that cannot be stored is not valid.

        Raises:
            InterruptedError: If the evaluation was cancelled, also while it waited.
            Exception: What `evaluate` raises, except for an outage of a model that it asks, which
                is an evaluation with the mark EVALUATOR_OUTAGE.
        """
        if not all(map(is_storable, program.values())):
            return failed(NOT_STORABLE)
        if self.backend is not None:
            with self.turns.permit() if self.evaluations_at_once else nullcontext():
                on_permit()
                return self.backend.evaluate(self, program, key, incumbent, rival, models)
        return self.evaluate_here(program, key, incumbent, rival, models, on_permit)

    def evaluate_here(
        self,
        program: Program,
        key: str,
        incumbent: float | None,
        rival: tuple[float, ...],
        models: GrantedModels | None,
        on_permit: Callable[[], None] = lambda: None,
    ) -> Evaluation:
        """Evaluate a program that can be stored in this process, as `evaluate_program`."""
        evaluate = self.evaluate if models is None else self._asking(models)
        known: tuple[object, ...] = ()
        if isinstance(evaluate, DataSetEvaluator):
            known = (key, incumbent, rival)
        elif isinstance(evaluate, SandboxedEvaluator):
            known = (key,)
        with self.turns.permit():
            on_permit()
            began = monotonic()
            evaluation = aggregate_measurements(
                self, partial(self._evaluate, evaluate, program.source, *known), incumbent
            )
            return replace(evaluation, worker_seconds=monotonic() - began)

    @property
    def asks_models(self) -> bool:
        """Whether an evaluation may ask models, and cost money."""
        return bool(self.models or self.candidate_models)

    @property
    def longest_seconds(self) -> float:
        """The longest that one evaluation can occupy a worker by the limits.

        `score` and an `evaluate` of the problem's own have none, and may take longer.
        """
        seconds = self.limits.wall_seconds
        if self.entry_point or self.run:
            seconds *= len(self.examples) + len(self.validation) or 1
        if isinstance(self.evaluate, CandidateRunner) and self.evaluate.syntax:
            checked = self.evaluate.syntax.languages_of(self.start)
            seconds += min(seconds, CHECK_SECONDS) if checked else 0.0
        seconds *= 1 if self.holdout is None else 2
        return seconds * self.repeats * (1 if self.repeats == 1 else 2)

    def call_here(self, called: FunctionCall, output: object) -> Evaluation:
        """Call a function of the problem in this process; raises as `evaluate_program`."""
        if isinstance(self.evaluate, CandidateRunner):
            return self.evaluate.call_here(called, output)
        return self._evaluate(self.evaluate, output)

    def _asking(self, models: GrantedModels) -> Evaluator:
        """The evaluator of an evaluation that may ask models."""
        call = partial(models.call, self)
        if isinstance(self.evaluate, CandidateRunner):
            connect = models.connect(is_shared=False)
            own = replace(self.evaluate, call=call, connect=connect, lacks_models=False)
            return cast(Evaluator, own)
        if isinstance(self.evaluate, Confined):
            connect = models.connect(is_shared=True)
            return cast(Evaluator, replace(self.evaluate, connect=connect, lacks_models=False))
        return partial(call, FunctionCall("evaluate"))

    def _evaluate(self, evaluate: Callable[..., Evaluation], *arguments: Any) -> Evaluation:
        try:
            return evaluate(*arguments)
        except Exception as error:  # raised again unless it is an outage
            # The errors of a provider have no class of their own that could be named here: they
            # are recognised by their attributes, so that no provider's package is imported.
            if (outage := outage_seconds(error)) is None:
                raise
            return failed_evaluator(f"evaluate failed: {type(error).__name__}: {error}", outage)

    def _evaluator(self) -> Evaluator:
        is_given = self.evaluate is not None and not isinstance(self.evaluate, CandidateRunner)
        given: dict[str, object] = {
            "evaluate": self.evaluate if is_given else None,
            "score": self.score,
            "score_example": self.score_example,
        }
        functions = {name: each for name, each in given.items() if each is not None}
        if len(functions) != 1 or not all(map(callable, functions.values())):
            values = " and ".join(f"{name} is {each!r}" for name, each in functions.items())
            wanted = "one of them" if len(functions) > 1 else "an evaluate, score or score_example"
            raise ValueError(f"{values or 'evaluate is None'}; expected {wanted}, a function")
        check_called_function(*next(iter(functions.items())))
        preload = tuple(self.preload)
        runs: dict[str, Any] = {
            "entry_point": self.entry_point,
            "commands": self.commands,
            "syntax": SyntaxCheck(self.start, self.form, self.candidate_name),
            "limits": self.limits,
            "layer": self.sandbox,
            "preload": preload,
            "interpreter": self.interpreter,
            "readable": tuple(self.readable),
            "lacks_models": self.asks_models,
        }
        if self.score_example is not None:
            return DataSetEvaluator(
                score_example=self.score_example,
                examples=DataSet(self.examples),
                validation=DataSet(self.validation),
                racing_error=self.racing_error,
                batch=self.batch,
                **runs,
            )
        if self.score is not None:
            return SandboxedEvaluator(
                score=self.score,
                calls=(self.arguments,) if self.calls is None else tuple(self.calls),
                is_single=self.calls is None,
                holdout=self.holdout,
                **runs,
            )
        if self.arguments or self.calls is not None:
            raise ValueError("arguments or calls are given without score; expected them with it")
        if isinstance(self.evaluate, Confined):
            own = replace(
                self.evaluate,
                limits=self.limits,
                layer=self.sandbox,
                preload=preload,
                interpreter=self.interpreter,
                readable=tuple(self.readable),
                lacks_models=self.asks_models,
            )
            return cast(Evaluator, own)
        return self.evaluate


def check_problem(problem: Problem) -> Evaluation:
    """Evaluate the initial program, and make sure that the evaluator works.

    A known `problem.seed_evaluation` is checked alike. A valid initial program may score 0. A
    rejected one passes only with `allow_invalid_start`: any other rejection may be a mistake of the
    evaluator, which would reject all that is paid for. An initial program that crashes,
    takes too long or has no finite score never passes. Where there is none, nothing is evaluated.

    Raises:
        ValueError: If the evaluator, the sandbox or the initial program itself fails, the score is
            not finite, or the initial program is rejected.
    """
    evaluation = problem.seed_evaluation
    if evaluation is None:
        # As every incumbent, it is measured twice where scores are noisy.
        evaluation = problem.evaluate_program(problem.start, incumbent=-inf)
    check_evaluation(evaluation, problem)
    for mark in FAULTS:
        if mark in evaluation.artifacts:
            fault = evaluation.artifacts[mark]
            more = _reported(evaluation, fault) + end_of_log(evaluation, fault)
            raise ValueError(f"problem {problem.name!r}, initial program: {fault}{more}")
    is_allowed = problem.allow_invalid_start or problem.initial_program is None
    if not (evaluation.is_valid or is_allowed):
        reason = evaluation.artifacts.get(REJECTED_AT) or evaluation.error
        said = (reason or "", evaluation.artifacts.get(LOG, ""))
        evaluator = problem.evaluate
        hint = UNSCORED_HINT if UNSCORED in evaluation.artifacts else ""
        if not hint and isinstance(evaluator, Confined):
            hint = evaluator.hint(*said)
        hint = hint or (
            "If the start is meant to be invalid, say so: allow_invalid_start = true in"
            " problem.toml, Problem(allow_invalid_start=True), or costada run --allow-invalid-start"
        )
        # What an evaluator says of several lines may end with a log.
        wanted = "\nExpected a valid one." if "\n" in said[0] else "; expected a valid one."
        raise ValueError(
            f"problem {problem.name!r}: the evaluator rejects the initial program:"
            f" {reason}{wanted} {hint}{end_of_log(evaluation, hint)}"
        )
    return evaluation


def _reported(evaluation: Evaluation, fault: str) -> str:
    """The first texts that the evaluator returned, to follow a fault that does not quote them."""
    texts = {name: text.strip() for name, text in evaluation.artifacts.items()}
    new = [
        f"\nIts {name}: {text[:REPORTED_CHARS]}"
        for name, text in texts.items()
        if name not in (LOG, *UNSHOWN)
        and text not in ("", "nan", "inf", "-inf")
        and text not in fault
    ]
    return "".join(new[:NUM_REPORTED])


def end_of_log(evaluation: Evaluation, message: str) -> str:
    """The last lines that an evaluation printed, to follow a message; empty if there are none.

    Lines on a refused process are left out where the message names it.
    """
    log = evaluation.artifacts.get(LOG, "")
    printed = [line[:LOG_LINE_CHARS] for line in log.splitlines() if line.strip()]
    is_known = PROCESS_REFUSED in message
    lines = [line for line in printed if not (is_known and line.startswith(PROCESS_REFUSED))]
    return "\nEnd of its log:\n" + "\n".join(lines[-LOG_LINES:]) if lines else ""


def confine(
    problem: Problem,
    *,
    sandbox: Layer | None = None,
    timeout: float | None = None,
    memory_mb: int | None = None,
    evaluations_at_once: int | None = None,
) -> Problem:
    """The problem with its layer chosen, and with the limits given (seconds, MiB) for its own.

    Where a backend evaluates programs, only AUTO is tried here: it means the strongest layer of
    this machine.

    A problem whose own `evaluate` runs the candidates keeps all but `evaluations_at_once`.

    Raises:
        ValueError: If this machine does not offer the layer, or the problem's own `evaluate`
            cannot be confined, or its own memory is less than is accepted of a user, or the time is
            less than an empty Python program takes, or what the evaluator declares is not confirmed
            for the layer.
    """
    given = {"sandbox": sandbox, "timeout": timeout, "memory_mb": memory_mb}
    at_once = evaluations_at_once or problem.evaluations_at_once
    if not isinstance(problem.evaluate, Confined):
        for name, value in given.items():
            if value is not None:
                raise ValueError(
                    f"{name}: got {value}, but problem {problem.name!r} runs candidates with an"
                    " evaluate of its own; expected none"
                )
        return replace(problem, evaluations_at_once=at_once)
    own = f"problem {problem.name!r}: "
    if memory_mb is None and problem.limits.memory_mb < MIN_MEMORY_MB:
        raise ValueError(
            f"{own}memory_mb: got {problem.limits.memory_mb}, expected at least {MIN_MEMORY_MB}"
        )
    limits = replace(
        problem.limits,
        wall_seconds=problem.limits.wall_seconds if timeout is None else timeout,
        memory_mb=problem.limits.memory_mb if memory_mb is None else memory_mb,
    )
    layer = Layer(sandbox or problem.sandbox)
    is_here = problem.backend is None
    if is_here or layer is Layer.AUTO:
        layer = chosen_layer(layer)
    if is_here:
        problem.evaluate.check_confirmed(layer)
    if is_here and problem.entry_point and problem.language == PYTHON.name and not problem.build:
        name = "timeout" if timeout is not None else f"{own}timeout"
        check_minimum_time(limits.wall_seconds, layer, name)
    return replace(
        problem,
        limits=limits,
        sandbox=layer,
        evaluations_at_once=at_once,
    )


def layer_of(problem: Problem) -> Layer | None:
    """What confines the problem's candidates; None if its own `evaluate` runs them."""
    return problem.sandbox if isinstance(problem.evaluate, Confined) else None


def gpu_note(problem: Problem) -> str:
    """That the sandbox opens no GPU to candidates of a `score`; empty for other problems."""
    if not problem.gpus or not isinstance(problem.evaluate, CandidateRunner):
        return ""
    return (
        f"gpus = {problem.gpus:g} only chooses a worker that has them: the sandbox opens no GPU to"
        " programs"
    )


def _source(problem: Problem) -> str:
    try:
        return inspect.getsource(problem.scorer or problem.evaluate)
    except (OSError, TypeError):
        return ""

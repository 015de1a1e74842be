"""What the search knows about a problem, and the checks before money is spent on it."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from importlib.util import find_spec
from keyword import iskeyword
from math import isfinite
from reprlib import repr as shortened
from typing import cast

from costada.evaluators.contract import Evaluator, Holdout, Score
from costada.evaluators.fingerprint import fingerprint
from costada.evaluators.sandbox.codec import encode
from costada.evaluators.sandbox.fair_semaphore import FairSemaphore, available_cores
from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import PRELOAD, Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.slot import SLOTS
from costada.evaluators.sandboxed import Confined, SandboxedEvaluator
from costada.values.evaluation import (
    FAULTS,
    NOT_STORABLE,
    REJECTED_AT,
    Direction,
    Evaluation,
    failed,
    is_storable,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A task, the program to start from, and the evaluator (F, Sec. 3) that judges candidates.

    Give either `score` or `evaluate`. With `score`, candidates run in the sandbox: their entry
    point is called with `arguments`, and `score` judges the plain data that comes back, outside,
    in this process. `evaluate` takes over everything, the running of the candidate too.

    Attributes:
        name: Short name, used in reports and file names.
        task: The problem in words, as shown to the model.
        initial_program: Source text of the seed program.
        evaluate: The evaluator: source text in, verdict out. Made from `score` if that is given.
        entry_point: Function every candidate must define; needed with `score`.
        score: Judges what the entry point returned; a `ValueError` rejects it with its message.
        arguments: Keyword arguments of the call: numbers, texts, arrays, lists and dicts.
        calls: The keyword arguments of each of several calls; `score` then judges the list of
            their `CandidateResult`s, failed ones among them.
        holdout: Held-out inputs for each valid program, with `score` and `calls`.
        limits: What one evaluation may take.
        sandbox: What confines the candidate's process.
        evaluators: How many programs `judge` evaluates at once; None for as many as this process
            may use cores. With 1, `score` and `evaluate` are never called by two threads at once.
        preload: Modules that are loaded before a candidate starts, so that importing them is free;
            SciPy's before the first that names it.
        direction: Which way the objective improves.
        reference: Objective that counts as score 1; None if the objective is the score.
        human: Best objective known from people, for reports only.
        seed_objective: Objective of the initial program as recorded, for lists only.
        seed_evaluation: Verdict on the initial program; a run that has it does not run it again.
        allow_invalid_start: Whether a run may begin though the initial program is rejected; it is
            refused otherwise, before any money is spent.
        timing_metrics: Metrics, beside `eval_time`, that hold wall-clock time. They are recorded
            and not shown to a model, so that prompts repeat.
        evaluator_source: The evaluator's text, shown to the guide; read from the function if empty.
        source: Where the problem is from.
        fingerprint: Hash of what the verdicts depend on.
        turns: Holds back what `judge` is asked while `evaluators` programs are evaluated.
    """

    name: str
    task: str
    initial_program: str
    evaluate: Evaluator = field(default=cast(Evaluator, None))
    entry_point: str | None = None
    score: Score | None = None
    arguments: Mapping[str, object] = field(default_factory=dict)
    calls: Sequence[Mapping[str, object]] | None = None
    holdout: Holdout | None = None
    limits: Limits = field(default_factory=Limits)
    sandbox: Layer = Layer.AUTO
    evaluators: int | None = None
    preload: Sequence[str] = PRELOAD
    direction: Direction = Direction.MAXIMIZE
    reference: float | None = None
    human: float | None = None
    seed_objective: float | None = None
    seed_evaluation: Evaluation | None = None
    allow_invalid_start: bool = False
    timing_metrics: Sequence[str] = ()
    evaluator_source: str = ""
    source: str = ""
    fingerprint: str = field(init=False, repr=False, compare=False)
    turns: FairSemaphore = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check every field and complete evaluate, evaluator_source and fingerprint.

        Raises:
            ValueError: Naming the field, its value and what was expected.
        """
        _check_fields(self)
        object.__setattr__(self, "direction", Direction(self.direction))
        object.__setattr__(self, "sandbox", Layer(self.sandbox))
        _check_preload(self.preload, self.sandbox)
        _check_calls(self.arguments, self.calls)
        object.__setattr__(self, "turns", FairSemaphore(self.evaluators or available_cores()))
        SLOTS.allow(self.turns.limit)
        object.__setattr__(self, "evaluate", self._evaluator())
        object.__setattr__(self, "evaluator_source", self.evaluator_source or _source(self))
        object.__setattr__(self, "fingerprint", fingerprint(self))

    def judge(self, code: str, key: str) -> Evaluation:
        """Verdict on a program in a run whose secret is `key`; see `Holdout`.

        Any number of threads may call it: `evaluators` programs are evaluated at once, others wait,
        first come, first served. Waiting counts neither as a program's time nor towards its limits.
        A program that cannot be stored as it is judged is not valid.

        Raises:
            InterruptedError: If the evaluation was cancelled, also while it waited.
            Exception: What `evaluate` raises.
        """
        if not is_storable(code):
            return failed(NOT_STORABLE)
        with self.turns.permit():
            if isinstance(self.evaluate, SandboxedEvaluator):
                return self.evaluate(code, key)
            return self.evaluate(code)

    def _evaluator(self) -> Evaluator:
        is_given = self.evaluate is not None and not isinstance(self.evaluate, SandboxedEvaluator)
        if is_given is (self.score is not None) or not callable(self.score or self.evaluate):
            raise ValueError(
                f"evaluate is {self.evaluate!r} and score is {self.score!r}; "
                "expected one of them, a function"
            )
        preload = tuple(self.preload)
        if self.score is not None:
            if self.entry_point is None:
                raise ValueError("entry_point is None; expected the function that score judges")
            return SandboxedEvaluator(
                entry_point=self.entry_point,
                score=self.score,
                calls=(self.arguments,) if self.calls is None else tuple(self.calls),
                is_single=self.calls is None,
                holdout=self.holdout,
                limits=self.limits,
                layer=self.sandbox,
                preload=preload,
            )
        if self.arguments or self.calls is not None:
            raise ValueError("arguments or calls are given without score; expected them with it")
        if isinstance(self.evaluate, Confined):
            own = replace(self.evaluate, limits=self.limits, layer=self.sandbox, preload=preload)
            return cast(Evaluator, own)
        return self.evaluate


def check_problem(problem: Problem) -> Evaluation:
    """Evaluate the initial program, and make sure that the evaluator works.

    A known `problem.seed_evaluation` is checked alike. A valid initial program may score 0. A
    rejected one passes only with `allow_invalid_start`: any other rejection may be a mistake of the
    evaluator, which would reject all that is paid for. An initial program without a verdict,
    because it crashes, takes too long or has no finite score, never passes.

    Raises:
        ValueError: If the evaluator, the sandbox or the initial program itself fails, the score is
            not finite, or the initial program is rejected.
    """
    evaluation = problem.seed_evaluation or problem.evaluate(problem.initial_program)
    if not isinstance(evaluation, Evaluation):
        given = type(evaluation).__name__
        raise ValueError(
            f"problem {problem.name!r}: evaluate returned {given}; expected an Evaluation"
        )
    for mark in FAULTS:
        if mark in evaluation.artifacts:
            fault = evaluation.artifacts[mark]
            raise ValueError(f"problem {problem.name!r}, initial program: {fault}")
    if not (evaluation.is_valid or problem.allow_invalid_start):
        reason = evaluation.artifacts.get(REJECTED_AT) or evaluation.error
        raise ValueError(
            f"problem {problem.name!r}: the evaluator rejects the initial program: {reason};"
            " expected a valid one. If the start is meant to be invalid, say so:"
            " --allow-invalid-start, Problem(allow_invalid_start=True), or"
            " allow_invalid_start = true in problem.toml"
        )
    return evaluation


def confine(
    problem: Problem,
    *,
    sandbox: Layer | None = None,
    timeout: float | None = None,
    memory_mb: int | None = None,
    evaluators: int | None = None,
) -> Problem:
    """The problem with its layer chosen, and with the limits given (seconds, MiB) for its own.

    A problem whose own `evaluate` runs the candidates keeps all but `evaluators`, how many programs
    are evaluated at once.

    Raises:
        ValueError: If this machine does not offer the layer, or the problem's own `evaluate`
            cannot be confined.
    """
    if not isinstance(problem.evaluate, Confined):
        given = {"sandbox": sandbox, "timeout": timeout, "memory_mb": memory_mb}
        for name, value in given.items():
            if value is not None:
                raise ValueError(
                    f"{name}: got {value}, but problem {problem.name!r} runs candidates with an"
                    " evaluate of its own; expected none"
                )
        return problem if evaluators is None else replace(problem, evaluators=evaluators)
    limits = replace(
        problem.limits,
        wall_seconds=problem.limits.wall_seconds if timeout is None else timeout,
        memory_mb=problem.limits.memory_mb if memory_mb is None else memory_mb,
    )
    return replace(
        problem,
        limits=limits,
        sandbox=chosen_layer(sandbox or problem.sandbox),
        evaluators=problem.evaluators if evaluators is None else evaluators,
    )


def layer_of(problem: Problem) -> Layer | None:
    """What confines the problem's candidates; None if its own `evaluate` runs them."""
    return problem.sandbox if isinstance(problem.evaluate, Confined) else None


def _source(problem: Problem) -> str:
    try:
        return inspect.getsource(problem.score or problem.evaluate)
    except (OSError, TypeError):
        return ""


def _check_fields(problem: Problem) -> None:
    for name in ("name", "task", "initial_program", "evaluator_source", "source"):
        _check_text(name, getattr(problem, name))
    if problem.entry_point is not None:
        _check_name("entry_point", problem.entry_point, "a function name")
    choices: dict[str, type[StrEnum]] = {"direction": Direction, "sandbox": Layer}
    for name, kinds in choices.items():
        if getattr(problem, name) not in list(kinds):
            known = ", ".join(repr(kind.value) for kind in kinds)
            raise ValueError(f"{name} is {getattr(problem, name)!r}; expected one of {known}")
    if problem.holdout is not None and (problem.score is None or problem.calls is None):
        raise ValueError("holdout is given without score and calls; expected it with both")
    if not isinstance(problem.allow_invalid_start, bool):
        given = problem.allow_invalid_start
        raise ValueError(f"allow_invalid_start is {given!r}; expected True or False")
    if not isinstance(problem.limits, Limits):
        raise ValueError(f"limits is {problem.limits!r}; expected Limits(...)")
    _check_evaluators(problem.evaluators)
    _check_number("reference", problem.reference, "positive")
    _check_number("human", problem.human, "finite")
    _check_number("seed_objective", problem.seed_objective, "finite")
    timings = problem.timing_metrics
    is_list = isinstance(timings, Sequence) and not isinstance(timings, str)
    if not is_list or not all(isinstance(name, str) for name in timings):
        raise ValueError(f"timing_metrics is {timings!r}; expected a list of metric names")


def _check_text(name: str, text: object) -> None:
    may_be_empty = name in ("evaluator_source", "source")
    if not isinstance(text, str) or not (text.strip() or may_be_empty):
        kind = "a text" if may_be_empty else "a non-empty text"
        raise ValueError(f"{name} is {text!r}; expected {kind}")
    if not is_storable(text):
        raise ValueError(f"{name} is {shortened(text)}; expected no half of a surrogate pair")


def _check_evaluators(count: object) -> None:
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
        raise ValueError(f"evaluators is {count!r}; expected a whole number of at least 1, or None")


def _check_number(name: str, value: float | None, kind: str) -> None:
    if value is None:
        return
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not isfinite(value) or (kind == "positive" and value <= 0):
        raise ValueError(f"{name} is {value!r}; expected a {kind} number")


def _check_preload(preload: object, layer: Layer) -> None:
    if isinstance(preload, str) or not isinstance(preload, Sequence):
        raise ValueError(f"preload is {preload!r}; expected a list of module names")
    for module in preload:
        parts = module.split(".") if isinstance(module, str) else [module]
        for part in parts:
            _check_name("preload", part, "names of modules, such as 'numpy'")
        if layer is not Layer.CONTAINER and find_spec(parts[0]) is None:
            raise ValueError(f"preload is {list(preload)!r}; expected modules, found no {parts[0]}")


def _check_calls(arguments: object, calls: object) -> None:
    """Refuse arguments that cannot be sent to a candidate, and arguments beside calls."""
    labelled = {"arguments": arguments}
    if calls is not None:
        if arguments != {}:
            both = f"arguments is {shortened(arguments)} and calls is {shortened(calls)}"
            raise ValueError(f"{both}; expected one of them")
        if not isinstance(calls, Sequence) or isinstance(calls, str) or not calls:
            raise ValueError(f"calls is {shortened(calls)}; expected a list of at least one dict")
        labelled = {f"calls[{index}]": call for index, call in enumerate(calls)}
    for label, call in labelled.items():
        if not isinstance(call, Mapping):
            given = shortened(call)
            raise ValueError(f"{label} is {given}; expected a dict of keyword arguments")
        for name, value in call.items():
            _check_name(f"an argument in {label}", name, "the name of a keyword argument")
            _check_plain(f"{label}[{name!r}]", value)
        _check_plain(label, dict(call))


def _check_name(name: str, value: object, kind: str) -> None:
    if not isinstance(value, str) or not value.isidentifier() or iskeyword(value):
        raise ValueError(f"{name} is {value!r}; expected {kind}")


def _check_plain(label: str, value: object) -> None:
    try:
        encode(value)
    except ValueError as error:
        plain = "a number, text, array, list or dict"
        raise ValueError(f"{label} is {shortened(value)}; expected {plain} ({error})") from None

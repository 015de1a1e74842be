"""What the search knows about a problem."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from costada.evaluators.contract import Evaluator
from costada.evaluators.fingerprint import fingerprint
from costada.evaluators.holdout import Holdout
from costada.evaluators.problem_checks import (
    check_calls,
    check_choice,
    check_name,
    check_number,
    check_preload,
    check_text,
    check_timings,
)
from costada.evaluators.sandbox.layers import PRELOAD, Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandboxed import Confined, SandboxedEvaluator, Score
from costada.values.evaluation import NOT_STORABLE, Direction, Evaluation, failed, is_storable


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
        holdout: Inputs of a second look at each valid program, with `score` and `calls`.
        limits: What one evaluation may take.
        sandbox: What holds the candidate's process.
        preload: Modules that are loaded before a candidate starts, so that importing them is free;
            SciPy's before the first that names it.
        direction: Which way the objective improves.
        reference: Objective that counts as score 1; None if the objective is the score.
        human: Best objective known from people, for reports only.
        seed_objective: Objective of the initial program as recorded, for lists only.
        seed_evaluation: Verdict on the initial program; a run that has it does not run it again.
        allow_invalid_start: Whether a run may begin though the initial program is rejected; it is
            refused otherwise, before any money is spent.
        timing_metrics: Metrics, beside `eval_time`, that tell wall-clock time. They are recorded
            and not shown to a model, so that prompts repeat.
        evaluator_source: The evaluator's text, shown to the guide; read from the function if empty.
        source: Where the problem is from.
        fingerprint: Hash of what the verdicts depend on.
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

    def __post_init__(self) -> None:
        """Check every field and complete evaluate, evaluator_source and fingerprint.

        Raises:
            ValueError: Naming the field, its value and what was expected.
        """
        self._check_fields()
        object.__setattr__(self, "direction", Direction(self.direction))
        object.__setattr__(self, "sandbox", Layer(self.sandbox))
        check_preload(self.preload, self.sandbox)
        check_timings(self.timing_metrics)
        check_calls(self.arguments, self.calls)
        object.__setattr__(self, "evaluate", self._evaluator())
        object.__setattr__(self, "evaluator_source", self.evaluator_source or _source(self))
        object.__setattr__(self, "fingerprint", fingerprint(self))

    def _check_fields(self) -> None:
        for name in ("name", "task", "initial_program"):
            check_text(name, getattr(self, name))
        for name in ("evaluator_source", "source"):
            check_text(name, getattr(self, name), may_be_empty=True)
        if self.entry_point is not None:
            check_name("entry_point", self.entry_point, "a function name")
        check_choice("direction", self.direction, Direction)
        check_choice("sandbox", self.sandbox, Layer)
        if self.holdout is not None and (self.score is None or self.calls is None):
            raise ValueError("holdout is given without score and calls; expected it with both")
        if not isinstance(self.allow_invalid_start, bool):
            raise ValueError(
                f"allow_invalid_start is {self.allow_invalid_start!r}; expected True or False"
            )
        if not isinstance(self.limits, Limits):
            raise ValueError(f"limits is {self.limits!r}; expected Limits(...)")
        check_number("reference", self.reference, must_be_positive=True)
        for name in ("human", "seed_objective"):
            check_number(name, getattr(self, name), must_be_positive=False)

    def judge(self, code: str, key: str) -> Evaluation:
        """Verdict on a program in a run whose secret is `key`; see `Holdout`.

        A program that cannot be stored as it is judged is not valid. Raises what `evaluate` raises.
        """
        if not is_storable(code):
            return failed(NOT_STORABLE)
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
        if self.score is not None:
            return self._sandboxed(self.score)
        if self.arguments or self.calls is not None:
            raise ValueError("arguments or calls are given without score; expected them with it")
        if isinstance(self.evaluate, Confined):
            return self._confined(self.evaluate)
        return self.evaluate

    def _sandboxed(self, score: Score) -> Evaluator:
        if self.entry_point is None:
            raise ValueError("entry_point is None; expected the function that score judges")
        return SandboxedEvaluator(
            entry_point=self.entry_point,
            score=score,
            calls=(self.arguments,) if self.calls is None else tuple(self.calls),
            is_single=self.calls is None,
            holdout=self.holdout,
            limits=self.limits,
            layer=self.sandbox,
            preload=tuple(self.preload),
        )

    def _confined(self, evaluate: Confined) -> Evaluator:
        confined = replace(
            evaluate, limits=self.limits, layer=self.sandbox, preload=tuple(self.preload)
        )
        return cast(Evaluator, confined)


def _source(problem: Problem) -> str:
    try:
        return inspect.getsource(problem.score or problem.evaluate)
    except (OSError, TypeError):
        return ""

"""What the search knows about a problem."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import cast

from costada.evaluators.contract import Direction, Evaluator
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.run import PRELOAD
from costada.evaluators.sandboxed import SandboxedEvaluator, Score


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
        limits: What one evaluation may take.
        sandbox: What holds the candidate's process.
        preload: Modules that are loaded before a candidate starts, so that importing them is free.
        direction: Which way the objective improves.
        reference: Objective that counts as score 1; None if the objective is the score.
        human: Best objective known from people, for reports only.
        evaluator_source: The evaluator's text, shown to the guide; read from the function if empty.
        source: Where the problem is from.
    """

    name: str
    task: str
    initial_program: str
    evaluate: Evaluator = field(default=cast(Evaluator, None))
    entry_point: str | None = None
    score: Score | None = None
    arguments: Mapping[str, object] = field(default_factory=dict)
    calls: Sequence[Mapping[str, object]] | None = None
    limits: Limits = field(default_factory=Limits)
    sandbox: Layer = Layer.AUTO
    preload: Sequence[str] = PRELOAD
    direction: Direction = Direction.MAXIMIZE
    reference: float | None = None
    human: float | None = None
    evaluator_source: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        """Check every field and complete evaluate and evaluator_source.

        Raises:
            ValueError: Naming the field, its value and what was expected.
        """
        for name in ("name", "task", "initial_program"):
            _check_text(name, getattr(self, name))
        if self.entry_point is not None and not _is_identifier(self.entry_point):
            raise ValueError(f"entry_point is {self.entry_point!r}; expected a function name")
        _check_choice("direction", self.direction, Direction)
        _check_choice("sandbox", self.sandbox, Layer)
        if not isinstance(self.limits, Limits):
            raise ValueError(f"limits is {self.limits!r}; expected Limits(...)")
        if self.reference is not None:
            _check_number("reference", self.reference, must_be_positive=True)
        if self.human is not None:
            _check_number("human", self.human, must_be_positive=False)
        object.__setattr__(self, "direction", Direction(self.direction))
        object.__setattr__(self, "sandbox", Layer(self.sandbox))
        object.__setattr__(self, "evaluate", self._evaluator())
        object.__setattr__(self, "evaluator_source", self.evaluator_source or _source(self))

    def _evaluator(self) -> Evaluator:
        is_given = self.evaluate is not None and not isinstance(self.evaluate, SandboxedEvaluator)
        if is_given is (self.score is not None) or not callable(self.score or self.evaluate):
            raise ValueError(
                f"evaluate is {self.evaluate!r} and score is {self.score!r}; "
                "expected one of them, a function"
            )
        if self.score is None:
            return self.evaluate
        if self.entry_point is None:
            raise ValueError("entry_point is None; expected the function that score judges")
        return SandboxedEvaluator(
            entry_point=self.entry_point,
            score=self.score,
            calls=(self.arguments,) if self.calls is None else tuple(self.calls),
            is_single=self.calls is None,
            limits=self.limits,
            layer=self.sandbox,
            preload=tuple(self.preload),
        )


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name} is {value!r}; expected a non-empty text")


def _is_identifier(value: object) -> bool:
    return isinstance(value, str) and value.isidentifier()


def _check_choice(name: str, value: object, choices: type[Direction] | type[Layer]) -> None:
    if value not in list(choices):
        known = ", ".join(repr(choice.value) for choice in choices)
        raise ValueError(f"{name} is {value!r}; expected one of {known}")


def _check_number(name: str, value: float, *, must_be_positive: bool) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not isfinite(value) or (must_be_positive and value <= 0):
        kind = "a positive" if must_be_positive else "a finite"
        raise ValueError(f"{name} is {value!r}; expected {kind} number")


def _source(problem: Problem) -> str:
    try:
        return inspect.getsource(problem.score or problem.evaluate)
    except (OSError, TypeError):
        return ""

"""Evaluates candidates on the examples of a data set, and on no more of them than it takes."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from numbers import Real
from random import Random
from reprlib import repr as shortened
from statistics import fmean
from time import monotonic
from typing import Any, cast

from costada.evaluators.data_set import INPUTS, DataSet, Example
from costada.evaluators.feedback import reported_texts
from costada.evaluators.granted_models import FunctionCall
from costada.evaluators.problem_fields import ScoreExample
from costada.evaluators.racing import estimated_mean, is_rejected
from costada.evaluators.sandbox.candidate_results import CandidateResult
from costada.evaluators.sandboxed import (
    PROCESS_KEY,
    CandidateRunner,
    evaluation_of,
    holdout_seed,
    score_output,
)
from costada.values.candidate import Program
from costada.values.evaluation import (
    COMBINED_SCORE,
    EVAL_TIME,
    EVALUATOR_FAULT,
    FEEDBACK,
    LOG,
    MARKS,
    NOT_SCORED,
    ON_VALIDATION,
    SANDBOX_FAULT,
    Evaluation,
    InvalidEvaluation,
    failed,
)
from costada.values.example_score import ExampleScore

FIRST_EXAMPLES = 8
"""A candidate that fails on all of so many examples has failed."""

MAX_FEEDBACK_CHARS = 1000
"""How much of the feedback on an example is kept."""

MAX_LOG_CHARS = 20_000
"""How much is kept of what was printed for all examples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSetEvaluator(CandidateRunner):
    """Judges a candidate on examples in random order until its race with a rival is decided.

    Attributes:
        score_example: Evaluates what a candidate makes of one example.
        examples: What candidates are judged on.
        validation: What a new best candidate is judged on too; may be empty.
        racing_error: See `Problem.racing_error`.
        batch: How many examples are judged at the same time; after each batch the race may end.
    """

    score_example: ScoreExample
    examples: DataSet
    validation: DataSet
    racing_error: float
    batch: int

    def __call__(
        self,
        source: str | Program,
        key: str = PROCESS_KEY,
        incumbent: float | None = None,
        rival: Sequence[float] = (),
    ) -> Evaluation:
        """Evaluate a program.

        Args:
            source: The program.
            key: The secret that decides the order of the examples.
            incumbent: The best score so far; a program above it is judged on the validation
                examples. None where it does not matter.
            rival: Scores of another program on all examples. One that is rejected in the race with
                it is judged on no further example. Without them it is judged on all.

        Raises:
            InterruptedError: If the evaluation was asked to stop.
            OSError: If the scratch folder cannot be made.
            RuntimeError: If the sandbox itself does not work.
            ValueError: If this machine does not offer the layer.
        """
        began = monotonic()
        if (fault := self.syntax_fault(source)) is not None:
            return failed(fault, artifacts={NOT_SCORED: fault})
        code = source if isinstance(source, str) else source.text
        order = list(range(len(self.examples)))
        Random(holdout_seed(key, code)).shuffle(order)
        evaluations: list[Evaluation] = []
        scores: list[float] = []
        for batch in self._judge(source, self.examples, order):
            evaluations += batch
            scores += [each.score for each in batch]
            if failure := _failure(evaluations, len(order)):
                return replace(failure, seconds=monotonic() - began)
            if rival and is_rejected(scores, order, rival, self.racing_error):
                break
        is_complete = len(scores) == len(order)
        score = fmean(scores) if is_complete else estimated_mean(scores, order, rival)
        validated: list[Evaluation] = []
        if is_complete and incumbent is not None and score > incumbent:
            places = range(len(self.validation))
            validated += chain.from_iterable(self._judge(source, self.validation, places))
            if failure := _fault(validated):
                return _fault_on_validation(failure, seconds=monotonic() - began)
        seconds = monotonic() - began
        return Evaluation(
            score=score,
            objective=score,
            is_valid=True,
            metrics={**_mean_metrics(evaluations), COMBINED_SCORE: score, EVAL_TIME: seconds},
            artifacts=_log_of(evaluations),
            seconds=seconds,
            examples=tuple(map(_example_score, order, evaluations)),
            validation=tuple(each.score for each in validated),
        )

    def _judge(
        self, source: str | Program, examples: DataSet, places: Sequence[int]
    ) -> Iterator[list[Evaluation]]:
        """Evaluations of a program on examples, batch by batch."""
        with ThreadPoolExecutor(self.batch, thread_name_prefix="costada-example") as threads:
            for first in range(0, len(places), self.batch):
                batch = [examples[place] for place in places[first : first + self.batch]]
                calls = [cast(Mapping[str, object], each.get(INPUTS, {})) for each in batch]
                # A program is built once for its batch, and then run for one after the other.
                known = self.results(source, calls) if self.commands is not None else None
                judging = [
                    # Each in a copy of its own: the token that cancels it is in the context.
                    threads.submit(
                        copy_context().run,
                        self._judge_example,
                        source,
                        example,
                        known[place] if known else None,
                    )
                    for place, example in enumerate(batch)
                ]
                yield [each.result() for each in judging]

    def _judge_example(
        self, source: str | Program, example: Example, result: CandidateResult | None
    ) -> Evaluation:
        if result is None:
            (result,) = self.results(source, [cast(Mapping[str, object], example.get(INPUTS, {}))])
        called = FunctionCall("score_example", {"example": example})
        return evaluation_of([result], partial(self.call_function, called), is_single=True)

    def call_here(self, called: FunctionCall, output: object) -> Evaluation:
        """What `score_example`, called here, says of an output, or how it failed."""
        return score_output(partial(_answer, self.score_example, called.known["example"]), output)


def _answer(score_example: ScoreExample, example: Example, output: object) -> Evaluation:
    """What `score_example` says of an output, as an evaluation with a score in [0, 1]."""
    answer = score_example(output, example)
    if isinstance(answer, Evaluation):
        evaluation = answer
    elif isinstance(answer, Real):
        evaluation = _valid({COMBINED_SCORE: answer}, {})
    elif isinstance(answer, Mapping) and isinstance(answer.get(COMBINED_SCORE), Real):
        numbers = {name: value for name, value in answer.items() if isinstance(value, Real)}
        texts = {name: value for name, value in answer.items() if name not in numbers}
        evaluation = _valid(numbers, reported_texts(texts))
    else:
        raise InvalidEvaluation(
            f"score_example returned {shortened(answer)}; expected a number, a dict with"
            f" {COMBINED_SCORE}, or an Evaluation"
        )
    if not 0 <= evaluation.score <= 1:
        raise InvalidEvaluation(
            f"score_example returned {evaluation.score:g} for the example"
            f" {shortened(dict(example))}; expected a score in [0, 1]"
        )
    return evaluation


def _valid(numbers: Mapping[str, Any], texts: Mapping[str, str]) -> Evaluation:
    score = float(numbers[COMBINED_SCORE])
    return Evaluation(score=score, objective=score, is_valid=True, metrics=numbers, artifacts=texts)


def _failure(evaluations: Sequence[Evaluation], num_examples: int) -> Evaluation | None:
    """The evaluation of a candidate that cannot be judged, or fails on all of the first."""
    has_only_failed = not any(each.is_valid for each in evaluations)
    if has_only_failed and len(evaluations) >= min(FIRST_EXAMPLES, num_examples):
        return _fault(evaluations) or evaluations[0]
    return _fault(evaluations)


def _fault(evaluations: Sequence[Evaluation]) -> Evaluation | None:
    """The first evaluation in which the evaluator or the sandbox failed."""
    marks = {EVALUATOR_FAULT, SANDBOX_FAULT}
    return next((each for each in evaluations if marks & each.artifacts.keys()), None)


def _fault_on_validation(fault: Evaluation, seconds: float) -> Evaluation:
    """A fault on a validation example: what it says is for the user, not for a prompt."""
    marks = {name: text for name, text in fault.artifacts.items() if name in MARKS}
    return failed(
        "the program could not be evaluated on a validation example",
        artifacts={**marks, ON_VALIDATION: "yes"},
        seconds=seconds,
    )


def _example_score(place: int, evaluation: Evaluation) -> ExampleScore:
    feedback = evaluation.error or evaluation.artifacts.get(FEEDBACK, "")
    return ExampleScore(place, evaluation.score, feedback[:MAX_FEEDBACK_CHARS])


def _mean_metrics(evaluations: Sequence[Evaluation]) -> dict[str, float]:
    """The mean of each metric that all examples on which the candidate did not fail have."""
    valid = [each.metrics for each in evaluations if each.is_valid]
    names = [name for name in valid[0] if all(name in each for each in valid)]
    return {name: fmean(each[name] for each in valid) for name in names}


def _log_of(evaluations: Sequence[Evaluation]) -> dict[str, str]:
    logs = dict.fromkeys(each.artifacts[LOG] for each in evaluations if LOG in each.artifacts)
    return {LOG: "\n".join(logs)[:MAX_LOG_CHARS]} if logs else {}

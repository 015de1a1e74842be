"""An evaluator whose candidates run in the sandbox and are scored outside of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from costada.evaluators.contract import EVALUATOR_FAULT, Evaluation, failed
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.run import CandidateResult, run_calls

Score = Callable[[Any], Evaluation]
"""Judges the plain data that a candidate returned."""

SCORE_FAULTS = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError)
"""What a score function raises on data that it did not expect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxedEvaluator:
    """Runs a candidate apart from us and hands what it returns to a trusted score function.

    Attributes:
        entry_point: The function to call.
        score: Judges the output of the call, or the list of results if there are several calls.
        calls: Keyword arguments of each call.
        is_single: Whether `score` takes the output of the one call.
        limits: What one evaluation may take.
        layer: What holds the candidate's process.
        preload: Modules loaded before the candidate starts.
    """

    entry_point: str
    score: Score
    calls: tuple[Mapping[str, object], ...]
    is_single: bool
    limits: Limits
    layer: Layer
    preload: tuple[str, ...]

    def __call__(self, code: str) -> Evaluation:
        """Return the verdict on a program.

        The metrics hold `combined_score` and `eval_time` (seconds) beside what the score function
        reports, the artifacts what the program printed.

        Raises:
            InterruptedError: If the evaluation was asked to stop.
            OSError: If the scratch folder cannot be made.
            RuntimeError: If the sandbox itself does not work.
            ValueError: If this machine does not offer the layer.
        """
        results = run_calls(
            code, self.entry_point, self.calls, self.limits, self.layer, self.preload
        )
        judged = self._judged(results)
        seconds = sum(result.seconds for result in results)
        log = {"log": results[0].log} if results[0].log else {}
        measured = {"combined_score": judged.score, "eval_time": seconds}
        return replace(
            judged,
            metrics={**judged.metrics, **measured},
            artifacts={**judged.artifacts, **log},
            seconds=seconds,
        )

    def _judged(self, results: list[CandidateResult]) -> Evaluation:
        first = results[0]
        if self.is_single and first.error is not None:
            return failed(first.error)
        try:
            judged = self.score(first.output if self.is_single else results)
        except ValueError as error:
            return failed(str(error) or "rejected without a reason")
        except SCORE_FAULTS as error:
            text = f"the score function failed: {type(error).__name__}: {error}"
            return failed(text, artifacts={EVALUATOR_FAULT: text})
        if not isinstance(judged, Evaluation):
            text = f"the score function returned {type(judged).__name__}; expected an Evaluation"
            return failed(text, artifacts={EVALUATOR_FAULT: text})
        return judged

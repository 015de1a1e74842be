"""Whether a new strategy works, found out on made-up candidates before it gets real ones."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.strategies import (
    STRATEGY_LIMITS,
    StrategyFailure,
    StrategyRecord,
    checked_selection,
    run_strategy,
)

USUAL_COUNT = 4
OTHER_COUNTS = (0, 1, 2, 8, 100)
"""Context sizes beside the usual one, the last of them larger than the population."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A part of the check: records to add, then selections to make.

    Attributes:
        purpose: When it happens, as a failure tells it.
        records: Records added first.
        num_selections: How often the strategy has to select.
        count: Size of the context asked for.
    """

    purpose: str
    records: Sequence[StrategyRecord]
    num_selections: int
    count: int = USUAL_COUNT

    def request(self) -> dict[str, object]:
        """Return the trial as plain data for the driver."""
        return {
            "records": [dict(each) for each in self.records],
            "count": self.count,
            "seeds": list(range(self.num_selections)),
        }


def check_strategy(
    source: str, layer: Layer = Layer.AUTO, limits: Limits = STRATEGY_LIMITS
) -> str | None:
    """Return why a strategy must not be used, None if nothing speaks against it.

    It has to load, take a first candidate, ten more, one with an error and copies, change none
    of them, and select within the rules after each of these and for other sizes of context.

    Args:
        source: The strategy's text.
        layer: What holds its process.
        limits: What the whole check may take.

    Raises:
        InterruptedError: If the run was asked to stop.
        OSError: If the scratch directory cannot be made.
        RuntimeError: If the sandbox itself does not work.
        ValueError: If this machine does not offer the layer.
    """
    trials = _trials()
    requests = {"trials": [trial.request() for trial in trials]}
    answer = run_strategy(source, "_costada_try", requests, layer, limits)
    if isinstance(answer, StrategyFailure):
        return answer.reason
    if not isinstance(answer, list) or len(answer) != len(trials):
        return "the program put something else in the place of its own answer"
    return _first_fault(trials, answer)


def _first_fault(trials: Sequence[Trial], answers: Sequence[object]) -> str | None:
    known: set[str] = set()
    for trial, given in zip(trials, answers, strict=True):
        known |= {record["id"] for record in trial.records}
        selections = given if isinstance(given, list) else [given]
        for each in selections:
            selection = checked_selection(each, known, trial.count)
            if isinstance(selection, StrategyFailure):
                return f"{trial.purpose}: {selection.reason}"
    return None


def _trials() -> tuple[Trial, ...]:
    first = _record(0)
    more = [_record(number) for number in range(1, 11)]
    refused = StrategyRecord(**{**_record(11), "score": 0.0, "error": "ValueError: not packed"})
    copies = [StrategyRecord(**{**each, "id": f"{each['id']}.copy"}) for each in more[:5]]
    sizes = Trial("with another context size", (), 3)
    return (
        Trial("after one record", [first], 1),
        Trial("after eleven records", more, 10),
        Trial("after a record with an error and score 0", [refused], 5),
        Trial("after copies of records", copies, 3),
        *(replace(sizes, count=count) for count in OTHER_COUNTS),
    )


def _record(number: int) -> StrategyRecord:
    """Return a made-up candidate; a later one is often, but not always, better."""
    score = round(0.3 + 0.05 * (number * 7 % 11), 4)
    return StrategyRecord(
        id=f"trial-{number}",
        code=f"def solve():\n    return {number}\n",
        score=score,
        metrics={"objective": 2 * score, "combined_score": score},
        error=None,
        parent_id=f"trial-{number // 2}" if number else None,
        iteration=number,
        generation=number.bit_length(),
    )

"""Search strategies: programs that choose the parent and the context of the next attempt.

A strategy is a text that defines a class `Strategy` with `add(record)` and
`select(n_context, rng)`, which returns the id of the parent, a label and the ids of the context.
It runs in the sandbox, with all records added again for each choice, and its output is checked.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from typing_extensions import TypedDict

from costada.evaluators.sandbox.candidate_runs import run_candidate
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import MEBIBYTE, Limits
from costada.evaluators.sandbox.slot import SHORT_SLOTS
from costada.values.numbering import Iteration

PARENT_LABELS = ("", "diverge", "refine")
"""What a strategy may ask of the attempt: nothing, another approach, or a refinement."""

MAX_STRATEGY_CHARACTERS = 60_000
"""Longer strategies are refused."""

STRATEGY_LIMITS = Limits(
    wall_seconds=5.0,
    memory_mb=512,
    scratch_mb=16,
    threads=8,
    log_bytes=4096,
    source_bytes=64 * MEBIBYTE,
    result_bytes=MEBIBYTE,
)
"""What one choice, or one check, may take; the records are part of the source."""

_FRAME = re.compile(r'\n  File "[^"\n]*", line (?P<line>\d+), in [^\n]*(?:\n    [^\n]*)?')


class StrategyRecord(TypedDict):
    """A candidate as a strategy gets to see it.

    `score` is normalised, higher is better; `metrics` are the other numbers of the evaluator and
    `error` why it refused the program, if it did. `iteration` is 0 for the initial program, and
    `generation` counts the changes since then.
    """

    id: str
    code: str
    score: float
    metrics: Mapping[str, float]
    error: str | None
    parent_id: str | None
    iteration: Iteration
    generation: int


@dataclass(frozen=True, slots=True)
class Selection:
    """What a strategy chose.

    Attributes:
        parent_id: The candidate to change.
        label: One of `PARENT_LABELS`.
        context_ids: Candidates shown beside it: known, distinct, without the parent.
    """

    parent_id: str
    label: str
    context_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StrategyFailure:
    """Why a strategy chose nothing usable, worded for the model that wrote it."""

    reason: str


def initial_strategy() -> str:
    """The strategy that a run begins with."""
    return _packaged_text("initial.txt")


def _packaged_text(name: str) -> str:
    folder = files("costada.plugins.evox") / "strategy_programs"
    return (folder / name).read_text(encoding="utf-8")


def select_context(
    source: str,
    records: Sequence[StrategyRecord],
    count: int,
    seed: int,
    layer: Layer = Layer.AUTO,
    limits: Limits = STRATEGY_LIMITS,
) -> Selection | StrategyFailure:
    """The parent and context that a strategy chooses, or why it fails to.

    The same arguments lead to the same choice, unless the strategy reads the clock. `records` are
    added in the order of their iterations; the context may hold `count` candidates.

    Raises:
        InterruptedError: The run was asked to stop.
        OSError: The scratch directory cannot be made.
        RuntimeError: The sandbox itself does not work.
        ValueError: There are no records, or this machine does not offer the layer.
    """
    if not records:
        raise ValueError("records: got none, expected at least the initial program")
    ordered = sorted(records, key=lambda record: record["iteration"])
    data = f"_COSTADA_RECORDS = {json.dumps(ordered)!r}\n"
    arguments = {"count": count, "seed": seed}
    answer = _run_strategy(source, "_costada_select", arguments, layer, limits, data)
    if isinstance(answer, StrategyFailure):
        return answer
    return checked_selection(answer, {record["id"] for record in records}, count)


def _run_strategy(
    source: str,
    entry_point: str,
    arguments: Mapping[str, object],
    layer: Layer,
    limits: Limits,
    data: str = "",
) -> object:
    """Call a function of the driver, which is appended to the strategy, in the sandbox.

    Returns what the function returns, or a `StrategyFailure`. `data` is Python text that follows
    the driver. Raises what `run_candidate` raises.
    """
    if len(source) > MAX_STRATEGY_CHARACTERS:
        return StrategyFailure(
            f"The strategy has {len(source)} characters; expected at most {MAX_STRATEGY_CHARACTERS}"
        )
    program = f"{source}\n\n\n{_packaged_text('driver.txt')}\n\n{data}"
    result = run_candidate(program, entry_point, limits, arguments, layer, slots=SHORT_SLOTS)
    if result.is_sandbox_fault:
        result = run_candidate(program, entry_point, limits, arguments, layer, slots=SHORT_SLOTS)
    if result.error is None:
        return result.output
    num_lines = len(source.split("\n"))
    # Frames of the driver, behind the lines of the strategy, mean nothing to its author.
    return StrategyFailure(
        _FRAME.sub(lambda frame: frame[0] if int(frame["line"]) <= num_lines else "", result.error)
    )


def checked_selection(
    answer: object, known: Collection[str], count: int
) -> Selection | StrategyFailure:
    """The selection that an answer of the driver describes, or what is wrong with it.

    `known` are the ids of the records that were added; the context may hold `count` of them.
    """
    match answer:
        case [str(parent), str(label), list(context)]:
            fault = _selection_fault(parent, label, context, known, count)
            if fault is not None:
                return StrategyFailure(fault)
            return Selection(parent, label, tuple(str(each) for each in context))
    return StrategyFailure("select must return a tuple: parent id, label, list of context ids")


def _selection_fault(
    parent: str, label: str, context: list[object], known: Collection[str], count: int
) -> str | None:
    if parent not in known:
        return f"select chose the parent {parent!r:.100}, which is not an id of an added record"
    if label not in PARENT_LABELS:
        return f'select gave the label {label!r:.100}; expected "", "diverge" or "refine"'
    if len(context) > count:
        return f"select gave {len(context)} context ids; expected at most n_context = {count}"
    unknown = [each for each in context if not isinstance(each, str) or each not in known]
    if unknown:
        name = f"{unknown[0]!r:.100}"
        return f"select put {name} into the context, which is not an id of an added record"
    if parent in context:
        return f"select put the parent {parent!r:.100} into the context as well"
    if len(set(map(str, context))) < len(context):
        return "select put the same id into the context twice"
    return None


USUAL_COUNT = 4
OTHER_COUNTS = (0, 1, 2, 8, 100)
"""Context sizes of the check beside the usual one, the last larger than the population."""


@dataclass(frozen=True, slots=True)
class _Trial:
    """A part of the check: records to add, then selections to make.

    Attributes:
        purpose: When it happens, as a failure names it.
        records: Records added first.
        num_selections: How often the strategy has to select.
        count: Size of the context asked for.
    """

    purpose: str
    records: Sequence[StrategyRecord]
    num_selections: int
    count: int = USUAL_COUNT


def check_strategy(
    source: str, layer: Layer = Layer.AUTO, limits: Limits = STRATEGY_LIMITS
) -> str | None:
    """Test a new strategy on made-up candidates; returns why it must not be used, if so.

    It has to load, add a first candidate, ten more, one with an error and copies, change none
    of them, and select within the rules after each of these and for other sizes of context.
    Raises what `run_candidate` raises.
    """
    trials = _trials()
    requests = [
        {
            "records": [dict(each) for each in trial.records],
            "count": trial.count,
            "seeds": list(range(trial.num_selections)),
        }
        for trial in trials
    ]
    answers = _run_strategy(source, "_costada_try", {"trials": requests}, layer, limits)
    if isinstance(answers, StrategyFailure):
        return answers.reason
    if not isinstance(answers, list) or len(answers) != len(trials):
        return "the program put something else in the place of its own answer"
    known: set[str] = set()
    for trial, answer in zip(trials, answers, strict=True):
        known |= {record["id"] for record in trial.records}
        for each in answer if isinstance(answer, list) else [answer]:
            selection = checked_selection(each, known, trial.count)
            if isinstance(selection, StrategyFailure):
                return f"{trial.purpose}: {selection.reason}"
    return None


def _trials() -> tuple[_Trial, ...]:
    first, *more = [_made_up_record(number) for number in range(11)]
    error = "ValueError: not packed"
    refused = StrategyRecord(**{**_made_up_record(11), "score": 0.0, "error": error})
    copies = [StrategyRecord(**{**each, "id": f"{each['id']}.copy"}) for each in more[:5]]
    return (
        _Trial("after one record", [first], 1),
        _Trial("after eleven records", more, 10),
        _Trial("after a record with an error and score 0", [refused], 5),
        _Trial("after copies of records", copies, 3),
        *(_Trial("with another context size", (), 3, count) for count in OTHER_COUNTS),
    )


def _made_up_record(number: int) -> StrategyRecord:
    """A candidate for the check; a later one is often, but not always, better."""
    score = round(0.3 + 0.05 * (number * 7 % 11), 4)
    return StrategyRecord(
        id=f"trial-{number}",
        code=f"def solve():\n    return {number}\n",
        score=score,
        metrics={"objective": 2 * score, "combined_score": score},
        error=None,
        parent_id=f"trial-{number // 2}" if number else None,
        iteration=Iteration(number),
        generation=number.bit_length(),
    )

"""Search strategies: programs that choose the parent and the context of the next attempt.

A strategy is a text that defines a class `Strategy` with `add(record)` and
`select(n_context, rng)`, which returns the id of the parent, a label and the ids of the context.
It runs in the sandbox, built anew from all records for each choice, and nothing it says is
trusted.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from typing_extensions import TypedDict

from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import MEBIBYTE, Limits
from costada.evaluators.sandbox.run import run_candidate

PARENT_LABELS = ("", "diverge", "refine")
"""What a strategy may ask of the attempt: nothing, another approach, the same one made better."""

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
    iteration: int
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
    """Return the strategy that a run begins with."""
    return read_strategy_text("initial.txt")


def read_strategy_text(name: str) -> str:
    """Return a file of the folder `strategy_programs`."""
    folder = files("costada.evaluators") / "strategy_programs"
    return (folder / name).read_text(encoding="utf-8")


def select_sources(
    source: str,
    records: Sequence[StrategyRecord],
    count: int,
    seed: int,
    layer: Layer = Layer.AUTO,
    limits: Limits = STRATEGY_LIMITS,
) -> Selection | StrategyFailure:
    """Return the parent and context that a strategy chooses, or why it fails to.

    The same arguments lead to the same choice, unless the strategy goes by the clock.

    Args:
        source: The strategy's text.
        records: All candidates it may choose from; added in the order of their iterations.
        count: Most candidates the context may hold, at least 0.
        seed: Where the random numbers that it is given begin.
        layer: What holds its process.
        limits: What the choice may take.

    Raises:
        InterruptedError: If the run was asked to stop.
        OSError: If the scratch directory cannot be made.
        RuntimeError: If the sandbox itself does not work.
        ValueError: If there are no records, or this machine does not offer the layer.
    """
    if not records:
        raise ValueError("records: got none, expected at least the initial program")
    ordered = sorted(records, key=lambda record: record["iteration"])
    data = f"_COSTADA_RECORDS = {json.dumps(ordered)!r}\n"
    arguments = {"count": count, "seed": seed}
    answer = run_strategy(source, "_costada_select", arguments, layer, limits, data)
    if isinstance(answer, StrategyFailure):
        return answer
    return checked_selection(answer, {record["id"] for record in records}, count)


def run_strategy(
    source: str,
    entry_point: str,
    arguments: Mapping[str, object],
    layer: Layer,
    limits: Limits,
    data: str = "",
) -> object:
    """Return what a function of the driver returns behind a strategy, or a `StrategyFailure`.

    Args:
        source: The strategy's text.
        entry_point: The driver's function.
        arguments: Its keyword arguments.
        layer: What holds the process.
        limits: What the process may take.
        data: Python text that goes with the driver.

    Raises:
        InterruptedError: If the run was asked to stop.
        OSError: If the scratch directory cannot be made.
        RuntimeError: If the sandbox itself does not work.
        ValueError: If this machine does not offer the layer.
    """
    if len(source) > MAX_STRATEGY_CHARACTERS:
        return StrategyFailure(
            f"The strategy has {len(source)} characters; expected at most {MAX_STRATEGY_CHARACTERS}"
        )
    program = f"{source}\n\n\n{read_strategy_text('driver.txt')}\n\n{data}"
    result = run_candidate(program, entry_point, limits, arguments, layer)
    if result.is_sandbox_fault:
        result = run_candidate(program, entry_point, limits, arguments, layer)
    if result.error is not None:
        return StrategyFailure(_without_driver(result.error, len(source.split("\n"))))
    return result.output


def checked_selection(
    answer: object, known: Collection[str], count: int
) -> Selection | StrategyFailure:
    """Return the selection that an answer describes, or what is wrong with it.

    Args:
        answer: What the driver returned.
        known: Ids of the records that were added.
        count: Most ids the context may hold.
    """
    match answer:
        case [str(parent), str(label), list(context)]:
            fault = _fault(parent, label, context, known, count)
            if fault is not None:
                return StrategyFailure(fault)
            return Selection(parent, label, tuple(str(each) for each in context))
    return StrategyFailure("select must return a tuple: parent id, label, list of context ids")


def _without_driver(error: str, num_lines: int) -> str:
    """Return an error without the places behind the lines of the strategy."""
    return _FRAME.sub(lambda frame: frame[0] if int(frame["line"]) <= num_lines else "", error)


def _fault(
    parent: str, label: str, context: list[object], known: Collection[str], count: int
) -> str | None:
    if parent not in known:
        return f"select chose the parent {_told(parent)}, which is no id of an added record"
    if label not in PARENT_LABELS:
        return f'select gave the label {_told(label)}; expected "", "diverge" or "refine"'
    if len(context) > count:
        return f"select gave {len(context)} context ids; expected at most n_context = {count}"
    unknown = [each for each in context if not isinstance(each, str) or each not in known]
    if unknown:
        return f"select put {_told(unknown[0])} into the context, which is no id of an added record"
    if parent in context:
        return f"select put the parent {_told(parent)} into the context as well"
    if len(set(map(str, context))) < len(context):
        return "select put the same id into the context twice"
    return None


def _told(value: object) -> str:
    return f"{value!r:.100}"

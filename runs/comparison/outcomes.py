"""Finished runs below a folder: run folders and curves files."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from costada.controller.contract import OUT_OF_MONEY
from costada.evaluators.contract import Direction
from costada.evaluators.folder_settings import SETTINGS_FILE, read_settings
from costada.evaluators.registry import is_built_in, problem
from costada.runs.comparison.outcome import Point, RunOutcome
from costada.runs.config import RunConfig
from costada.runs.files import append_text
from costada.runs.folder import RunFolder
from costada.runs.rows import end_after, stored_rows
from costada.store.candidates import SEED_ID
from costada.store.run_store import RunStore

if TYPE_CHECKING:
    from costada.nodes.trace import TraceRow

CURVES = "*.curves.jsonl"
_LINE = TypeAdapter(RunOutcome)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something below the folder that no comparison can use.

    Attributes:
        place: The run folder, or the curves file and its line.
        reason: Why.
    """

    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class Found:
    """What lies below a folder."""

    outcomes: tuple[RunOutcome, ...]
    left_out: tuple[LeftOut, ...]


def find_outcomes(directory: Path) -> Found:
    """Return the finished runs below a folder, and what was left out.

    Of several runs of one problem, model, budget, method and seed the first is taken.

    Raises:
        ValueError: If there is no such folder.
    """
    if not directory.is_dir():
        raise ValueError(f"{directory}: is no folder, expected one with runs below it")
    outcomes: dict[tuple[object, ...], RunOutcome] = {}
    places: dict[tuple[object, ...], str] = {}
    left_out = []
    for place, found in _everything(directory):
        if isinstance(found, str):
            left_out.append(LeftOut(place, found))
            continue
        key = (found.problem, found.model, found.budget, found.method, found.seed)
        if key in outcomes:
            left_out.append(LeftOut(place, f"the same run as {places[key]}"))
        else:
            outcomes[key], places[key] = found, place
    return Found(tuple(outcomes.values()), tuple(left_out))


def append_outcomes(path: Path, outcomes: Iterable[RunOutcome]) -> None:
    """Add runs to a curves file, one JSON object per line.

    Raises:
        ValueError: If an outcome contradicts itself; nothing is written then.
        OSError: If the file cannot be written.
    """
    lines = [json.dumps(asdict(_checked(each)), allow_nan=False) + "\n" for each in outcomes]
    append_text(path, "".join(lines))


def _everything(directory: Path) -> Iterator[tuple[str, RunOutcome | str]]:
    """Yield each place with its run, or with the reason why it has none."""
    for settings in sorted(directory.rglob(RunFolder(directory).settings.name)):
        yield str(settings.parent), _from_folder(RunFolder(settings.parent))
    for file in sorted(directory.rglob(CURVES)):
        for number, line in enumerate(file.read_bytes().splitlines(), 1):
            yield f"{file}:{number}", _from_line(line)


def _from_line(line: bytes) -> RunOutcome | str:
    try:
        return _checked(_LINE.validate_json(line))
    except ValidationError as error:
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc'])) or 'line'}: {first['msg']}"
    except ValueError as error:
        return str(error)


def _from_folder(folder: RunFolder) -> RunOutcome | str:
    try:
        config = folder.load()
        if not folder.database.is_file():
            return "has not begun"
        with RunStore(folder.database, is_read_only=True) as store:
            return _from_store(config, store)
    except (ValueError, OSError, sqlite3.Error) as error:
        return str(error)


def _from_store(config: RunConfig, store: RunStore) -> RunOutcome | str:
    run_ids = store.run_ids()
    rows = stored_rows(store, run_ids[-1]) if run_ids else []
    if not rows:
        return "has not begun"
    reason = end_after(rows[-1], config, is_failing=_is_failing(rows, config.max_failures))
    if reason is None:
        return _unfinished(rows[-1], config)
    seed = store.candidates.get(run_ids[-1], SEED_ID)
    name, is_minimized = _problem_facts(config.problem)
    return _checked(
        RunOutcome(
            problem=name,
            method=config.method,
            model=config.model,
            seed=config.seed,
            budget=config.budget,
            seed_score=seed.score,
            seed_objective=seed.objective,
            is_minimized=is_minimized,
            points=_points(rows),
            dollars_by_role=_dollars_by_role(store, run_ids[-1]),
            has_given_up=reason == "failures",
        )
    )


def _unfinished(last: TraceRow, config: RunConfig) -> str:
    spent = f"${last['spent']:.4f} of ${config.budget:g}"
    return f"not finished: {last['iteration']} iterations, {spent}"


def _is_failing(rows: Sequence[TraceRow], max_failures: int) -> bool:
    """Return whether the failures in a row reached the limit in the last step.

    A run that was gone on with after that had counted anew.
    """
    count = 0
    for row in rows:
        before = 0 if count >= max_failures else count
        made = row["attempts"] - (OUT_OF_MONEY in row["events"])
        count = before + made if row["failure"] else 0
    return count >= max_failures


def _points(rows: Sequence[TraceRow]) -> tuple[Point, ...]:
    return tuple(
        Point(row["iteration"], row["spent"], row["best_score"], row["best_objective"])
        for row in rows
    )


def _dollars_by_role(store: RunStore, run_id: str) -> dict[str, float]:
    sums: dict[str, Decimal] = {}
    for call in store.ledger.calls(run_id, with_texts=False):
        sums[call.role] = sums.get(call.role, Decimal(0)) + call.cost
    return {role: float(dollars) for role, dollars in sums.items()}


@lru_cache
def _problem_facts(setting: str) -> tuple[str, bool]:
    """Return the name of a problem and whether its objective is minimised.

    Of a folder only the settings are read: comparing runs executes nothing of a user's.
    """
    if is_built_in(setting):
        return setting, problem(setting).direction is Direction.MINIMIZE
    said = read_settings(Path(setting) / SETTINGS_FILE)
    return said.name or Path(setting).name, said.direction is Direction.MINIMIZE


def _checked(outcome: RunOutcome) -> RunOutcome:
    """Return the outcome.

    Raises:
        ValueError: If a number is not finite, the budget not positive, or a curve falls.
    """
    objectives = [outcome.seed_objective, *(point.best_objective for point in outcome.points)]
    columns = {
        "budget": [outcome.budget],
        "spent": [0.0, *(point.spent for point in outcome.points)],
        "best_score": [outcome.seed_score, *(point.best_score for point in outcome.points)],
        "best_objective": [value for value in objectives if value is not None],
        "dollars_by_role": list(outcome.dollars_by_role.values()),
    }
    for name, values in columns.items():
        if odd := [value for value in values if not isfinite(value)]:
            raise ValueError(f"{name}: got {odd[0]}, expected a finite number")
    if outcome.budget <= 0:
        raise ValueError(f"budget: got {outcome.budget}, expected more than 0")
    for name in ("spent", "best_score"):
        for before, after in pairwise(columns[name]):
            if after < before:
                raise ValueError(f"{name}: got {after} after {before}, expected it never to fall")
    return outcome

"""Finished runs below a folder: run folders and curves files."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from itertools import pairwise
from math import isfinite
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from costada.evaluators.fingerprint import known_part
from costada.experiments.comparison.metrics import BUDGET_AT_START, Point, RunOutcome
from costada.experiments.sweep.place import FILE as SWEEP_FILE
from costada.experiments.sweep.place import SweepPlace
from costada.reports.formats import budget_text
from costada.reports.trace import end_after, failures_in_a_row, reaches_target, stored_rows
from costada.runs.config import RunConfig
from costada.runs.folder import RunFolder
from costada.runs.stored_run import named_runs
from costada.store.address import is_there, split_address
from costada.store.candidates import SEED_ID
from costada.store.files import append_text, read_bytes
from costada.store.rows import RunSetup, as_texts
from costada.store.run_store import RunStore
from costada.values.evaluation import Direction

CURVES = "*.curves.jsonl"
MAX_CURVES = 2**27
"""Bytes of a curves file; a thousand simulated runs have some twenty million."""
_LINE = TypeAdapter(RunOutcome)

NOT_DECIDING = {
    *("problem", "method", "seed", "budget"),
    *("preset", "keep_history", "preflight", "allow_invalid_start", "gateway"),
    *("evaluations_at_once", "evaluate_on", "endpoint", "log"),
}
"""Settings that are recorded elsewhere, as a preset's values are, or do not affect the result."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A run that is left out of the comparison."""

    place: str  # the run, or the curves file and its line
    reason: str


@dataclass(frozen=True, slots=True)
class Found:
    """The runs below a folder."""

    outcomes: tuple[RunOutcome, ...]
    left_out: tuple[LeftOut, ...]


def find_outcomes(source: Path | str) -> Found:
    """The finished runs below a folder or in a Postgres database, and what was left out.

    The address of a database may name one sweep of it, as DSN#SWEEP.

    Of several runs with one key (see `RunOutcome`) the first is taken.

    Raises:
        ValueError: If there is no such folder, or the address is malformed.
        OSError: If the server of a database cannot be reached.
    """
    if isinstance(source, Path) and not source.is_dir():
        raise ValueError(f"{source}: is not a folder, expected one with runs below it")
    outcomes: dict[str, RunOutcome] = {}
    left_out = []
    for place, found in _everything(source):
        if isinstance(found, str):
            left_out.append(LeftOut(place, found))
            continue
        first = outcomes.setdefault(found.key, replace(found, place=place))
        if first.place != place:
            left_out.append(LeftOut(place, f"the same run as {first.place}"))
    return Found(tuple(outcomes.values()), tuple(left_out))


def append_outcomes(path: Path, outcomes: Iterable[RunOutcome]) -> None:
    """Add runs to a curves file, one JSON object per line.

    Raises:
        ValueError: If an outcome contradicts itself; nothing is written then.
        OSError: If the file cannot be written.
    """
    lines = []
    for outcome in outcomes:
        facts = asdict(_checked(outcome))
        del facts["place"]
        lines.append(json.dumps(facts, allow_nan=False) + "\n")
    append_text(path, "".join(lines))


def config_facts(config: RunConfig) -> dict[str, str]:
    """The settings of a run that decide its result, as texts by name; none that is unset.

    A setting counts unless `NOT_DECIDING` names it.
    """
    return as_texts(config.model_dump(mode="json", exclude=NOT_DECIDING))


def _everything(source: Path | str) -> Iterator[tuple[str, RunOutcome | str]]:
    """Yield each place with its run, or with the reason why it has none."""
    for place, run in runs_below(source):
        yield place, run if isinstance(run, str) else _from_folder(run)
    if isinstance(source, str):
        return
    for file in sorted(source.rglob(CURVES)):
        try:
            lines = read_bytes(file, MAX_CURVES).splitlines()
        except (ValueError, OSError) as error:
            yield str(file), str(error)
            continue
        for number, line in enumerate(lines, 1):
            found: RunOutcome | str
            try:
                found = _checked(_LINE.validate_json(line))
            except ValidationError as error:
                first = error.errors()[0]
                found = f"{'.'.join(map(str, first['loc'])) or 'line'}: {first['msg']}"
            except ValueError as error:
                found = str(error)
            yield f"{file}:{number}", found


def runs_below(source: Path | str) -> Iterator[tuple[str, RunFolder | str]]:
    """Yield the place of each run below a folder, or in a Postgres database, with the run.

    The address of a database may name one sweep or one run of it. In place of a sweep that cannot
    be read there is the reason.

    Raises:
        ValueError: If the address is malformed.
        OSError: If the server of a database cannot be reached.
    """
    if isinstance(source, str):
        yield from _stored(source)
        return
    for file in sorted(source.rglob(SWEEP_FILE)):
        sweep = file.absolute().parent
        try:
            if store := SweepPlace.load(sweep).followed:
                yield from _stored(f"{store}#{sweep.name}")
        except (ValueError, OSError) as error:
            yield str(sweep), str(error)
    for settings in sorted(source.rglob(RunFolder(source).settings.name)):
        # A fork is written to a hidden folder first, which stays behind if the fork is killed.
        if settings.parent == source or not settings.parent.name.startswith("."):
            yield str(settings.parent), RunFolder(settings.parent)


def _stored(address: str) -> Iterator[tuple[str, RunFolder]]:
    """The runs of a database, or those of one sweep or one run in it."""
    database, sweep = split_address(address, "sweep")
    for run in named_runs(database):
        # With its slash, sweep `a` does not have the runs of `ab`.
        if not sweep or f"{run.address.run}/".startswith(f"{sweep}/"):
            yield run.place, run


def _from_folder(folder: RunFolder) -> RunOutcome | str:
    try:
        config = folder.load()
        if not is_there(folder.database):
            return "has not started"
        with RunStore.at(folder.database, is_read_only=True) as store:
            return _from_store(config, store)
    except (ValueError, OSError, sqlite3.Error) as error:
        return str(error)
    # The rows of a damaged or foreign file may lack or hold anything.
    except (LookupError, TypeError, AttributeError) as error:
        return f"its run file holds a row that no run writes ({type(error).__name__}: {error})"


def _from_store(config: RunConfig, store: RunStore) -> RunOutcome | str:
    run_ids = store.run_ids()
    if not run_ids:
        return "has not started"
    rows, setup = stored_rows(store, run_ids[-1]), store.setup(run_ids[-1])
    facts = setup.problem if setup else {}
    if not rows:
        return no_iteration(store, run_ids[-1], config, facts)
    num_failures = failures_in_a_row(rows, config.max_failures, config.parallel)
    reason = end_after(rows[-1], config, facts, is_failing=num_failures >= config.max_failures)
    if reason is None:
        spent = f"${rows[-1]['spent']:.4f} of {budget_text(config.budget)}"
        return f"not finished: {rows[-1]['iteration']} iterations, {spent}"
    if store.call_log.num_requests(run_ids[-1]) and not store.call_log.has_answer(run_ids[-1]):
        return "no request got a usable response"
    if setup is None:
        return "its settings are not recorded; another version started it"
    seed = store.candidates.get(run_ids[-1], SEED_ID)
    dollars: dict[str, Decimal] = {}
    for call in store.call_log.calls(run_ids[-1], with_texts=False):
        charged = call.cost + (call.bound if config.lost_calls == "count" else 0)
        dollars[call.role] = dollars.get(call.role, Decimal(0)) + charged
    return _checked(
        RunOutcome(
            problem=setup.problem["name"],
            method=config.method,
            model=config.label,
            seed=config.seed,
            budget=config.budget,
            seed_score=seed.score,
            seed_objective=seed.objective,
            is_minimized=setup.problem["direction"] == Direction.MINIMIZE,
            points=tuple(
                Point(row["iteration"], row["spent"], row["best_score"], row["best_objective"])
                for row in rows
            ),
            dollars_by_role={role: float(amount) for role, amount in dollars.items()},
            has_given_up=reason == "failures",
            problem_facts=setup.problem,
            settings=_settings(setup, config, store, run_ids[-1]),
        )
    )


def no_iteration(store: RunStore, run_id: str, config: RunConfig, facts: Mapping[str, str]) -> str:
    """Why a run has no iteration; `facts` are those of its problem."""
    start = store.candidates.find(run_id, SEED_ID)
    if start and reaches_target(start.score, config.target, facts):
        return "made no iteration: its initial program reaches the target"
    return "has not started"


def _settings(setup: RunSetup, config: RunConfig, store: RunStore, run_id: str) -> dict[str, str]:
    """The settings of a run now, and what differed at its start."""
    began = {**setup.settings, **config_facts(config)}
    # The configuration has this limit as well, as a resume may have raised it.
    began.pop("constants.max_iterations", None)
    at_start = began.pop("budget", "")
    if at_start != as_texts({"budget": config.budget})["budget"]:
        began[BUDGET_AT_START] = at_start
    if origin := store.origin(run_id):
        began["forked_after"] = str(origin.iteration)
    evaluators = {known_part(name) for name in store.candidates.evaluators(run_id)}
    if len(evaluators) > 1:
        began["evaluators"] = str(len(evaluators))
    return began


def _checked(outcome: RunOutcome) -> RunOutcome:
    """The outcome, after a check.

    Raises:
        ValueError: If a number is not finite, the budget not positive, or a curve falls.
    """
    objectives = [outcome.seed_objective, *(point.best_objective for point in outcome.points)]
    columns: dict[str, Sequence[float]] = {
        "budget": [outcome.budget],
        "iteration": [point.iteration for point in outcome.points],
        "spent": [0.0, *(point.spent for point in outcome.points)],
        "best_score": [outcome.seed_score, *(point.best_score for point in outcome.points)],
        "best_objective": [value for value in objectives if value is not None],
        "dollars_by_role": list(outcome.dollars_by_role.values()),
    }
    for name, values in columns.items():
        if odd := [value for value in values if not _is_finite(value)]:
            raise ValueError(f"{name}: got {str(odd[0])[:20]}, expected a finite number")
    if outcome.budget <= 0:
        raise ValueError(f"budget: got {outcome.budget}, expected more than 0")
    for name in ("spent", "best_score"):
        for before, after in pairwise(columns[name]):
            if after < before:
                raise ValueError(f"{name}: got {after} after {before}, expected it never to fall")
    return outcome


def _is_finite(number: float) -> bool:
    try:
        return isfinite(number)
    except OverflowError:  # an integer that no float can hold
        return False

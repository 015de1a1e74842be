"""Runs with an experiment: their tosses, and what followed each."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from costada.controller.constants import Constants
from costada.controller.credit import made_progress
from costada.experiments.comparison.metrics import digest
from costada.experiments.comparison.outcomes import (
    LeftOut,
    config_facts,
    no_iteration,
    runs_below,
)
from costada.experiments.effect.estimate import TossOutcome
from costada.reports.trace import stored_rows
from costada.runs.config import RunConfig
from costada.runs.folder import RunFolder
from costada.store.address import is_there
from costada.store.candidates import SEED_ID
from costada.store.run_store import RunStore

if TYPE_CHECKING:
    from costada.controller.experiment import ExperimentName
    from costada.nodes.trace_row import TraceRow

MAX_NAMED = 3
"""Runs without an experiment that a message names."""


@dataclass(frozen=True, slots=True)
class TossedRun:
    """A run with an experiment, up to its last iteration.

    Attributes:
        place: Where it is.
        experiment: The part that was tossed for.
        problem: Name of its problem.
        method: Its method.
        model: Its model, or its models and their router.
        budget: Dollars that it may spend.
        seed: Where its randomness, tosses included, started.
        kind: Hash of all that may affect its result but the seed.
        dollars: What it has spent.
        tosses: Its tosses that some step belongs to, in their order.
    """

    place: str
    experiment: ExperimentName
    problem: str
    method: str
    model: str
    budget: float
    seed: int
    kind: str
    dollars: float
    tosses: tuple[TossOutcome, ...]


@dataclass(frozen=True, slots=True)
class TossedRuns:
    """The runs with an experiment at some places.

    Attributes:
        kinds: Runs whose settings differ in nothing but the seed, each seed once.
        left_out: Runs that count in no estimate, and why.
    """

    kinds: tuple[tuple[TossedRun, ...], ...]
    left_out: tuple[LeftOut, ...]


def find_tossed_runs(sources: Iterable[Path | str]) -> TossedRuns:
    """The runs at some places, also those that have not finished.

    Places without a run and runs without an experiment are left out if others have both.

    Args:
        sources: Run folders, folders with runs below them, and addresses of Postgres databases.

    Raises:
        ValueError: No folder exists, there is no run, or no run has an experiment.
        OSError: The server of a database cannot be reached.
    """
    places: dict[str, RunFolder | str] = {}
    left_out, plain = list[LeftOut](), list[str]()
    for source in sources:
        is_missing = isinstance(source, Path) and not source.is_dir()
        if found := {} if is_missing else dict(runs_below(source)):
            places |= found
        else:
            what = "is not a folder" if is_missing else "holds no run"
            left_out.append(LeftOut(str(source), what))
    if not places:
        empty = left_out[0]
        raise ValueError(f"{empty.place}: {empty.reason}, expected a run or a folder with runs")
    kinds: dict[str, dict[int, TossedRun]] = {}
    for place, run in places.items():
        tossed = run if isinstance(run, str) else _read(place, run)
        if tossed is None:
            plain.append(place)
        elif isinstance(tossed, str):
            left_out.append(LeftOut(place, tossed))
        else:
            first = kinds.setdefault(tossed.kind, {}).setdefault(tossed.seed, tossed)
            if first is not tossed:
                reason = f"seed {tossed.seed} and settings of {first.place}, so the same tosses"
                left_out.append(LeftOut(place, reason))
    if plain and not kinds:
        named = ", ".join(plain[:MAX_NAMED])
        others = f" and {len(plain) - MAX_NAMED} more" if len(plain) > MAX_NAMED else ""
        raise ValueError(
            f"{named}{others}: no experiment, expected runs of costada run --experiment"
        )
    left_out += [LeftOut(place, "has no experiment") for place in plain]
    of_kind = (tuple(runs[seed] for seed in sorted(runs)) for runs in kinds.values())
    return TossedRuns(tuple(sorted(of_kind, key=_order)), tuple(left_out))


def _order(runs: Sequence[TossedRun]) -> tuple[object, ...]:
    first = runs[0]
    return first.experiment, first.problem, first.model, first.method, first.budget, first.kind


def _read(place: str, folder: RunFolder) -> TossedRun | str | None:
    """A run with its tosses, why it cannot be read, or `None` if it has no experiment."""
    try:
        config = folder.load()
        if config.experiment is None:
            return None
        if not is_there(folder.database):
            return "has not started"
        with RunStore.at(folder.database, is_read_only=True) as store:
            return _from_store(place, config, store)
    except (ValueError, OSError, sqlite3.Error) as error:
        return str(error)
    # The rows of a damaged or foreign file may lack or hold anything.
    except (LookupError, TypeError, AttributeError) as error:
        return f"its run file holds a row that no run writes ({type(error).__name__}: {error})"


def _from_store(place: str, config: RunConfig, store: RunStore) -> TossedRun | str:
    run_ids = store.run_ids()
    rows = stored_rows(store, run_ids[-1]) if run_ids else []
    setup = store.setup(run_ids[-1]) if run_ids else None
    if setup is None or config.experiment is None:
        return "has not started"
    if not rows:
        return no_iteration(store, run_ids[-1], config, setup.problem)
    if store.origin(run_ids[-1]):
        return "is a fork: it shares steps and tosses with the run that it comes from"
    seed_score = store.candidates.get(run_ids[-1], SEED_ID).score
    facts = [config_facts(config), config.method, config.budget, dict(setup.problem)]
    return TossedRun(
        place=place,
        experiment=config.experiment,
        problem=setup.problem["name"],
        method=config.method,
        model=config.label,
        budget=config.budget,
        seed=config.seed,
        kind=digest(facts),
        dollars=rows[-1]["spent"],
        tosses=tuple(toss_outcomes(rows, seed_score, config.constants)),
    )


def toss_outcomes(
    rows: Sequence[TraceRow], seed_score: float, constants: Constants
) -> Iterator[TossOutcome]:
    """What followed each toss of a run.

    A step belongs to the toss that its row names, whatever order steps land in, and what it raises
    the best score by belongs to it. Steps before the first toss, and those that no toss could
    affect, belong to none.

    Args:
        rows: The run's trace rows in order.
        seed_score: Score of the initial program.
        constants: Those of the run, for the threshold of progress.
    """
    best = seed_score
    steps: dict[int, list[tuple[TraceRow, float]]] = {}
    for row in rows:
        rise, best = row["best_score"] - best, row["best_score"]
        toss = row.get("toss")
        if toss is not None:
            steps.setdefault(toss, []).append((row, rise))
    for _, own in sorted(steps.items()):
        first = cast("Mapping[str, object]", own[0][0])
        yield TossOutcome(
            arm=str(first["arm"]),
            probability=float(cast(float, first["arm_probability"])),
            gain=sum(rise for _, rise in own),
            dollars=sum(row["step_cost"] for row, _ in own),
            steps=len(own),
            jumps=sum(made_progress(row["global_gain"], constants) for row, _ in own),
        )

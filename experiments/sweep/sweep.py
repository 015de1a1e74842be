"""The runs of a sweep: their settings, their folders and their progress."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from itertools import product
from math import inf
from pathlib import Path

from costada.reports.formats import budget_text
from costada.runs.config import RunConfig, is_openai
from costada.runs.folder import RunFolder
from costada.runs.shared_purse import PurseAddress
from costada.runs.stored_run import StoredRun, run_at
from costada.store.address import is_there
from costada.store.files import make_folder, read_end
from costada.store.run_store import RunStore

MAX_ROW_BYTES = 2**20
"""Bytes that are read from the end of a trace; a row has a few hundred."""


@dataclass(frozen=True, slots=True)
class LastStep:
    """The last finished iteration of a run."""

    iteration: int  # t
    spent: float  # dollars the ledger shows after it (C_t)
    best_score: float  # y_t
    # objective of the candidate with that score; `None` if it has none
    best_objective: float | None


def last_step(steps: Path) -> LastStep | None:
    """The last whole row of a trace file, `None` while there is none.

    Raises:
        ValueError: If the row is damaged.
    """
    try:
        # A row without its line break is one that is being written.
        whole, newline, _ = read_end(steps, MAX_ROW_BYTES).rpartition("\n")
    except FileNotFoundError:
        return None
    if not newline:
        return None
    return read_step(whole.rpartition("\n")[2], steps)


def read_step(line: str, place: Path | str) -> LastStep:
    """The step of a trace row; raises `ValueError`, which names the place, if it is damaged."""
    try:
        row = json.loads(line)
        return LastStep(row["iteration"], row["spent"], row["best_score"], row["best_objective"])
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError(f"{place}: its last row is damaged") from None


class Status(StrEnum):
    """How far one run of a sweep has come."""

    WAITING = "waiting"
    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    CUT_SHORT = "cut short"  # has spent what its purse gave it, which was less than its budget
    SKIPPED = "skipped"  # its purse has too little left to begin it
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class SweepGrid:
    """What a sweep varies, as the user wrote it; every combination is one run."""

    problems: tuple[str, ...]  # names of benchmarks, or problem folders
    methods: tuple[str, ...]  # none: that of the servers of a queue
    models: tuple[str, ...]  # ids; none: what the shared settings say
    seeds: tuple[int, ...]  # where each run's randomness starts
    budgets: tuple[str, ...]  # dollars; none: what the preset or the default says

    def __post_init__(self) -> None:
        """Raise `ValueError` if a value is named twice."""
        varied: Mapping[str, Sequence[object]] = {
            "--problems": self.problems,
            "--methods": self.methods,
            "--model": self.models,
            "--seeds": self.seeds,
            "--budget": self.budgets,
        }
        for option, values in varied.items():
            for value, count in Counter(values).items():
                if count > 1:
                    raise ValueError(f"{option}: got {value} {count} times, expected it once")


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One run of a sweep."""

    name: str  # path below the sweep's folder
    config: RunConfig
    folder: RunFolder
    status: Status = Status.WAITING
    step: LastStep | None = None  # last finished iteration, if any
    error: str = ""  # why it failed; empty if it did not
    warning: str = ""  # what its trackers warned of
    seconds: float = 0.0  # time that this sweep has spent on it
    purse: PurseAddress | None = None  # pays for it; `None`: its budget is its own
    # dollars that its purse gave it at its start; `None` if that was its whole budget
    budget_at_start: float | None = None
    least: Decimal = Decimal(0)  # dollars that its purse must have left to begin it

    @property
    def has_begun(self) -> bool:
        """Whether its settings are saved, so that it is resumed."""
        return self.folder.claimed_at is not None

    @property
    def spent(self) -> float:
        """The dollars charged by its last finished iteration."""
        return self.step.spent if self.step else 0.0


def run_in(out: Path, name: str, config: RunConfig, store: str | None = None) -> SweepRun:
    """A run of the sweep in a folder.

    With the address of a database as `store`, the run is kept there as `SWEEP/NAME`, where the
    sweep has the name of its folder; the run's own folder then gets only what is written from it.

    Raises:
        ValueError: If the folder's name cannot be part of the name of a stored run.
    """
    place = f"{store}#{out.absolute().name}/{name}" if store else out / name
    return SweepRun(name, config, run_at(place, out / name))


def step_of(run: SweepRun) -> LastStep | None:
    """The last finished iteration of a run, from its trace file or its database."""
    if not isinstance(run.folder, StoredRun):
        return last_step(run.folder.steps)
    with RunStore.at(run.folder.address, is_read_only=True) as store:
        return stored_step(run.folder, store)


def with_last_step(run: SweepRun) -> SweepRun:
    """The run with its last finished iteration, and what its purse gave it if it has ended."""
    return with_grant(replace(run, step=step_of(run)))


def stored_step(run: StoredRun, store: RunStore) -> LastStep | None:
    """The last finished iteration of a run in an open database."""
    line = store.named.last_row(run.address.run)
    return None if line is None else read_step(line, run.place)


def sweep_runs(
    grid: SweepGrid, given: Mapping[str, object], out: Path, store: str | None = None
) -> tuple[SweepRun, ...]:
    """Every run of a sweep, all first seeds before the second ones.

    A run lives in `out/<problem>/<method>/seed-<n>`, with `model-<id>` and `budget-<B>` before
    the seed when there are several of them, and without a method if others choose it. `given` are
    the settings that all runs share; `store` is the database that keeps the runs, see `run_in`.

    Raises:
        ValueError: If a setting is wrong, or two runs would share a folder.
    """
    if len(grid.models) > 1:
        _check_prices(given)
    guide = given.get("guide_model")
    runs: dict[Path, SweepRun] = {}
    for seed, problem, method, model, budget in product(
        grid.seeds,
        grid.problems,
        grid.methods or (None,),
        grid.models or (given.get("model"),),
        grid.budgets or (None,),
    ):
        wanted = {"problem": problem, "method": method, "model": model, "seed": seed}
        # An address for some of several models is not one for the others.
        if any(map(is_openai, grid.models)) and not any(map(is_openai, (model, guide))):
            wanted["base_url"] = None
        config = RunConfig.model_validate({**given, **wanted, "budget": budget})
        problem_name = re.sub(r"[^\w-]+", "-", Path(config.problem).name).strip("-") or "problem"
        parts = [problem_name, *([config.method] if method else [])]
        if len(grid.models) > 1:
            parts.append("model-" + re.sub(r"[^\w.-]+", "-", config.model))
        if len(grid.budgets) > 1:
            parts.append(f"budget-{config.budget}")
        parts.append(f"seed-{config.seed}")
        path = out.joinpath(*parts)
        if other := runs.get(path):
            if other.config == config:
                raise ValueError(f"{path}: asked for twice, expected each run once")
            what = "problem" if other.config.problem != config.problem else "model"
            first, second = getattr(other.config, what), getattr(config, what)
            raise ValueError(
                f"{path}: got two {what}s of that name, {first} and {second}; sweep them into"
                " different folders"
            )
        runs[path] = run_in(out, "/".join(parts), config, store)
    return tuple(runs.values())


def _check_prices(given: Mapping[str, object]) -> None:
    """Refuse settings that would give several models one price."""
    for name in ("price", "preset"):
        if (value := given.get(name)) is not None:
            raise ValueError(
                f"{name}: got {value} with several models, expected the price of each from the"
                " list or as --set other_prices.NAME=IN,OUT"
            )


def with_progress(run: SweepRun, *, may_run: bool = False) -> SweepRun:
    """The run as its folder shows it, finished or waiting.

    Args:
        run: The run.
        may_run: Whether a process may be working on it or begin to; its lease is left alone then.

    Raises:
        ValueError: If the folder holds another run, another process is working on it, or a link
            leads out of the sweep's folder.
    """
    folder = run.folder
    below = folder.path
    for _ in Path(run.name).parts:
        if below.is_symlink():
            raise ValueError(f"{below}: is a link, expected a folder below that of the sweep")
        below = below.parent
    if not run.has_begun:
        folder.check_free()
        return run
    if may_run and folder.is_running:
        return replace(run, step=step_of(run))
    from costada.runs.runner import is_finished

    folder.check_same(run.config)
    with nullcontext() if may_run else folder.hold():
        step = step_of(run)
        # A run that was killed between its end and its page is resumed, which writes the page.
        is_done = is_finished(folder) and (isinstance(folder, StoredRun) or _has_its_page(folder))
    status = Status.FINISHED if is_done else Status.WAITING
    given = smaller_budget_at_start(run) if run.purse else None
    return replace(run, status=status, step=step, budget_at_start=given)


def smaller_budget_at_start(run: SweepRun) -> float | None:
    """The budget that a run started with; `None` unless it was smaller than its own."""
    from costada.store.history import RunHistory

    if not is_there(run.folder.database):
        return None
    with RunHistory.of(run.folder.database) as history:
        setup = history.setup(history.last_run())
    given = float(setup.settings.get("budget", "inf")) if setup else inf
    return given if given < run.config.budget else None


def with_grant(run: SweepRun) -> SweepRun:
    """A run that has ended: cut short if its purse gave it less than its budget to spend.

    If the server of its database does not respond, it stays as it is.
    """
    if run.status is not Status.FINISHED or not run.purse:
        return run
    try:
        found = with_progress(run, may_run=True)
    except OSError:
        return run
    given = found.budget_at_start
    if given is None or found.status is not Status.WAITING:
        return replace(run, budget_at_start=given)
    words = f"got {budget_text(given)} of {budget_text(run.config.budget)} from the purse"
    return replace(run, status=Status.CUT_SHORT, budget_at_start=given, error=words)


def _has_its_page(folder: RunFolder) -> bool:
    """Whether the page of a run shows its last iteration."""
    return (
        folder.report.is_file()
        and folder.steps.is_file()
        and folder.report.stat().st_mtime_ns >= folder.steps.stat().st_mtime_ns
    )


def checked_models(runs: tuple[SweepRun, ...]) -> tuple[SweepRun, ...]:
    """The runs, if problems, models and prices of unfinished ones exist; evaluates nothing.

    Raises:
        ValueError: There is no such problem, its folder is incomplete, or a model has no price.
    """
    from costada.runs.plan import check_models

    unfinished = (run.config for run in runs if run.status is not Status.FINISHED)
    for config in {(each.problem, each.model): each for each in unfinished}.values():
        check_models(config)
    return runs


def checked_inputs(runs: Sequence[SweepRun]) -> tuple[SweepRun, ...]:
    """Check problems, models and prices of unfinished runs, and add the least budget of each.

    Spends no money.

    Raises:
        ValueError: If a problem, model, price or the sandbox is missing or does not work, or a
            problem has changed since earlier runs of the sweep started.
    """
    from costada.nodes.settings import problem_texts
    from costada.runs.plan import plan_run
    from costada.store.history import RunHistory
    from costada.store.rows import changes

    unfinished = [run.config for run in runs if run.status is not Status.FINISHED]
    least: dict[tuple[str, str, float], Decimal] = {}
    for config in {(config.problem, config.model): config for config in unfinished}.values():
        plan = plan_run(config)
        kind = (config.problem, config.model)
        for budget in {each.budget for each in unfinished if (each.problem, each.model) == kind}:
            of_budget = replace(plan, budget=budget)
            of_budget.graph()  # raises if no request can be paid from it
            least[*kind, budget] = of_budget.least_budget
        facts = problem_texts(plan.problem)
        for run in runs:
            is_same = run.has_begun and run.config.problem == config.problem
            if not is_same or not is_there(run.folder.database):
                continue
            with RunHistory.of(run.folder.database) as history:
                setup = history.setup(history.last_run())
            if setup and (differing := changes(setup.problem, facts)):
                raise ValueError(
                    f"{run.folder.place}: its problem has changed since it started:"
                    f" {'; '.join(differing)}; runs of one sweep are compared with each other,"
                    " choose another --out"
                )
    return tuple(
        replace(run, least=least.get((config.problem, config.model, config.budget), Decimal(0)))
        for run in runs
        for config in (run.config,)
    )


@contextmanager
def hold_sweep(out: Path) -> Iterator[None]:
    """Hold the folder of a sweep for this process; a new folder that stays empty is removed.

    Raises:
        ValueError: If the folder is a file, or another sweep is running in it.
    """
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out}: is a file, expected a folder for the sweep")
    is_new = not out.exists()
    folder = _locked_folder(out)
    try:
        yield
    finally:
        # Before the lock is released: afterwards the folder may be that of the next holder.
        if is_new:
            with suppress(OSError):  # it has runs in it
                out.rmdir()
        os.close(folder)


def _locked_folder(out: Path) -> int:
    """The descriptor of a folder that is locked under its name."""
    import fcntl

    while True:
        make_folder(out)
        try:
            folder = os.open(out, os.O_RDONLY)
        except FileNotFoundError:
            continue  # its last holder has just removed it, as below
        try:
            # On the folder itself: it needs no file that would have to be removed afterwards.
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The last holder may have removed it between our open and our lock. A lock on a folder
            # without a name excludes nobody.
            if out.exists() and os.path.samestat(out.stat(), os.fstat(folder)):
                return folder
        except BlockingIOError:
            os.close(folder)
            raise ValueError(f"{out}: another sweep is running in it") from None
        os.close(folder)

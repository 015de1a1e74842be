"""`costada sweep` and `costada compare`: many runs, each in a process, and their comparison."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

import typer

from costada.cli import options
from costada.cli.command_errors import naming_options, refusing, say, showing_warnings
from costada.cli.setting_options import ALL_SETTINGS, with_settings
from costada.controller.methods import METHODS
from costada.evaluators.registry import problem_names
from costada.evaluators.remote.engine import CLUSTERS
from costada.experiments.sweep.cluster import SLURM, cancel_jobs, job_status, runs_on
from costada.experiments.sweep.job_file import QUEUE
from costada.experiments.sweep.loop import StopSignals, SweepLoop
from costada.experiments.sweep.place import given_place, keep_place, steps_in
from costada.experiments.sweep.sweep import (
    Status,
    SweepGrid,
    SweepRun,
    checked_inputs,
    checked_models,
    hold_sweep,
    step_of,
    sweep_runs,
    with_progress,
)
from costada.experiments.sweep.sweep_progress import (
    exit_code,
    headline,
    largest_bill,
    status_text,
    sweep_json,
    sweep_progress_on,
    sweep_text,
)
from costada.reports.json_log import is_on
from costada.reports.terminal import SafeConsole, show
from costada.runs.config import CHOSEN_BY_JOBS, MENU
from costada.runs.interruption import ExitCode, ending_on_signal
from costada.runs.shared_purse import PurseAddress
from costada.runs.user_input import as_option, known_methods, split_list, split_list_or_all
from costada.store.address import check_database, check_path, is_database
from costada.store.purse import Policy, Purse
from costada.values.setting import MODELS, MONEY, OUTPUT

Problems = Annotated[
    str | None,
    options.option(
        "Benchmarks or problem folders; all: the eight benchmarks. Required.", metavar="A,B,..."
    ),
]
Methods = Annotated[
    str | None,
    options.option(
        f"all, a group such as peers, or of: {', '.join(METHODS)}. Required.", metavar="X,Y,..."
    ),
]
Models = Annotated[
    str | None,
    options.option(
        "Model of each run, as for costada run; with several, every combination is run with each.",
        "--model",
        metavar="A,B,...",
        show_default="offline",
        panel=MODELS,
    ),
]
Seeds = Annotated[
    str,
    options.option(
        "How many (3: seeds 0, 1 and 2), or which (4,7).", metavar="N|LIST", show_default=True
    ),
]
Budgets = Annotated[
    str | None,
    options.option(
        "Budget of each run; with several, every combination is run at each budget.",
        metavar="DOLLARS,...",
        show_default="the preset's or 1.0",
        panel=MONEY,
    ),
]
SweepFolder = Annotated[
    Path, options.path_option("Folder for all runs. An interrupted sweep is resumed.")
]
Store = Annotated[
    str | None,
    options.store_option(
        "Keep the runs in a Postgres database, as SWEEP/PROBLEM/METHOD/seed-N, where SWEEP is the"
        " name of the --out folder."
    ),
]
PurseOption = Annotated[
    str | None,
    options.option(
        "File or Postgres database of a purse that all runs draw from, each up to --budget. On a"
        " cluster: a database. Needs --total.",
        "--purse",
        metavar="FILE|DSN",
        panel=MONEY,
    ),
]
Total = Annotated[
    float | None,
    options.option(
        "Dollars that all runs together may spend from the purse.",
        "--total",
        metavar="DOLLARS",
        panel=MONEY,
    ),
]
DryRun = Annotated[
    bool, options.option("Print the number of runs and their maximum cost.", "--dry-run")
]
AsJson = Annotated[
    bool,
    options.option(
        "Print the runs as one JSON array; with --dry-run one object.",
        "--json",
        panel=OUTPUT,
    ),
]

CLUSTER = "Cluster"
On = Annotated[
    str | None,
    options.option(
        f"Run on a cluster that shares the folder: {CLUSTERS}. queue: add the runs to the queue of"
        " costada serve; needs --store and --team.",
        metavar="CLUSTER|queue",
        show_default="this machine",
        panel=CLUSTER,
    ),
]
Team = Annotated[
    str | None,
    options.option("The team of the queue that pays.", metavar="NAME", panel=CLUSTER),
]
SlurmOptions = Annotated[
    list[str] | None,
    options.option(
        "Option of sbatch for every job, such as partition=long, mem=4G or time=120 (minutes;"
        " default 60). Repeatable.",
        "--slurm",
        metavar="NAME[=VALUE]",
        panel=CLUSTER,
    ),
]
Detach = Annotated[
    bool,
    options.option("Submit to Slurm or a queue, and do not wait.", "--detach", panel=CLUSTER),
]
ShowStatus = Annotated[
    bool,
    options.option(
        "Print the runs of a sweep on a cluster or in a queue as a table; needs --out only.",
        "--status",
        panel=CLUSTER,
    ),
]
Cancel = Annotated[
    bool,
    options.option(
        "Cancel a sweep on a cluster or in a queue: its runs save and end; needs --out only.",
        "--cancel",
        panel=CLUSTER,
    ),
]

MAX_SEEDS = 10_000
"""A larger number is a seed that lacks its comma."""

VARIED = ("problem", "method", "seed", "budget")
SHARED_SETTINGS = [name for name in ALL_SETTINGS if name not in VARIED]


@with_settings(*SHARED_SETTINGS, model=Models)
def sweep(
    settings: Callable[[], dict[str, Any]],
    out: SweepFolder,
    problems: Problems = None,
    methods: Methods = None,
    seeds: Seeds = "3",
    budget: Budgets = None,
    store: Store = None,
    purse: PurseOption = None,
    total: Total = None,
    jobs: options.Jobs = None,
    on: On = None,
    team: Team = None,
    slurm: SlurmOptions = None,
    detach: Detach = False,
    status: ShowStatus = False,
    cancel: Cancel = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Run methods on problems over several seeds. To resume, repeat the command."""
    if status or cancel:
        with refusing(ExitCode.BAD_INPUT), ending_on_signal():
            database = _database(store)
            if cancel:
                cancel_jobs(out.absolute(), database)
                say(f"{out}: cancelled; running jobs save first. The sweep's command resumes it.")
            _show_status(job_status(out.absolute(), database), as_json=as_json)
        return
    with refusing(ExitCode.BAD_INPUT), ending_on_signal():
        given = settings()
        others = {"--methods": methods, "--purse": purse, "--total": total, "--jobs": jobs}
        is_queued = _is_queued(on, store, team, given, {**others, "--slurm": slurm})
        grid = SweepGrid(
            problems=split_list_or_all("--problems", problems or "", problem_names()),
            methods=() if is_queued else known_methods("--methods", methods or ""),
            models=_models(given),
            seeds=seed_numbers(seeds),
            budgets=() if budget is None else split_list("--budget", budget),
        )
        address = _purse_address(purse, total, out, on)
        database = _database(store)
        wanted = sweep_runs(grid, given, out.absolute() if on else out, database)
    if database and team:
        payer = PurseAddress(database, team)
        wanted = tuple(replace(run, purse=payer) for run in wanted)
        _sweep_in_queue(wanted, payer, out, dry_run, detach, as_json=as_json, quiet=quiet)
        return
    with ExitStack() as held:
        with refusing(ExitCode.BAD_INPUT), ending_on_signal():
            reader = held.enter_context(steps_in(database))
            wanted = tuple(replace(run, purse=address) for run in wanted)
            num_jobs = jobs or (len(wanted) if on else os.cpu_count() or 1)
            left = inf if total is None else total
            if dry_run:
                _show_forecast(
                    checked_models(tuple(map(with_progress, wanted))),
                    num_jobs,
                    left,
                    as_json=as_json,
                )
                return
            if detach and on != SLURM:
                raise ValueError(
                    "--detach: needs --on slurm or queue; other runs end with the command"
                )
            held.enter_context(hold_sweep(out))
            place = given_place(out, database, address)
            engine = held.enter_context(
                runs_on(on, out.absolute(), _sbatch_options(slurm or []), jobs)
            )
            active = engine.active()
            runs = _check_runs(wanted, active, is_local=on is None)
            shared = None
            if address and total is not None:
                shared = held.enter_context(
                    _open_purse(address, total, runs[0].config.budget_policy)
                )
                left = max(0.0, float(shared.budget - shared.spent))
            keep_place(out, place)
            unfinished = [run for run in runs if run.status is not Status.FINISHED]
            engine.prepare([run for run in unfinished if run.name not in active])
        if detach:
            _show_status(runs, as_json=as_json)
            return
        text = headline(runs, num_jobs, left)
        if engine.outlives_command:  # every run is a job, which asks the purse by itself
            num_jobs, shared = len(runs), None
        _execute(
            partial(SweepLoop, runs, num_jobs, engine.start, read=reader, purse=shared),
            text,
            engine.leaving,
            out,
            as_json=as_json,
            quiet=quiet,
        )


def _sweep_in_queue(
    wanted: Sequence[SweepRun],
    payer: PurseAddress,
    out: Path,
    dry_run: bool,
    detach: bool,
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Let the servers of a queue execute the runs, and follow them."""
    from costada.experiments.sweep.queued_runs import queued_runs, write_page

    with ExitStack() as held:
        with refusing(ExitCode.BAD_INPUT), ending_on_signal():
            with naming_options("team"):
                jobs = held.enter_context(
                    queued_runs(payer.place, payer.name, out.absolute(), wanted)
                )
            runs = jobs.runs()
            if dry_run:
                _show_forecast(runs, len(runs), inf, as_json=as_json)
                return
            held.enter_context(hold_sweep(out))
            keep_place(out, given_place(out, payer.place, None))
            jobs.submit()
        if detach:
            with refusing(ExitCode.FAILED):
                _show_status(jobs.runs(), as_json=as_json)
            return
        for run in runs:
            if run.status is Status.FINISHED and not run.folder.report.exists():
                write_page(run)
        followed = [
            run if run.status is Status.FINISHED else replace(run, status=Status.WAITING, error="")
            for run in runs
        ]
        _execute(
            partial(SweepLoop, followed, len(runs), jobs.start, read=jobs.as_stored),
            headline(runs, len(runs)),
            jobs.leaving,
            out,
            as_json=as_json,
            quiet=quiet,
        )


def _execute(
    loop_of: Callable[..., SweepLoop],
    text: str,
    leaving: str,
    out: Path,
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Execute a sweep with progress below a headline, print its result and exit with its code."""
    with refusing(ExitCode.FAILED, hint="Repeat the command to resume."):
        started = monotonic()
        console = SafeConsole(stderr=as_json, highlight=False)
        progress = sweep_progress_on(console, is_quiet=quiet)
        progress.begin(text)
        with progress, StopSignals(progress.notice, leaving) as signals:
            runs = loop_of(progress=progress, signals=signals).execute()
    _show_result(runs, out, monotonic() - started, as_json=as_json)
    raise typer.Exit(exit_code(runs))


def _is_queued(
    on: str | None,
    store: str | None,
    team: str | None,
    given: Mapping[str, object],
    others: Mapping[str, object],
) -> bool:
    """Whether the runs are jobs of a queue.

    Raises:
        ValueError: One of the options of such a sweep is missing, or there are settings or other
            options that its jobs do not choose.
    """
    if on != QUEUE:
        if team is not None:
            raise ValueError(f"--team: got {team!r}, expected --on queue with it")
        return False
    for option, value in (("--store", store), ("--team", team)):
        if not value:
            raise ValueError(f"{option}: is missing, expected it with --on queue")
    chosen = ", ".join(map(as_option, CHOSEN_BY_JOBS[1:]))
    refused = [option for option, value in others.items() if value not in (None, [])]
    refused += [as_option(name) for name in given if name not in CHOSEN_BY_JOBS]
    if refused:
        raise ValueError(
            f"{', '.join(refused)}: not with --on queue, whose jobs choose --problems, {chosen};"
            " all else is that of their servers"
        )
    return True


def _show_forecast(runs: Sequence[SweepRun], num_jobs: int, left: float, *, as_json: bool) -> None:
    text = headline(runs, num_jobs, left)
    show(_forecast_json(runs, num_jobs, left) if as_json else text)


def _show_status(runs: Sequence[SweepRun], *, as_json: bool) -> None:
    show(sweep_json(runs) if as_json else status_text(runs))


def _show_result(runs: Sequence[SweepRun], out: Path, seconds: float, *, as_json: bool) -> None:
    if as_json:
        show(sweep_json(runs))
    elif not is_on():  # the log has it
        show(sweep_text(runs, out, seconds))


def _check_runs(
    wanted: Sequence[SweepRun], active: Container[str], *, is_local: bool
) -> tuple[SweepRun, ...]:
    """The runs as they are, after a check; those of active jobs are left alone."""
    runs = tuple(
        replace(run, step=step_of(run))
        if run.name in active
        else with_progress(run, may_run=not is_local)
        for run in wanted
    )
    with showing_warnings():
        return checked_inputs(runs)


def _database(store: str | None, option: str = "--store") -> str | None:
    """The address of a database without its password, which processes and jobs get by environment.

    Commands, jobs and files of the sweep hold the address.
    """
    if store is None:
        return None
    check_database(store, option)
    from costada.store.address import without_password

    bare, password = without_password(store)
    if password:
        if os.environ.get("PGPASSWORD", password) != password:
            raise ValueError("PGPASSWORD: differs from the password of an address; use ~/.pgpass")
        os.environ["PGPASSWORD"] = password
    return bare


def _purse_address(
    purse: str | None, total: float | None, out: Path, on: str | None
) -> PurseAddress | None:
    """The purse of a sweep, which has the name of its folder."""
    if (purse is None) != (total is None):
        raise ValueError("--purse: got one of --purse and --total, expected both or neither")
    if purse is None or total is None:
        return None
    if not purse:
        raise ValueError("--purse: got '', expected a file or postgresql://USER@HOST/DATABASE")
    if not 0 < total < inf:
        raise ValueError(f"--total: got {total:g}, expected finite dollars above 0")
    name = out.absolute().name
    if "#" in name:
        raise ValueError(f"--out: got {name!r} with --purse, expected a name without #")
    if is_database(purse):
        return PurseAddress(str(_database(purse, "--purse")), name)
    check_path(purse, "--purse")
    if on:
        raise ValueError("--purse: got a file with --on, which nodes cannot share; use a database")
    return PurseAddress(str(Path(purse).absolute()), name)


def _open_purse(address: PurseAddress, total: float, policy: Policy) -> Purse:
    """The purse of a sweep, new or as it is; raises `ValueError` if it cannot have this total."""
    try:
        return address.create(total, policy)
    except ValueError as error:
        raise ValueError(f"--purse: {error}") from None


def _sbatch_options(texts: Sequence[str]) -> dict[str, str | bool]:
    """The options of `sbatch` by name; one without a value is a switch."""
    parts = [text.partition("=") for text in texts]
    if any(not name for name, _, _ in parts):
        raise ValueError(f"--slurm: got {', '.join(texts)!r}, expected NAME=VALUE or NAME")
    return {name: value if equals else True for name, equals, value in parts}


def _forecast_json(runs: Sequence[SweepRun], num_jobs: int, left: float) -> str:
    """The headline as one JSON object; dollars are numbers."""
    unfinished = [run for run in runs if run.status is not Status.FINISHED]
    facts = {
        "runs": len(runs),
        "jobs": num_jobs,
        "finished": len(runs) - len(unfinished),
        "begun": sum(run.has_begun for run in unfinished),
        "largest_bill": largest_bill(runs, left),
        "unfinished_by_budget": Counter(f"{run.config.budget:g}" for run in unfinished),
        "spent": sum(run.spent for run in unfinished),
        "budget_policy": runs[0].config.budget_policy,
    }
    return json.dumps(facts, indent=2)


def _models(given: Mapping[str, Any]) -> tuple[str, ...]:
    """The models of `model`; none if it is not set, or names those of a menu."""
    model = given.get("model")
    if not isinstance(model, str) or MENU in given:
        return ()
    return split_list("--model", model)


def seed_numbers(text: str) -> tuple[int, ...]:
    """As many seeds as a single number says, or those of a list."""
    try:  # a comma at the end makes a list of one number
        numbers = tuple(map(int, split_list("--seeds", text.removesuffix(","))))
    except ValueError:
        numbers = ()
    if "," not in text and sum(numbers) > MAX_SEEDS:
        raise ValueError(
            f"--seeds: got {text!r}, expected a number of seeds up to {MAX_SEEDS:,}, or a list of"
            f" seeds such as {numbers[0]},"
        )
    seeds = numbers if "," in text else tuple(range(sum(numbers)))
    if not seeds:
        raise ValueError(
            f"--seeds: got {text!r}, expected a number of seeds above 0 or a list such as 4,7"
        )
    return seeds


OPTIONAL_COLUMNS = ("model", "budget", "runs", "AvgCost", "AUC", "best", "objective")
"""Columns that a narrow terminal omits, in this order."""

Directory = Annotated[
    str,
    typer.Argument(
        parser=options.named_place,
        metavar="DIR",
        help="A folder with finished runs below it, at any depth, or a Postgres database: DSN, or"
        " DSN#SWEEP for the runs of one sweep.",
    ),
]
Out = Annotated[
    Path | None,
    options.path_option(
        "Folder for the tables and the page.", show_default="the folder of the runs; comparison"
    ),
]
Baseline = Annotated[
    str | None,
    typer.Option(
        metavar="METHOD",
        help="The method with which the others are compared.",
        show_default="costada, or else the first",
    ),
]
Published = Annotated[
    bool, typer.Option("--published", help="Show the paper's tables beside these.")
]


def compare(
    directory: Directory, out: Out = None, baseline: Baseline = None, published: Published = False
) -> None:
    """Compare methods at equal dollars: tables and a page with figures, from finished runs."""
    from costada.experiments.comparison.comparison_report import write_comparison
    from costada.experiments.comparison.tables import missing_lines, mix_lines, overview
    from costada.reports.terminal import TerminalTable, table_console

    with refusing(ExitCode.BAD_INPUT):
        folder = None if is_database(directory) else Path(directory)
        report = write_comparison(
            folder or directory,
            out or folder or Path("comparison"),
            baseline=baseline,
            with_published=published,
        )
    console = table_console()
    table = overview(report.comparison)
    names = table.header[: table.num_names]
    TerminalTable(table.header, table.rows, names, optional=OPTIONAL_COLUMNS).print(console)
    lines = [*missing_lines(report.comparison), *mix_lines(report.comparison.mixes)]
    lines += [f"left out {each.place}: {each.reason}" for each in report.left_out]
    for line in (*lines, *map(str, report.files)):
        console.print(line, markup=False, soft_wrap=True)

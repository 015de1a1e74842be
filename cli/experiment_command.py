"""The command that estimates what a part of the method is worth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from costada.cli import options
from costada.cli.command_errors import refusing
from costada.reports.terminal import show
from costada.runs.interruption import ExitCode
from costada.store.address import is_database

Places = Annotated[
    list[str],
    typer.Argument(
        parser=options.named_place,
        metavar="RUNS",
        help="Folders of runs, or folders with runs below them, such as a sweep; or addresses of"
        " Postgres databases: DSN, DSN#SWEEP or DSN#RUN.",
    ),
]


def experiment(places: Places, as_json: options.AsJson = False) -> None:
    """Estimate the effect of a part of the method from runs with --experiment.

    Compares steps with that part to steps without it: the gain of the best score per dollar, and
    the share of steps that raise it, with an interval over runs. Works while runs are running.
    """
    from costada.experiments.effect.effect_report import (
        effects_json,
        effects_table,
        estimates_of,
        sentences,
    )
    from costada.experiments.effect.tossed_runs import find_tossed_runs
    from costada.reports.terminal import table_console

    with refusing(ExitCode.BAD_INPUT):
        sources = [each if is_database(each) else Path(each) for each in places]
        found = find_tossed_runs(sources)
        estimates = estimates_of(found)
    if as_json:
        show(effects_json(estimates, found.left_out))
        return
    console = table_console()
    table = effects_table(estimates)
    if table.rows:
        table.print(console)
    for line in sentences(estimates, found.left_out):
        console.print(line, markup=False, soft_wrap=True)

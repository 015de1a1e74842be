"""`costada simulate`: methods compared over hundreds of seeds on the simulated landscape."""

from __future__ import annotations

import os
from math import inf
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer

from costada.cli import options
from costada.cli.errors import refusing
from costada.reports.formats import counted
from costada.runs.interruption import ExitCode, ending_on_signal

CURVES_FILE = "simulated.curves.jsonl"

Methods = Annotated[str, typer.Option(metavar="X,Y,...", help="Methods, or all.")]
Seeds = Annotated[int, typer.Option(min=1, help="Number of landscapes for each method.")]
Budget = Annotated[float, typer.Option(metavar="DOLLARS", help="Budget of each run, GLM-5 prices.")]
Jobs = Annotated[
    int | None, typer.Option(min=1, help="Number of processes.", show_default="number of cores")
]
Parallel = Annotated[
    int,
    typer.Option(min=1, metavar="K", help="Steps in flight; above 1, compares K with 1 by seed."),
]
Out = Annotated[
    Path | None, options.path_option(f"Folder for {CURVES_FILE}, which costada compare reads.")
]


def simulate(
    methods: Methods = "all",
    seeds: Seeds = 200,
    budget: Budget = 1.0,
    jobs: Jobs = None,
    parallel: Parallel = 1,
    out: Out = None,
) -> None:
    """Compare methods on a simulated landscape: no model, no key, thousands of runs a minute."""
    from rich.progress import track

    from costada.experiments.comparison.outcomes import append_outcomes
    from costada.experiments.landscape.batch import (
        Batch,
        in_order,
        methods_named,
        print_parallel,
        print_section,
        section_of_outcomes,
        simulated,
    )
    from costada.reports.terminal import SafeConsole, table_console

    with refusing(ExitCode.BAD_INPUT):
        if not 0 < budget < inf:
            raise ValueError(f"--budget: got {budget:g}, expected finite dollars above 0")
        batch = Batch(methods_named(methods), tuple(range(seeds)), budget, parallel)
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
    num_jobs = min(jobs or os.cpu_count() or 1, len(batch.runs))
    console, started = table_console(), monotonic()
    with refusing(ExitCode.FAILED), ending_on_signal():
        with simulated(batch, num_jobs) as finished:
            shown = track(
                finished,
                description="Simulating",
                total=len(batch.runs),
                console=SafeConsole(stderr=True),
                transient=True,
            )
            outcomes = in_order(batch, list(shown))
        seconds = monotonic() - started
        if out is not None:
            unfinished = out / f"{CURVES_FILE}.part"
            unfinished.unlink(missing_ok=True)
            append_outcomes(unfinished, outcomes)
            unfinished.replace(out / CURVES_FILE)
    if parallel > 1:
        print_parallel(outcomes, parallel, console)
    else:
        print_section(section_of_outcomes(outcomes), console)
    rate = f"{len(outcomes) / seconds * 60:,.0f} runs per minute"
    done = f"{counted(len(outcomes), 'run')} in {seconds:.1f} s"
    console.print(f"{done}: {rate} with {num_jobs} in parallel.")
    if out is not None:
        console.print(str(out / CURVES_FILE), markup=False, soft_wrap=True)

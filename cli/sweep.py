"""`costada sweep`: many runs side by side, each in a process and a folder of its own."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer

from costada.cli import options
from costada.cli.errors import refusing, telling_warnings
from costada.controller.methods import METHODS
from costada.evaluators.registry import problem_names
from costada.experiments.sweep.loop import StopSignals, SweepLoop, start
from costada.experiments.sweep.progress import (
    exit_code,
    headline,
    largest_bill,
    sweep_json,
    sweep_progress_on,
    sweep_text,
)
from costada.experiments.sweep.sweep import (
    Status,
    SweepGrid,
    SweepRun,
    check_inputs,
    hold_sweep,
    sweep_runs,
    with_progress,
)
from costada.reports.terminal import SafeConsole, show
from costada.runs.config import RunConfig
from costada.runs.exit_codes import ExitCode
from costada.runs.interruption import ending_on_signal
from costada.runs.user_input import listed, listed_or_all

Problems = Annotated[
    str,
    typer.Option(
        metavar="A,B,...",
        help="Benchmarks or problem folders; all: the eight benchmarks.",
        show_default=False,
    ),
]
Methods = Annotated[
    str,
    typer.Option(metavar="X,Y,...", help=f"all, or of: {', '.join(METHODS)}.", show_default=False),
]
Seeds = Annotated[
    str,
    typer.Option(
        metavar="N|LIST", help="How many (3: seeds 0, 1 and 2), or which (4,7).", show_default=True
    ),
]
Budgets = Annotated[
    str | None,
    typer.Option(
        metavar="DOLLARS",
        help="Budget of each run; a list makes runs of each budget.",
        show_default="the preset's or 1.0",
        rich_help_panel=options.MONEY,
    ),
]
SweepFolder = Annotated[
    Path,
    typer.Option(
        parser=options.named_path,
        metavar="DIR",
        help="Folder for all runs; one that was interrupted is gone on with.",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(min=1, help="Most runs at once.", show_default="number of cores"),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say how many runs and at most how many dollars, and end.")
]
AsJson = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print the runs as one JSON array; with --dry-run one object.",
        rich_help_panel=options.OUTPUT,
    ),
]


def sweep(
    context: typer.Context,
    problems: Problems,
    methods: Methods,
    out: SweepFolder,
    seeds: Seeds = "3",
    budget: Budgets = None,
    jobs: Jobs = None,
    model: options.Model = None,
    guide_model: options.GuideModel = None,
    base_url: options.BaseUrl = None,
    max_tokens: options.MaxTokens = None,
    preset: options.Preset = None,
    price_in: options.PriceIn = None,
    price_out: options.PriceOut = None,
    guide_price_in: options.GuidePriceIn = None,
    guide_price_out: options.GuidePriceOut = None,
    reference_cost: options.ReferenceCost = None,
    on_missing_usage: options.OnMissingUsage = None,
    lost_calls: options.LostCalls = None,
    budget_policy: options.BudgetPolicy = None,
    max_failures: options.MaxFailures = None,
    call_timeout: options.CallTimeout = None,
    retry_wait: options.RetryWait = None,
    longest_wait: options.LongestWait = None,
    longest_pause: options.LongestPause = None,
    generator: options.GeneratorKind = None,
    tool_evaluations: options.ToolEvaluations = None,
    step_cap: options.StepCap = None,
    max_iterations: options.MaxIterations = None,
    sandbox: options.Sandbox = None,
    timeout: options.Timeout = None,
    memory_mb: options.MemoryMb = None,
    allow_invalid_start: options.AllowInvalidStart = False,
    dry_run: DryRun = False,
    keep_history: options.KeepHistory = False,
    gateway: options.Gateway = False,
    as_json: AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Run methods on problems over several seeds. Interrupted? Give the same command again."""
    shared = {
        name: context.params[name]
        for name in RunConfig.model_fields
        if name in context.params and name != "budget"
    }
    num_jobs = jobs or os.cpu_count() or 1
    with ExitStack() as held:
        with refusing(ExitCode.BAD_INPUT), ending_on_signal():
            options.check_tools(tool_evaluations, generator)
            wanted = sweep_runs(_grid(problems, methods, seeds, budget), shared, out)
            if dry_run:
                _print_forecast(tuple(map(with_progress, wanted)), num_jobs, as_json=as_json)
                return
            held.enter_context(hold_sweep(out))
            runs = tuple(map(with_progress, wanted))
            with telling_warnings():
                check_inputs(runs)
        with refusing(ExitCode.FAILED, hint="Repeat the command to resume."):
            began = monotonic()
            runs = _carry_out(runs, num_jobs, is_quiet=quiet, as_json=as_json)
    show(sweep_json(runs) if as_json else sweep_text(runs, out, monotonic() - began))
    raise typer.Exit(exit_code(runs))


def _print_forecast(runs: Sequence[SweepRun], num_jobs: int, *, as_json: bool) -> None:
    show(_forecast_json(runs, num_jobs) if as_json else headline(runs, num_jobs))


def _forecast_json(runs: Sequence[SweepRun], num_jobs: int) -> str:
    """Return the headline as one JSON object; dollars are numbers."""
    unfinished = [run for run in runs if run.status is not Status.FINISHED]
    facts = {
        "runs": len(runs),
        "jobs": num_jobs,
        "finished": len(runs) - len(unfinished),
        "begun": sum(run.has_begun for run in unfinished),
        "largest_bill": largest_bill(runs),
        "unfinished_by_budget": Counter(f"{run.config.budget:g}" for run in unfinished),
        "spent": sum(run.spent for run in unfinished),
        "budget_policy": runs[0].config.budget_policy,
    }
    return json.dumps(facts, indent=2)


def _carry_out(
    runs: Sequence[SweepRun], num_jobs: int, *, is_quiet: bool, as_json: bool
) -> tuple[SweepRun, ...]:
    progress = sweep_progress_on(SafeConsole(stderr=as_json, highlight=False), is_quiet=is_quiet)
    progress.begin(headline(runs, num_jobs))
    with progress, StopSignals(progress.notice) as wish:
        return SweepLoop(runs, num_jobs, start, progress, wish).carry_out()


def _grid(problems: str, methods: str, seeds: str, budget: str | None) -> SweepGrid:
    return SweepGrid(
        problems=listed_or_all("--problems", problems, problem_names()),
        methods=listed_or_all("--methods", methods, tuple(METHODS)),
        seeds=_seeds(seeds),
        budgets=() if budget is None else listed("--budget", budget),
    )


def _seeds(text: str) -> tuple[int, ...]:
    """Return as many seeds as a single number says, or those of a list."""
    try:
        numbers = tuple(map(int, listed("--seeds", text)))
    except ValueError:
        numbers = ()
    seeds = numbers if "," in text else tuple(range(sum(numbers)))
    if not seeds:
        raise ValueError(f"--seeds: got {text!r}, expected a number of seeds or a list of seeds")
    return seeds

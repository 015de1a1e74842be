"""`costada forecast`: steps, tokens, dollars and hours of a run for several budgets."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costada.cli import options
from costada.cli.command_errors import keeping_output_clean, refusing, say
from costada.cli.run import budget_warning, make_plan
from costada.cli.setting_options import ALL_SETTINGS, with_settings
from costada.reports.formats import budget_text, duration
from costada.reports.terminal import show
from costada.runs.config import RunConfig
from costada.runs.interruption import ExitCode
from costada.values.setting import OUTPUT

if TYPE_CHECKING:
    from costada.runs.budget_forecast import BudgetForecast, Forecast

TIME = "Time"
TOKENS_PER_SECOND = 50.0
"""Answer tokens that a provider is assumed to write in a second, for one request."""

TokensPerSecond = Annotated[
    float,
    typer.Option(
        metavar="N",
        help="Output tokens per second of a request; gives the hours of models that were not"
        " measured.",
        rich_help_panel=TIME,
    ),
]
SecondsPerCall = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="Time of a request, in place of --tokens-per-second.",
        show_default="by its tokens",
        rich_help_panel=TIME,
    ),
]
MeasuredRuns = Annotated[
    list[Path] | None,
    options.path_option(
        "Folder of an earlier run of the problem: tokens and seconds of its calls, and its calls"
        " per step, replace the assumptions. Repeatable.",
        "--measured",
        show_default="none",
        panel=OUTPUT,
    ),
]
EVALUATIONS = "evaluations"
COLUMNS = ("model", "budget", "steps", "tokens in", "tokens out", "dollars", EVALUATIONS, "time")


@with_settings(*ALL_SETTINGS)
def forecast(
    settings: Callable[[], dict[str, Any]],
    tokens_per_second: TokensPerSecond = TOKENS_PER_SECOND,
    seconds_per_call: SecondsPerCall = None,
    measured: MeasuredRuns = None,
    as_json: options.JsonResult = False,
) -> None:
    """Forecast steps, tokens, dollars and hours for 0.25 to 2 times the budget.

    Takes the options of costada run. Makes no model calls and writes no files.
    """
    with refusing(ExitCode.BAD_INPUT):
        config = RunConfig.model_validate(settings())
        plan = make_plan(config, sends_requests=False)
        from costada.runs.budget_forecast import Speed, forecast_of, measure_runs

        speed = Speed(tokens_per_second, seconds_per_call)
        with keeping_output_clean():
            found = forecast_of(plan, measure_runs(measured or (), plan.problem.name), speed)
    if remark := budget_warning(plan, config):
        say(remark)
    if as_json:
        names = ("problem", "method", "seed", "budget", "budget_policy", "max_iterations")
        asked = {name: getattr(config, name) for name in names}
        show(json.dumps({**asked, **asdict(found)}, indent=2))
        return
    _print(found, config)


def _print(found: Forecast, config: RunConfig) -> None:
    from costada.reports.terminal import TerminalTable, table_console

    console = table_console()
    show("Forecast: no model was called and nothing was written.")
    is_free = not any(each.judging for each in found.budgets)
    columns = [each for each in COLUMNS if each != EVALUATIONS or not is_free]
    cells = [dict(zip(COLUMNS, _cells(each), strict=True)) for each in found.budgets]
    rows = [tuple(each[name] for name in columns) for each in cells]
    TerminalTable(columns, rows, words=("model",), optional=("tokens in", "tokens out")).print(
        console
    )
    for line in found.assumptions:
        console.print(line, markup=False)
    if any(each.is_limited for each in found.budgets):
        console.print(f"*: ends at the iteration limit, {config.max_iterations:,}", markup=False)


def _cells(row: BudgetForecast) -> tuple[str, ...]:
    return (
        row.model,
        budget_text(row.budget),
        f"{row.steps:,}{'*' if row.is_limited else ''}",
        f"{row.tokens_in:,}",
        f"{row.tokens_out:,}",
        f"${row.dollars:.2f}",
        f"${row.judging:.2f}",
        duration(row.hours * 3600.0),
    )

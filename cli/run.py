"""`costada run` and `costada resume`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costada.cli import options
from costada.cli.errors import keeping_output_clean, refusing, say, telling_pauses, telling_warnings
from costada.reports.terminal import show
from costada.runs.config import EVALUATION, OUTPUT, RunConfig
from costada.runs.exit_codes import ExitCode
from costada.runs.folder import RunFolder, unused_folder
from costada.runs.interruption import draining_on_signal, ending_on_signal

if TYPE_CHECKING:
    from costada.runs.plan import Plan

Problem = Annotated[
    str | None,
    typer.Argument(
        metavar="PROBLEM", help="A benchmark (see [b]costada list[/b]) or a problem folder."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        parser=options.named_path,
        metavar="DIR",
        help="Folder for the run; it must not hold another one.",
        show_default="runs-out/PROBLEM-1, -2, ...",
        rich_help_panel=OUTPUT.panel,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Print the first prompts' sizes and the expected cost. Makes no model calls and"
        " writes no files.",
        rich_help_panel=OUTPUT.panel,
    ),
]
RaisedBudget = Annotated[
    float | None,
    typer.Option(
        "--budget",
        help="New budget in dollars, at least the previous one.",
        show_default="as before",
    ),
]
RaisedIterations = Annotated[
    int | None,
    typer.Option(
        "--max-iterations",
        help="New maximum number of iterations, at least the previous one.",
        show_default="as before",
    ),
]
AllowInvalidStart = Annotated[
    bool,
    typer.Option(
        "--allow-invalid-start",
        help="Start even if the evaluator rejects the initial program, which then scores 0.",
        rich_help_panel=EVALUATION.panel,
    ),
]
AcceptLoss = Annotated[
    bool,
    typer.Option(
        "--accept-loss",
        help="Resume although the run file has lost steps; their cost counts as spent.",
    ),
]


@options.with_settings(*options.ALL_SETTINGS)
def run(
    settings: Callable[[], dict[str, Any]],
    problem: Problem = None,
    out: Out = None,
    dry_run: DryRun = False,
    as_json: options.JsonResult = False,
    quiet: options.Quiet = False,
) -> None:
    """Improve a program within a budget of dollars. Ctrl-C stops after saving."""
    with refusing(ExitCode.BAD_INPUT):
        given = settings()
        config = RunConfig.model_validate({**given, "problem": problem or given.get("problem")})
        if out:
            RunFolder(out).check_free()
        plan = _plan(config)
        if dry_run:
            from costada.runs.forecast import forecast, forecast_json, forecast_text

            with keeping_output_clean():
                found = forecast(plan)
            show((forecast_json if as_json else forecast_text)(found, config))
            return
        folder = RunFolder(out) if out else unused_folder(plan.problem.name)
        folder.claim(config)
    _carry_out(plan, config, folder, as_json=as_json, is_quiet=quiet)


def resume(
    folder: options.Folder,
    budget: RaisedBudget = None,
    max_iterations: RaisedIterations = None,
    allow_invalid_start: AllowInvalidStart = False,
    trust: options.Trust = False,
    accept_loss: AcceptLoss = False,
    as_json: options.JsonResult = False,
    quiet: options.Quiet = False,
) -> None:
    """Resume an interrupted run, or one whose budget or iteration limit is raised."""
    from costada.runs.lease import hold_lease
    from costada.runs.resume import check_lost_steps, extended
    from costada.runs.runner import is_finished

    place = RunFolder(folder)
    with refusing(ExitCode.BAD_INPUT):
        place.load()
        with hold_lease(folder):
            saved = place.load()
            if not trust:
                place.check_trusted()
            config = extended(
                saved,
                budget=budget,
                max_iterations=max_iterations,
                allow_invalid_start=allow_invalid_start,
            )
            check_lost_steps(place, config, is_accepted=accept_loss)
            plan = _plan(config)
            if config != saved:
                place.save(config)
            if is_finished(place):
                text = "this run has finished; it spends nothing more without a higher limit"
                show(f"{folder}: {text} (--budget, --max-iterations)", is_error=True)
    _carry_out(plan, config, place, as_json=as_json, is_quiet=quiet, accepts_loss=accept_loss)


def _plan(config: RunConfig) -> Plan:
    from costada.runs.plan import plan_run

    with ending_on_signal(), telling_warnings(), keeping_output_clean():
        return plan_run(config)


def _carry_out(
    plan: Plan,
    config: RunConfig,
    folder: RunFolder,
    *,
    as_json: bool,
    is_quiet: bool,
    accepts_loss: bool = False,
) -> None:
    """Run to the end or to an interruption, print the result and exit with the right code."""
    from langgraph.runtime import RunControl

    from costada.reports.progress import progress_on
    from costada.reports.summary import sum_by_role
    from costada.reports.terminal import SafeConsole
    from costada.reports.trace import num_cached
    from costada.runs.runner import carry_out
    from costada.runs.summary import failures_line, summary_json, summary_text
    from costada.store.run_store import RunStore

    # The ledger's own errors reach the user through `refusing`; LangChain would log them as well.
    logging.getLogger("langchain_core.callbacks.manager").setLevel(logging.ERROR)
    progress = progress_on(SafeConsole(stderr=as_json, highlight=False), is_quiet=is_quiet)
    control = RunControl()
    command = folder.next_command(config)
    with (
        refusing(ExitCode.FAILED, hint=f"Finished iterations are saved. Resume with: {command}"),
        draining_on_signal(control, progress.notice),
        telling_pauses(say if is_quiet else progress.notice),
        keeping_output_clean(as_json),
    ):
        result = carry_out(plan, folder, progress, control, accepts_loss=accepts_loss)
    with RunStore(folder.database) as store:
        run_ids = store.run_ids()
        sums = sum_by_role(
            call for run_id in run_ids for call in store.call_log.calls(run_id, with_texts=False)
        )
        reused = sum(num_cached(store, run_id) for run_id in run_ids)
    show((summary_json if as_json else summary_text)(result, config, folder, sums, reused))
    if result.stop_reason == "interrupted":
        raise typer.Exit(ExitCode.INTERRUPTED)
    if result.stop_reason == "failures":
        show(f"costada: {failures_line(result)}", is_error=True)
        raise typer.Exit(ExitCode.FAILED)

"""`costada run` and `costada resume`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import typer

from costada.cli import options
from costada.cli.errors import keeping_output_clean, refusing, say, telling_pauses, telling_warnings
from costada.reports.terminal import show
from costada.runs.config import RunConfig
from costada.runs.exit_codes import ExitCode
from costada.runs.folder import RunFolder, unused_folder
from costada.runs.interruption import draining_on_signal, ending_on_signal
from costada.runs.lease import hold_lease
from costada.runs.resume import extended, save_settings

if TYPE_CHECKING:
    from costada.runs.plan import Plan
    from costada.values.discovery import Discovery


def run(
    context: typer.Context,
    problem: options.ProblemName,
    budget: options.Budget = None,
    method: options.MethodName = None,
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
    seed: options.Seed = None,
    sandbox: options.Sandbox = None,
    timeout: options.Timeout = None,
    memory_mb: options.MemoryMb = None,
    preflight: options.Preflight = None,
    allow_invalid_start: options.AllowInvalidStart = False,
    out: options.Out = None,
    dry_run: options.DryRun = False,
    keep_history: options.KeepHistory = False,
    gateway: options.Gateway = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Improve a program within a budget of dollars. Ctrl-C stops after saving."""
    given = {name: context.params.get(name) for name in RunConfig.model_fields}
    with refusing(ExitCode.BAD_INPUT):
        options.check_tools(tool_evaluations, generator)
        config = RunConfig.model_validate(given)
        if out:
            RunFolder(out).check_free()
        plan = _plan(config)
        if dry_run:
            _print_forecast(plan, config, as_json=as_json)
            return
        folder = RunFolder(out) if out else unused_folder(plan.problem.name)
        folder.claim(config)
    _carry_out(plan, config, folder, as_json=as_json, is_quiet=quiet)


def resume(
    folder: options.Folder,
    budget: options.RaisedBudget = None,
    max_iterations: options.RaisedIterations = None,
    allow_invalid_start: options.AllowInvalidStart = False,
    trust: options.Trust = False,
    accept_loss: options.AcceptLoss = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Go on with a run that was interrupted, or one that may now spend or try more."""
    from costada.runs.resume import check_lost_steps

    place = RunFolder(folder)
    with refusing(ExitCode.BAD_INPUT):
        place.load()
        with hold_lease(place.path):
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
                save_settings(place, config)
            _say_if_finished(place)
    _carry_out(plan, config, place, as_json=as_json, is_quiet=quiet, accepts_loss=accept_loss)


def _plan(config: RunConfig) -> Plan:
    from costada.runs.plan import plan_run

    with ending_on_signal(), telling_warnings(), keeping_output_clean():
        return plan_run(config)


def _print_forecast(plan: Plan, config: RunConfig, *, as_json: bool) -> None:
    from costada.runs.forecast import forecast, forecast_json, forecast_text

    with keeping_output_clean():
        found = forecast(plan)
    show((forecast_json if as_json else forecast_text)(found, config))


def _say_if_finished(folder: RunFolder) -> None:
    from costada.runs.runner import is_finished

    if is_finished(folder):
        text = "this run has finished; nothing more is spent without a higher limit"
        show(f"{folder.path}: {text} (--budget, --max-iterations)", is_error=True)


def _carry_out(
    plan: Plan,
    config: RunConfig,
    folder: RunFolder,
    *,
    as_json: bool,
    is_quiet: bool,
    accepts_loss: bool = False,
) -> None:
    """Run to the end or to an interruption, print the result and end with the right code."""
    from langgraph.runtime import RunControl

    from costada.reports.progress import progress_on
    from costada.reports.terminal import SafeConsole
    from costada.runs.runner import carry_out

    # The ledger's own errors reach the user through `refusing`; LangChain would log them as well.
    logging.getLogger("langchain_core.callbacks.manager").setLevel(logging.ERROR)
    progress = progress_on(SafeConsole(stderr=as_json, highlight=False), is_quiet=is_quiet)
    control = RunControl()
    command = folder.next_command(config)
    with (
        refusing(ExitCode.FAILED, hint=f"Finished iterations are saved. Go on with: {command}"),
        draining_on_signal(control, progress.notice),
        telling_pauses(say if is_quiet else progress.notice),
        keeping_output_clean(as_json),
    ):
        result = carry_out(plan, folder, progress, control, accepts_loss=accepts_loss)
    _print_result(result, config, folder, as_json=as_json)
    if result.stop_reason == "interrupted":
        raise typer.Exit(ExitCode.INTERRUPTED)
    if result.stop_reason == "failures":
        from costada.runs.summary import failures_line

        show(f"costada: {failures_line(result)}", is_error=True)
        raise typer.Exit(ExitCode.FAILED)


def _print_result(
    result: Discovery, config: RunConfig, folder: RunFolder, *, as_json: bool
) -> None:
    from costada.reports.summary import sum_by_role
    from costada.reports.trace import num_cached
    from costada.runs.summary import summary_json, summary_text
    from costada.store.run_store import RunStore

    with RunStore(folder.database) as store:
        run_ids = store.run_ids()
        sums = sum_by_role(
            call for run_id in run_ids for call in store.call_log.calls(run_id, with_texts=False)
        )
        reused = sum(num_cached(store, run_id) for run_id in run_ids)
    show((summary_json if as_json else summary_text)(result, config, folder, sums, reused))

"""`costada run` and `costada resume`."""

from __future__ import annotations

import gc
import json
import logging
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costada.cli import options
from costada.cli.errors import keeping_output_clean, refusing, say, showing_pauses, showing_warnings
from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import Layer
from costada.reports.formats import budget_text, counted, percent
from costada.reports.status import update_status
from costada.reports.terminal import show
from costada.runs.config import EXECUTION, MONEY, OUTPUT, RunConfig
from costada.runs.folder import RunFolder, unused_folder
from costada.runs.interruption import ExitCode, draining_on_signal, ending_on_signal
from costada.runs.shared_purse import PurseAddress, paid_from
from costada.runs.stored_run import StoredRun, run_at, unused_run
from costada.store.address import check_database

if TYPE_CHECKING:
    from costada.nodes.end_step import ModelRow
    from costada.reports.summary import RoleSum
    from costada.runs.plan import Plan
    from costada.values.discovery import Discovery

Out = Annotated[
    Path | None,
    options.path_option(
        "Folder for the run; it must not hold another one.",
        show_default="runs-out/PROBLEM-1, -2, ...",
        panel=OUTPUT,
    ),
]
Store = Annotated[
    str | None,
    options.store_option(
        "Keep the run in a Postgres database, so that any machine can resume it; --out or DSN#NAME"
        " names it."
    ),
]
PurseOption = Annotated[
    PurseAddress | None,
    options.option(
        "Draw the budget, or what is left, from this purse in a file or a Postgres database."
        " Unspent money returns to it.",
        "--purse",
        metavar="PLACE#NAME",
        panel=MONEY.panel,
        parser=PurseAddress.read,
    ),
]
FilesFolder = Annotated[
    Path | None,
    options.path_option(
        "Folder for the files of a run in Postgres.",
        show_default="its name below runs-out",
        panel=OUTPUT,
    ),
]
DryRun = Annotated[
    bool,
    options.option(
        "Print the first prompts' sizes and the expected cost. Makes no model calls and writes no"
        " files.",
        "--dry-run",
        panel=OUTPUT.panel,
    ),
]
ShowPrompt = Annotated[
    bool,
    options.option(
        "With --dry-run: also print the first prompts in full.",
        "--show-prompt",
        panel=OUTPUT.panel,
    ),
]
RaisedBudget = Annotated[
    float | None,
    options.option(
        "New budget in dollars, at least the previous one.", "--budget", show_default="as before"
    ),
]
RaisedIterations = Annotated[
    int | None,
    options.option(
        "New maximum number of iterations, at least the previous one.",
        "--max-iterations",
        show_default="as before",
    ),
]
AcceptLoss = Annotated[
    bool,
    options.option(
        "Resume although the run file has lost steps; their cost counts as spent.", "--accept-loss"
    ),
]

YOUNG_OBJECTS = 10_000
"""New objects after which garbage is looked for; a step makes thousands and leaves few cycles."""


@options.with_settings(*options.ALL_SETTINGS)
def run(
    settings: Callable[[], dict[str, Any]],
    out: Out = None,
    store: Store = None,
    purse: PurseOption = None,
    dry_run: DryRun = False,
    show_prompt: ShowPrompt = False,
    as_json: options.JsonResult = False,
    quiet: options.Quiet = False,
) -> None:
    """Improve a program within a budget of dollars. Ctrl-C stops after saving."""
    with refusing(ExitCode.BAD_INPUT):
        if show_prompt and not dry_run:
            raise ValueError("--show-prompt: needs --dry-run")
        config = RunConfig.model_validate(settings())
        if store is not None and "#" not in store:
            check_database(store)
        if folder := _named_run(out, store):
            folder.check_free()
        plan = planned(config)
        for remark in () if quiet else plan.remarks:
            say(remark)
        if dry_run:
            from costada.runs.forecast import first_prompts, forecast, forecast_json, forecast_text

            with keeping_output_clean():
                found = forecast(plan)
                prompts = first_prompts(plan) if show_prompt else []
            show((forecast_json if as_json else forecast_text)(found, config, prompts))
            return
        if folder is None:
            name = plan.problem.name
            folder = unused_run(name, store) if store else unused_folder(name)
        folder.claim(config)
    _carry_out(plan, config, folder, purse, as_json=as_json, is_quiet=quiet)


@options.with_settings(
    *EXECUTION,
    "allow_invalid_start",
    "on_missing_usage",
    from_file=False,
    shown_default="as before",
)
def resume(
    folder: options.Run,
    settings: Callable[[], dict[str, Any]],
    out: FilesFolder = None,
    purse: PurseOption = None,
    budget: RaisedBudget = None,
    max_iterations: RaisedIterations = None,
    trust: options.Trust = False,
    accept_loss: AcceptLoss = False,
    as_json: options.JsonResult = False,
    quiet: options.Quiet = False,
) -> None:
    """Resume an interrupted run, or one whose budget or iteration limit is raised."""
    from costada.runs.resume import check_lost_steps, extended
    from costada.runs.runner import is_finished

    with refusing(ExitCode.BAD_INPUT):
        if out:
            if not isinstance(folder, StoredRun):
                raise ValueError(f"--out: {folder.place} is a folder, expected a run in Postgres")
            folder = StoredRun(out, folder.address)
        folder.load()
        with folder.hold():
            saved = folder.load()
            if not trust:
                folder.check_trusted()
            limits = {"budget": budget, "max_iterations": max_iterations}
            config = extended(saved, {**settings(), **limits})
            check_lost_steps(folder, config, is_accepted=accept_loss)
            plan = planned(config)
            if config != saved:
                folder.save(config)
            if is_finished(folder):
                text = "this run has finished; it spends nothing more without a higher limit"
                show(f"{folder.place}: {text} (--budget, --max-iterations)", is_error=True)
    _carry_out(
        plan, config, folder, purse, as_json=as_json, is_quiet=quiet, accepts_loss=accept_loss
    )


def _named_run(out: Path | None, store: str | None) -> RunFolder | None:
    """The run that the user has named; in a database, its folder can do that as well."""
    if store and "#" in store:
        return run_at(store, out)
    if out is None:
        return None
    return run_at(f"{store}#{out.name}", out) if store else RunFolder(out)


def planned(config: RunConfig) -> Plan:
    """Plan a run while the sandbox is tried in a thread; raises as `plan_run` does.

    On a terminal, a status line shows it until the first output.
    """
    with ending_on_signal(), showing_warnings(), keeping_output_clean():
        probing = Thread(target=_probe_sandbox, args=(config,), daemon=True)
        probing.start()
        from costada.runs.plan import plan_run

        try:
            return plan_run(config)
        finally:
            probing.join()


def _probe_sandbox(config: RunConfig) -> None:
    """Try the sandbox while modules are loaded; what is found is kept for the plan."""
    with suppress(ValueError, RuntimeError, OSError):  # raised again where it is chosen
        layer = chosen_layer(config.sandbox or Layer.AUTO)
        update_status(f"Trying the evaluator in {layer.value} ...")


def collect_garbage() -> None:
    """Collect garbage from here on, but not what was loaded before: it lives to the end."""
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS)
        gc.enable()


def _carry_out(
    plan: Plan,
    config: RunConfig,
    folder: RunFolder,
    purse: PurseAddress | None,
    *,
    as_json: bool,
    is_quiet: bool,
    accepts_loss: bool = False,
) -> None:
    """Run to the end or to an interruption, print the result and exit with the right code."""
    from langgraph.runtime import RunControl

    from costada.reports.progress import progress_on
    from costada.reports.summary import REASONS, failures_text, sum_by_model, sum_by_role
    from costada.reports.terminal import SafeConsole
    from costada.reports.trace import last_router, stored_rows
    from costada.runs.runner import carry_out
    from costada.store.run_store import RunStore

    collect_garbage()
    # The ledger's own errors reach the user through `refusing`; LangChain would log them as well.
    logging.getLogger("langchain_core.callbacks.manager").setLevel(logging.ERROR)
    progress = progress_on(SafeConsole(stderr=as_json, highlight=False), is_quiet=is_quiet)
    control = RunControl()
    command = folder.next_command(config)
    if purse:
        command += f" --purse {shlex.quote(purse.shown)}"
    with (
        refusing(ExitCode.FAILED, hint=f"Finished iterations are saved. Resume with: {command}"),
        draining_on_signal(control, progress.notice),
        showing_pauses(say if is_quiet else progress.notice),
        keeping_output_clean(as_json),
        paid_from(purse, plan, folder) as paid,
    ):
        result = carry_out(paid, folder, progress, control, accepts_loss=accepts_loss)
    with RunStore.at(folder.database) as store:
        run_ids = store.run_ids()
        calls = [
            call for run_id in run_ids for call in store.call_log.calls(run_id, with_texts=False)
        ]
        reused = sum(map(store.num_cached, run_ids))
        router = last_router(store)
        failures = failures_text(stored_rows(store, run_ids[-1])) if run_ids else ""
        waiting = len(store.inputs.waiting(run_ids[-1])) if run_ids else 0
    sums, by_model = sum_by_role(calls), sum_by_model(calls, (row["name"] for row in router))
    models = [(row, by_model[row["name"]]) for row in router]
    if as_json:
        show(summary_json(result, config, folder, sums, reused, models, waiting))
    else:
        text = summary_text(result, config, folder, sums, reused, models, failures, waiting)
        if result.stop_reason in ("interrupted", "failures"):
            text += f"\nResume with: {command}"
        show(text)
    if result.stop_reason == "interrupted":
        raise typer.Exit(ExitCode.INTERRUPTED)
    if result.stop_reason == "failures":
        reason = f"{REASONS['failures']}; look first at the last failure: {_last_failure(result)}"
        say(reason)
        raise typer.Exit(ExitCode.FAILED)


def summary_text(
    result: Discovery,
    config: RunConfig,
    folder: RunFolder,
    sums: Mapping[str, RoleSum],
    num_cached: int = 0,
    models: Sequence[tuple[ModelRow, RoleSum]] = (),
    failures: str = "",
    num_waiting: int = 0,
) -> str:
    """The result in a few lines; `models` are those of a menu, with what their calls used.

    `failures` says how many iterations failed and why, where none has found anything better;
    `num_waiting` counts the ideas and programs of users that no step has taken.
    """
    from costada.reports.summary import REASONS, cache_text

    end = {"interrupted": "Interrupted", "failures": "Stopped"}.get(result.stop_reason, "Finished")
    reason = REASONS[result.stop_reason]
    if result.stop_reason == "budget" and result.remaining > 0:
        reason = "the rest of the budget pays for no further call"
    objective = "none" if result.best_objective is None else f"{result.best_objective:.10g}"
    over = result.spent - config.budget
    overshoot = f" (overshoot {percent(over / config.budget)})" if over > 0 else ""
    lines = [f"{end} after {counted(result.iterations, 'iteration')}{reason and f': {reason}'}."]
    if result.last_failure:
        lines.append(f"  last failure    {_last_failure(result)}")
    lines += [f"  failed          {failures}"] if failures and not result.last_failure else []
    lines.append(f"  best objective  {objective} (score {result.best_score:.6f})")
    lines.append(
        f"  spent           ${result.spent:.6f} of {budget_text(config.budget)}{overshoot}"
    )
    lines += [f"    {role:<12}  {_calls_text(used)}" for role, used in sums.items() if used.calls]
    if cached := cache_text(sums.values()):
        lines.append(f"    cached        {cached}")
    if not_charged := uncharged(result, config, sums):
        lines.append(f"    not charged   ${not_charged:.6f} for unfinished iterations")
    if models:
        width = max(12, *(len(row["name"]) for row, _ in models))
        lines.append(f"  models          chosen by {config.router}")
        lines += [f"    {row['name']:<{width}}  {_model_text(row, used)}" for row, used in models]
    if result.sandbox:
        lines.append(f"  sandbox         {result.sandbox}")
    if num_cached:
        lines.append(f"  known programs  {num_cached} not run again")
    inputs = "1 idea or program" if num_waiting == 1 else f"{num_waiting} ideas and programs"
    waiting = f"  waiting         {inputs}; costada resume continues with them"
    lines += [waiting] if num_waiting else []
    if folder.place != str(folder.path):
        lines.append(f"  kept in         {folder.place}")
    lines.append(f"  best program    {folder.best_program}")
    if folder.pareto.is_dir():
        lines.append(f"  Pareto front    {folder.pareto}")
    if folder.report.is_file():
        lines.append(f"  report          {folder.report.resolve().as_uri()}")
    elif result.iterations:
        lines.append(f"  report          not written yet; {folder.report_command} writes it")
    return "\n".join(lines)


def _model_text(row: ModelRow, used: RoleSum) -> str:
    attempts = f"{counted(row['tries'], 'attempt')} with credit {row['credit']:.2f}"
    aside = "; put aside" if row["is_put_aside"] else ""
    return f"{_calls_text(used)}, {attempts}{aside}"


def _calls_text(used: RoleSum) -> str:
    tokens = f"{used.usage.input_tokens:,} tokens in, {used.usage.output_tokens:,} out"
    doubt = ""
    if used.in_doubt:
        most = f"at most ${used.in_doubt_dollars:.6f} more"
        doubt = f"; the bill of {used.in_doubt} is unknown, {most}"
    return f"${used.dollars:.6f} for {counted(used.calls, 'call')} ({tokens}{doubt})"


def summary_json(
    result: Discovery,
    config: RunConfig,
    folder: RunFolder,
    sums: Mapping[str, RoleSum],
    num_cached: int = 0,
    models: Sequence[tuple[ModelRow, RoleSum]] = (),
    num_waiting: int = 0,
) -> str:
    """The result as one JSON object; dollars are numbers, files are paths.

    `models` are those of a menu: each is an object of the trace's router, in which `dollars` are
    those of its attempts, and under `ledger` what all its calls used, guides included.
    `num_waiting` counts the ideas and programs of users that no step has taken.
    """
    settings = ("problem", "method", "model", "guide_model", "seed", "budget")
    facts = {
        **{name: getattr(config, name) for name in settings},
        "stop_reason": result.stop_reason,
        "last_failure": result.last_failure,
        "iterations": result.iterations,
        "best_score": result.best_score,
        "best_objective": result.best_objective,
        "best_metrics": dict(result.best_metrics),
        "spent": result.spent,
        "remaining": result.remaining,
        "overshoot": max(0.0, result.spent - config.budget),
        "uncharged": uncharged(result, config, sums),
        "ledger": {role: _calls_json(used) for role, used in sums.items()},
        "sandbox": result.sandbox,
        "cached_evaluations": num_cached,
        "waiting_inputs": num_waiting,
        "folder": str(folder.path),
        "best_program": str(folder.best_program),
        "report": str(folder.report) if folder.report.is_file() else None,
    }
    if folder.pareto.is_dir():
        facts["pareto"] = str(folder.pareto)
    if models:
        facts["router"] = config.router
        facts["models"] = [{**row, "ledger": _calls_json(used)} for row, used in models]
    return json.dumps(facts, indent=2)


def _calls_json(used: RoleSum) -> dict[str, float]:
    return {
        "calls": used.calls,
        "in_doubt": used.in_doubt,
        "input_tokens": used.usage.input_tokens,
        "output_tokens": used.usage.output_tokens,
        "cached_tokens": used.usage.cached_tokens,
        "reasoning_tokens": used.usage.reasoning_tokens,
        "dollars": float(used.dollars),
        "cache_saved_dollars": float(used.saved),
        "in_doubt_dollars": float(used.in_doubt_dollars),
    }


def uncharged(result: Discovery, config: RunConfig, sums: Mapping[str, RoleSum]) -> float:
    """Dollars of calls in an unfinished iteration, which is charged when the run is resumed."""
    counts_lost = config.lost_calls == "count"
    paid = sum(
        (used.dollars + counts_lost * used.in_doubt_dollars for used in sums.values()), Decimal(0)
    )
    return max(0.0, float(paid - Decimal(str(result.spent))))


def _last_failure(result: Discovery) -> str:
    return next(iter(result.last_failure.splitlines()), "unknown")

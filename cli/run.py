"""The commands that start and resume a run."""

from __future__ import annotations

import gc
import shlex
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costada.cli import options
from costada.cli.command_errors import (
    keeping_output_clean,
    outlasting,
    refusing,
    say,
    showing_pauses,
    showing_warnings,
)
from costada.cli.run_summary import last_failure, summary_json, summary_text
from costada.cli.setting_options import ALL_SETTINGS, with_settings
from costada.cli.span_export import send_spans
from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import Layer
from costada.reports.formats import budget_text
from costada.reports.json_log import current_run, is_on
from costada.reports.status import update_status
from costada.reports.terminal import show
from costada.runs.config import EXECUTION, OFFLINE, RunConfig
from costada.runs.folder import RunFolder, unused_folder
from costada.runs.interruption import ExitCode, draining_on_signal, ending_on_signal
from costada.runs.shared_purse import PurseAddress, paid_from
from costada.runs.stored_run import StoredRun, run_at, unused_run
from costada.store.address import check_database
from costada.store.outage import LONGEST_PAUSE, waiting_for_database
from costada.values.setting import MONEY, OUTPUT

if TYPE_CHECKING:
    from costada.runs.plan import Plan

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
        panel=MONEY,
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
        panel=OUTPUT,
    ),
]
ShowPrompt = Annotated[
    bool,
    options.option(
        "With --dry-run: also print the first prompts in full.",
        "--show-prompt",
        panel=OUTPUT,
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
        "Resume although the run has lost steps or requests; their cost counts as spent.",
        "--accept-loss",
    ),
]

YOUNG_OBJECTS = 10_000
"""New objects after which garbage is looked for; a step makes thousands and leaves few cycles."""


@with_settings(*ALL_SETTINGS)
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
    """Improve a program within a budget in dollars. Ctrl-C stops after saving."""
    with refusing(ExitCode.BAD_INPUT):
        if show_prompt and not dry_run:
            raise ValueError("--show-prompt: needs --dry-run")
        config = RunConfig.model_validate(settings())
        if store is not None and "#" not in store:
            check_database(store)
        with outlasting(config.longest_pause, starting_only=True):
            _check_purse(purse)
            if config.purse_slice is not None and purse is None:
                given = f"{config.purse_slice:g} without --purse"
                raise ValueError(f"--purse-slice: got {given}, expected both or none")
            if folder := _named_run(out, store):
                folder.check_free()
        plan = make_plan(config, sends_requests=not dry_run)
        for remark in () if quiet else plan.remarks:
            say(remark)
        if not quiet and (remark := budget_warning(plan, config)):
            say(remark)
        if dry_run:
            _show_dry_run(plan, config, show_prompt=show_prompt, as_json=as_json)
            return
        with outlasting(config.longest_pause, starting_only=True):
            if folder is None:
                name = plan.problem.name
                folder = unused_run(name, store) if store else unused_folder(name)
            folder.claim(config, purse.name if purse else "")
    current_run.set(folder.name)
    _carry_out(plan, config, folder, purse, as_json=as_json, is_quiet=quiet)


def _show_dry_run(plan: Plan, config: RunConfig, *, show_prompt: bool, as_json: bool) -> None:
    from costada.runs import dry_run

    with keeping_output_clean():
        prompts = dry_run.first_prompts(plan)
        found = dry_run.dry_run_of(plan, prompts) if prompts else None
    if found is None:
        show((dry_run.reached_target_json if as_json else dry_run.reached_target_text)(config))
        return
    texts = prompts if show_prompt else []
    show((dry_run.dry_run_json if as_json else dry_run.dry_run_text)(found, config, texts))


def demo(out: Out = None) -> None:
    """Run circle packing with the offline model: no key, no network, a simulated dollar."""
    run(problem="circle_packing", model="offline", budget=1.0, out=out)


@with_settings(
    "target",
    *EXECUTION,
    "allow_invalid_start",
    "longest_pause",
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
    """Resume an interrupted run, or continue one with a new limit or target."""
    from costada.runs.resume import check_lost_steps, extended_config
    from costada.runs.runner import is_finished, saved_state

    current_run.set(folder.name)
    with (
        refusing(ExitCode.BAD_INPUT),
        outlasting(settings().get("longest_pause", LONGEST_PAUSE)),
    ):
        if out:
            if not isinstance(folder, StoredRun):
                raise ValueError(f"--out: {folder.place} is a folder, expected a run in Postgres")
            folder = StoredRun(out, folder.address)
        folder.load()
        _check_purse(purse)
        with folder.hold():
            saved = folder.load()
            if not trust:
                folder.check_trusted()
            limits = {"budget": budget, "max_iterations": max_iterations}
            config = extended_config(saved, {**settings(), **limits})
            check_lost_steps(folder, config, is_accepted=accept_loss)
            plan = make_plan(config)
            if config != saved:
                folder.save(config)
            if is_finished(folder) and (state := saved_state(folder)):
                spent = f"${state['spent']:.6f} of {budget_text(config.budget)}"
                text = f"this run has finished and has spent {spent}; it spends nothing more"
                text += " without a higher limit (--budget, --max-iterations)"
                text += " or a better --target" if config.target is not None else ""
                say(f"{folder.place}: {text}")
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


def _check_purse(purse: PurseAddress | None) -> None:
    """Raise `ValueError` if a purse that is named does not exist."""
    if purse is None:
        return
    try:
        purse.open().close()
    except ValueError as error:
        raise ValueError(f"--purse: {error}") from None


def budget_warning(plan: Plan, config: RunConfig) -> str:
    """That the budget is too small, or for the offline model far too small; empty if it is not.

    The dollars of the offline model are simulated.
    """
    return plan.tiny_budget_remark if config.model == OFFLINE else plan.budget_remark


def make_plan(config: RunConfig, *, sends_requests: bool = True) -> Plan:
    """Plan a run while the sandbox is tried in a thread; raises as `plan_run` does.

    Where nothing is sent, no key is needed. On a terminal, a status line shows it until the first
    output.
    """
    with ending_on_signal(), showing_warnings(), keeping_output_clean():
        probing = Thread(target=_probe_sandbox, args=(config,), daemon=True)
        probing.start()
        from costada.runs.plan import plan_run
        from costada.runs.search_request import SearchRequest

        try:
            return plan_run(SearchRequest(config, sends_requests=sends_requests))
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
        # No collection frees what is loaded by now; looking through it again costs time.
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

    from costada.reports.logged_progress import logged_or_shown
    from costada.reports.summary import REASONS, failures_text, sum_by_model, sum_by_role
    from costada.reports.terminal import SafeConsole
    from costada.reports.trace import last_router, stored_rows
    from costada.runs.runner import execute_run, patience_of
    from costada.store.history import RunHistory
    from costada.store.run_store import RunStore

    collect_garbage()
    send_spans()
    progress = logged_or_shown(SafeConsole(stderr=as_json, highlight=False), is_quiet=is_quiet)
    control = RunControl()
    command = folder.next_command(config)
    if purse:
        command += f" --purse {shlex.quote(purse.shown)}"
    hint = f"Finished iterations are saved. Resume with: {command}"
    patience = patience_of(config.longest_pause, control)
    with (
        refusing(ExitCode.FAILED, hint=hint),
        draining_on_signal(control, progress.notice, hint),
        showing_pauses(say if is_quiet else progress.notice),
        waiting_for_database(patience),
        keeping_output_clean(as_json),
        paid_from(purse, plan, folder) as paid,
    ):
        result = execute_run(paid, folder, progress, control, accepts_loss=accepts_loss)
    with refusing(ExitCode.FAILED), showing_pauses(say), waiting_for_database(patience):
        with RunStore.at(folder.database) as store:
            run_ids = store.run_ids()
            reused = sum(map(store.num_cached, run_ids))
            router = last_router(store)
            # Without a gain only, as it reads all rows.
            is_flat = bool(run_ids) and store.last_improvement(run_ids[-1]) is None
            failures = failures_text(stored_rows(store, run_ids[-1])) if is_flat else ""
            waiting = len(store.inputs.waiting(run_ids[-1])) if run_ids else 0
            examples = store.judged_examples(run_ids[-1] if run_ids else "")
        with RunHistory.of(folder.database) as history:
            used = [each for run_id in run_ids for each in history.used(run_id)]
    sums, by_model = sum_by_role(used), sum_by_model(used, (row["name"] for row in router))
    models = [(row, by_model[row["name"]]) for row in router]
    if as_json:
        show(summary_json(result, config, folder, sums, reused, models, waiting, examples))
    elif not is_on():  # the log has it
        text = summary_text(
            result, config, folder, sums, reused, models, failures, waiting, examples
        )
        if result.stop_reason in ("interrupted", "failures"):
            text += f"\nResume with: {command}"
        show(text)
    if result.stop_reason == "interrupted":
        raise typer.Exit(ExitCode.INTERRUPTED)
    if result.stop_reason == "failures":
        reason = f"{REASONS['failures']}; look first at the last failure: {last_failure(result)}"
        say(reason, level="error")
        raise typer.Exit(ExitCode.FAILED)
    if result.best_objective is None:
        is_offline = config.model == OFFLINE and plan.problem.initial_program is None
        hint = "; the offline model changes programs and writes none" if is_offline else ""
        say(f"no valid program was found{hint}")

import fcntl
import io
import json
import os
import re
import shutil
import signal
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from costada.experiments.sweep.loop import STOPPING, StopSignals, SweepLoop, payable
from costada.experiments.sweep.run_process import last_error
from costada.experiments.sweep.sweep import (
    LastStep,
    Status,
    SweepGrid,
    SweepRun,
    checked_inputs,
    hold_sweep,
    last_step,
    sweep_runs,
    with_progress,
)
from costada.experiments.sweep.sweep_progress import (
    SweepLines,
    SweepProgress,
    SweepTable,
    exit_code,
    headline,
    largest_bill,
    sweep_json,
    sweep_progress_on,
    sweep_table,
    sweep_text,
)
from costada.runs.config import RunConfig
from costada.runs.folder import RunFolder, load_config
from costada.runs.interruption import ExitCode
from costada.runs.shared_purse import account_name
from costada.store.accounts import OverBudget
from costada.store.purse import Purse

pytestmark = pytest.mark.process

SHARED = {"max_iterations": 3}


def grid(**changes: Any) -> SweepGrid:
    fields = {"problems": ("circle_packing",), "methods": ("costada",), "seeds": (0,)}
    return SweepGrid(**{**fields, "models": (), "budgets": (), **changes})


def names(runs):
    return [run.name for run in runs]


@pytest.fixture
def copied(finished, tmp_path):
    """The finished run of three iterations, in the place of a sweep's only run."""
    config = load_config(finished / "settings.json")
    run = SweepRun("near/costada/seed-0", config, RunFolder(tmp_path / "near/costada/seed-0"))
    shutil.copytree(finished, run.folder.path)
    return run


def test_every_combination_is_a_run_and_first_seeds_come_first(near, tmp_path):
    problems, methods = ("circle_packing", f"{near}/"), ("costada", "uniform")
    wanted = grid(problems=problems, methods=methods, seeds=(4, 7))
    runs = sweep_runs(wanted, SHARED, tmp_path)
    assert names(runs) == [
        f"{problem}/{method}/seed-{seed}"
        for seed in (4, 7)
        for problem in ("circle_packing", "near")
        for method in methods
    ]
    assert runs[1].folder.path == tmp_path / "circle_packing" / "uniform" / "seed-4"
    shown = {"problem": "circle_packing", "method": "uniform"}
    assert runs[1].config == RunConfig(**shown, seed=4, max_iterations=3)
    assert runs[2].config.problem == str(near)


def test_runs_get_a_folder_per_budget_if_there_are_several(tmp_path):
    runs = sweep_runs(grid(budgets=("0.5", "1")), SHARED, tmp_path)
    assert [(run.name, run.config.budget) for run in runs] == [
        (f"circle_packing/costada/budget-{budget}/seed-0", budget) for budget in (0.5, 1.0)
    ]
    (run,) = sweep_runs(grid(budgets=("0.5",)), SHARED, tmp_path)
    assert run.name == "circle_packing/costada/seed-0"
    (run,) = sweep_runs(grid(), {"preset": "gpt-5.4"}, tmp_path)
    assert (run.config.budget, run.config.reference_cost) == (5.0, 0.1)


def test_runs_get_a_folder_per_model_if_there_are_several(tmp_path):
    runs = sweep_runs(
        grid(models=("offline", "openai:glm-5"), budgets=("0.5", "1")), SHARED, tmp_path
    )
    assert [(run.name, run.config.model, run.config.budget) for run in runs] == [
        (f"circle_packing/costada/model-{folder}/budget-{budget}/seed-0", model, budget)
        for folder, model in (("offline", "offline"), ("openai-glm-5", "openai:glm-5"))
        for budget in (0.5, 1.0)
    ]
    (run,) = sweep_runs(grid(models=("openai:glm-5",)), SHARED, tmp_path)
    assert (run.name, run.config.model) == ("circle_packing/costada/seed-0", "openai:glm-5")
    with pytest.raises(ValueError, match="got two models of that name, openai:a b and openai:a-b"):
        sweep_runs(grid(models=("openai:a b", "openai:a-b")), SHARED, tmp_path)


@pytest.mark.parametrize("name", ["price", "preset"])
def test_one_price_for_several_models_is_refused(tmp_path, name):
    given = {**SHARED, name: {"price": "1,2", "preset": "glm-5"}[name]}
    assert len(sweep_runs(grid(models=("offline",)), given, tmp_path)) == 1
    with pytest.raises(ValueError, match=f"{name}: got .* with several models, expected the price"):
        sweep_runs(grid(models=("offline", "openai:glm-5")), given, tmp_path)


def test_each_model_of_a_sweep_is_checked_with_its_own_price(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    models = ("offline", "openai:mine")
    with pytest.raises(ValueError, match=r"mine.*has no known price.*--set other_prices\.NAME"):
        checked_inputs(sweep_runs(grid(models=models), SHARED, tmp_path))
    shared = {**SHARED, "budget_policy": "hard", "other_prices": {"mine": "5,7"}}
    runs = checked_inputs(sweep_runs(grid(models=models), shared, tmp_path))
    least = [run.least for run in runs]
    assert least[1] > least[0] > 0


def test_an_address_is_that_of_the_models_of_a_sweep_that_can_have_one(tmp_path):
    address = "http://localhost:1/v1"
    given = {**SHARED, "base_url": address}
    runs = sweep_runs(grid(models=("offline", "openai:mine")), given, tmp_path)
    assert [run.config.base_url for run in runs] == [None, address]
    runs = sweep_runs(
        grid(models=("offline", "openai:mine")), {**given, "guide_model": "openai:guide"}, tmp_path
    )
    assert [run.config.base_url for run in runs] == [address, address]
    with pytest.raises(ValueError, match="base_url: got one for no openai: model"):
        sweep_runs(grid(models=("offline", "anthropic:mine")), given, tmp_path)


def test_equal_names_of_runs_or_problems_are_refused(near, tmp_path):
    with pytest.raises(ValueError, match="--methods: got costada 2 times, expected it once"):
        grid(methods=("costada", "costada"))
    shutil.copytree(near, tmp_path / "near")
    with pytest.raises(ValueError, match=r"got two problems of that name, .*near and .*near"):
        sweep_runs(grid(problems=(str(near), str(tmp_path / "near"))), SHARED, tmp_path)


def test_a_run_without_a_folder_waits(tmp_path):
    (run,) = sweep_runs(grid(), SHARED, tmp_path)
    assert with_progress(run) == run
    assert (run.status, run.step, run.has_begun) == (Status.WAITING, None, False)


def test_a_finished_run_is_known_by_its_checkpoint_and_report(copied):
    os.utime(copied.folder.report)
    found = with_progress(copied)
    assert (found.status, found.step.iteration) == (Status.FINISHED, 3)
    copied.folder.report.unlink()
    assert with_progress(copied).status is Status.WAITING


def test_a_run_with_other_settings_is_refused(copied):
    other = copied.config.model_copy(update={"max_iterations": 9})
    with pytest.raises(ValueError, match="other settings: max_iterations was 3, got 9"):
        with_progress(SweepRun(copied.name, other, copied.folder))


def test_files_that_are_no_run_are_refused(tmp_path):
    (run,) = sweep_runs(grid(), SHARED, tmp_path)
    run.folder.path.mkdir(parents=True)
    run.folder.steps.write_text("")
    with pytest.raises(ValueError, match=re.escape("steps.jsonl: exists")):
        with_progress(run)


def test_only_problems_that_are_still_needed_are_tried(copied, tmp_path):
    (lost,) = sweep_runs(grid(problems=("no_such_problem",)), SHARED, tmp_path)
    gone = SweepRun("gone", lost.config, lost.folder, status=Status.FINISHED)
    checked_inputs([gone, copied])
    with pytest.raises(ValueError, match="problem is 'no_such_problem'"):
        checked_inputs([gone, lost])


def test_each_run_of_a_sweep_is_checked_with_its_own_budget(tmp_path):
    shared = {**SHARED, "budget_policy": "hard", "reference_cost": 0.02}
    runs = checked_inputs(sweep_runs(grid(budgets=("0.005", "1")), shared, tmp_path))
    assert [run.least for run in runs] == [Decimal("0.005"), Decimal("0.02")]
    for budgets in (("0.001", "1"), ("1", "0.001")):
        with pytest.raises(ValueError, match=re.escape("budget: got $0.001 under a hard budget")):
            checked_inputs(sweep_runs(grid(budgets=budgets), shared, tmp_path))


def test_one_sweep_holds_a_folder_which_is_removed_if_it_stays_empty(tmp_path):
    folder, file = tmp_path / "sweep", tmp_path / "file"
    file.touch()
    with hold_sweep(folder):
        assert folder.is_dir()
        with pytest.raises(ValueError, match="another sweep is running in it"), hold_sweep(folder):
            pass
    assert not folder.exists()
    with hold_sweep(tmp_path):
        pass
    assert tmp_path.is_dir()
    with (
        pytest.raises(ValueError, match="is a file, expected a folder for the sweep"),
        hold_sweep(file),
    ):
        pass


def test_a_folder_that_its_last_holder_removes_is_made_and_locked_again(tmp_path, monkeypatch):
    folder, flock = tmp_path / "sweep", fcntl.flock
    removals = [folder.rmdir]

    def locked(descriptor, how):
        if removals:
            removals.pop()()
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", locked)
    with hold_sweep(folder):
        assert folder.is_dir()
        with pytest.raises(ValueError, match="another sweep is running in it"), hold_sweep(folder):
            pass


def test_the_last_complete_row_is_the_last_step(tmp_path, make_row):
    file = tmp_path / "steps.jsonl"
    assert last_step(file) is None
    file.write_text('{"iteration": 1')
    assert last_step(file) is None
    second = make_row(iteration=2, spent=0.03, best_score=0.6, best_objective=None)
    rows = [make_row(iteration=1, spent=0.01), second]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"iteration": 3')
    assert last_step(file) == LastStep(2, 0.03, 0.6, None)


End = tuple[Status, str]
FINISHED, FAILED = (Status.FINISHED, ""), (Status.FAILED, "no money")
INTERRUPTED = (Status.INTERRUPTED, "")


class ScriptedProcess:
    """Ends as told after some looks, or when it is asked to; counts what it is asked."""

    def __init__(self, looks: float = 1, end: End = FINISHED, obeys: bool = True) -> None:
        self.looks, self.final, self.obeys = looks, end, obeys
        self.drains = self.kills = 0
        self.is_queued = False

    def has_started(self) -> bool:
        return not self.is_queued

    def end(self) -> End | None:
        self.looks -= 1
        return self.final if self.looks < 0 else None

    def drain(self) -> None:
        self.drains += 1
        if self.obeys:
            self.looks, self.final = 0, INTERRUPTED

    def kill(self) -> None:
        self.kills += 1
        self.looks, self.final = 0, INTERRUPTED


@pytest.fixture
def runs(tmp_path):
    return [
        SweepRun(f"run-{seed}", RunConfig(problem="x", seed=seed), RunFolder(tmp_path / str(seed)))
        for seed in range(4)
    ]


def execute_run(runs, start, signals=None):
    signals = signals or StopSignals(lambda text: None)
    ended = SweepLoop(runs, 2, start, SweepProgress(), signals).execute()
    return [(run.status, run.error) for run in ended]


def test_at_most_as_many_unfinished_runs_as_jobs_run_at_once(runs):
    runs[0] = SweepRun("kept", runs[0].config, runs[0].folder, status=Status.FINISHED)
    started, names = [], []

    def start(run):
        assert sum(process.looks >= 0 for process in started) < 2
        started.append(ScriptedProcess(looks=run.config.seed % 2))
        names.append(run.name)
        return started[-1]

    assert execute_run(runs, start) == [FINISHED] * 4
    assert names == ["run-1", "run-2", "run-3"]


def test_a_job_in_a_queue_is_not_running(runs):
    shown = []

    class Shown(SweepProgress):
        def show(self, runs):
            shown.append([run.status for run in runs])

    def start(run):
        process = ScriptedProcess()
        process.is_queued = run.config.seed > 0
        return process

    signals = StopSignals(lambda text: None)
    SweepLoop(runs[:2], 2, start, Shown(), signals).execute()
    assert shown == [[Status.RUNNING, Status.QUEUED]]


def test_a_failure_stops_no_other_run(runs):
    ends = [FAILED, FINISHED, FAILED, FINISHED]
    assert execute_run(runs, lambda run: ScriptedProcess(end=ends[run.config.seed])) == ends


def test_the_first_signal_drains_runs_and_starts_no_more_the_second_kills_them(runs):
    signals, started = StopSignals(lambda text: None), []

    def start(run):
        started.append(ScriptedProcess(looks=1000))
        signals.count = len(started) // 2
        return started[-1]

    assert execute_run(runs, start, signals) == [INTERRUPTED] * 2 + [(Status.WAITING, "")] * 2
    assert [(process.drains, process.kills) for process in started] == [(1, 0), (1, 0)]

    signals.count = 0

    def start_disobedient(run):
        signals.count = 2
        return ScriptedProcess(looks=1000, obeys=False)

    assert execute_run(runs[:1], start_disobedient, signals) == [INTERRUPTED]


def test_a_process_that_cannot_be_started_ends_the_others_first(runs):
    started = []

    def start(run):
        if started:
            raise OSError("no more processes")
        started.append(ScriptedProcess(looks=1000))
        return started[0]

    with pytest.raises(OSError, match="no more processes"):
        execute_run(runs, start)
    assert (started[0].drains, started[0].looks) == (1, -1)


def with_purse(runs, start, purse, num_jobs=2):
    signals = StopSignals(lambda text: None)
    ended = SweepLoop(
        runs, num_jobs, start, SweepProgress(), signals, read=lambda run: run, purse=purse
    ).execute()
    return [run.status for run in ended]


class PaidProcess(ScriptedProcess):
    """Draws from a purse when it starts, and returns all but its cost at its end."""

    def __init__(self, run, purse, *, wanted, cost, looks) -> None:
        super().__init__(looks)
        try:
            self.account = purse.child(account_name(run.folder), wanted)
        except OverBudget:
            self.looks, self.final, self.account = 0, (Status.SKIPPED, "nothing left"), None
        self.cost = cost

    def end(self) -> End | None:
        ended = super().end()
        if ended and self.account:
            self.account.put("call", cost=self.cost)
            self.account.close()
        return ended


def test_runs_wait_for_what_others_return_and_are_skipped_when_too_little_is_left(runs):
    runs = [replace(run, least=Decimal("0.3")) for run in runs]
    started = []

    def start(run):
        started.append(run.config.seed)
        looks = 3 if run.config.seed == 0 else 1
        return PaidProcess(run, purse, wanted=0.9, cost=0.4, looks=looks)

    with Purse(1.0, policy="hard") as purse:
        ended = with_purse(runs, start, purse, num_jobs=4)
        assert float(purse.remaining) == pytest.approx(0.6)
    # The first draws 0.9; the others find too little, wait, and find 0.6 for a draw of 0.9.
    assert ended == [Status.FINISHED, Status.SKIPPED, Status.SKIPPED, Status.SKIPPED]
    assert started.count(0) == 1
    assert all(started.count(seed) <= 3 for seed in (1, 2, 3))


def test_no_process_is_started_for_less_than_a_run_needs(runs):
    started = []

    def start(run):
        started.append(run.config.seed)
        return PaidProcess(run, purse, wanted=0.5, cost=0.4, looks=0)

    least = [Decimal("0.5"), Decimal("0.7"), Decimal("0.5"), Decimal("0.05")]
    runs = [replace(run, least=each) for run, each in zip(runs, least, strict=True)]
    with Purse(0.6, policy="crossing") as purse:
        ended = with_purse(runs, start, purse, num_jobs=1)
    assert started == [0, 3]
    assert ended == [Status.FINISHED, Status.SKIPPED, Status.SKIPPED, Status.FINISHED]


def test_a_run_whose_money_is_drawn_starts_although_nothing_is_left(runs):
    with Purse(0.5, policy="hard") as purse:
        purse.child(account_name(runs[1].folder), 0.5)
        ended = with_purse(runs[:2], lambda run: ScriptedProcess(), purse)
    assert ended == [Status.SKIPPED, Status.FINISHED]


@pytest.mark.parametrize("place", ["seed-0", "tried (old)/seed-0"])
def test_money_in_a_further_account_of_a_name_is_found_wherever_the_run_lies(tmp_path, place):
    run = SweepRun("seed-0", RunConfig(problem="x"), RunFolder(tmp_path / place))
    with Purse(0.5, policy="hard") as purse:
        purse.child(f"{account_name(run.folder)} (2)", 0.5)
        assert payable([run], purse) == [run]


def test_a_process_that_a_real_time_signal_ended_has_a_reason():
    assert last_error("", -signal.SIGKILL) == "killed by SIGKILL"
    assert last_error("", -(signal.SIGRTMIN + 1)) == f"killed by signal {signal.SIGRTMIN + 1}"


def test_processes_that_cannot_be_reached_end_the_sweep_and_are_left(runs):
    class Lost(ScriptedProcess):
        def end(self):
            raise OSError("the cluster is gone")

    started = []

    def start(run):
        started.append(Lost() if run.config.seed == 0 else ScriptedProcess(looks=1000))
        return started[-1]

    with pytest.raises(OSError, match="the cluster is gone"):
        execute_run(runs, start)
    assert len(started) == 2
    assert started[1].looks == -1


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(
    ("number", "count"), [(signal.SIGINT, 2), (signal.SIGTERM, 2), (signal.SIGHUP, 1)]
)
def test_signals_are_counted_and_reported_once_and_their_handlers_restored(number, count):
    before, heard = signal.getsignal(number), []
    with StopSignals(heard.append) as signals:
        for _ in range(2):
            signal.raise_signal(number)
    assert (signals.count, heard) == (count, [STOPPING])
    assert signal.getsignal(number) is before


def test_a_closed_terminal_changes_nothing_under_nohup():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals(lambda text: None) as signals:
            signal.raise_signal(signal.SIGHUP)
        assert (signals.count, signal.getsignal(signal.SIGHUP)) == (0, signal.SIG_IGN)
    finally:
        signal.signal(signal.SIGHUP, before)


STEP = LastStep(iteration=7, spent=0.25, best_score=0.875, best_objective=2.5)


def run(seed: int, status: Status, step: LastStep | None = None, error: str = "") -> SweepRun:
    config = RunConfig(problem="x", seed=seed, budget=0.5)
    place = RunFolder(Path(f"sweep/x/costada/seed-{seed}"))
    return SweepRun(f"x/costada/seed-{seed}", config, place, status, step, error, seconds=75.0)


RUNS = [
    run(0, Status.FINISHED, LastStep(9, 0.51, 0.9, 2.6)),
    run(1, Status.RUNNING, STEP),
    run(2, Status.FAILED, STEP, "no money left"),
    run(3, Status.WAITING),
]


def console(is_terminal, width=100):
    kind = {"force_terminal": is_terminal, "legacy_windows": False, "color_system": None}
    return Console(file=io.StringIO(), width=width, **kind)


def test_quiet_shows_nothing_and_a_log_gets_lines():
    assert type(sweep_progress_on(console(True), is_quiet=True)) is SweepProgress
    assert isinstance(sweep_progress_on(console(False), is_quiet=False), SweepLines)


def test_a_log_gets_a_line_for_each_ended_run():
    log = console(is_terminal=False)
    with sweep_progress_on(log, is_quiet=False) as progress:
        progress.begin("4 runs")
        progress.show(RUNS)
        for run in (RUNS[0], RUNS[2]):
            progress.end(RUNS, run)
    assert log.file.getvalue().splitlines() == [
        "4 runs",
        "[2/4] x/costada/seed-0: finished  score 0.9  $0.5100 of $0.5  iteration 9  1:15",
        "[2/4] x/costada/seed-2: failed  score 0.875  $0.2500 of $0.5  iteration 7  1:15"
        "  no money left",
    ]


def test_a_terminal_shows_the_running_runs_and_the_sums():
    screen = console(is_terminal=True)
    with sweep_progress_on(screen, is_quiet=False) as progress:
        assert isinstance(progress, SweepTable)
        progress.notice("Stopping")
        progress.show(RUNS)
    text = screen.file.getvalue()
    for words in (
        *("x/costada/seed-1", "7/100", "$0.2500 of $0.5", "0.875", "1:15", "Stopping"),
        "1 waiting, 1 running, 1 finished, 1 failed  spent $1.0100, budgets $2",
    ):
        assert words in text
    assert "x/costada/seed-3" not in text


@pytest.mark.parametrize("width", [60, 80])
def test_a_narrow_terminal_folds_names_of_runs_but_no_numbers(width):
    screen = console(is_terminal=False, width=width)
    long = replace(RUNS[1], name="heilbronn_triangle/no-intervention-gating/seed-1")
    screen.print(sweep_table([long], seconds=3723))
    text = screen.file.getvalue()
    for number in ("7/100", "$0.2500 of $0.5", "0.875", "1:15"):
        assert number in text
    assert "…" not in text


def test_the_largest_bill_is_what_unfinished_runs_have_left():
    assert largest_bill(RUNS) == 0.25 + 0.25 + 0.5
    assert headline(RUNS, 2) == (
        "4 runs, at most 2 at once, 1 finished before. Largest bill from here on: $1"
        " = 3 x $0.5 - $0.5000 spent; a run's last iteration may exceed its budget."
    )
    assert headline(RUNS[:1], 2) == "1 run, all finished before: nothing is left to spend."
    shared = "Largest bill from here on: $0.75 in the purse; the last iterations may exceed it."
    assert headline(RUNS, 2, left=0.75).endswith(shared)
    assert headline(RUNS, 2, left=5) == headline(RUNS, 2)


def test_the_result_lists_every_run_and_the_errors_of_failed_ones():
    text = sweep_text(RUNS, Path("sweep"), seconds=3700)
    assert text.splitlines()[0] == (
        "Finished 1 of 4 runs; all together spent $1.0100 (1:01:40 in this sweep)."
    )
    assert "Failed: 1\n  x/costada/seed-2: no money left" in text
    assert "Began with" not in text
    facts = json.loads(sweep_json(RUNS))
    assert [each["status"] for each in facts] == ["finished", "running", "failed", "waiting"]
    named = {"problem": "x", "method": "costada", "model": "offline", "seed": 2, "budget": 0.5}
    named["budget_at_start"] = None
    found = {"iterations": 7, "spent": 0.25, "best_score": 0.875, "best_objective": 2.5}
    end = {"status": "failed", "error": "no money left", "warning": None}
    end["folder"] = "sweep/x/costada/seed-2"
    assert facts[2] == named | found | end


def test_the_result_names_runs_that_began_with_less_than_their_budget():
    cut = replace(run(1, Status.CUT_SHORT, STEP), budget_at_start=0.25)
    resumed = replace(run(2, Status.FINISHED, STEP), budget_at_start=0.125)
    text = sweep_text([RUNS[0], cut, resumed, run(3, Status.SKIPPED)], Path("sweep"), seconds=60)
    assert text.splitlines() == [
        "Finished 2 of 4 runs; all together spent $1.0100 (1:00 in this sweep).",
        "  runs            sweep",
        "Cut short, as too little is left in the purse: 1",
        "Skipped, as too little is left in the purse: 1",
        "Repeat the command with a higher --total to run them.",
        "Began with less than --budget, as the purse had no more: 2",
        "  x/costada/seed-1: $0.25 of $0.5",
        "  x/costada/seed-2: $0.125 of $0.5",
        "They decided by that smaller budget: `costada compare` never averages them with the"
        " others, also after they are resumed.",
    ]


@pytest.mark.parametrize(("status", "step"), [(Status.CUT_SHORT, STEP), (Status.SKIPPED, None)])
def test_a_run_without_money_is_cut_short_once_it_has_spent_some(runs, status, step):
    with Purse(0.5, policy="hard") as purse:
        purse.put("all", cost=0.5)
        waiting = [replace(runs[0], step=step)]
        assert with_purse(waiting, lambda run: ScriptedProcess(), purse) == [status]


@pytest.mark.parametrize(
    ("runs", "code"),
    [
        ([RUNS[0]], ExitCode.FINISHED),
        ([RUNS[0], run(1, Status.CUT_SHORT, STEP), run(2, Status.SKIPPED)], ExitCode.FINISHED),
        ([RUNS[0], RUNS[3]], ExitCode.INTERRUPTED),
        (RUNS, ExitCode.FAILED),
    ],
)
def test_the_exit_code_distinguishes_failure_from_interruption(runs, code):
    assert exit_code(runs) is code

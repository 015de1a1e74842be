import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from costada.experiments.sweep.progress import (
    SweepLines,
    SweepProgress,
    SweepTable,
    exit_code,
    headline,
    largest_bill,
    sweep_json,
    sweep_progress_on,
    sweep_text,
)
from costada.experiments.sweep.sweep import LastStep, Status, SweepRun
from costada.runs.config import RunConfig
from costada.runs.folder import RunFolder
from costada.runs.interruption import ExitCode

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


def console(is_terminal: bool) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=is_terminal, width=100, legacy_windows=False,
        color_system=None,
    )  # fmt: skip


def written(to: Console) -> str:
    assert isinstance(to.file, io.StringIO)
    return to.file.getvalue()


def test_a_log_gets_a_line_for_each_ended_run():
    log = console(is_terminal=False)
    with sweep_progress_on(log, is_quiet=False) as progress:
        progress.begin("4 runs")
        progress.show(RUNS)
        progress.end(RUNS, RUNS[0])
        progress.end(RUNS, RUNS[2])
    assert written(log).splitlines() == [
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
    text = written(screen)
    assert "x/costada/seed-1" in text
    assert "7/100" in text
    assert "$0.2500 of $0.5" in text
    assert "0.875" in text
    assert "1:15" in text
    assert "1 waiting, 1 running, 1 finished, 1 failed  spent $1.0100, budgets $2" in text
    assert "Stopping" in text
    assert "x/costada/seed-3" not in text


def test_quiet_shows_nothing_and_a_log_gets_lines():
    assert type(sweep_progress_on(console(True), is_quiet=True)) is SweepProgress
    assert isinstance(sweep_progress_on(console(False), is_quiet=False), SweepLines)


def test_the_largest_bill_is_what_unfinished_runs_have_left():
    assert largest_bill(RUNS) == 0.25 + 0.25 + 0.5
    assert headline(RUNS, 2) == (
        "4 runs, at most 2 at once, 1 finished before. Largest bill from here on: $1"
        " = 3 x $0.5 - $0.5000 spent; a run's last iteration may exceed its budget."
    )
    assert "Largest bill from here on: $0 = nothing to do" in headline(RUNS[:1], 2)


def test_the_result_lists_failures_with_their_errors():
    text = sweep_text(RUNS, Path("sweep"), seconds=3700)
    assert text.splitlines()[0] == (
        "Finished 1 of 4 runs; all together spent $1.0100 (1:01:40 in this sweep)."
    )
    assert "Failed: 1\n  x/costada/seed-2: no money left" in text


def test_the_result_as_json_has_every_run():
    facts = json.loads(sweep_json(RUNS))
    assert [each["status"] for each in facts] == ["finished", "running", "failed", "waiting"]
    assert facts[2] == {
        "problem": "x",
        "method": "costada",
        "model": "offline",
        "seed": 2,
        "budget": 0.5,
        "status": "failed",
        "iterations": 7,
        "spent": 0.25,
        "best_score": 0.875,
        "best_objective": 2.5,
        "error": "no money left",
        "folder": "sweep/x/costada/seed-2",
    }


@pytest.mark.parametrize(
    ("runs", "code"),
    [
        ([RUNS[0]], ExitCode.FINISHED),
        ([RUNS[0], RUNS[3]], ExitCode.INTERRUPTED),
        (RUNS, ExitCode.FAILED),
    ],
)
def test_the_exit_code_tells_failure_from_interruption(runs, code):
    assert exit_code(runs) is code

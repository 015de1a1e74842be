import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from costada.runs.cli_run import run
from costada.runs.cli_sweep import sweep
from costada.runs.sweep.stop import STOPPING

Invoke = Callable[..., Any]
COMMAND = [sys.executable, "-c", "from costada.runs.cli import main; main()"]
FINISHED, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130
ITERATIONS = 8
LOOK_SECONDS = 0.05


def options(near: Path, out: Path, *more: object) -> list[object]:
    return ["sweep", "--problems", near, "--methods", "costada", "--out", out, *more]


def begin(near: Path, out: Path, *more: object) -> "subprocess.Popen[str]":
    words = options(near, out, "--max-iterations", ITERATIONS, *more)
    return subprocess.Popen(
        [*COMMAND, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def steps(out: Path, seed: int) -> Path:
    return out / "near" / "costada" / f"seed-{seed}" / "steps.jsonl"


def wait_for_a_step(process: "subprocess.Popen[str]", file: Path) -> None:
    while not (file.is_file() and b"\n" in file.read_bytes()):
        with suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_SECONDS)
        assert process.returncode is None


def process_of(folder: Path) -> int:
    """Return the process that was started with a run's folder."""
    option = f"--out={folder}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if option in (entry / "cmdline").read_bytes().split(b"\0"):
                return int(entry.name)
    raise AssertionError(folder)


@pytest.fixture(scope="module")
def whole(near: Path, tmp_path_factory: pytest.TempPathFactory, invoke: Invoke) -> Path:
    """Two ordinary runs that nothing disturbed, where a sweep would put them."""
    out = tmp_path_factory.mktemp("sweeps") / "whole"
    for seed in (0, 1):
        place = ("--out", steps(out, seed).parent, "--seed", seed)
        assert invoke("run", near, "--max-iterations", ITERATIONS, *place).exit_code == FINISHED
    return out


def test_a_sweep_makes_ordinary_runs_and_says_first_what_they_may_cost(
    near: Path, tmp_path: Path, invoke: Invoke
) -> None:
    result = invoke(
        "sweep", "--problems", near, "--methods", "uniform", "--seeds", 1,
        "--budget", "0.005,0.01", "--max-iterations", 2, "--jobs", 2, "--out", tmp_path / "sweep",
    )  # fmt: skip
    assert result.exit_code == FINISHED, result.output
    assert result.output.startswith(
        "2 runs, at most 2 at once. Largest bill from here on: $0.015 = 1 x $0.005 + 1 x $0.01;"
    )
    assert "[2/2] near/uniform/" in result.output
    folders = [path.parent for path in (tmp_path / "sweep").rglob("settings.json")]
    assert sorted(str(folder.relative_to(tmp_path / "sweep")) for folder in folders) == [
        "near/uniform/budget-0.005/seed-0",
        "near/uniform/budget-0.01/seed-0",
    ]
    for folder in folders:
        assert invoke("trace", folder).exit_code == FINISHED


def test_finished_runs_are_kept_and_cost_nothing_more(
    near: Path, whole: Path, invoke: Invoke
) -> None:
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("report.png")}
    words = options(near, whole, "--max-iterations", ITERATIONS, "--seeds", 2, "--json")
    result = invoke(*words)
    assert result.exit_code == FINISHED
    assert "2 finished before. Largest bill from here on: $0 = nothing to do" in result.stderr
    assert [(each["seed"], each["status"]) for each in json.loads(result.stdout)] == [
        (0, "finished"),
        (1, "finished"),
    ]
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("report.png")} == before


@pytest.mark.skipif(not Path("/proc/self/cmdline").is_file(), reason="needs /proc")
def test_a_killed_run_is_reported_stops_no_other_and_is_gone_on_with(
    near: Path, whole: Path, tmp_path: Path, invoke: Invoke
) -> None:
    out = tmp_path / "sweep"
    with begin(near, out, "--seeds", "2", "--jobs", "2") as process:
        wait_for_a_step(process, steps(out, 0))
        os.kill(process_of(steps(out, 0).parent), signal.SIGKILL)
        said, errors = process.communicate()
    assert process.returncode == FAILED, errors
    assert "  near/costada/seed-0: killed by SIGKILL" in said
    assert steps(out, 1).read_bytes() == steps(whole, 1).read_bytes()
    again = invoke(*options(near, out, "--max-iterations", ITERATIONS, "--seeds", 2))
    assert again.exit_code == FINISHED, again.output
    assert "1 finished before, 1 begun before" in again.output
    assert len(steps(out, 0).read_text().splitlines()) == ITERATIONS
    assert not list(out.rglob("*.log"))


def test_ctrl_c_saves_every_run_and_the_same_command_goes_on(
    near: Path, whole: Path, tmp_path: Path, invoke: Invoke
) -> None:
    out = tmp_path / "sweep"
    with begin(near, out, "--seeds", "2", "--jobs", "1") as process:
        wait_for_a_step(process, steps(out, 0))
        second = invoke(*options(near, out))
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate()
    assert second.exit_code == REFUSED
    assert f"{out}: another sweep is at work here" in second.output
    assert process.returncode == INTERRUPTED, errors
    assert STOPPING in errors
    assert "Finished 0 of 2 runs" in said
    assert "near/costada/seed-0: interrupted" in said
    assert not steps(out, 1).exists()
    again = invoke(*options(near, out, "--max-iterations", ITERATIONS, "--seeds", 2))
    assert again.exit_code == FINISHED, again.output
    for seed in (0, 1):
        assert steps(out, seed).read_bytes() == steps(whole, seed).read_bytes()


def test_a_second_ctrl_c_ends_a_sweep_at_once(near: Path, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    with begin(near, out, "--seeds", "1") as process:
        wait_for_a_step(process, steps(out, 0))
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=10)
    assert process.returncode == INTERRUPTED


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--methods", "costada,unifrom"], "Did you mean 'uniform'?"),
        (["--problems", "circle_packin"], "did you mean 'circle_packing'?"),
        (["--problems", " , "], "--problems: got ' , ', expected one or more"),
        (["--seeds", "none"], "--seeds: got 'none', expected a number of seeds or a list"),
        (["--seeds", "0"], "--seeds: got '0', expected a number of seeds or a list"),
        (["--seeds", "1,-1"], "--seed: got -1, expected greater than or equal to 0"),
        (["--budget", "1,dear"], "--budget: got 'dear', expected a valid number"),
        (["--model", "offlin"], "did you mean 'offline'?"),
        (["--model", "openai:mine", "--base-url", "http://localhost:1/v1"], "no known price"),
        (["--preset", "glm5"], "Did you mean 'glm-5'?"),
        (["--jobs", "0"], "--jobs"),
        (["--gateway"], "gateway: models of this run call no OpenAI-compatible server"),
        (["--step-cap", "1"], "--step-cap: got 1 with generator 'model'"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_starts(
    near: Path, tmp_path: Path, invoke: Invoke, more: list[str], text: str
) -> None:
    result = invoke(*options(near, tmp_path / "sweep", *more))
    assert result.exit_code == REFUSED
    assert text in result.output
    assert "Traceback" not in result.output
    assert not (tmp_path / "sweep").exists()


def test_a_sweep_over_runs_with_other_settings_is_refused(
    near: Path, whole: Path, invoke: Invoke
) -> None:
    result = invoke(*options(near, whole, "--max-iterations", 9, "--seeds", 3))
    assert result.exit_code == REFUSED
    assert f"other settings: max_iterations was {ITERATIONS}, got 9" in result.output
    assert not steps(whole, 2).exists()


def test_a_dry_run_computes_the_largest_bill_and_touches_nothing(
    tmp_path: Path, invoke: Invoke
) -> None:
    out = tmp_path / "paper"
    result = invoke(
        "sweep", "--problems", "all", "--methods", "all", "--preset", "gpt-5.4",
        "--model", "openai:gpt-5.4", "--out", out, "--dry-run",
    )  # fmt: skip
    assert result.exit_code == FINISHED, result.output
    assert "192 runs" in result.output
    assert "Largest bill from here on: $960 = 192 x $5;" in result.output
    assert not out.exists()


def test_a_hard_budget_is_not_said_to_be_crossed(tmp_path: Path, invoke: Invoke) -> None:
    words = ("--problems", "circle_packing", "--methods", "uniform", "--seeds", 2, "--dry-run")
    hard = invoke("sweep", *words, "--out", tmp_path / "a", "--budget-policy", "hard")
    crossing = invoke("sweep", *words, "--out", tmp_path / "a", "--budget-policy", "crossing")
    assert hard.output.endswith("$2 = 2 x $1; no run goes beyond its budget.\n")
    assert crossing.output.endswith("; a run's last iteration may go beyond its budget.\n")


def test_a_sweep_has_the_options_of_a_run_but_for_what_it_varies() -> None:
    ordinary, swept = set(signature(run).parameters), set(signature(sweep).parameters)
    assert ordinary - swept == {"problem", "method", "seed", "preflight"}


def test_what_a_sweep_is_told_of_money_and_tools_reaches_its_runs(
    near: Path, tmp_path: Path, invoke: Invoke
) -> None:
    result = invoke(
        *options(near, tmp_path / "sweep", "--seeds", 1, "--max-iterations", 1),
        "--budget-policy", "hard", "--lost-calls", "ignore", "--max-failures", 7,
        "--keep-history", "--generator", "agent", "--tool-evaluations", 1, "--step-cap", 0.5,
    )  # fmt: skip
    assert result.exit_code == FINISHED, result.output
    (saved,) = (tmp_path / "sweep").rglob("settings.json")
    told = json.loads(saved.read_text())
    names = ("budget_policy", "lost_calls", "max_failures", "keep_history")
    assert [told[name] for name in names] == ["hard", "ignore", 7, True]
    names = ("generator", "tool_evaluations", "step_cap")
    assert [told[name] for name in names] == ["agent", 1, 0.5]

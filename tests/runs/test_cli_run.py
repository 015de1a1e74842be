import json
import signal
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from begun_commands import BegunCommand
from billing_server import BillingServer, Reply
from matplotlib.image import imread

from costada.store.run_store import RunStore

Invoke = Callable[..., Any]
ITERATIONS = 15


def steps(folder):
    return [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]


def test_a_run_leaves_the_promised_files(finished):
    # SQLite keeps its own files beside a database that somebody has read.
    names = {file.name for file in finished.iterdir()}
    assert names - {"run.sqlite-shm", "run.sqlite-wal"} == {
        "run.sqlite",
        "settings.json",
        "steps.jsonl",
        "best_program.py",
        "report.png",
    }


def test_the_steps_file_is_the_trace(invoke, finished):
    assert steps(finished) == json.loads(invoke("trace", finished, "--json").stdout)


def test_the_best_program_scores_what_the_run_says(invoke, near, finished):
    verdict = invoke("evaluate", near, finished / "best_program.py", "--json")
    assert json.loads(verdict.stdout)["score"] == steps(finished)[-1]["best_score"]


def test_the_report_is_a_legible_picture(finished):
    height, width = imread(finished / "report.png").shape[:2]
    assert (width, height) == (1950, 598)


def test_the_settings_hold_what_was_asked(near, finished):
    settings = json.loads((finished / "settings.json").read_text())
    assert settings["problem"] == str(near.resolve())
    assert (settings["model"], settings["max_iterations"], settings["budget"]) == ("offline", 3, 1)


def test_the_result_as_json_agrees_with_the_ledger_and_progress_goes_to_standard_error(
    invoke, near, tmp_path
):
    out = tmp_path / "run"
    result = invoke("run", near, "--max-iterations", 2, "--out", out, "--json")
    facts = json.loads(result.stdout)
    assert "t=1  frontier 1" in result.stderr
    with RunStore(out / "run.sqlite") as store:
        calls = list(store.call_log.calls(store.run_ids()[0]))
    assert facts["stop_reason"] == "iterations"
    assert (facts["iterations"], facts["uncharged"]) == (2, 0)
    assert Decimal(str(facts["spent"])) == sum(call.cost for call in calls)
    assert sum(role["calls"] for role in facts["ledger"].values()) == len(calls)
    assert sum(role["output_tokens"] for role in facts["ledger"].values()) == sum(
        call.usage.output_tokens for call in calls
    )
    assert facts["ledger"].keys() == {"generation", "retry", "guide"}


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_the_longest_answer_is_sent_stored_and_sent_again_on_resume(
    invoke, near, tmp_path, monkeypatch, command
):
    monkeypatch.setenv("OPENAI_API_KEY", "no key")
    place = {
        "run": (near, "--out", tmp_path / "run"),
        "sweep": ("--problems", near, "--methods", "costada", "--seeds", 1, "--out", tmp_path),
    }[command]
    out = {"run": tmp_path / "run", "sweep": tmp_path / "near" / "costada" / "seed-0"}[command]
    with BillingServer(default=Reply("nothing")) as server:
        model = ("--model", "openai:mine", "--base-url", server.url, "--max-tokens", 500)
        options = ("--price-in", "1", "--price-out", "2", "--max-failures", 1, "--quiet")
        invoke(command, *place, *model, *options)
        before = len(server.requests)
        invoke("resume", out, "--quiet")
        limits = [body["max_completion_tokens"] for body in server.requests]
    assert limits == [500] * len(limits)
    assert len(limits) > before > 0
    assert json.loads((out / "settings.json").read_text())["max_tokens"] == 500


def test_quiet_prints_nothing_but_the_result_and_how_far_the_budget_was_overshot(
    invoke, near, tmp_path
):
    result = invoke("run", near, "--budget", 0.01, "--out", tmp_path / "run", "--quiet")
    spent = steps(tmp_path / "run")[-1]["spent"]
    assert spent >= 0.01
    assert result.output.startswith("Finished after ")
    assert "the budget is used up" in result.stdout
    assert f"(overshoot {spent / 0.01 - 1:.2%})" in result.stdout


def test_a_run_without_a_folder_gets_a_numbered_one(invoke, near, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert invoke("run", near, "--max-iterations", 1).exit_code == 0
    assert (tmp_path / "runs-out" / "near-1" / "steps.jsonl").is_file()


def test_resuming_a_finished_run_says_so_spends_nothing_and_gives_handlers_back(invoke, finished):
    before, handler = (finished / "steps.jsonl").read_bytes(), signal.getsignal(signal.SIGINT)
    result = invoke("resume", finished)
    assert result.exit_code == 0
    assert "this run has finished; it spends nothing more" in result.output
    assert "Finished after 3 iterations" in result.output
    assert (finished / "steps.jsonl").read_bytes() == before
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.fixture(scope="module")
def whole(invoke, near, tmp_path_factory):
    """The folder of a run that no signal stops."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    options = ("--max-iterations", ITERATIONS, "--seed", 5, "--out", folder)
    assert invoke("run", near, *options).exit_code == 0
    return folder


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_stopped_by_a_signal_and_resumed_ends_as_the_uninterrupted_one(
    invoke, near, whole, tmp_path, number
):
    stopped = tmp_path / "stopped"
    options = ("--max-iterations", ITERATIONS, "--seed", 5, "--out", stopped)
    command = BegunCommand(tmp_path / "output", "run", near, *options)
    command.wait_for("t=2 ")
    command.send_signal(number)
    assert command.exit_code() == 130, command.said
    assert f"Resume with: costada resume {stopped}" in command.said
    assert 2 <= len(steps(stopped)) < ITERATIONS
    assert (stopped / "report.png").is_file()
    assert invoke("resume", stopped).exit_code == 0
    for name in ("steps.jsonl", "best_program.py"):
        assert (stopped / name).read_bytes() == (whole / name).read_bytes()

import json
import re
import shutil
import signal
import sqlite3
from contextlib import closing
from decimal import Decimal
from itertools import count

import pytest
from begun_commands import BegunCommand
from billing_server import BillingServer, Drip, HangUp, Page, Refusal, Reply
from matplotlib.image import imread

from costada.store.run_store import RunStore

pytestmark = pytest.mark.process

ITERATIONS = 15


def steps(folder):
    return [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]


def test_a_run_leaves_the_promised_files(finished):
    assert {file.name for file in finished.iterdir()} == {
        "run.sqlite",
        "settings.json",
        "steps.jsonl",
        "best_program.py",
        "report.html",
        "row.json",
    }


def test_the_steps_file_is_the_trace(invoke, finished):
    assert steps(finished) == json.loads(invoke("trace", finished, "--json").stdout)


def test_the_best_program_scores_what_the_run_says(invoke, near, finished):
    verdict = invoke("evaluate", near, finished / "best_program.py", "--json")
    assert json.loads(verdict.stdout)["score"] == steps(finished)[-1]["best_score"]


def test_the_page_says_that_the_run_is_finished(finished):
    page = (finished / "report.html").read_text()
    assert '"state":"finished"' in page
    assert '"words":"Finished: ' in page


def test_a_picture_is_drawn_only_when_it_is_asked_for(invoke, finished, tmp_path):
    assert not list(finished.glob("*.png"))
    file = tmp_path / "run.png"
    for words in (["--out", file], ["--png", "--out", tmp_path / "run.html"]):
        refused = invoke("report", finished, *words)
        assert (refused.exit_code, str(words[-1]) in refused.output) == (2, True)
    assert invoke("report", finished, "--png", "--out", file).stdout.strip() == str(file)
    height, width = imread(file).shape[:2]
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
        options = ("--price", "1,2", "--max-failures", 1, "--quiet")
        invoke(command, *place, *model, *options)
        before = len(server.requests)
        invoke("resume", out, "--quiet")
        limits = [body["max_completion_tokens"] for body in server.requests]
    assert limits == [500] * len(limits)
    assert len(limits) > before > 0
    assert json.loads((out / "settings.json").read_text())["max_tokens"] == 500


@pytest.fixture
def long(finished, tmp_path):
    """A run of many steps."""
    folder = tmp_path / "long"
    shutil.copytree(finished, folder)
    (row,) = steps(folder)[-1:]
    with closing(sqlite3.connect(folder / "run.sqlite")) as connection, connection:
        for iteration in range(4, 1002):
            added = ("iteration", iteration), ("ticket", iteration), ("spent", row["spent"])
            connection.execute(
                "INSERT INTO costada_step SELECT run_id, ?, ? FROM costada_run",
                (iteration, json.dumps({**row, **dict(added)})),
            )
    return folder


def test_a_run_of_any_length_writes_its_page_once_it_is_finished(invoke, long):
    (long / "report.html").unlink()
    result = invoke("resume", long)
    assert result.exit_code == 0, result.output
    assert len(steps(long)) == 1001
    assert f"report          {(long / 'report.html').as_uri()}\n" in result.output
    assert '"state":"finished"' in (long / "report.html").read_text()


def test_an_interrupted_long_run_writes_its_page(long, tmp_path):
    command = BegunCommand(tmp_path / "output", "resume", long, "--max-iterations", 2000)
    command.wait_for("t=4 ")
    command.send_signal(signal.SIGINT)
    assert command.exit_code() == 130, command.said
    assert f"report          {(long / 'report.html').as_uri()}\n" in command.said
    assert '"state":"stopped"' in (long / "report.html").read_text()


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
    assert "this run has finished and has spent $" in result.output
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
    assert (stopped / "report.html").is_file()
    assert invoke("resume", stopped).exit_code == 0
    for name in ("steps.jsonl", "best_program.py"):
        assert (stopped / name).read_bytes() == (whole / name).read_bytes()


PROGRAM = "# EVOLVE-BLOCK-START\ndef value():\n    return {}\n# EVOLVE-BLOCK-END\n"
VALUES = count(1)


def good(body):
    return Reply(f"```python\n{PROGRAM.format(next(VALUES) / 1000)}```")


DOUBT = 0.064
"""Dollars that one unanswered request may have cost: 32,000 tokens at $2 a million."""


@pytest.fixture
def server(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with BillingServer(default=good) as running:
        yield running


def words(near, server, out, *more):
    provider = ["--model", "openai:stand-in", "--base-url", server.url]
    prices = ["--price", "1,2", "--retry-wait", 0.01]
    return ["run", near, *provider, *prices, "--out", out, *more]


@pytest.mark.parametrize(
    ("answer", "requests", "reason"),
    [
        (Page(), 1, "check the model's name and base_url"),
        (HangUp(), 3, "none of the 3 requests so far got a usable answer"),
        (Refusal(429, code="insufficient_quota"), 1, "is used up: add credit"),
        (Refusal(429, headers={"Retry-After": "3600"}), 1, "asks to wait 3600 s"),
    ],
    ids=str,
)
def test_a_run_that_gets_no_usable_answer_fails_at_once_with_the_reason(
    invoke, near, server, tmp_path, answer, requests, reason
):
    server.default = answer
    ended = invoke(*words(near, server, tmp_path / "run", "--budget", DOUBT))
    assert ended.exit_code == 1
    assert reason in ended.stderr
    assert f"Resume with: costada resume {tmp_path / 'run'}" in ended.stderr
    assert len(server.requests) == requests


def test_a_run_that_ended_without_token_counts_goes_on_with_estimates(
    invoke, near, server, tmp_path
):
    server.default = Reply("nothing", reports_usage=False)
    folder, limits = tmp_path / "run", ("--max-failures", 1, "--quiet")
    for command in (words(near, server, folder, *limits), ["resume", folder]):
        refused = invoke(*command)
        assert (refused.exit_code, len(server.requests)) == (1, 1)
        assert "--on-missing-usage estimate" in refused.stderr
    server.default = Reply("nothing", 10, 10)
    ended = invoke("resume", folder, "--on-missing-usage", "estimate", "--json", "--quiet")
    used = json.loads(ended.stdout)["ledger"]["generation"]
    assert (used["calls"], used["in_doubt"]) == (1, 0)
    sent = server.requests[0]["messages"]
    assert used["input_tokens"] == -(-sum(len(each["content"].encode()) for each in sent) // 3)


def test_the_end_of_a_run_says_how_much_of_its_prompts_came_from_a_cache(
    invoke, near, server, tmp_path
):
    """Under a price of the user's own, a cached token costs what another one costs."""
    server.default = Reply("nothing", input_tokens=1000, cached_tokens=250)
    limits = ("--max-failures", 1, "--json", "--quiet")
    ended = invoke(*words(near, server, tmp_path / "run", *limits))
    used = json.loads(ended.stdout)["ledger"]["generation"]
    assert (used["input_tokens"], used["cached_tokens"]) == (1000, 250)
    assert used["cache_saved_dollars"] == 0.0
    again = invoke("resume", tmp_path / "run", "--quiet")
    assert "    cached        25.00% of the tokens in, $0.000000 saved\n" in again.stdout


@pytest.mark.parametrize("is_quiet", [False, True])
def test_a_run_waits_for_its_provider_and_says_so(invoke, near, server, tmp_path, is_quiet, capfd):
    server.script(good, *[Refusal(503, "down for repair")] * 6)
    quiet = ["--quiet"] if is_quiet else []
    ended = invoke(*words(near, server, tmp_path / "run", "--max-iterations", 3, *quiet))
    assert ended.exit_code == 0, ended.output
    said = ended.stderr + capfd.readouterr().err
    assert said.count("Paused: the provider does not answer (") == 4
    assert "down for repair" in said
    assert len(re.findall(r"The provider answers again after \d+ s; the run continues", said)) == 1
    assert "Finished after 3 iterations: the iteration limit is reached" in ended.stdout


def test_ctrl_c_ends_a_paused_run_saved_and_it_is_resumed(invoke, near, server, tmp_path):
    server.script(good)
    server.default = Refusal(503, "down")
    out = tmp_path / "run"
    waits = ("--max-iterations", 3, "--longest-wait", 600, "--longest-pause", 600)
    given = [*words(near, server, out, *waits)]
    given[given.index("--retry-wait") + 1] = 0.4
    command = BegunCommand(tmp_path / "output", *given)
    command.wait_for("Paused")
    command.send_signal(signal.SIGINT)
    assert command.exit_code() == 130, command.said
    assert f"Resume with: costada resume {out}" in command.said
    server.default = good
    assert invoke("resume", out).exit_code == 0
    steps = [json.loads(line) for line in (out / "steps.jsonl").read_text().splitlines()]
    assert [step["attempts"] for step in steps] == [1, 1, 1]


def test_a_pause_has_an_end_after_which_the_run_has_failed_saved(invoke, near, server, tmp_path):
    server.script(good)
    server.default = Refusal(503, "down")
    given = words(near, server, tmp_path / "run", "--max-iterations", 2, "--longest-pause", 0.2)
    ended = invoke(*given)
    assert ended.exit_code == 1
    assert "has not answered for longest_pause (0.2 s)" in ended.stderr
    server.default = good
    assert invoke("resume", tmp_path / "run").exit_code == 0


@pytest.mark.parametrize("gateway", [[], ["--gateway"]], ids=["direct", "gateway"])
def test_a_body_that_drips_ends_with_the_call_and_so_does_its_connection(
    invoke, near, server, tmp_path, gateway
):
    drip = Drip()
    server.default = drip
    given = words(near, server, tmp_path / "run", "--call-timeout", 0.5, *gateway)
    ended = invoke(*given)
    assert ended.exit_code == 1
    # a request that was given up may not have ended when the third one is counted
    assert re.search("none of the [34] requests so far got a usable answer", ended.stderr)
    assert drip.was_hung_up.wait(60)
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("more", "is_used"),
    [(["--parallel", 2], True), (["--parallel", 2, "--no-gateway"], False), ([], False)],
    ids=["several calls", "not wanted", "one call"],
)
def test_several_calls_at_once_go_through_the_gateway_unless_it_is_not_wanted(
    invoke, near, server, tmp_path, capfd, more, is_used
):
    server.default = Reply("no program")
    ended = invoke(*words(near, server, tmp_path / "run", "--max-iterations", 2, *more))
    assert ended.exit_code == 0
    notice = "With a gateway, as up to 2 calls are in flight"
    assert (notice in capfd.readouterr().err) is is_used
    assert (tmp_path / "run" / "gateway.sqlite").exists() is is_used


def test_a_run_whose_iterations_all_failed_says_why_at_its_end_and_only_there(invoke, tmp_path):
    folder, texts = tmp_path / "text", {"problem.md": "Do it.", "initial_prompt.txt": "short"}
    texts["evaluator.py"] = "def score(output):\n    return {'combined_score': 0.5}\n"
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text)
    result = invoke("run", folder, "--max-iterations", 2, "--out", tmp_path / "run")
    reason = steps(tmp_path / "run")[-1]["failure"].splitlines()[0]
    assert result.exit_code == 0, result.stderr
    assert f"\n  failed          2 of 2 iterations, the last one: {reason}\n" in result.stdout
    assert result.stdout.count(reason) == 1


def test_the_end_of_a_run_with_a_gain_names_no_failure(invoke, near, finished):
    assert max(each["global_gain"] for each in steps(finished)) > 0
    again = invoke("resume", finished)
    assert "Finished after" in again.stdout
    assert "\n  failed " not in again.stdout


def test_what_sends_nothing_needs_no_key(invoke, near, tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    for models in (("--model", "openai:gpt-5-mini"), ("--models", "openai:gpt-5-mini,offline")):
        for words in (("run", near, "--dry-run"), ("forecast", near)):
            assert invoke(*words, *models, "--budget", 1).exit_code == 0
        refused = invoke("run", near, *models, "--budget", 1, "--out", "o")
        assert (refused.exit_code, "OPENAI_API_KEY must hold" in refused.output) == (2, True)
    unknown = invoke("run", near, "--model", "openai:no-such", "--budget", 1, "--dry-run")
    assert (unknown.exit_code, "price" in unknown.output) == (2, True)


def test_the_first_prompt_is_shown_in_full_with_a_dry_run_and_only_then(invoke, near, tmp_path):
    shown = invoke("run", near, "--dry-run", "--show-prompt").stdout
    task, start = (near / "problem.md").read_text(), (near / "initial_program.py").read_text()
    assert "--- first program, system message ---" in shown
    assert task.strip() in shown
    assert start.strip() in shown
    facts = json.loads(invoke("run", near, "--dry-run", "--show-prompt", "--json").stdout)
    [prompt] = facts["prompts"]
    assert len(prompt["system"]) + len(prompt["user"]) == prompt["characters"]
    refused = invoke("run", near, "--show-prompt", "--out", tmp_path / "run")
    assert refused.exit_code == 2
    assert "--show-prompt: needs --dry-run" in refused.output
    assert not (tmp_path / "run").exists()


def test_a_run_ends_with_the_address_of_its_page(invoke, near, tmp_path):
    out = tmp_path / "a run"
    last = invoke("run", near, "--max-iterations", 1, "--out", out).stdout.splitlines()[-1]
    assert last.split() == ["report", f"file://{tmp_path}/a%20run/report.html"]


def test_a_slice_without_a_purse_is_refused(invoke, near, tmp_path):
    refused = invoke("run", near, "--purse-slice", 1, "--out", tmp_path / "run")
    assert refused.exit_code == 2
    assert "--purse-slice: got 1 without --purse, expected both or none" in refused.output
    assert not (tmp_path / "run").exists()

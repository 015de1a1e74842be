import os
import re
import socket
import subprocess
import sys
import termios
from contextlib import suppress

import pytest
from billing_server import BillingServer, Refusal, Reply
from compared_runs import runs_of

from costada.experiments.comparison.outcomes import append_outcomes
from costada.reports.formats import budget_text, count, counted, percent

pytestmark = pytest.mark.process

REFUSED, FAILED = 2, 1
BUDGETED = ["mcp", "--max-budget", 1]
SWEEP = ["sweep", "--problems", "all", "--methods", "all"]
COMMAND = [sys.executable, "-c", "from costada.cli.main import main; main()"]


@pytest.mark.parametrize("option", ["--model", "--methods", "--budget"])
def test_a_list_is_given_once(invoke, option, tmp_path):
    result = invoke(*SWEEP, "--out", tmp_path / "new", option, "1", option, "2")
    assert result.exit_code == REFUSED
    assert f"costada: {option}: given repeatedly, expected once as " in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ["run", "circle_packing", "--out", ""],
        ["resume", ""],
        ["fork", "", "--at", "1", "--out", "new"],
        ["fork", "run", "--at", "1", "--out", ""],
        [*SWEEP, "--out", ""],
        ["compare", ""],
        ["compare", "runs", "--out", ""],
        ["simulate", "--out", ""],
        ["theory", "--out", ""],
        ["trace", ""],
        ["report", ""],
        ["report", "run", "--out", ""],
        ["watch", ""],
        ["evaluate", "circle_packing", ""],
        ["init", ""],
        ["graph", "--out", ""],
        ["graph", "--run", ""],
        ["gateway", "--upstream", "http://localhost", "--journal", ""],
        ["mcp", "--max-budget", "1", "--out", ""],
        ["mcp", "--max-budget", "1", "--purse", ""],
    ],
    ids=lambda words: " ".join(words),
)
def test_an_empty_path_is_refused_by_the_name_of_its_option(invoke, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke(*words)
    assert result.exit_code == REFUSED
    option = words[words.index("") - 1]
    name = option if option.startswith("--") else "[A-Z]+"
    assert re.fullmatch(f"costada: {name}: got '', expected a path\n", result.output)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["run", "circle_packing", "--max-iterations", 1, "--out", "o\udcff"], "--out"),
        (["sweep", "--out", "o\udcff"], "--out"),
        (["init", "o\udcff"], "[A-Z]+"),
    ],
)
def test_a_path_that_is_no_text_is_refused_by_the_name_of_its_option(
    invoke, words, name, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    result = invoke(*words)
    assert result.exit_code == REFUSED
    expected = re.escape(r"got 'o\udcff', expected a path in UTF-8")
    assert re.fullmatch(f"costada: {name}: {expected}\n", result.output)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["mcp", "--max-budget", 1, "--port", 9000], "--port: got 9000 without --http"),
        (
            [*BUDGETED, "--store", "postgresql://h/d", "--purse", "postgresql://u:secret@h/purses"],
            "--purse: got postgresql://u@h/purses with --store",
        ),
        ([*BUDGETED, "--purse", "postgresql://h/d#run"], "--purse: got 'an address with #RUN'"),
        (
            ["run", "circle_packing", "--tool-evaluations", 5],
            "--tool-evaluations: needs --generator agent",
        ),
        (
            ["run", "circle_packing", "--generator", "agent", "--generator-timeout", 5],
            "--generator-timeout: needs a command as --generator",
        ),
        (
            ["run", "circle_packing", "--generator", "agnet"],
            "generator: got 'agnet', expected model, agent or a command of a program that is"
            " installed (found no 'agnet')",
        ),
        (
            [*SWEEP, "--out", "swept", "--tool-evaluations", 5],
            "--tool-evaluations: needs --generator agent",
        ),
        (
            ["run", "circle_packing", "--models", "offline", "--model", "openai:x"],
            "--model: got 'openai:x' with models, expected only one of them",
        ),
        (
            ["run", "circle_packing", "--models", "offline", "--model", "offline"],
            "--model: got 'offline' with models, expected only one of them",
        ),
        (
            ["run", "circle_packing", "--evaluations-at-once", 3, "--evaluate-on", "local:2"],
            "--evaluations-at-once: got 3 with --evaluate-on 'local:2', expected at most 2",
        ),
        (
            ["sweep", "--problems", "nope", "--methods", "costada", "--out", "x", "--dry-run"],
            "problem is 'nope'; expected the path of a problem folder, or one of:",
        ),
        (
            [*SWEEP, "--out", "swept", "--seeds", "20261127"],
            "--seeds: got '20261127', expected a number of seeds up to 10,000, or a list",
        ),
        (["graph", "--format", "svg", "--out", "x.png"], "--out: got x.png for --format svg"),
        (["graph", "--out", "x.svg"], "--out: got x.svg for --format mermaid"),
        *(
            (["simulate", "--budget", budget], "expected finite dollars above 0")
            for budget in ("inf", "nan", "0")
        ),
    ],
)
def test_options_that_contradict_one_another_are_refused(
    invoke, words, text, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    result = invoke(*words)
    assert (result.exit_code, list(tmp_path.iterdir())) == (REFUSED, [])
    assert text in result.output


@pytest.mark.parametrize(
    ("command", "codes"),
    [
        ("list", "Exit codes: 0 done; 2 refused; 130 stopped."),
        ("trace", "Exit codes: 0 done; 2 refused; 130 stopped."),
        ("watch", "Exit codes: 0 stopped with Ctrl-C; 2 refused."),
        ("evaluate", "0 done, also if the program failed; 1 the evaluator or the sandbox failed"),
        ("simulate", "Exit codes: 0 done; 1 failed; 2 refused; 130 stopped."),
    ],
)
def test_commands_without_runs_promise_no_saved_run(invoke, command, codes):
    text = " ".join(invoke(command, "--help").output.split())
    assert codes in text
    assert "saved" not in text


def test_what_the_terminal_cannot_show_is_replaced(tmp_path):
    append_outcomes(tmp_path / "x.curves.jsonl", runs_of({"evox": [0.5, 0.6]}))
    plain = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    result = subprocess.run(
        [*COMMAND, "compare", str(tmp_path)], env={**os.environ, **plain}, capture_output=True
    )
    assert result.returncode == 0, result.stderr
    assert b" ? " in result.stdout


@pytest.mark.parametrize(
    ("budget", "text"),
    [
        (0.05, "$0.05"),
        (5, "$5"),
        (1e-9, "$0.000000001"),
        (1234567.89, "$1234567.89"),
        (0.1 + 0.2, "$0.3"),
        (1e-300, "$1e-300"),
        (1e300, "$1e+300"),
    ],
)
def test_a_budget_is_written_with_its_digits(budget, text):
    assert budget_text(budget) == text


def test_numbers_beyond_reason_take_few_characters():
    assert percent(9_966_360.0) == "996,636,000%"
    assert (count(12_345), count(10**300)) == ("12,345", "1e+300")
    assert (percent(0.0472), percent(1e298)) == ("4.72%", ">10,000,000,000%")
    assert (counted(1, "run"), counted(2, "run")) == ("1 run", "2 runs")


@pytest.mark.parametrize("budget", ["1e300", "1e308"])
def test_a_dry_run_of_an_absurd_budget_takes_few_characters(invoke, near, budget):
    result = invoke("run", near, "--budget", budget, "--dry-run")
    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines())) < 200


def test_a_price_of_a_model_that_is_not_asked_is_told(invoke, near):
    words = ("run", near, "--model", "openai:gpt-5.4", "--dry-run", "--set")
    unused = invoke(*words, "other_prices.gpt-5.5=1,2")
    assert unused.exit_code == 0, unused.output
    assert "other_prices.gpt-5.5: the run asks no model of that name, so this price" in (
        unused.stderr
    )
    assert "the run asks no model" not in invoke(*words, "other_prices.gpt-5.4=1,2").stderr


def test_one_iteration_is_one_iteration(invoke, near, tmp_path):
    result = invoke("run", near, "--budget", "1e-300", "--out", tmp_path / "run")
    assert "Finished after 1 iteration: " in result.stdout
    assert max(map(len, result.stdout.splitlines())) < 200


@pytest.fixture
def out(tmp_path):
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--budget", "0"], "--budget: got 0.0, expected greater than 0"),
        (["--model", "offlin"], "did you mean 'offline'?"),
        (["--model", "opnai:gpt"], "did you mean 'openai:gpt'?"),
        (
            ["--budget", "1e-12", "--budget-policy", "hard"],
            "budget: got $1e-12 under a hard budget, expected at least $0.003",
        ),
    ],
)
def test_a_wrong_option_is_refused_in_one_line_and_no_folder_appears(invoke, out, options, text):
    result = invoke("run", "circle_packing", "--out", out, *options)
    assert result.exit_code == REFUSED
    assert text in result.output
    assert "Traceback" not in result.output
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["run", "x", "--budget", "1,5"], "--budget: got '1,5', expected a number"),
        (["run", "x", "--seed", "1.5"], "--seed: got '1.5', expected an integer"),
        (["run", "x", "--memory-mb", "x"], "--memory-mb: got 'x', expected an integer"),
        (["sweep", "--out", "x", "--jobs", "x"], "--jobs: got 'x', expected an integer"),
        (["simulate", "--seeds", "0"], "--seeds: got '0', expected greater than or equal to 1"),
        (["watch", "x", "--port", "abc"], "--port: got 'abc', expected an integer"),
        (["resume", "x", "--max-iterations", "x"], "--max-iterations: got 'x', expected an int"),
        (
            ["run", "x", "--purse", "postgresql://u:secret@h/d"],
            "--purse: got an address without a name, expected FILE#NAME or postgresql://",
        ),
        (["run", "x", "--purse", "postgresql://u:secret@[h/d#n"], "--purse: "),
    ],
)
def test_a_value_that_cannot_be_read_is_refused_in_one_line(invoke, words, text):
    result = invoke(*words)
    assert result.exit_code == REFUSED
    assert result.output.startswith(f"costada: {text}")
    assert len(result.output.splitlines()) == 1
    assert "secret" not in result.output


@pytest.mark.parametrize(
    ("words", "proposal"),
    [
        (["rum"], "'run'"),
        (["run", "x", "--bugdet", "1"], "--budget"),
        (["run", "circle_packin", "--dry-run"], "did you mean 'circle_packing'?"),
    ],
)
def test_a_misspelt_name_is_refused_with_the_nearest_one(invoke, words, proposal):
    result = invoke(*words)
    assert result.exit_code == REFUSED
    assert proposal in result.output


def test_a_model_without_a_price_is_refused_before_anything_is_sent(invoke, out):
    with BillingServer() as server:
        result = invoke(
            "run", "circle_packing", "--model", "openai:mine", "--base-url", server.url,
            "--out", out,
        )  # fmt: skip
    assert (result.exit_code, out.exists(), server.requests) == (REFUSED, False, [])
    assert "model 'mine' has no known price" in result.output
    assert "or --price IN,OUT" in result.output


def test_a_model_without_a_key_is_refused(invoke, out, monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    result = invoke("run", "circle_packing", "--model", "openai:gpt-5.4", "--out", out)
    assert (result.exit_code, out.exists()) == (REFUSED, False)
    assert "OPENAI_API_KEY" in result.output


def test_a_second_run_into_a_folder_is_refused_with_the_resume_command(invoke, near, finished):
    before = (finished / "steps.jsonl").read_bytes()
    result = invoke("run", near, "--out", finished)
    assert result.exit_code == REFUSED
    assert f"costada resume {finished}" in result.output
    assert (finished / "steps.jsonl").read_bytes() == before


@pytest.mark.skipif(
    os.geteuid() == 0, reason="nothing is unwritable for root: run it as an ordinary user"
)
def test_a_place_that_cannot_be_written_is_refused(invoke, near, tmp_path):
    tmp_path.chmod(0o500)
    result = invoke("run", near, "--out", tmp_path / "run")
    assert result.exit_code == REFUSED
    assert "Permission denied" in result.output


@pytest.mark.parametrize("command", ["resume", "trace"])
def test_a_folder_without_a_run_is_refused(invoke, tmp_path, command):
    result = invoke(command, tmp_path)
    assert result.exit_code == REFUSED
    assert f"{tmp_path}: holds no run" in result.output
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_a_run_is_refused_with_its_folder(invoke, finished):
    result = invoke("trace", finished / "run.sqlite")
    assert result.exit_code == REFUSED
    expected = f"run.sqlite: is a file, expected the folder of a run, such as {finished}"
    assert expected in result.output.replace("\n", " ")


def test_a_folder_that_cannot_be_created_is_named(invoke):
    result = invoke("init", "/proc/x")
    assert result.exit_code == REFUSED
    assert "/proc/x: cannot be created (" in result.output


def test_a_port_in_use_is_named(invoke, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = invoke("watch", tmp_path, "--port", port)
    assert result.exit_code == REFUSED
    assert f"127.0.0.1:{port}: Address already in use, expected a free port" in result.output


def test_a_provider_that_refuses_for_good_ends_the_run_and_says_how_to_resume(
    invoke, near, out, monkeypatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-to-be-shown")
    priced = ("--model", "openai:mine", "--price", "1,1")
    with BillingServer(default=Refusal(401, "bad key sk-not-to-be-shown")) as server:
        result = invoke("run", near, *priced, "--base-url", server.url, "--out", out)
    assert result.exit_code == FAILED
    assert "put a valid API key into the environment" in result.output
    assert f"Resume with: costada resume {out}" in result.output
    assert "Traceback" not in result.output
    written = b"".join(file.read_bytes() for file in out.iterdir())
    assert "sk-not-to-be-shown" not in result.output
    assert b"sk-not-to-be-shown" not in written


def test_an_answer_without_token_counts_ends_the_run_unless_estimates_are_allowed(
    invoke, near, tmp_path
):
    priced = ("--model", "openai:mine", "--price", "1,1", "--budget", "0.01")
    with BillingServer(default=Reply("nothing useful", reports_usage=False)) as server:
        address = ("--base-url", server.url, "--max-iterations", "1")
        strict = invoke("run", near, *priced, *address, "--out", tmp_path / "strict")
        lenient = invoke(
            "run", near, *priced, *address, "--out", tmp_path / "lenient",
            "--on-missing-usage", "estimate",
        )  # fmt: skip
    assert (strict.exit_code, lenient.exit_code) == (FAILED, 0)


def test_a_message_on_a_terminal_breaks_between_words(near):
    main, end = os.openpty()
    termios.tcsetwinsize(end, (24, 40))
    command = [sys.executable, "-m", "costada.cli.entry", "run", str(near), "--method", "nosuch"]
    own = {key: each for key, each in os.environ.items() if key not in ("COLUMNS", "LINES")}
    with subprocess.Popen(command, stdin=end, stdout=end, stderr=end, env=own) as process:
        os.close(end)
        text = b""
        with suppress(OSError):  # the terminal ends with its last process
            while more := os.read(main, 4096):
                text += more
    os.close(main)
    assert process.returncode == 2
    _, message = text.decode().split("costada: ")
    lines = f"costada: {message}".split("\r\n")
    assert max(map(len, lines)) <= 40
    assert len(lines) > 4
    assert "no-remaining-budget" in " ".join(lines)

import json
import os
import sys
import warnings
from typing import Any

import pyseccomp
import pytest
from billing_server import BillingServer, Refusal
from fakes import ScriptedModel, hashed_answer, rewrite, toy_folder, toy_problem
from typer.testing import CliRunner
from warm import PATIENCE_SECONDS, PROCESSES

from costada.cli.command_errors import showing_warnings
from costada.cli.main import app
from costada.evaluators.problem import Problem
from costada.runs.discovery import discover
from costada.runs.folder import RunFolder
from costada.store.run_store import RunStore
from costada.values.evaluation import Evaluation

pytestmark = pytest.mark.process

PRICED = ("--model", "openai:mine", "--price", "1,1")
FAILED, REFUSED = 1, 2
COUNTING = """from pathlib import Path


def score(output):
    with Path(r"{log}").open("a") as log:
        log.write("x")
    return {{"combined_score": output}}
"""


@pytest.fixture
def counted(tmp_path):
    """A problem folder whose `score`, which is called in the run, writes a letter to a file."""
    log = tmp_path / "evaluations"
    folder = toy_folder(tmp_path, "counted", COUNTING.format(log=log))
    log.touch()
    return folder, log


@pytest.fixture
def broken(tmp_path, near):
    folder = tmp_path / "broken"
    folder.mkdir()
    for name in ("problem.md", "initial_program.py"):
        (folder / name).write_text((near / name).read_text())
    (folder / "evaluator.py").write_text("def evaluate(path):\n    return {'grade': 'A'}\n")
    return folder


@pytest.mark.parametrize(
    ("status", "remedy"),
    [(400, "check the model's parameters"), (404, "check the model's name and base_url")],
)
def test_a_request_that_no_retry_cures_is_made_once_and_ends_the_run_in_one_line(
    invoke, near, tmp_path, monkeypatch, status, remedy
):
    monkeypatch.setenv("OPENAI_API_KEY", "no key")
    out = tmp_path / "run"
    with BillingServer(default=Refusal(status)) as server:
        result = invoke("run", near, *PRICED, "--base-url", server.url, "--out", out, "--quiet")
    assert (result.exit_code, len(server.requests), server.bill) == (FAILED, 1, [])
    complaint, way_on = result.stderr.splitlines()
    assert complaint.startswith(f"costada: model 'mine' refused the request with status {status}")
    assert remedy in complaint
    assert way_on == f"Finished iterations are saved. Resume with: costada resume {out}"
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--model", "openai:unpriced"), "model 'unpriced' has no known price"),
        (("--budget-policy", "hard", "--budget", 1e-5), "--budget: got $1e-05 under a hard budget"),
        (("--gateway",), "--gateway: models of this run call no OpenAI-compatible server"),
    ],
)
def test_what_needs_no_evaluation_is_refused_before_the_initial_program_is_evaluated(
    invoke, counted, tmp_path, monkeypatch, options, complaint
):
    monkeypatch.setenv("OPENAI_API_KEY", "no key")
    folder, log = counted
    result = invoke("run", folder, *options, "--out", tmp_path / "run")
    assert (result.exit_code, complaint in result.stderr) == (REFUSED, True)
    assert log.read_text() == ""


@pytest.mark.parametrize("options", [(), ("--no-preflight",)], ids=["preflight", "without"])
def test_a_broken_evaluator_costs_nothing(invoke, broken, tmp_path, options):
    with BillingServer() as server:
        address = ("--base-url", server.url)
        result = invoke("run", broken, *PRICED, *address, *options, "--out", tmp_path / "run")
    assert server.requests == []
    assert result.exit_code == (FAILED if options else REFUSED)
    assert "combined_score" in result.stderr
    assert (tmp_path / "run").exists() is bool(options)


@pytest.fixture
def mistaken(tmp_path):
    """A folder whose `score` unpacks an array into too few names, whatever the program is."""
    folder = tmp_path / "mistaken"
    folder.mkdir()
    (folder / "problem.md").write_text("Return three large numbers.\n")
    (folder / "initial_program.py").write_text(
        "import numpy as np\n\n\ndef three():\n    return np.full(3, 0.1)\n"
    )
    (folder / "evaluator.py").write_text(
        "def score(output):\n"
        "    first, second = output\n"
        "    return {'combined_score': first + second}\n"
    )
    (folder / "problem.toml").write_text('entry_point = "three"\n')
    return folder


@pytest.mark.parametrize("options", [(), ("--no-preflight",)], ids=["preflight", "without"])
def test_a_rejected_initial_program_costs_nothing(invoke, mistaken, tmp_path, options):
    with BillingServer() as server:
        address = ("--base-url", server.url)
        result = invoke("run", mistaken, *PRICED, *address, *options, "--out", tmp_path / "run")
    assert server.requests == []
    assert result.exit_code == (FAILED if options else REFUSED)
    assert "rejects the initial program: ValueError: too many values to unpack" in result.stderr
    assert "(evaluator.py, line 2)" in result.stderr
    assert "--allow-invalid-start" in result.stderr


@pytest.mark.parametrize("way", ["run", "sweep", "problem.toml"])
def test_a_start_that_is_meant_to_be_invalid_is_allowed_and_resumed(
    invoke, mistaken, tmp_path, way
):
    limits, option = ("--max-iterations", 1, "--quiet"), ("--allow-invalid-start",)
    out = tmp_path / "run"
    if way == "problem.toml":
        settings = mistaken / "problem.toml"
        settings.write_text(settings.read_text() + "allow_invalid_start = true\n")
        option = ()
    if way == "sweep":
        grid = ("--problems", mistaken, "--methods", "uniform", "--seeds", 1, "--out", out)
        assert invoke("sweep", *grid, *limits).exit_code == REFUSED
        result = invoke("sweep", *grid, *limits, *option)
        out = out / "mistaken" / "uniform" / "seed-0"
    else:
        result = invoke("run", mistaken, *limits, *option, "--out", out)
    assert result.exit_code == 0, result.output
    assert RunFolder(out).load().allow_invalid_start is bool(option)
    assert invoke("resume", out, "--max-iterations", 2, "--quiet").exit_code == 0


def test_a_resume_whose_evaluator_rejects_the_start_by_now_is_refused_with_the_option_too(
    invoke, mistaken, tmp_path
):
    out, evaluator = tmp_path / "run", mistaken / "evaluator.py"
    broken = evaluator.read_text()
    evaluator.write_text(broken.replace("first, second", "first, second, _"))
    limits = ("--max-iterations", 1, "--quiet")
    assert invoke("run", mistaken, *limits, "--out", out).exit_code == 0
    evaluator.write_text(broken)
    resume = ("resume", out, "--max-iterations", 2, "--quiet")
    refused = invoke(*resume)
    assert refused.exit_code == REFUSED
    assert "--allow-invalid-start" in refused.stderr
    changed = invoke(*resume, "--allow-invalid-start")
    assert changed.exit_code == 1
    assert "scores invalid" in changed.stderr


def test_without_preflight_the_initial_program_is_judged_when_the_run_opens(
    invoke, counted, tmp_path
):
    problem, log = counted
    options = ("--sandbox", "none", "--max-iterations", 1)
    counts = []
    for more in ((), ("--no-preflight",)):
        out = tmp_path / f"run{len(more)}"
        result = invoke("run", problem, *options, *more, "--out", out, "--json")
        assert result.exit_code == 0
        counts.append(len(log.read_text()))
    assert counts[1] == 2 * counts[0] > 2
    assert RunFolder(out).load().preflight is False
    assert (out / "report.html").is_file()


def test_a_run_that_failures_ended_says_what_to_look_at_and_how_to_go_on(
    invoke, near, tmp_path, monkeypatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "no key")
    out = tmp_path / "run"
    with BillingServer() as server:
        options = (*PRICED, "--base-url", server.url, "--max-failures", 4, "--quiet")
        result = invoke("run", near, *options, "--out", out)
        assert len(server.bill) == 4
        first, failure, *rest = result.stdout.splitlines()
        why = "too many attempts in a row yielded no usable program"
        assert first == f"Stopped after 2 iterations: {why}."
        assert failure.startswith("  last failure    The answer holds n")
        assert rest[-1] == f"Resume with: costada resume {out}"
        what = failure.removeprefix("  last failure    ")
        assert result.stderr == f"costada: {why}; look first at the last failure: {what}\n"
        assert result.exit_code == FAILED
        assert invoke("resume", out, "--quiet").exit_code == FAILED
        assert len(server.bill) == 8


def test_a_hard_budget_for_no_call_is_refused_and_the_end_of_one_is_reported(
    invoke, near, tmp_path
):
    folder, options = tmp_path / "run", ("--budget-policy", "hard", "--quiet")
    result = invoke("run", near, "--budget", "0.001", *options, "--out", folder)
    assert result.exit_code == 2
    assert "budget: got $0.001 under a hard budget, expected at least $" in result.stderr
    assert not folder.exists()
    result = invoke("run", near, "--budget", "0.03", *options, "--out", folder)
    assert result.exit_code == 0
    assert "no further call fits the budget" in result.stdout


PRICES = {"price": "1,2"}
WORKING = ("process", "landlock", "bubblewrap")


def number(**changes):
    fields = {
        "name": "number",
        "task": "Return a number.",
        "initial_program": "def value():\n    return 0.1\n",
        "entry_point": "value",
        "score": lambda output: Evaluation(score=output, objective=output, is_valid=True),
    }
    return Problem(**{**fields, **changes})


def test_the_layer_of_a_run_is_shown_and_recorded(invoke, near, tmp_path):
    out = tmp_path / "run"
    options = ("--sandbox", "process", "--max-iterations", "1", "--out", out)
    text = invoke("run", near, *options).stdout
    assert "near, costada, offline, seed 0: budget $1, sandbox process\n" in text
    assert "  sandbox         process\n" in text
    assert json.loads((out / "settings.json").read_text())["sandbox"] == "process"
    with RunStore(out / "run.sqlite") as store:
        assert store.sandbox(store.run_ids()[0]) == "process"


def test_the_summary_names_the_layer_that_auto_has_chosen(invoke, near, tmp_path):
    out = tmp_path / "run"
    result = invoke("run", near, "--max-iterations", "1", "--out", out, "--json", "--quiet")
    facts = json.loads(result.stdout)
    assert facts["sandbox"] in WORKING
    assert facts["cached_evaluations"] == 0
    assert json.loads((out / "settings.json").read_text())["sandbox"] is None
    with RunStore(out / "run.sqlite") as store:
        assert store.sandbox(store.run_ids()[0]) == facts["sandbox"]


def test_resuming_in_another_sandbox_is_reported(invoke, near, tmp_path, capfd):
    def stop(prompt):
        raise KeyboardInterrupt

    out = tmp_path / "run"
    options: dict[str, Any] = {"budget": 1.0, "max_iterations": 1, "out": out, **PRICES}
    with pytest.raises(KeyboardInterrupt):
        discover(near, ScriptedModel(answer=stop), sandbox="process", **options)
    settings = (out / "settings.json").read_text()
    changed = settings.replace("object:scripted", "offline").replace('"process"', '"none"')
    (out / "settings.json").write_text(changed.replace("object:ScriptedModel", "offline"))
    assert invoke("resume", out).exit_code == 2
    result = invoke("resume", out, "--trust")
    assert result.exit_code == 0, result.output
    assert "This run started in sandbox process, now uses none" in capfd.readouterr().err


def resume_without_mounts(folder, output):
    """Run `costada resume` where no layer has a file system of its own."""
    rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    rules.add_rule(pyseccomp.ERRNO(1), "unshare")
    rules.load()
    os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT), 2)
    words = ["resume", folder, "--trust", "--max-iterations", "2", "--json"]
    sys.exit(CliRunner().invoke(app, words).exit_code)


def test_what_a_layer_leaves_open_on_this_machine_is_no_other_layer(invoke, near, tmp_path):
    out, output = tmp_path / "run", tmp_path / "errors.txt"
    options = ("--sandbox", "process", "--max-iterations", "1", "--out", out)
    assert invoke("run", near, *options).exit_code == 0
    process = PROCESSES.Process(target=resume_without_mounts, args=(str(out), str(output)))
    process.start()
    process.join(PATIENCE_SECONDS)
    assert (process.exitcode, output.read_text()) == (0, "")


def test_limits_under_which_the_initial_program_fails_are_refused(invoke, near, tmp_path):
    result = invoke("run", near, "--out", tmp_path / "run", "--timeout", "0.000001")
    assert result.exit_code == REFUSED
    assert (
        "initial program: timeout: the evaluation exceeded 1e-06 s (timeout in problem"
        in result.output
    )
    assert not (tmp_path / "run").exists()


def test_limits_of_a_run_hold_for_its_candidates():
    looping = "def value():\n    while True: pass\n"
    model = ScriptedModel(answer=lambda prompt: f"```python\n{looping}```")
    found = discover(
        number(), model, budget=1.0, max_iterations=1, timeout=3, memory_mb=400, **PRICES
    )
    assert found.best_objective == 0.1
    assert "timeout: the program exceeded 3 s" in model.prompts[-1]


def test_discover_takes_a_layer_and_tells_which_it_was():
    model = ScriptedModel(answer=lambda prompt: rewrite(0.4))
    options: dict[str, Any] = {"budget": 1.0, "max_iterations": 1, **PRICES}
    assert discover(number(), model, sandbox="process", **options).sandbox == "process"
    assert discover(number(), model, **options).sandbox in WORKING
    assert discover(number(sandbox="none"), model, **options).sandbox == "none"


def test_a_problem_that_runs_candidates_itself_has_no_layer_and_takes_none():
    model = ScriptedModel(answer=hashed_answer)
    assert discover(toy_problem(), model, budget=0.01, **PRICES).sandbox is None
    for option in ({"sandbox": "process"}, {"timeout": 3.0}, {"memory_mb": 100}):
        with pytest.raises(ValueError, match="runs candidates with an evaluate of its own"):
            discover(toy_problem(), model, budget=0.01, **PRICES, **option)


def test_a_warning_about_the_sandbox_is_one_line(capsys):
    with showing_warnings():
        warnings.warn("sandbox: only the process layer works here", RuntimeWarning, stacklevel=1)
    assert capsys.readouterr().err == "costada: sandbox: only the process layer works here\n"


def test_programs_that_were_not_run_again_are_counted(invoke, near, tmp_path):
    out = tmp_path / "run"
    options = ("--max-iterations", 12, "--out", out)
    text = invoke("run", near, *options, "--quiet").stdout
    rows = [json.loads(line) for line in (out / "steps.jsonl").read_text().splitlines()]
    known = sum(row["is_cached"] for row in rows)
    assert known > 0
    assert f"  known programs  {known} not run again\n" in text
    assert invoke("trace", out).stdout.count("known program") == known

"""What holds candidates: asked for, chosen before money is spent, shown and recorded."""

import json
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pyseccomp
import pytest
from fakes import ScriptedModel, hashed_answer, rewrite, toy_problem
from typer.testing import CliRunner
from warm import PATIENCE_SECONDS, PROCESSES

from costada.cli.errors import telling_warnings
from costada.cli.main import app
from costada.evaluators.problem import Problem
from costada.runs.discovery import discover
from costada.store.run_store import RunStore
from costada.values.evaluation import Evaluation

Invoke = Callable[..., Any]
PRICES = {"price_in": "1", "price_out": "2"}
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


def test_going_on_in_another_layer_is_said(invoke, near, tmp_path, capfd):
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
    assert "This run began in sandbox process and goes on in none" in capfd.readouterr().err


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


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--sandbox", "jail"], "--sandbox: got 'jail', expected 'auto', 'process', 'landlock'"),
        (["--timeout", "-1"], "--timeout: got -1.0, expected greater than 0"),
        (["--memory-mb", "0"], "--memory-mb: got 0, expected greater than or equal to 1"),
        (["--timeout", "0.000001"], "initial program: timeout: the program exceeded 1e-06 s"),
    ],
)
def test_what_cannot_work_is_refused_and_no_folder_appears(invoke, near, tmp_path, options, text):
    result = invoke("run", near, "--out", tmp_path / "run", *options)
    assert result.exit_code == 2
    assert text in result.output
    assert not (tmp_path / "run").exists()


def test_limits_of_a_run_hold_for_its_candidates():
    looping = "def value():\n    while True: pass\n"
    model = ScriptedModel(answer=lambda prompt: f"```python\n{looping}```")
    found = discover(
        number(), model, budget=1.0, max_iterations=1, timeout=0.5, memory_mb=400, **PRICES
    )
    assert found.best_objective == 0.1
    assert "timeout: the program exceeded 0.5 s" in model.prompts[-1]


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
    with telling_warnings():
        warnings.warn("sandbox: only the process layer works here", RuntimeWarning, stacklevel=1)
    assert capsys.readouterr().err == "costada: sandbox: only the process layer works here\n"


def test_programs_that_were_not_run_again_are_counted(invoke, near, tmp_path):
    out = tmp_path / "run"
    options = ("--max-iterations", 3, "--out", out)
    text = invoke("run", near, *options, "--quiet").stdout
    rows = [json.loads(line) for line in (out / "steps.jsonl").read_text().splitlines()]
    known = sum(row["is_cached"] for row in rows)
    assert known > 0
    assert f"  known programs  {known} not run again\n" in text
    assert invoke("trace", out).stdout.count("known program") == known

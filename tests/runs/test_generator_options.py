"""`--generator agent` from the command line and from Python, without a key."""

import json

import pytest

from costada.runs.discovery import discover
from costada.store.run_store import RunStore


def test_a_run_with_tools_goes_on_where_it_stopped_and_says_what_it_cost(near, invoke, tmp_path):
    folder = tmp_path / "run"
    options = ("--generator", "agent", "--tool-evaluations", 2, "--step-cap", 0.04)
    begun = invoke("run", near, *options, "--max-iterations", 2, "--out", folder)
    assert begun.exit_code == 0, begun.output
    assert json.loads((folder / "settings.json").read_text())["generator"] == "agent"
    resumed = invoke("resume", folder, "--max-iterations", 3, "--json")
    assert resumed.exit_code == 0, resumed.output
    told = json.loads(resumed.stdout)
    with RunStore(folder / "run.sqlite", is_read_only=True) as store:
        (run_id,) = store.run_ids()
        calls = list(store.call_log.calls(run_id))
    assert told["iterations"] == 3
    assert told["spent"] == pytest.approx(float(sum(call.cost for call in calls)))
    assert len(calls) > told["iterations"]


def test_from_python_it_is_an_option_like_any_other(near):
    found = discover(near, "offline", budget=1.0, generator="agent", max_iterations=2)
    assert (found.iterations, found.stop_reason) == (2, "iterations")


def test_a_dry_run_says_that_a_step_takes_several_answers(near, invoke):
    with_tools = invoke("run", near, "--generator", "agent", "--dry-run").output
    without = invoke("run", near, "--dry-run").output
    assert "a step takes several" in with_tools
    assert "a step takes several" not in without


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--generator", "tools"), "--generator: got 'tools', expected 'model' or 'agent'"),
        (("--step-cap", 0.1), "--step-cap: got 0.1 with generator 'model'"),
        (("--generator", "agent", "--step-cap", 0), "--step-cap: got 0"),
        (("--generator", "agent", "--tool-evaluations", 0), "--tool-evaluations: got 0"),
    ],
)
def test_a_wrong_option_is_named(near, invoke, options, told):
    refused = invoke("run", near, *options, "--dry-run")
    assert refused.exit_code == 2
    assert told in refused.output


def test_a_model_without_tools_is_refused_before_a_folder_is_made(invoke, tmp_path):
    folder = tmp_path / "run"
    refused = invoke(
        "run", "landscape", "--model", "simulated", "--generator", "agent", "--out", folder
    )
    assert refused.exit_code == 2
    assert "model 'simulated': cannot call tools" in refused.output
    assert not folder.exists()

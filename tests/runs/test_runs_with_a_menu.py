"""Run folders of runs over several models: resumed with a higher budget, forked, replayed."""

import json

import pytest

from costada.store.run_store import RunStore

pytestmark = pytest.mark.process

MODELS = """
[models.small]
model = "offline"
price = { input_per_million = "0.1", output_per_million = "0.4" }

[models.large]
model = "offline"
price = { input_per_million = "0.5", output_per_million = "2" }
"""
LAST = 7


def lines_in(folder):
    return (folder / "steps.jsonl").read_text().splitlines()


@pytest.fixture(scope="module")
def models_file(tmp_path_factory):
    file = tmp_path_factory.mktemp("models") / "models.toml"
    file.write_text(MODELS)
    return file


@pytest.fixture(scope="module", params=[1, 3], ids=["alone", "in flight"])
def original(request, near, models_file, invoke, tmp_path_factory):
    """The folder of a finished run that kept all its checkpoints."""
    folder = tmp_path_factory.mktemp("original") / "run"
    options = ("--parallel", request.param, "--order", "launch", "--keep-history", "--budget", 1)
    result = invoke(
        *("run", near, "--models", "small,large", "--models-file", models_file, *options),
        *("--max-iterations", LAST, "--no-gateway", "--out", folder),
    )
    assert result.exit_code == 0, result.output
    return folder


def test_a_fork_chooses_as_its_original_did(original, invoke, tmp_path):
    invoke("fork", original, "--at", 3, "--out", tmp_path / "fork")
    assert lines_in(tmp_path / "fork") == lines_in(original)[:3]
    result = invoke("resume", tmp_path / "fork")
    assert result.exit_code == 0, result.output
    assert lines_in(tmp_path / "fork") == lines_in(original)
    models = {name for line in lines_in(original) for name in json.loads(line)["models"]}
    assert models == {"small", "large"}


def test_a_fork_with_another_seed_keeps_what_the_router_has_learned(original, invoke, tmp_path):
    invoke("fork", original, "--at", 3, "--seed", 99, "--out", tmp_path / "fork")
    result = invoke("resume", tmp_path / "fork")
    assert result.exit_code == 0, result.output
    tries = [
        sum(each["tries"] for each in json.loads(line)["router"])
        for line in lines_in(tmp_path / "fork")
    ]
    attempts = [json.loads(line)["attempts"] for line in lines_in(tmp_path / "fork")]
    # a row counts what has landed, so also failed attempts of steps that end later
    assert tries[-1] == sum(attempts)
    assert tries == sorted(tries)


def test_a_run_is_resumed_with_more_iterations(original, invoke, tmp_path):
    invoke("fork", original, "--at", LAST, "--out", tmp_path / "fork")
    result = invoke("resume", tmp_path / "fork", "--max-iterations", LAST + 2)
    assert result.exit_code == 0, result.output
    assert lines_in(tmp_path / "fork")[:LAST] == lines_in(original)
    with RunStore(tmp_path / "fork" / "run.sqlite", is_read_only=True) as store:
        run_id = store.run_ids()[-1]
        costs = dict.fromkeys(("small", "large"), 0)
        for call in store.call_log.calls(run_id):
            costs[call.entry] += call.cost if call.role != "guide" else 0
    told = {
        each["name"]: each["dollars"]
        for each in json.loads(lines_in(tmp_path / "fork")[-1])["router"]
    }
    assert told == {name: float(cost) for name, cost in costs.items()}

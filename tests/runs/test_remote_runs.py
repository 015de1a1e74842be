"""Runs whose evaluations are made elsewhere: the same run, also when the cluster is lost."""

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from time import monotonic, sleep

import pytest

from costada import discover
from costada.runs.folder import RunFolder
from costada.store.run_store import RunStore
from costada.values.evaluation import SANDBOX, WORKER

COMMAND = [sys.executable, "-m", "costada.cli.entry"]
SEARCH = ("--seed", "3", "--max-iterations", "6", "--order", "launch")
SECONDS = 120


def steps(folder):
    """What the iterations of a run decided and cost."""
    rows = map(json.loads, (folder / "steps.jsonl").read_text().splitlines())
    names = ("iteration", "score", "step_cost", "spent", "best_score", "frontier", "action")
    return [{name: row.get(name) for name in names} for row in rows]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))


@pytest.mark.parametrize("parallel", [1, 3])
def test_a_run_with_local_workers_is_the_run_of_this_process(parallel, near, invoke, tmp_path):
    for name in ("here", "local:2"):
        options = (*SEARCH, "--parallel", parallel, "--evaluations", name)
        result = invoke("run", near, *options, "--out", tmp_path / name.replace(":", "-"))
        assert result.exit_code == 0, result.output
    assert steps(tmp_path / "local-2") == steps(tmp_path / "here")
    with RunStore(RunFolder(tmp_path / "local-2").database) as store:
        judged = store.candidates.originals(store.run_ids()[-1])
    assert len(judged) > 1
    assert all(each.artifacts.keys() >= {SANDBOX, WORKER} for each in judged)


def test_a_run_takes_an_executor_and_is_resumed_with_another_place(near, invoke, tmp_path):
    with ThreadPoolExecutor(2) as executor:
        found = discover(
            near, "offline", budget=1, max_iterations=2, out=tmp_path / "run", evaluations=executor
        )
    assert found.iterations == 2
    refused = invoke("resume", tmp_path / "run", "--max-iterations", 3)
    assert refused.exit_code == 2
    assert "ThreadPoolExecutor as a Python object" in refused.output
    resumed = invoke("resume", tmp_path / "run", "--max-iterations", 3, "--evaluations", "local:1")
    assert resumed.exit_code == 0, resumed.output
    assert [row["iteration"] for row in steps(tmp_path / "run")] == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("dask://", "expected here, local:N, dask://HOST:PORT, ray://HOST:PORT or ray://auto"),
        ("dask://127.0.0.1:1", "dask://127.0.0.1:1 does not answer"),
    ],
)
def test_a_place_that_cannot_be_used_is_refused_before_a_folder_is_made(
    name, said, near, invoke, tmp_path
):
    if "1" in name and not find_spec("distributed"):
        pytest.skip("the extra dask is not installed")
    result = invoke("run", near, "--evaluations", name, "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
    assert not (tmp_path / "run").exists()


def test_a_cluster_that_is_gone_pauses_a_run_that_local_workers_finish(near, invoke, tmp_path):
    remote = pytest.importorskip("distributed")
    slow = shutil.copytree(near, tmp_path / "near")
    evaluator = slow / "evaluator.py"
    evaluator.write_text(evaluator.read_text() + "\nimport time\ntime.sleep(0.5)\n")
    whole = invoke("run", slow, *SEARCH, "--out", tmp_path / "whole")
    assert whole.exit_code == 0, whole.output
    run = tmp_path / "run"
    with remote.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, processes=True
    ) as cluster:
        place = cluster.scheduler_address.replace("tcp", "dask")
        words = ["run", slow, *SEARCH, "--evaluations", place, "--out", run]
        with subprocess.Popen(
            [*COMMAND, *map(str, words)], stderr=subprocess.PIPE, text=True
        ) as process:
            end = monotonic() + SECONDS
            while not (run / "steps.jsonl").is_file() or len(steps(run)) < 2:
                assert monotonic() < end
                assert process.poll() is None, process.stderr.read()
                sleep(0.05)
            cluster.close()
            said = process.communicate(timeout=SECONDS)[1]
    assert process.returncode == 1, said
    assert f"{place} is gone" in said
    assert f"Resume with: costada resume {run}" in said
    assert len(steps(run)) < 6
    resumed = invoke("resume", run, "--evaluations", "local:2")
    assert resumed.exit_code == 0, resumed.output
    assert steps(run) == steps(tmp_path / "whole")

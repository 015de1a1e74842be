"""Runs whose evaluations are made elsewhere: the same run, also when the cluster is lost."""

import json
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from time import monotonic, sleep

import psutil
import pytest
from remote_engines import connecting_to_ray, dask_cluster, end_tree, ray_cluster

from costada import discover
from costada.runs.folder import RunFolder
from costada.store.run_store import RunStore
from costada.values.evaluation import SANDBOX, WORKER

pytestmark = pytest.mark.process

COMMAND = [sys.executable, "-m", "costada.cli.entry"]
SEARCH = ("--seed", "3", "--max-iterations", "6", "--order", "launch")
SECONDS = 120
TIMES = (0.8, 5)
"""Seconds of an evaluation, so that a run is not over before it loses its workers."""


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
        options = (*SEARCH, "--parallel", parallel, "--evaluate-on", name)
        result = invoke("run", near, *options, "--out", tmp_path / name.replace(":", "-"))
        assert result.exit_code == 0, result.output
    assert steps(tmp_path / "local-2") == steps(tmp_path / "here")
    with RunStore(RunFolder(tmp_path / "local-2").database) as store:
        judged = store.candidates.originals(store.run_ids()[-1])
    assert len(judged) > 1
    assert all(each.artifacts.keys() >= {SANDBOX, WORKER} for each in judged)
    exported = invoke("export", tmp_path / "local-2", "--to", "jsonl", "--table", "candidates")
    rows = {row["id"]: row for row in map(json.loads, exported.stdout.splitlines())}
    for each in judged:
        assert rows[each.id][WORKER] == each.artifacts[WORKER]
        assert rows[each.id][SANDBOX] == each.artifacts[SANDBOX]
    exported = invoke("export", tmp_path / "here", "--to", "jsonl", "--table", "candidates")
    assert {json.loads(row)[WORKER] for row in exported.stdout.splitlines()} == {None}


def test_a_run_takes_an_executor_and_is_resumed_with_another_place(near, invoke, tmp_path):
    with ThreadPoolExecutor(2) as executor:
        found = discover(
            near, "offline", budget=1, max_iterations=2, out=tmp_path / "run", evaluate_on=executor
        )
    assert found.iterations == 2
    refused = invoke("resume", tmp_path / "run", "--max-iterations", 3)
    assert refused.exit_code == 2
    assert "ThreadPoolExecutor as a Python object" in refused.output
    resumed = invoke("resume", tmp_path / "run", "--max-iterations", 3, "--evaluate-on", "local:1")
    assert resumed.exit_code == 0, resumed.output
    assert [row["iteration"] for row in steps(tmp_path / "run")] == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("dask://", "expected here, local:N (1 to 9999), dask://HOST:PORT, ray://HOST:PORT or"),
        ("dask://127.0.0.1", "got 'dask://127.0.0.1', expected here, local:N (1 to 9999)"),
        ("dask://127.0.0.1:1", "dask://127.0.0.1:1: no Dask scheduler responds there"),
    ],
)
def test_a_place_that_cannot_be_used_is_refused_before_a_folder_is_made(
    name, said, near, invoke, tmp_path
):
    if ":1" in name and not find_spec("distributed"):
        pytest.skip("distributed is not installed: pip install 'costada[dask]'")
    result = invoke("run", near, "--evaluate-on", name, "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
    assert not (tmp_path / "run").exists()


def test_what_is_no_executor_is_refused_by_name(near):
    with pytest.raises(ValueError, match=r"evaluate_on: got .*, expected here, .*, or an open"):
        discover(near, "offline", budget=1, evaluate_on=ThreadPoolExecutor)


@pytest.fixture(scope="module")
def whole(near, invoke, tmp_path_factory):
    """The steps of a run that loses no worker."""
    folder = tmp_path_factory.mktemp("whole")
    out = folder / "run"
    result = invoke("run", slowed(near, folder / "near", 0), *SEARCH, "--out", out)
    assert result.exit_code == 0, result.output
    return steps(out)


def slowed(near, folder, seconds):
    """The problem, whose evaluations take so long that one runs when the workers are lost.

    Guides read the evaluator, so its text is the same whatever the time.
    """
    shutil.copytree(near, folder)
    evaluator = folder / "evaluator.py"
    evaluator.write_text(evaluator.read_text() + "\nimport waiting_time\n")
    (folder / "waiting_time.py").write_text(f"import time\n\ntime.sleep({seconds})\n")
    return folder


@contextmanager
def begun(problem, place, run, number=2):
    """A process whose run has finished so many steps."""
    words = ["run", problem, *SEARCH, "--evaluate-on", place, "--out", run]
    with subprocess.Popen(
        [*COMMAND, *map(str, words)], stderr=subprocess.PIPE, text=True
    ) as process:
        end = monotonic() + SECONDS
        while not (run / "steps.jsonl").is_file() or len(steps(run)) < number:
            assert monotonic() < end
            assert process.poll() is None, process.stderr.read()
            sleep(0.05)
        yield process


@pytest.fixture
def check_paused(near, whole, invoke, tmp_path):
    """Check that a run is paused for a reason, and finished as if nothing had happened.

    `lose` begins it in a folder, has its workers lost and returns the process with its errors.
    """

    def check(lose, said):
        for seconds in TIMES:
            problem = slowed(near, tmp_path / f"{seconds}" / "near", seconds)
            run = tmp_path / f"{seconds}" / "run"
            process, errors = lose(problem, run)
            if process.returncode:  # otherwise it was over before
                break
        assert process.returncode == 1, errors
        assert re.search(said, errors)
        assert f"Resume with: costada resume {run}" in errors
        assert len(steps(run)) < len(whole)
        resumed = invoke("resume", run, "--evaluate-on", "local:2")
        assert resumed.exit_code == 0, resumed.output
        assert steps(run) == whole

    return check


@pytest.mark.cluster
def test_a_dask_cluster_that_is_gone_pauses_a_run(check_paused):
    def lose(problem, run):
        with dask_cluster() as cluster, begun(problem, f"dask://{cluster.place}", run) as process:
            end_tree(cluster.scheduler)
            return process, process.communicate(timeout=SECONDS)[1]

    check_paused(lose, r"dask://\S+ is unavailable")


@pytest.mark.cluster
def test_a_ray_cluster_that_is_gone_pauses_a_run(check_paused):
    def lose(problem, run):
        with ray_cluster() as cluster, ExitStack() as connecting:
            connecting.enter_context(connecting_to_ray())
            with begun(problem, f"ray://{cluster.place}", run) as process:
                connecting.close()
                end_tree(cluster.head)
                return process, process.communicate(timeout=SECONDS)[1]

    check_paused(lose, r"ray://\S+ is unavailable")


def test_local_workers_that_die_one_after_the_other_pause_a_run(check_paused):
    def lose(problem, run):
        with begun(problem, "local:1", run) as process:
            while process.poll() is None:
                for each in psutil.Process(process.pid).children():
                    with suppress(psutil.NoSuchProcess):  # as one that ends is a zombie for a while
                        if "worker_processes" in " ".join(each.cmdline()):
                            each.kill()
                sleep(0.2)
            return process, process.communicate(timeout=SECONDS)[1]

    check_paused(lose, "local:1 lost several workers")

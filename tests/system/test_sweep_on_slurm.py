"""Sweeps on a real Slurm cluster of two nodes, which `.ci/slurm COMMAND` starts for a command."""

import json
import os
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import pytest

from costada.experiments.sweep.job_file import JOBS, JobFile
from costada.experiments.sweep.sweep import last_step
from costada.runs.folder import RunFolder
from costada.store.run_store import RunStore

pytestmark = pytest.mark.skipif(
    "COSTADA_SLURM" not in os.environ, reason="needs Slurm: run the tests with .ci/slurm"
)

FINISHED, REFUSED, INTERRUPTED = 0, 2, 130
METHOD = "costada"
ITERATIONS = 24
EVALUATION_SECONDS = 0.3
PATIENCE_SECONDS = 150
COMMAND = [sys.executable, "-c", "from costada.cli.main import main; main()"]
KILL_NODE = Path(__file__).parents[2] / ".ci" / "slurm-kill-node"


@pytest.fixture(scope="module")
def slow(near, tmp_path_factory):
    """A problem whose evaluations take a while, so that a run can be hit in its middle."""
    folder = tmp_path_factory.mktemp("slow") / "slow"
    folder.mkdir()
    for file in near.iterdir():
        text = file.read_text()
        if file.name == "evaluator.py":
            text = text.replace(
                "    value =", f"    __import__('time').sleep({EVALUATION_SECONDS})\n    value ="
            )
        (folder / file.name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def undisturbed(slow, tmp_path_factory, invoke):
    """The steps of the runs of seeds 0 and 1 by a sweep of this machine."""
    out = tmp_path_factory.mktemp("undisturbed")
    result = invoke(*words(slow, out, "--jobs", 2))
    assert result.exit_code == FINISHED, result.output
    return [steps(out, seed).read_bytes() for seed in (0, 1)]


def words(slow: Path, out: Path, *more: object) -> list[object]:
    given = ("--max-iterations", ITERATIONS, "--lost-calls", "ignore", "--seeds", 2)
    return ["sweep", "--problems", slow, "--methods", METHOD, "--out", out, *given, *more]


def steps(out: Path, seed: int) -> Path:
    return out / "slow" / METHOD / f"seed-{seed}" / "steps.jsonl"


def costada(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)


def slurm(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def wait_until(condition) -> None:
    end = monotonic() + PATIENCE_SECONDS
    while not condition():
        assert monotonic() < end
        sleep(0.1)


def submitted(slow: Path, out: Path) -> str:
    """Submit the sweep, wait until both runs have made a step, and return the array's id."""
    result = costada(*words(slow, out, "--on", "slurm", "--detach"))
    assert result.returncode == FINISHED, result.stderr
    wait_until(lambda: all(last_step(steps(out, seed)) for seed in (0, 1)))
    (submission,) = JobFile.load(out).submissions
    return submission.job


def check_exact(out: Path, undisturbed: list[bytes]) -> None:
    """Both runs are as if nothing had happened, and no call is on the ledger twice."""
    assert [steps(out, seed).read_bytes() for seed in (0, 1)] == undisturbed
    for seed in (0, 1):
        folder = RunFolder(steps(out, seed).parent)
        with RunStore(folder.database, is_read_only=True) as store:
            (run_id,) = store.run_ids()
            keys = [(c.iteration, c.role, c.attempt) for c in store.call_log.calls(run_id)]
            total = store.call_log.spent(run_id, ITERATIONS)
        assert len(set(keys)) == len(keys)
        assert float(total) == pytest.approx(last_step(folder.steps).spent, abs=1e-12)


def test_the_same_command_follows_its_array_and_then_finds_it_finished(slow, undisturbed, tmp_path):
    submitted(slow, tmp_path)
    running = json.loads(costada("sweep", "--out", tmp_path, "--status", "--json").stdout)
    assert [run["status"] for run in running] == ["running", "running"]
    assert all(0 < run["iterations"] < ITERATIONS for run in running)
    compared = costada("compare", tmp_path)
    assert "not finished: " in compared.stdout + compared.stderr

    again = costada(*words(slow, tmp_path, "--on", "slurm"))
    assert again.returncode == FINISHED, again.stderr
    assert "Finished 2 of 2 runs" in again.stdout
    jobs = (tmp_path / JOBS / "jobs.json").read_bytes()
    assert len(JobFile.load(tmp_path).submissions) == 1
    check_exact(tmp_path, undisturbed)

    last = costada(*words(slow, tmp_path, "--on", "slurm"))
    assert "2 finished before" in last.stdout
    assert (tmp_path / JOBS / "jobs.json").read_bytes() == jobs
    table = costada("sweep", "--out", tmp_path, "--status").stdout
    assert "2 finished" in table
    assert table.count(f"{ITERATIONS}/{ITERATIONS}") == 2


def test_a_cancelled_sweep_saves_and_is_resumed_by_a_second_array(slow, undisturbed, tmp_path):
    submitted(slow, tmp_path)
    result = costada("sweep", "--out", tmp_path, "--cancel")
    assert result.returncode == FINISHED, result.stderr
    wait_until(lambda: not slurm("squeue", "--me", "--noheader"))
    assert not any(RunFolder(steps(tmp_path, seed).parent).is_running for seed in (0, 1))
    assert "2 waiting" in costada("sweep", "--out", tmp_path, "--status").stdout
    again = costada(*words(slow, tmp_path, "--on", "slurm"))
    assert again.returncode == FINISHED, again.stderr
    assert len(JobFile.load(tmp_path).submissions) == 2
    check_exact(tmp_path, undisturbed)


@pytest.mark.parametrize(
    "hit",
    [
        pytest.param(("scontrol", "requeue"), id="preempted"),
        pytest.param(("scancel", "--signal=USR2"), id="time-limit"),
    ],
)
def test_a_requeued_job_resumes_by_itself(slow, undisturbed, tmp_path, hit):
    array = submitted(slow, tmp_path)
    slurm(*hit, f"{array}_0")
    result = costada(*words(slow, tmp_path, "--on", "slurm"))
    assert result.returncode == FINISHED, result.stderr
    assert "Restarts=1" in slurm("scontrol", "show", "job", f"{array}_0")
    assert len(JobFile.load(tmp_path).submissions) == 1
    check_exact(tmp_path, undisturbed)


def test_the_jobs_of_a_lost_node_resume_on_another_one(slow, undisturbed, tmp_path):
    array = submitted(slow, tmp_path)
    node = slurm("squeue", "--me", "--noheader", f"--jobs={array}_1", "--format=%N").strip()
    slurm(str(KILL_NODE), node)
    try:
        result = costada(*words(slow, tmp_path, "--on", "slurm"))
    finally:
        slurm("slurmd", "-N", node)
    assert result.returncode == FINISHED, result.stderr
    assert "Restarts=1" in slurm("scontrol", "show", "job", f"{array}_1")
    check_exact(tmp_path, undisturbed)
    wait_until(lambda: slurm("sinfo", "-ho", "%D", "--states=idle").strip() == "2")


def test_what_slurm_refuses_is_refused_before_a_run_begins(slow, tmp_path):
    result = costada(*words(slow, tmp_path, "--on", "slurm", "--slurm", "partition=none"))
    assert result.returncode == REFUSED
    assert "costada: --on slurm: sbatch refused: " in result.stderr
    assert "partition" in result.stderr
    assert JobFile.load(tmp_path).submissions == ()
    assert not (tmp_path / "slow").exists()

"""Sweeps on a real Slurm cluster of two nodes, which `.ci/slurm COMMAND` starts for a command."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pytest
from swept_runs import (
    FINISHED,
    ITERATIONS,
    PATIENCE_SECONDS,
    REFUSED,
    begun,
    budgets,
    check_exact,
    check_purse,
    costada,
    has_purse,
    statuses,
    steps,
    wait_for_steps,
    wait_until,
    watched_purse,
    words,
)

from costada.experiments.sweep.job_file import JOBS, JobFile
from costada.experiments.sweep.sweep import last_step
from costada.store.address import shown_address

pytestmark = [
    pytest.mark.timeout(2 * PATIENCE_SECONDS),
    pytest.mark.cluster,
    pytest.mark.skipif(
        "COSTADA_SLURM" not in os.environ, reason="no Slurm: `make test-clusters` installs it"
    ),
]

KILL_NODE = Path(__file__).parents[3] / ".ci" / "slurm-kill-node"


@pytest.fixture(params=["folders", "postgres"])
def store(request):
    """The database of the runs, `None` for runs in folders."""
    if request.param == "folders":
        return None
    return shown_address(request.getfixturevalue("postgres_address"))


def slurm(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def on_slurm(slow: Path, out: Path, store: str | None = None, *more: object) -> list[object]:
    stored = ("--store", store) if store else ()
    return words(slow, out, "--on", "slurm", *stored, *more)


@contextmanager
def submitted(slow: Path, out: Path, store: str | None = None) -> Iterator[str]:
    """Submit the sweep; yields the array's id when both runs have made a step."""
    process = begun(*on_slurm(slow, out, store, "--detach"))
    wait_for_steps(out)
    wait_until(lambda: JobFile.load(out).submissions[0].job)
    (submission,) = JobFile.load(out).submissions
    yield submission.job
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == FINISHED, errors


def kill_node_of(job: str) -> str:
    """Kill the node of a job, and return its name."""
    node = slurm("squeue", "--me", "--noheader", f"--jobs={job}", "--format=%N").strip()
    slurm(str(KILL_NODE), node)
    return node


def wait_for_nodes() -> None:
    wait_until(lambda: slurm("sinfo", "-ho", "%D", "--states=idle").strip() == "2")


def test_the_same_command_follows_its_array_and_then_finds_it_finished(
    slow, undisturbed, tmp_path, invoke
):
    with submitted(slow, tmp_path):
        running = json.loads(invoke("sweep", "--out", tmp_path, "--status", "--json").stdout)
        compared = invoke("compare", tmp_path)
    assert [run["status"] for run in running] == ["running", "running"]
    assert all(0 < run["iterations"] < ITERATIONS for run in running)
    assert "not finished: " in compared.output

    again = costada(*on_slurm(slow, tmp_path))
    assert again.returncode == FINISHED, again.stderr
    assert "Finished 2 of 2 runs" in again.stdout
    jobs = (tmp_path / JOBS / "jobs.json").read_bytes()
    assert len(JobFile.load(tmp_path).submissions) == 1
    check_exact(tmp_path, undisturbed)

    last = costada(*on_slurm(slow, tmp_path))
    assert "2 finished before" in last.stdout
    assert (tmp_path / JOBS / "jobs.json").read_bytes() == jobs
    table = invoke("sweep", "--out", tmp_path, "--status").stdout
    assert "2 finished" in table
    assert table.count(f"{ITERATIONS}/{ITERATIONS}") == 2


def test_a_cancelled_sweep_saves_and_is_resumed_by_a_second_array(
    slow, undisturbed, tmp_path, store, invoke
):
    with submitted(slow, tmp_path, store):
        result = invoke("sweep", "--out", tmp_path, "--cancel")
    assert result.exit_code == FINISHED, result.output
    wait_until(lambda: not slurm("squeue", "--me", "--noheader"))
    shown = invoke("sweep", "--out", tmp_path, "--status", "--json")
    assert statuses(shown) == ["waiting", "waiting"]
    assert all(0 < run["iterations"] < ITERATIONS for run in json.loads(shown.stdout))
    again = costada(*on_slurm(slow, tmp_path, store))
    assert again.returncode == FINISHED, again.stderr
    assert len(JobFile.load(tmp_path).submissions) == 2
    check_exact(tmp_path, undisturbed, store)


@pytest.mark.parametrize(
    "hit",
    [
        pytest.param(("scontrol", "requeue"), id="preempted"),
        pytest.param(("scancel", "--signal=USR2"), id="time-limit"),
    ],
)
def test_a_requeued_job_resumes_by_itself(slow, undisturbed, tmp_path, hit):
    with submitted(slow, tmp_path) as array:
        slurm(*hit, f"{array}_0")
    result = costada(*on_slurm(slow, tmp_path))
    assert result.returncode == FINISHED, result.stderr
    assert "Restarts=1" in slurm("scontrol", "show", "job", f"{array}_0")
    assert len(JobFile.load(tmp_path).submissions) == 1
    check_exact(tmp_path, undisturbed)


def test_the_jobs_of_a_lost_node_resume_on_another_one(slow, undisturbed, tmp_path, store):
    with submitted(slow, tmp_path, store) as array:
        node = kill_node_of(f"{array}_1")
    try:
        result = costada(*on_slurm(slow, tmp_path, store))
    finally:
        slurm("slurmd", "-N", node)
    assert result.returncode == FINISHED, result.stderr
    assert "Restarts=0" not in slurm("scontrol", "show", "job", f"{array}_1")
    check_exact(tmp_path, undisturbed, store)
    wait_for_nodes()


def test_a_lost_node_leaves_a_shared_purse_exact(
    slow, undisturbed, tmp_path, postgres_address, invoke
):
    address, out = shown_address(postgres_address), tmp_path / "sweep"
    budget, total = budgets(undisturbed)
    money = ["--budget", budget, "--budget-policy", "hard", "--lost-calls", "count"]
    money += ["--purse", address, "--seeds", 3, "--max-iterations", 100]
    given = on_slurm(slow, out, address, *money)
    process = begun(*given, "--total", total, "--json")
    wait_until(lambda: has_purse(address, out.name))
    with watched_purse(address, out.name) as seen:
        wait_until(lambda: sum(bool(last_step(steps(out, seed))) for seed in range(3)) >= 2)
        (submission,) = JobFile.load(out).submissions
        working = [seed for seed in range(3) if last_step(steps(out, seed))]
        node = kill_node_of(f"{submission.job}_{working[-1]}")
        try:
            printed, errors = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            slurm("slurmd", "-N", node)
    assert process.returncode == FINISHED, errors
    assert statuses(printed).count("finished") >= 2
    assert set(statuses(printed)) <= {"finished", "cut short", "skipped"}
    assert 0 < max(seen) <= Decimal(str(total))
    check_purse(address, out, total, range(3), address)
    shown = invoke("sweep", "--out", out, "--status", "--store", address, "--json")
    assert "failed" not in statuses(shown)

    wait_for_nodes()
    again = costada(*given, "--total", 4 * budget, "--json")
    assert again.returncode == FINISHED, again.stderr
    assert statuses(again) == ["finished"] * 3
    shown = invoke("sweep", "--out", out, "--status", "--json")
    assert statuses(shown) == ["finished"] * 3
    check_purse(address, out, 4 * budget, range(3), address)


def test_what_slurm_refuses_is_refused_before_a_run_begins(slow, tmp_path):
    result = costada(*on_slurm(slow, tmp_path, None, "--slurm", "partition=none"))
    assert result.returncode == REFUSED
    assert "costada: --on slurm: sbatch refused: " in result.stderr
    assert "partition" in result.stderr
    assert JobFile.load(tmp_path).submissions == ()
    assert not (tmp_path / "slow").exists()

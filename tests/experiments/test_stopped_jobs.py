"""Runs of a cluster's sweep that are stopped before their first iteration."""

import time

import pytest
from fakes import toy_folder

from costada.evaluators.remote.engine import QueueEngine
from costada.experiments.sweep.cluster import ClusterRuns, job_status
from costada.experiments.sweep.job_file import (
    STOP,
    JobFile,
    give_order,
    is_ordered_to_stop,
    order_path,
)
from costada.experiments.sweep.run_process import start
from costada.experiments.sweep.sweep import Status, run_in
from costada.runs.config import RunConfig

pytestmark = pytest.mark.process


class Queue(QueueEngine):
    """A cluster that accepts every submission and never starts a job."""

    name = "queue"

    def start(self, calls):
        raise AssertionError("jobs of a queue are submitted")

    def poll(self, job, seconds=0.0):
        return None

    def submit(self, calls, token):
        return token

    def jobs(self, token, known_id, number):
        return [f"{known_id}_{place}" for place in range(number)]

    def is_queued(self, job):
        return True


def test_a_new_submission_withdraws_the_order_to_stop_of_an_earlier_one(tmp_path):
    """A run of it that fails without a word would pass for one that the user has stopped."""
    cluster = ClusterRuns("slurm", tmp_path, Queue())
    run = run_in(tmp_path, "toy/costada/seed-0", RunConfig(problem="toy"))
    give_order(tmp_path, STOP)
    cluster.prepare([])
    assert is_ordered_to_stop(order_path(tmp_path))
    cluster.prepare([run])
    assert not is_ordered_to_stop(order_path(tmp_path))


@pytest.mark.parametrize("is_early", [True, False])
def test_a_run_that_was_stopped_before_its_first_iteration_is_interrupted(tmp_path, is_early):
    """Either while its command starts, or while it evaluates the initial program."""
    problem, began = toy_folder(tmp_path), tmp_path / "began"
    evaluator = problem / "evaluator.py"
    slow = f"    open({str(began)!r}, 'w').close()\n    time.sleep(60)\n    return"
    evaluator.write_text("import time\n" + evaluator.read_text().replace("    return", slow))
    out = tmp_path / "sweep"
    run = run_in(out, "toy/costada/seed-0", RunConfig(problem=str(problem)))
    JobFile.of(out, "dask://127.0.0.1:9", [run]).save(out)
    process = start(run)
    deadline = time.monotonic() + 30
    while not is_early and not began.exists():
        assert time.monotonic() < deadline, run.folder.log.read_text()
        time.sleep(0.05)
    give_order(out, STOP)
    process.drain()
    process._process.wait(60)
    (seen,) = job_status(out)
    assert (seen.status, seen.error) == (Status.INTERRUPTED, "")
    assert process.end()[0] is Status.INTERRUPTED

"""Runs of a cluster's sweep that are stopped before their first iteration."""

import time

import pytest
from fakes import toy_folder

from costada.experiments.sweep.cluster import job_status
from costada.experiments.sweep.job_file import STOP, JobFile, give_order
from costada.experiments.sweep.run_process import start
from costada.experiments.sweep.sweep import Status, run_in
from costada.runs.config import RunConfig

pytestmark = pytest.mark.process


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

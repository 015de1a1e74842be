"""Resources of a problem reach Dask and Ray; what no worker has is refused at once."""

from dataclasses import replace

import pytest
from remote_engines import dask_cluster

from costada.evaluators.problem import confine
from costada.evaluators.remote.engines import DaskEngine, engine_of
from costada.evaluators.remote.judge import RemoteJudge, check_elsewhere
from costada.values.candidate import Program
from costada.values.evaluation import WORKER

RIGHT = Program.of("def square(number):\n    return number ** 2\n")


def test_dask_gives_an_evaluation_to_a_worker_that_offers_what_it_takes(here, cache):
    with dask_cluster("--resources", "GPU=1 CPU=4") as cluster:
        engine = DaskEngine(cluster.place)
        fitting = replace(here, gpus=0.5, cpus=4, elsewhere=RemoteJudge(engine))
        assert check_elsewhere(fitting) == ""
        assert fitting.judge(RIGHT, "key").score == 1.0
        large = replace(here, gpus=2, elsewhere=RemoteJudge(engine))
        with pytest.raises(ValueError, match=r'no worker offers GPU=2.*--resources "GPU=2"'):
            check_elsewhere(large)
        with pytest.raises(ValueError, match="no worker offers CPU=5"):
            check_elsewhere(replace(large, gpus=0, cpus=5))


def test_a_scheduler_that_does_not_answer_is_named():
    with pytest.raises(OSError, match=r"evaluations: dask://127\.0\.0\.1:1 does not answer"):
        engine_of("dask://127.0.0.1:1")


@pytest.mark.parametrize("name", ["", "dask", "dask://", "local:0", "local:x", "slurm://a:1"])
def test_a_name_that_is_none_is_refused(name):
    with pytest.raises(ValueError, match=r"expected here, local:N, dask://HOST:PORT"):
        engine_of(name)


def test_here_is_no_engine():
    assert engine_of("here") is None


def test_limits_of_a_run_hold_in_workers(elsewhere):
    slow = Program.of("import time\ndef square(number):\n    time.sleep(0.9)\n    return 4\n")
    short = confine(elsewhere, timeout=1.0)
    assert short.judge(slow, "key").error == "timeout: the program exceeded 1 s"
    assert WORKER in short.judge(RIGHT, "key").artifacts

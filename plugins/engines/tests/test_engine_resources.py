"""Resources of a problem reach Dask and Ray; what no worker has is refused at once."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from time import monotonic

import pytest
from remote_engines import RAY_MEMORY, dask_cluster, ray_cluster
from squares import EVALUATOR, write_squares

from costada.evaluators.folders import load_folder
from costada.evaluators.problem import confine, gpu_note
from costada.evaluators.remote.backend import EngineBackend, check_backend, evaluated_by
from costada.evaluators.remote.engine import shared_engine
from costada.evaluators.sandbox.limits import MEBIBYTE
from costada.values.candidate import Program
from costada.values.evaluation import WORKER

pytestmark = pytest.mark.process

RIGHT = Program.of("def square(number):\n    return number ** 2\n")
SLOW = Program.of("import time\ndef square(number):\n    time.sleep(0.5)\n    return number ** 2\n")
SLOW_SECONDS = 1.0
"""Two calls of the slow program."""


def workers_of(problem, program, number):
    """The processes that judge a program, of so many evaluations at once."""
    with ThreadPoolExecutor(number) as threads:
        judged = threads.map(lambda _: problem.evaluate_program(program, "key"), range(number))
    return [int(each.artifacts[WORKER].rpartition(":")[2]) for each in judged]


@pytest.mark.cluster
def test_dask_gives_an_evaluation_to_a_worker_that_offers_what_it_takes(here, cache):
    with dask_cluster([("--resources", "GPU=1 CPU=4")]) as cluster:
        engine = shared_engine(f"dask://{cluster.place}")
        fitting = replace(here, gpus=0.5, cpus=4, backend=EngineBackend(engine))
        assert check_backend(fitting) == gpu_note(fitting) != ""
        assert fitting.evaluate_program(RIGHT, "key").score == 1.0
        large = replace(here, gpus=2, backend=EngineBackend(engine))
        with pytest.raises(ValueError, match=r'no worker offers GPU=2.*--resources "GPU=2"'):
            check_backend(large)
        with pytest.raises(ValueError, match="no worker offers CPU=5"):
            check_backend(replace(large, gpus=0, cpus=5))


@pytest.mark.cluster
def test_only_the_dask_worker_with_a_gpu_judges_what_takes_one_and_one_at_a_time(here, cache):
    with dask_cluster([("--resources", "GPU=1"), ()]) as cluster:
        engine = shared_engine(f"dask://{cluster.place}")
        anywhere = confine(replace(here, backend=EngineBackend(engine)), timeout=20.0)
        with_gpu = replace(anywhere, gpus=1)
        assert check_backend(with_gpu) == gpu_note(with_gpu)
        assert check_backend(anywhere) == ""
        offers = engine._client.scheduler_info(n_workers=-1)["workers"]
        [owner] = [
            pid
            for address, pid in engine._client.run(os.getpid).items()
            if offers[address]["resources"]
        ]
        assert {*workers_of(anywhere, SLOW, 4)} > {owner}
        begun = monotonic()
        assert {*workers_of(with_gpu, SLOW, 3)} == {owner}
        assert monotonic() - begun > 3 * SLOW_SECONDS


@pytest.mark.cluster
def test_ray_assigns_the_gpus_cores_and_memory_that_an_evaluation_takes(tmp_path, cache):
    # What Ray has assigned: it names the GPUs in the environment of the worker.
    evaluator = EVALUATOR.replace("is_valid=True,", 'is_valid=True, artifacts={"gpus": GPUS()},')
    reading = (
        '\nimport os\n\n\ndef GPUS():\n    return os.environ.get("CUDA_VISIBLE_DEVICES", "")\n'
    )
    folder = write_squares(tmp_path / "squares")
    (folder / "evaluator.py").write_text(evaluator + reading)
    with ray_cluster("--num-gpus", 2) as cluster:
        judge = EngineBackend(shared_engine(f"ray://{cluster.place}"))
        found = confine(replace(load_folder(folder), backend=judge))

        def gpus_of(gpus):
            taking = replace(found, gpus=gpus)
            assert check_backend(taking) == gpu_note(taking)
            return taking.evaluate_program(RIGHT, "key").artifacts["gpus"]

        assert gpus_of(1) in ("0", "1")
        assert gpus_of(0.5) in ("0", "1")
        assert sorted(gpus_of(2).split(",")) == ["0", "1"]
        memory = RAY_MEMORY // MEBIBYTE + 1
        refused = {
            "gpus = 3": replace(found, gpus=3),
            "cpus = 3": replace(found, cpus=3),
            f"memory_mb = {memory}": confine(found, memory_mb=memory),
        }
        for said, large in refused.items():
            with pytest.raises(ValueError, match=rf"where no node has .*{said}"):
                check_backend(large)
        begun = monotonic()
        workers_of(confine(replace(found, cpus=2), timeout=20.0), SLOW, 2)
        assert monotonic() - begun > 2 * SLOW_SECONDS


def test_local_workers_are_refused_resources_that_they_cannot_assign(local_engine, here):
    found = replace(here, backend=EngineBackend(local_engine))
    with pytest.raises(ValueError, match=r"'local:2', which assigns no GPUs.*gpus = 0\.5"):
        check_backend(replace(found, gpus=0.5))
    with pytest.raises(ValueError, match="cpus = 1000: they need 2000 cores"):
        check_backend(replace(found, cpus=1000))
    assert check_backend(found) == ""


def test_a_scheduler_that_does_not_respond_is_named(here):
    message = r"evaluate_on: dask://127\.0\.0\.1:1: no Dask scheduler responds there"
    with pytest.raises(OSError, match=message):
        evaluated_by(here, "dask://127.0.0.1:1")

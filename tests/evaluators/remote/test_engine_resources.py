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
from costada.evaluators.remote.engines import engine_of
from costada.evaluators.remote.judge import RemoteJudge, check_elsewhere
from costada.evaluators.sandbox.limits import MEBIBYTE
from costada.values.candidate import Program
from costada.values.evaluation import WORKER

RIGHT = Program.of("def square(number):\n    return number ** 2\n")
SLOW = Program.of("import time\ndef square(number):\n    time.sleep(0.5)\n    return number ** 2\n")
SLOW_SECONDS = 1.0
"""Two calls of the slow program."""


def workers_of(problem, program, number):
    """The processes that judge a program, of so many evaluations at once."""
    with ThreadPoolExecutor(number) as threads:
        judged = threads.map(lambda _: problem.judge(program, "key"), range(number))
    return [int(each.artifacts[WORKER].rpartition(":")[2]) for each in judged]


def test_dask_gives_an_evaluation_to_a_worker_that_offers_what_it_takes(here, cache):
    with dask_cluster([("--resources", "GPU=1 CPU=4")]) as cluster:
        engine = engine_of(f"dask://{cluster.place}")
        fitting = replace(here, gpus=0.5, cpus=4, elsewhere=RemoteJudge(engine))
        assert check_elsewhere(fitting) == gpu_note(fitting) != ""
        assert fitting.judge(RIGHT, "key").score == 1.0
        large = replace(here, gpus=2, elsewhere=RemoteJudge(engine))
        with pytest.raises(ValueError, match=r'no worker offers GPU=2.*--resources "GPU=2"'):
            check_elsewhere(large)
        with pytest.raises(ValueError, match="no worker offers CPU=5"):
            check_elsewhere(replace(large, gpus=0, cpus=5))


def test_only_the_dask_worker_with_a_gpu_judges_what_takes_one_and_one_at_a_time(here, cache):
    with dask_cluster([("--resources", "GPU=1"), ()]) as cluster:
        engine = engine_of(f"dask://{cluster.place}")
        anywhere = confine(replace(here, elsewhere=RemoteJudge(engine)), timeout=20.0)
        with_gpu = replace(anywhere, gpus=1)
        assert check_elsewhere(with_gpu) == gpu_note(with_gpu)
        assert check_elsewhere(anywhere) == ""
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


def test_ray_assigns_the_gpus_cores_and_memory_that_an_evaluation_takes(tmp_path, cache):
    # What Ray has assigned: it names the GPUs in the environment of the worker.
    evaluator = EVALUATOR.replace("is_valid=True,", 'is_valid=True, artifacts={"gpus": GPUS()},')
    reading = (
        '\nimport os\n\n\ndef GPUS():\n    return os.environ.get("CUDA_VISIBLE_DEVICES", "")\n'
    )
    folder = write_squares(tmp_path / "squares")
    (folder / "evaluator.py").write_text(evaluator + reading)
    with ray_cluster("--num-gpus", 2) as cluster:
        judge = RemoteJudge(engine_of(f"ray://{cluster.place}"))
        found = confine(replace(load_folder(folder), elsewhere=judge))

        def gpus_of(gpus):
            taking = replace(found, gpus=gpus)
            assert check_elsewhere(taking) == gpu_note(taking)
            return taking.judge(RIGHT, "key").artifacts["gpus"]

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
                check_elsewhere(large)
        begun = monotonic()
        workers_of(confine(replace(found, cpus=2), timeout=20.0), SLOW, 2)
        assert monotonic() - begun > 2 * SLOW_SECONDS


def test_a_scheduler_that_does_not_answer_is_named():
    with pytest.raises(OSError, match=r"evaluations: dask://127\.0\.0\.1:1 does not answer"):
        engine_of("dask://127.0.0.1:1")


@pytest.mark.parametrize(
    "name", ["", "dask", "dask://", "dask://127.0.0.1", "local:0", "local:99999", "slurm://a:1"]
)
def test_a_name_that_is_none_is_refused(name):
    with pytest.raises(ValueError, match=r"expected here, local:N \(1 to 9999\), dask://HOST:PORT"):
        engine_of(name)


def test_here_is_no_engine():
    assert engine_of("here") is None

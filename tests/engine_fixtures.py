"""What evaluates programs in other processes, for tests of several folders, and a problem."""

import pytest
from remote_engines import dask_cluster, processes, ray_cluster, threads
from squares import write_squares

from costada.evaluators.folders import load_folder
from costada.evaluators.problem import confine
from costada.evaluators.remote.backend import evaluated_by
from costada.evaluators.remote.engine import ExecutorEngine
from costada.evaluators.remote.worker_processes import WorkerProcesses
from costada.values.plugins import plugins_of

IN_CLUSTERS = ("dask", "ray")
KNOWN = plugins_of("costada.engines")
CLUSTERS = [pytest.param(name, marks=pytest.mark.cluster) for name in IN_CLUSTERS if name in KNOWN]
ENGINES = [*(["local"] if "local" in KNOWN else []), *CLUSTERS]


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """The caches of this user, for the workers that the session starts."""
    folder = tmp_path_factory.mktemp("caches")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder / "costada" / "problems"


@pytest.fixture(scope="session")
def squares(tmp_path_factory):
    return write_squares(tmp_path_factory.mktemp("problems") / "squares")


@pytest.fixture(scope="module", params=["threads", "processes", *ENGINES])
def given(request, cache):
    """What `evaluate_on=` takes: an executor, or the address of an engine."""
    match request.param:
        case "threads" | "processes" as kind:
            with {"threads": threads, "processes": processes}[kind]() as executor:
                yield executor
        case "local":
            yield "local:2"
        case "dask":
            with dask_cluster() as cluster:
                yield f"dask://{cluster.place}"
        case "ray":
            with ray_cluster() as cluster:
                yield f"ray://{cluster.place}"


@pytest.fixture(scope="module")
def remote(given, squares):
    """The problem, evaluated by an engine."""
    return confine(evaluated_by(load_folder(squares), given))


@pytest.fixture(scope="session")
def here(squares):
    return confine(load_folder(squares))


@pytest.fixture
def worker_engine(cache):
    """Worker processes of this test alone, as an executor of the caller."""
    with WorkerProcesses(2) as workers:
        yield ExecutorEngine(workers)

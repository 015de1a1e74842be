"""Engines that several tests share, and a problem folder for them."""

import pytest
from remote_engines import dask_cluster, processes, ray_cluster, threads
from squares import write_squares

from costada.evaluators.folders import load_folder
from costada.evaluators.problem import confine
from costada.evaluators.remote.executors import LocalEngine
from costada.evaluators.remote.judge import evaluated_by


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


@pytest.fixture(scope="module", params=["threads", "processes", "local", "dask", "ray"])
def given(request, cache):
    """What `evaluations=` takes: an executor, or the name of an engine."""
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
def elsewhere(given, squares):
    """The problem, judged by an engine."""
    return confine(evaluated_by(load_folder(squares), given))


@pytest.fixture(scope="session")
def here(squares):
    return confine(load_folder(squares))


@pytest.fixture
def local_engine(cache):
    """Worker processes of this test alone."""
    engine = LocalEngine(2)
    yield engine
    engine.close()

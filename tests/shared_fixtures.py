"""Fixtures and hooks that the tests of rooms and of plug-ins share."""

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from billing_server import BillingServer
from hypothesis import HealthCheck, settings
from new_database import new_database
from rows import trace_row
from typer.testing import CliRunner

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
os.environ["WANDB_MODE"] = "offline"  # also in processes that start before a test could set it
LONGEST_FILES = (
    *("tests/test_sweep_on_slurm.py", "tests/test_sweep_on_tasks.py"),
    "system/test_deployment.py",
    *("system/test_kill.py", "sandbox/test_hostile.py", "runs/test_bombs.py", "tests/test_docs.py"),
    *("system/test_kill_with_a_menu.py", "system/test_kill_with_a_gateway.py"),
    "sandbox/test_concurrent_evaluations.py",
    *("controller/test_third_party_method.py", "system/test_page_in_chromium.py"),
)
"""Files that take more than some 20 seconds, the longest first."""


CLUSTER_FILES = (
    *("tests/test_sweep_on_slurm.py", "tests/test_sweep_on_tasks.py"),
    *("system/test_deployment.py", "system/test_sweep_in_postgres.py"),
    *("system/test_containers.py", "remote/test_sent_repositories.py"),
)
"""Files that start clusters, which takes minutes; `make test-clusters` runs them."""


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """In CI, collect the tests of clusters only for `make test-clusters`."""
    is_of_clusters = "/".join(collection_path.parts[-2:]) in CLUSTER_FILES
    is_left_out = "CI" in os.environ and "COSTADA_CLUSTERS" not in os.environ
    return True if is_of_clusters and is_left_out else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files, so that no process is left alone with one in the end."""
    ranks = {name: rank for rank, name in enumerate(LONGEST_FILES)}
    items.sort(key=lambda item: ranks.get("/".join(item.path.parts[-2:]), len(ranks)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the process that tests fork others from, if one needs it, and keep what was loaded."""
    if "warm" in sys.modules and not session.config.option.collectonly:
        sys.modules["warm"].start_server()
    gc.freeze()  # later collections need not look at it


INITIAL_PROGRAM = """# EVOLVE-BLOCK-START
def value():
    total = 0.0
    for step in range(4):
        total += 0.05 * step
    return total
# EVOLVE-BLOCK-END
"""
EVALUATOR = """import runpy


def evaluate(program_path):
    value = runpy.run_path(program_path)["value"]()
    return {"combined_score": max(0.0, 1.0 - abs(value - 0.7)), "validity": 1.0}
"""


def write_problem(folder: Path) -> Path:
    folder.mkdir()
    (folder / "problem.md").write_text("Make value() as near to a secret number as possible.\n")
    (folder / "initial_program.py").write_text(INITIAL_PROGRAM)
    (folder / "evaluator.py").write_text(EVALUATOR)
    return folder


@pytest.fixture(scope="session")
def near(tmp_path_factory):
    """A problem folder whose evaluator reports nothing that depends on the clock."""
    return write_problem(tmp_path_factory.mktemp("problems") / "near")


@pytest.fixture(scope="session")
def invoke():
    """Run a command in this process: invoke("run", folder, "--seed", 1)."""

    def run(*arguments: object) -> Any:
        from costada.cli.main import app

        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    return run


@pytest.fixture(scope="session")
def finished(near, invoke, tmp_path_factory):
    """The folder of a finished run of three iterations."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    result = invoke("run", near, "--max-iterations", 3, "--out", folder)
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture
def leave_out(tmp_path, monkeypatch):
    """Leave a plug-in out, as a distribution without its folder does: leave_out("gateway")."""

    def left_out(name: str) -> None:
        ours = f"costada.plugins.{name}"
        for module in [ours, *(each for each in sys.modules if each.startswith(f"{ours}."))]:
            monkeypatch.setitem(sys.modules, module, None)
        monkeypatch.syspath_prepend(tmp_path)  # what is registered is looked for again

    return left_out


@pytest.fixture
def make_row():
    """Build a trace row: make_row(iteration=2)."""
    return trace_row


@pytest.fixture(scope="module")
def running_server():
    """A server for all tests of a file; each of them resets it."""
    with BillingServer() as running:
        yield running


NEW_IN_POSTGRES = """
DROP SCHEMA IF EXISTS costada CASCADE; DROP SCHEMA public CASCADE; CREATE SCHEMA public
"""


@pytest.fixture(scope="session")
def postgres_database() -> Iterator[str]:
    """The address of a database for this test process."""
    server = os.environ.get("COSTADA_POSTGRES")
    if server is None:
        pytest.skip("no Postgres server: `.ci/postgres make test` installs and starts one")
    with new_database(server) as address:
        yield address


@pytest.fixture
def postgres_address(postgres_database: str) -> Iterator[str]:
    """The address of a Postgres database without a table of CostAda."""
    yield postgres_database
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(NEW_IN_POSTGRES)

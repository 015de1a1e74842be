"""Fixtures and hooks that the tests of rooms and of plug-ins share."""

import os
import signal
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
TIERS = ("unit", "process", "browser", "cluster")
TIERS_OF_FIXTURES = {
    "chromium": "browser",
    **dict.fromkeys(("running_server", "running_gateway", "finished"), "process"),
}
"""Fixtures that decide the tier of a test. Otherwise its `pytestmark` does, or it is `unit`."""

ARE_MARKED = pytest.StashKey[bool]()
"""Whether the tests of a session have their tiers: each `conftest.py` with these hooks asks."""

PROCESS_EVENTS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with its tier, and leave files of unit tests to the end.

    These are short, and keep all workers busy until the last long file has ended.
    """
    if config.stash.get(ARE_MARKED, False):
        return
    config.stash[ARE_MARKED] = True
    for item in items:
        for fixture in TIERS_OF_FIXTURES.keys() & set(item.fixturenames):
            item.add_marker(TIERS_OF_FIXTURES[fixture])
        if not any(item.get_closest_marker(tier) for tier in TIERS):
            item.add_marker("unit")
    long_files = {item.path for item in items if not item.get_closest_marker("unit")}
    items.sort(key=lambda item: item.path not in long_files)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the process that tests fork others from, if one needs it."""
    options = session.config.option
    if "warm" in sys.modules and options.markexpr != "unit" and not options.collectonly:
        sys.modules["warm"].start_server()


STARTED: list[str] = []
"""How processes were started since the setup of the current test."""


def note_process(event: str, _: object) -> None:
    if event in PROCESS_EVENTS:
        STARTED.append(event)


def pytest_configure(config: pytest.Config) -> None:
    """Listen only where unit tests run alone: a hook makes every audit event slower."""
    if config.option.markexpr == "unit":
        sys.addaudithook(note_process)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    STARTED.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Where unit tests run alone, fail one that starts a process: it belongs to another tier."""
    yield
    if item.config.option.markexpr == "unit":
        assert not STARTED, f"{STARTED}: mark the test or its file with pytest.mark.process"


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


@pytest.fixture
def terminal() -> Iterator[None]:
    """A terminal whose end is heard of, even if the tests are run under `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


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

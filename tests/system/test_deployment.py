"""`deploy/start`: a run survives the death of each process, and none outlives the others."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp

import psutil
import pytest
from crash_runs import PRICE_IN, PRICE_OUT
from fakes import toy_folder
from needed_programs import how_to_install
from ports import free_port
from served_runs import (
    TOKEN,
    begun,
    check_ledger,
    check_result,
    ended,
    status_of,
    wait_until,
)

ROOT = Path(__file__).parents[2]
CALLS_BEFORE_THE_KILL = 8
BUDGET = 0.2
MAX_BUDGET = 1
"""Dollars of a run, and of all runs of the server."""

SECRETS = {
    "OPENAI_API_KEY": "none-openai",
    "ANTHROPIC_API_KEY": "none-anthropic",
    "PGPASSWORD": "none-database",
    "COSTADA_MCP_TOKEN": TOKEN,
}
POSTGRES = shutil.which("pg_ctl") or next(
    iter(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl")), None
)

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.skipif(find_spec("distributed") is None, reason="pip install 'costada[dask]'"),
    pytest.mark.skipif(POSTGRES is None, reason=how_to_install("pg_ctl")),
]


@pytest.fixture
def folder():
    made = Path(mkdtemp(dir="/var/tmp"))  # the path of a socket is short
    made.chmod(0o755)  # Postgres runs as another user
    toy_folder(made)
    yield made
    shutil.rmtree(made)


def start(folder, url, ports):
    port, scheduler = map(str, ports)
    model = ["--model", "openai:stand-in", "--base-url", url, "--price", f"{PRICE_IN},{PRICE_OUT}"]
    money = ["--max-budget", str(MAX_BUDGET), "--max-tokens", "4000"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, **SECRETS, "PATH": path}
    environment |= {"PORT": port, "SCHEDULER_PORT": scheduler}
    environment.pop("COSTADA_STORE", None)
    with open(folder / "start.log", "ab") as log:
        return subprocess.Popen(
            [ROOT / "deploy" / "start", folder, *money, *model, "--problems", folder / "toy"],
            env=environment,
            stdout=log,
            stderr=log,
        )


@contextmanager
def started(folder, url, ports):
    """The process of `deploy/start` when the server answers; it is ended with its services."""
    process = start(folder, url, ports)
    try:
        await_health(folder, ports)
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(90)
        process.kill()
        process.wait()


def address_of(ports):
    return f"http://127.0.0.1:{ports[0]}"


def await_health(folder, ports):
    await_that(lambda: status_of(f"{address_of(ports)}/ready") == 200, folder)


def await_that(is_true, folder):
    logs = [*folder.glob("*.log"), *folder.glob("postgres/*.log")]
    wait_until(is_true, lambda: "".join(each.read_text()[-2000:] for each in logs))


def begin(folder, ports, provider):
    """The name of a run that has made some calls."""
    run = asyncio.run(begun(address_of(ports), BUDGET))
    await_that(lambda: provider.billed.total() >= CALLS_BEFORE_THE_KILL, folder)
    return run


def check_end(folder, ports, run, provider):
    """The run ends with the expected result, and its ledger is the bill."""
    status, best = asyncio.run(ended(address_of(ports), run))
    check_result(status, best)
    store_address = f"postgresql://costada@/postgres?host={folder / 'postgres'}"
    check_ledger(store_address, run, status, provider, MAX_BUDGET)


def services(process):
    """All processes below `deploy/start`, but those that wait for a second."""
    below = psutil.Process(process.pid).children(recursive=True)
    return [each for each in below if each.is_running() and each.name() != "sleep"]


def test_a_run_survives_the_death_of_all_processes_except_postgres(folder, url, provider):
    ports = free_port(), free_port()
    with started(folder, url, ports) as process:
        assert status_of(f"{address_of(ports)}/mcp") == 401
        run = begin(folder, ports, provider)
        killed = {each.stem: int(each.read_text()) for each in folder.glob("*.pid")}
        assert set(killed) == {"mcp", "scheduler", "worker-1", "worker-2"}
        for number in killed.values():
            os.kill(number, signal.SIGKILL)
        billed = provider.billed.total()
        await_health(folder, ports)
        check_end(folder, ports, run, provider)
        assert provider.billed.total() > billed
        assert start(folder, url, ports).wait(60) == 2, "two starts use one folder"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=90) == 0
    assert status_of(f"{address_of(ports)}/ready") == 0
    assert not list(folder.rglob("*.pid"))


def test_a_run_survives_the_death_of_postgres(folder, url, provider):
    ports = free_port(), free_port()
    with started(folder, url, ports):
        run = begin(folder, ports, provider)
        noted = folder / "postgres" / "server.pid"
        first = noted.read_text()
        os.kill(int(first), signal.SIGKILL)
        await_that(lambda: noted.read_text() not in ("", first), folder)
        await_health(folder, ports)
        check_end(folder, ports, run, provider)


def test_all_services_end_when_the_script_is_killed_and_the_next_start_completes_the_run(
    folder, url, provider
):
    ports = free_port(), free_port()
    with started(folder, url, ports) as process:
        run = begin(folder, ports, provider)
        below = services(process)
        names = " ".join(" ".join(each.cmdline()) for each in below)
        assert all(name in names for name in ("postgres", "scheduler", "worker-2", "mcp"))
        process.kill()
        process.wait()
        assert not psutil.wait_procs(below, timeout=90)[1]
    with started(folder, url, ports):
        check_end(folder, ports, run, provider)


def test_only_the_server_gets_keys_and_tokens(folder, url):
    ports = free_port(), free_port()
    with started(folder, url, ports) as process:
        server = int((folder / "mcp.pid").read_text())
        below = [each for each in services(process) if each.pid != server]
        others = [each for each in below if server not in [up.pid for up in each.parents()]]
        given = [Path(f"/proc/{each.pid}/environ").read_bytes() for each in others]
    assert sum(b"\0HOME=" in b"\0" + each for each in given) >= len(["scheduler", 1, 2])
    for environment in given:
        assert not [name for name in SECRETS if name.encode() in environment]
        assert not [value for value in SECRETS.values() if value.encode() in environment]

"""`deploy/start`: all processes but Postgres are killed while a run is active, which then ends."""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from billing_server import BillingServer
from crash_runs import PRICE_IN, PRICE_OUT, Provider, Record, check_against_bill
from fakes import toy_folder
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from costada.store.purse import Purse
from costada.store.run_store import RunStore

ROOT = Path(__file__).parents[2]
START_SECONDS = 150
TOKEN = "a" * 32
CALLS_BEFORE_THE_KILL = 8
BUDGET = 0.2
POSTGRES = shutil.which("pg_ctl") or next(
    iter(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl")), None
)

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(find_spec("distributed") is None, reason="distributed is not installed"),
    pytest.mark.skipif(POSTGRES is None, reason="Postgres is not installed"),
]


@pytest.fixture
def folder():
    made = Path(mkdtemp(dir="/var/tmp"))  # the path of a socket is short
    made.chmod(0o755)  # Postgres runs as another user
    toy_folder(made)
    yield made
    shutil.rmtree(made)


def free_ports(number):
    bound = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in bound]
    for each in bound:
        each.close()
    return ports


def start(folder, url, ports):
    port, scheduler = map(str, ports)
    model = ["--model", "openai:stand-in", "--base-url", url, "--price", f"{PRICE_IN},{PRICE_OUT}"]
    money = ["--max-budget", "1", "--max-tokens", "4000"]
    own = {"PORT": port, "SCHEDULER_PORT": scheduler, "COSTADA_MCP_TOKEN": TOKEN}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, **own, "PATH": path, "OPENAI_API_KEY": "none"}
    environment.pop("COSTADA_STORE", None)
    with open(folder / "start.log", "wb") as log:
        return subprocess.Popen(
            [ROOT / "deploy" / "start", folder, *money, *model, "--problems", folder / "toy"],
            env=environment,
            stdout=log,
            stderr=log,
        )


def status_of(url, headers=None):
    """The HTTP status of a request; 0 if no server answers."""
    try:
        with urlopen(Request(url, headers=headers or {}), timeout=10) as response:
            return response.status
    except (URLError, ConnectionError) as error:
        return getattr(error, "code", 0)


def wait_until(is_true, folder):
    deadline = time.monotonic() + START_SECONDS
    while not is_true():
        logs = "".join(each.read_text()[-2000:] for each in folder.glob("*.log"))
        assert time.monotonic() < deadline, logs
        time.sleep(0.005)


@asynccontextmanager
async def session_at(address):
    async with (
        streamable_http_client(f"{address}/mcp?token={TOKEN}") as (reading, writing, _),
        ClientSession(reading, writing) as session,
    ):
        await session.initialize()
        yield session


async def call(session, tool, **arguments):
    result = await session.call_tool(tool, arguments)
    assert not result.isError, result.content
    return json.loads(result.content[0].text)


async def begun(address):
    async with session_at(address) as session:
        return await call(session, "discover", problem="toy", budget=BUDGET)


async def ended(address, run):
    async with session_at(address) as session:
        while True:
            status = await call(session, "status", run=run, wait_seconds=5)
            if status["phase"] not in ("running", "interrupted"):
                return status, await call(session, "best_program", run=run)
            await asyncio.sleep(0.2)


def kill_services(folder):
    killed = {}
    for file in folder.glob("*.pid"):
        killed[file.stem] = int(file.read_text())
        os.kill(killed[file.stem], signal.SIGKILL)
    return killed


def test_a_run_survives_the_death_of_all_processes_except_postgres(folder):
    provider = Provider()
    with BillingServer(default=provider.answer) as server:
        ports = free_ports(2)
        address = f"http://127.0.0.1:{ports[0]}"
        started = start(folder, server.url, ports)
        try:
            wait_until(lambda: status_of(f"{address}/health") == 200, folder)
            assert status_of(f"{address}/mcp") == 401
            run = asyncio.run(begun(address))["run"]
            wait_until(lambda: provider.billed.total() >= CALLS_BEFORE_THE_KILL, folder)
            killed = kill_services(folder)
            assert set(killed) == {"mcp", "scheduler", "worker-1", "worker-2"}
            billed = provider.billed.total()
            wait_until(lambda: status_of(f"{address}/health") == 200, folder)
            status, best = asyncio.run(ended(address, run))
            assert provider.billed.total() > billed
            check_ledger(folder, run, status, provider)
            assert start(folder, server.url, ports).wait(60) == 2, "two starts use one folder"
            started.send_signal(signal.SIGTERM)
            started.wait(timeout=90)
        finally:
            started.kill()
    assert (status["phase"], status["stop_reason"]) == ("finished", "budget")
    assert best["best_score"] == status["best_score"] > 0.1
    assert f"{best['best_score']:.4f}" in best["program"]
    assert status_of(f"{address}/health") == 0
    assert not list(folder.glob("*.pid"))
    assert not (folder / "postgres" / "data" / "postmaster.pid").exists()


def check_ledger(folder, run, status, provider):
    store_address = f"postgresql://costada@/postgres?host={folder / 'postgres'}"
    with RunStore.postgres(store_address, run, is_read_only=True) as store:
        (run_id,) = store.run_ids()
        calls = tuple(store.call_log.calls(run_id))
        record = Record("", "", calls, (), store.call_log.spent(run_id, status["iterations"]))
        assert [row["iteration"] for row in store.steps(run_id)] == [
            *range(1, status["iterations"] + 1)
        ]
    check_against_bill(record, provider)
    assert sum(provider.billed.values()) <= len(record.done) + len(record.lost)
    assert record.spent == sum(each.cost for each in record.done) + sum(
        each.bound for each in record.lost
    )
    with Purse(1, dsn=store_address, name="the server's purse") as purse:
        assert purse.spent == record.spent
        assert purse.remaining == 1 - record.spent

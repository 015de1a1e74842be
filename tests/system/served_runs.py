"""Runs that a deployed server was asked for over HTTP, and what its database says of them."""

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import asynccontextmanager
from urllib.error import URLError
from urllib.request import Request, urlopen

from crash_runs import Provider, Record, check_against_bill
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from costada.store.purse import Purse
from costada.store.run_store import RunStore

START_SECONDS = 150
TOKEN = "a" * 32


def status_of(url, headers=None):
    """The HTTP status of a request; 0 if no server answers."""
    try:
        with urlopen(Request(url, headers=headers or {}), timeout=10) as response:
            return response.status
    except (URLError, ConnectionError, TimeoutError) as error:
        return getattr(error, "code", 0)


def wait_until(is_true: Callable[[], bool], logs: Callable[[], str]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not is_true():
        assert time.monotonic() < deadline, logs()
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


async def begun(address, budget):
    """The name of a run that is started."""
    async with session_at(address) as session:
        return (await call(session, "discover", problem="toy", budget=budget))["run"]


async def ended(address, run):
    """The last status of a run, and its best program."""
    async with session_at(address) as session:
        while True:
            status = await call(session, "wait_for_run", run=run, seconds=5)
            if status["phase"] not in ("running", "interrupted"):
                return status, await call(session, "best_program", run=run)
            await asyncio.sleep(0.2)


def check_result(status, best):
    """The run was completed, with the best program that it says."""
    assert (status["phase"], status["stop_reason"]) == ("finished", "budget"), status
    assert best["best_score"] == status["best_score"] > 0.1
    assert f"{best['best_score']:.4f}" in best["program"]


def check_ledger(
    store_address: str, run: str, status, provider: Provider, max_budget: float
) -> None:
    """Each call that the provider has billed is on the ledger once, and the purse agrees."""
    with RunStore.postgres(store_address, run, is_read_only=True) as store:
        (run_id,) = store.run_ids()
        calls = tuple(store.call_log.calls(run_id))
        record = Record("", "", calls, (), store.ledger.spent(run_id, status["iterations"]))
        assert [row["iteration"] for row in store.steps(run_id)] == [
            *range(1, status["iterations"] + 1)
        ]
    check_against_bill(record, provider)
    assert sum(provider.billed.values()) <= len(record.done) + len(record.lost)
    assert record.spent == sum(each.cost for each in record.done) + sum(
        each.bound for each in record.lost
    )
    with Purse(max_budget, dsn=store_address, name="the server's purse") as purse:
        assert purse.spent == record.spent
        assert purse.remaining == max_budget - record.spent

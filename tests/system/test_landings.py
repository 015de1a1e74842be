"""A process that dies between the landing of a step and its checkpoint."""

import os
import signal
import time
from contextlib import closing
from decimal import Decimal

import pytest
from billing_server import BillingServer
from crash_runs import Provider, Record, check_against_bill
from killed_searches import execute_run, search
from warm import PROCESSES

from costada.store.checkpoints import RunSaver
from costada.store.run_store import RunStore
from costada.store.sqlite_engine import connect

pytestmark = pytest.mark.process

KILLED_AT = (4, 9, 15)
"""Landings after which a process dies."""

ITERATIONS = 24


def landings_in(path):
    with closing(connect(path)) as connection:
        return connection.execute(
            "SELECT landing, ticket FROM costada_landing ORDER BY landing"
        ).fetchall()


class DyingSaver(RunSaver):
    """Kills its process instead of saving what comes after so many landings."""

    def __init__(self, path, last):
        super().__init__(path)
        self._path, self._last = path, last

    def put_writes(self, config, writes, task_id, task_path=""):
        if len(landings_in(self._path)) >= self._last:
            os.kill(os.getpid(), signal.SIGKILL)
        super().put_writes(config, writes, task_id, task_path)


class UnevenProvider(Provider):
    """Takes longer for some prompts than for others."""

    def answer(self, body):
        time.sleep(0.02 * (len(body["messages"][-1]["content"]) % 4))
        return super().answer(body)


def run(path, url, last):
    """Begin a run or continue it; its process dies after so many landings."""
    with RunStore(path) as store, closing(DyingSaver(path, last)) as saver:
        execute_run(search(url, store, saver, ITERATIONS, parallel=8))


def test_recorded_landings_are_replayed_as_they_were(tmp_path):
    path, provider = tmp_path / "run.sqlite", UnevenProvider()
    recorded = []
    with BillingServer(default=provider.answer) as server:
        for last in (*KILLED_AT, 10**9):
            process = PROCESSES.Process(target=run, args=(path, server.url, last))
            process.start()
            process.join(150)
            assert process.exitcode == (0 if last == 10**9 else -signal.SIGKILL)
            landings = landings_in(path)
            assert landings[: len(recorded)] == recorded
            assert len(landings) >= min(last, len(recorded) + 1)
            recorded = landings
    with RunStore(path, is_read_only=True) as store:
        run_id = store.run_ids()[-1]
        tickets = [row["ticket"] for row in store.steps(run_id)]
        calls = tuple(store.call_log.calls(run_id))
    check_against_bill(Record("", "", calls, (), Decimal(0)), provider)
    assert sorted(tickets) == list(range(1, ITERATIONS + 1))
    last_landing = {number: landing for landing, number in recorded}
    assert tickets == sorted(tickets, key=last_landing.__getitem__)
    assert tickets != sorted(tickets)

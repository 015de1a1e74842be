"""A stored run whose database was restored from a dump: no bill is forgotten."""

import subprocess
from math import inf

import psycopg
import pytest
from paid_runs import ledger_in, run_paid, spent_from
from postgres_server import started_server
from waiting import within
from warm import PROCESSES

from costada.runs.resume import LOST_STEPS

pytestmark = pytest.mark.process

DUMPED, KILLED, ITERATIONS = 6, 12, 16


def check_ledger(database, bill):
    """All requests cost at least what was billed, and one row stands for those that were lost."""
    ledger, roles = ledger_in(database)
    assert ledger >= bill
    assert roles.count(LOST_STEPS) == 1


@pytest.mark.parametrize(
    ("parallel", "purse_slice"), [(1, None), (4, None), (1, 0.02), (4, 0.02), (4, 1.0)]
)
def test_what_a_restored_database_lacks_is_told_and_counted(
    parallel, purse_slice, provider, url, tmp_path
):
    folder, dump = tmp_path / "hex", tmp_path / "dump"
    provider.last_answered = DUMPED
    with started_server() as server:
        programs = server.programs
        own = {"parallel": parallel, "gateway": False, "max_iterations": ITERATIONS}
        own["purse_slice"] = purse_slice
        process = PROCESSES.Process(target=run_paid, args=(folder, url, server.address), kwargs=own)
        process.start()
        within(60, lambda: provider.billed.total() >= DUMPED)
        words = f"--dbname={server.address}", "--format=custom", "--schema=costada"
        more = "--no-unlogged-table-data", f"--file={dump}"
        subprocess.run([programs / "pg_dump", *words, *more], check=True)
        provider.last_answered = KILLED
        within(60, lambda: provider.billed.total() >= KILLED)
        process.kill()
        process.join()
        provider.last_answered = inf
        with psycopg.connect(server.address, autocommit=True) as connection:
            connection.execute("CREATE DATABASE restored")
        restored = server.address.replace("/postgres?", "/restored?")
        subprocess.run([programs / "pg_restore", f"--dbname={restored}", dump], check=True)
        billed = provider.bill
        with pytest.raises(ValueError, match=r"the database has lost \d+ of \d+ requests") as told:
            run_paid(folder, url, restored, resume=True, **own)
        assert "--accept-loss" in str(told.value)
        assert provider.bill == billed
        run_paid(folder, url, restored, resume=True, accept_loss=True, **own)
        assert provider.bill > billed
        check_ledger(restored, provider.bill)
        assert spent_from(restored) >= provider.bill

"""Runs go on by themselves whatever happens to their server or the way to it, and pay once."""

from threading import Event, Thread

import psycopg
import pytest
from disturbed_runs import disturb_runs
from fakes import toy_problem
from langgraph.runtime import RunControl
from ports import free_port
from postgres_server import started_server
from waiting import within

from costada.reports.progress import Progress
from costada.runs.config import RunConfig
from costada.runs.plan import plan_run
from costada.runs.runner import execute_run
from costada.runs.search_request import SearchRequest
from costada.runs.stored_run import run_at
from costada.store.address import shown_address
from costada.store.run_store import RunStore

pytestmark = pytest.mark.process

END_WAITING = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%costada_tactics%'
"""


@pytest.mark.parametrize("kind", ["restart", "cut"])
def test_runs_of_one_purse_end_by_themselves_and_their_ledger_equals_the_bill(kind):
    found = disturb_runs(kind, times=4, every=0.5, pause=1)
    assert found.num_finished == found.num_runs > 1
    assert found.bill == found.ledger == found.spent


class CutPage(Progress):
    """Cuts the connection of the final page in the middle."""

    def __init__(self, address):
        self._address, self._is_locked = address, Event()
        self.cutting = Thread(target=self._cut)

    def end(self, result):
        self.cutting.start()
        self._is_locked.wait()

    def _cut(self):
        with psycopg.connect(self._address) as locking, psycopg.connect(self._address) as ending:
            ending.autocommit = True
            locking.execute("LOCK costada.costada_tactics")
            self._is_locked.set()
            within(60, lambda: ending.execute(END_WAITING).fetchall())


def test_a_connection_that_is_lost_while_the_page_is_written_ends_no_run(
    postgres_address, tmp_path
):
    config = RunConfig(problem="toy", model="offline", budget=1, max_iterations=4)
    run = run_at(f"{shown_address(postgres_address)}#hex", tmp_path / "hex")
    plan = plan_run(SearchRequest(config, problem=toy_problem()))
    run.claim(config)
    progress = CutPage(postgres_address)
    assert execute_run(plan, run, progress, RunControl()).stop_reason == "iterations"
    progress.cutting.join()
    assert run.report.is_file()


def test_the_server_notices_soon_that_a_client_is_gone():
    """Half of a transaction may have arrived, and its locks hold up all others."""
    with started_server() as server:
        server.listen(free_port())
        with RunStore.postgres(server.address) as store:
            asked = "SELECT current_setting('tcp_keepalives_' || ?)"
            found = [store._db.rows(asked, (each,)) for each in ("idle", "interval", "count")]
        seconds, between, times = (int(each) for ((each,),) in found)
        assert seconds + between * times <= 30

"""What a step and a resume ask of a run file does not grow with the run."""

from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pytest
from rows import trace_row

from costada import problem
from costada.reports.tracking import Tracking
from costada.runs.folder import RunFolder
from costada.runs.run_files import RunRecord
from costada.store.call_log import CallKey
from costada.store.rows import CallRow, CallStatus, LandedTickets, Outcome, OutcomeKind
from costada.store.run_store import RunStore
from costada.values.candidate import Candidate, Program

RUN = "run"
LONG = 2000
BEST = "found = 1\n"


def stored(path: Path, iterations: int) -> RunStore:
    """A run of so many iterations, whose first one found its best program."""
    store = RunStore(path)
    store.open_run(RUN, "costada", "circle_packing", "process")
    program = Program.of(BEST)
    store.candidates.put(RUN, Candidate(id="1.1", program=program, score=1.0, ticket=1))
    for number in range(1, iterations + 1):
        gain = 0.5 if number == 1 else 0.0
        store.put_step(
            RUN, number, trace_row(iteration=number, global_gain=gain, candidate_id="1.1")
        )
        key = CallKey(RUN, number, "generation", 1)
        status = CallStatus.STARTED if number > iterations - 2 else CallStatus.DONE
        row = CallRow(
            ticket=number,
            role="generation",
            attempt=1,
            cost=Decimal("0.25"),
            error=f"error {number}",
            status=status,
        )
        store.call_log.put_call(RUN, row)
        store.call_log.put_outcome(key, Outcome("", "text", OutcomeKind.TIMEOUT))
    return store


@pytest.fixture(scope="module")
def long_run(tmp_path_factory):
    with stored(tmp_path_factory.mktemp("long") / "run.sqlite", LONG) as store:
        yield store


def hundreds_of_instructions(store: RunStore, work) -> int:
    """How much SQLite executes for what is done with a store."""
    executed = []
    store._db.engine._connection.set_progress_handler(lambda: executed.append(1), 100)
    work(store)
    store._db.engine._connection.set_progress_handler(None, 0)
    return len(executed)


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (
            lambda store: store.ledger.open_cost(
                RUN, LandedTickets(LONG - 1, (7,)), counts_lost=True
            ),
            Decimal("0.5"),
        ),
        (lambda store: store.ledger.num_sent(RUN, LandedTickets(LONG - 1, (7, LONG - 1)), LONG), 1),
        (lambda store: store.ledger.num_sent(RUN, LandedTickets(LONG - 1, (LONG,)), 0), 1),
        (lambda store: store.call_log.last_error(RUN), f"error {LONG}"),
        (lambda store: store.call_log.last_kind(RUN), OutcomeKind.TIMEOUT),
        (lambda store: store.ledger.step_cost(RUN, LONG, counts_lost=True), Decimal("0.25")),
    ],
)
def test_a_step_is_answered_from_the_rows_it_needs(long_run, work, expected):
    assert work(long_run) == expected
    needed = hundreds_of_instructions(long_run, work)
    every_call = hundreds_of_instructions(
        long_run, lambda store: list(store.call_log.calls(RUN, with_texts=False))
    )
    assert needed < every_call / 100


def test_a_guide_reads_the_rows_of_ideas_and_no_others(long_run):
    idea = {"number": 1, "kind": "tactic", "idea": "try hexagonal rows"}
    long_run.put_step(RUN, 5, trace_row(iteration=5, score=0.75, best_score=0.75, steered=idea))
    long_run.put_step(RUN, 4, trace_row(iteration=4, best_score=0.5))

    def outcomes(store: RunStore):
        return store.inputs.outcomes(RUN, before=LONG, count=10)

    assert outcomes(long_run) == [(5, "try hexagonal rows", 0.25)]
    assert hundreds_of_instructions(long_run, outcomes) <= 5


def test_a_ticket_that_is_open_and_later_than_the_last_is_counted_once(long_run):
    ledger = long_run.ledger
    assert (
        ledger.open_cost(RUN, LandedTickets(7, (3, 9)), counts_lost=True) == Decimal(LONG - 6) / 4
    )
    assert ledger.num_sent(RUN, LandedTickets(7, (LONG - 1, LONG)), 0) == 2


def test_a_later_ticket_of_a_process_that_died_is_not_in_flight(long_run):
    key, in_flight = CallKey(RUN, LONG - 1, "generation", 1), long_run.call_log.in_flight
    ledger = long_run.ledger
    assert ledger.num_sent(RUN, LandedTickets(7, (LONG,)), 0) == 1
    in_flight.begin(key)
    assert ledger.num_sent(RUN, LandedTickets(7, (LONG,)), 0) == 2
    in_flight.end(key)
    assert ledger.num_sent(RUN, LandedTickets(7, (LONG,)), 0) == 1


def statements_of_a_resume(folder: Path, iterations: int) -> int:
    """How many statements bring the files of a run up to date that are."""
    run, plan = RunFolder(folder), SimpleNamespace(problem=problem("circle_packing"))
    folder.mkdir()
    executed: list[str] = []
    with stored(run.database, iterations) as store:
        RunRecord(run, plan, store, Tracking((), run, ""))
        before = run.steps.stat()
        store._db.engine._connection.set_trace_callback(executed.append)
        files = RunRecord(run, plan, store, Tracking((), run, ""))
        files.finish()
        assert run.steps.stat().st_ino == before.st_ino
        assert len(run.steps.read_text().splitlines()) == iterations
        assert run.best_program.read_text() == BEST
        assert [row["iteration"] for row in files.recent_rows][-1] == iterations
    return len(executed)


def test_a_resume_executes_as_many_statements_for_a_long_run_and_writes_no_trace(tmp_path):
    short, long = (statements_of_a_resume(tmp_path / f"{n}", n) for n in (5, 500))
    assert short == long


def test_a_trace_file_that_differs_from_the_store_is_written_again(tmp_path):
    run, plan = RunFolder(tmp_path), SimpleNamespace(problem=problem("circle_packing"))
    with stored(run.database, 3) as store:
        RunRecord(run, plan, store, Tracking((), run, ""))
        right = run.steps.read_text()
        for wrong in (right[:-9], right + right, right.replace("1", "2"), ""):
            run.steps.write_text(wrong)
            RunRecord(run, plan, store, Tracking((), run, ""))
            assert run.steps.read_text() == right
        other = tmp_path / "other"
        run.steps.rename(other)
        run.steps.symlink_to(other)
        RunRecord(run, plan, store, Tracking((), run, "")).finish()
        assert not run.steps.is_symlink()

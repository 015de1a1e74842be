import json
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from threading import Event

import pytest
from store_backends import SHARED

from costada.store.call_log import CallKey
from costada.store.candidates import CandidateTable
from costada.store.in_flight_calls import InFlightCalls
from costada.store.rows import CallRow, LandedTickets
from costada.store.run_copy import Cut, copy_file, cut_back
from costada.store.run_store import RunStore
from costada.values.candidate import Candidate, Program
from costada.values.usage import Usage


def candidate(name: str, code: str = "x = 1\n", score: float = 0.5, ticket: int = 1):
    return Candidate(
        id=name,
        ticket=ticket,
        program=Program.of(code),
        score=score,
        objective=2 * score,
        is_valid=True,
        metrics={"combined_score": score},
        artifacts={"note": "fine"},
        error=None,
        parent_id=None,
        generation=0,
        changes="",
    )


def call(ticket: int, cost: str, role: str = "generation", attempt: int = 1):
    return CallRow(
        ticket=ticket,
        role=role,
        attempt=attempt,
        model="m",
        usage=Usage(3, 2, 1),
        cost=Decimal(cost),
        price_in="1",
        price_out="2",
        price_source="given",
        provider="openai",
        provider_id="answer-1",
        finish_reason="stop",
        ended_at=1.5e9,
        seconds=0.1,
        prompt="question",
        answer="answer",
        error=None,
    )


def test_a_candidate_comes_back_as_it_was_stored(store):
    row = candidate("1.1", code="π = 3\n" * 1000)
    store.candidates.put("run", row)
    assert store.candidates.get("run", "1.1") == row


def test_candidates_come_back_in_the_order_asked_for(store):
    for name in ("a", "b", "c"):
        store.candidates.put("run", candidate(name))
    found = store.candidates.get_many("run", ["c", "a"])
    assert [row.id for row in found] == ["c", "a"]


def test_a_candidate_of_another_run_is_not_found(store):
    store.candidates.put("run", candidate("a"))
    with pytest.raises(ValueError, match=r"candidates \['a'\]: not stored for run other"):
        store.candidates.get("other", "a")


def test_archives_are_read_as_of_a_change_so_later_rows_are_never_seen(store):
    for name in ("a", "b", "c"):
        store.candidates.put("run", candidate(name))
    store.candidates.put_archive("run", 0, 1, ["a"])
    store.candidates.put_archive("run", 0, 3, ["a", "b"])
    store.candidates.put_archive("run", 1, 1, ["c"])

    def members(seq: int) -> list[str]:
        return [row.id for row in store.candidates.archive("run", 0, seq)]

    assert members(1) == members(2) == ["a"]
    assert members(9) == members(3) == ["a", "b"]
    store.candidates.put_archive("run", 0, 3, ["b"])
    assert members(3) == members(9) == ["b"]


def test_what_a_writer_has_at_hand_is_what_a_reader_finds(store):
    written = replace(
        candidate("1.1", ticket=1),
        inspirations=("0.1", "0.2"),
        metrics={"float": Half(0.5), "int": 3},
        measurements=(0.25, 0.75),
    )
    store.candidates.put("run", written)
    for frontier in (0, 1):
        store.candidates.put_archive("run", frontier, 4, ["1.1"])
    store.candidates.note_unchanged("run", 0, 5)
    reader = CandidateTable(store._db)
    assert repr(store.candidates.get("run", "1.1")) == repr(reader.get("run", "1.1"))
    assert store.candidates.get("run", "1.1") == written
    for seq in (4, 5, 6):
        assert store.candidates.archive("run", 0, seq) == reader.archive("run", 0, seq) == [written]
    store.candidates.put_archive("run", 1, 5, [])
    store.candidates.note_unchanged("run", 1, 7)
    assert [*map(len, (store.candidates.archive("run", 1, seq) for seq in (4, 5, 7)))] == [1, 0, 0]


def test_what_was_kept_is_read_again_after_a_takeover(postgres_address):
    with RunStore.postgres(postgres_address) as one, RunStore.postgres(postgres_address) as other:
        for store, score in ((one, 0.5), (other, 0.25)):
            store.candidates.put("run", candidate("1.1", score=score))
            store.candidates.put_archive("run", 0, 1, ["1.1"] if store is one else ["1.1", "1.1"])
        assert one.candidates.get("run", "1.1").score == 0.5
        lease = one.hold("thread 'hex'")
        assert lease is not None
        lease.release()
        assert [each.score for each in one.candidates.archive("run", 0, 1)] == [0.25, 0.25]


class Half(float):
    """A number of another library, which writes itself in its own way."""

    def __repr__(self):
        return f"Half({float(self)})"


def test_an_archive_that_was_never_stored_names_the_remedy(store):
    with pytest.raises(ValueError, match="give create_discovery_graph the store"):
        store.candidates.archive("run", 0, 5)


def test_the_best_score_of_a_batch_is_among_the_steps_that_could_follow_it(store):
    """Batches given in 1 and 4; uses left after each step: 1, 0, 0, 1, 0, 0."""
    scores = {1: 0.1, 2: 0.2, 3: 0.9, 4: 0.4, 5: 0.3, 6: 0.8}
    for iteration, score in scores.items():
        store.candidates.put("run", candidate(str(iteration), score=score, ticket=iteration))
        left = 1 if iteration in (1, 4) else 0
        store.put_step("run", iteration, {"ticket": iteration, "tactic_uses_left": left})

    def best(given, before, parallel):
        return store.candidates.best_of_batches("run", given, before=before, parallel=parallel)

    assert best([1, 4], 7, 1) == [0.2, 0.4]
    assert best([1, 4], 7, 2) == [0.9, 0.8]
    assert best([4, 1], 5, 2) == [0.4, 0.9]
    assert best([7], 8, 1) == [None]
    assert best([], 7, 1) == []


def test_failed_candidates_and_copies_are_no_finds(store):
    store.candidates.put("run", candidate("1.1", score=-5.5, ticket=1))
    store.candidates.put("run", replace(candidate("2.1", ticket=2), is_valid=False, score=0.0))
    store.candidates.put("run", replace(candidate("0.1>1@3", ticket=0), migrated_in=3))
    for iteration in (1, 2, 3):
        store.put_step("run", iteration, {"ticket": iteration, "tactic_uses_left": 3 - iteration})
    found = store.candidates.best_of_batches("run", [1], before=4, parallel=1)
    assert found == [-5.5]


def test_the_first_verdict_of_the_same_evaluator_on_the_same_program_is_found(store):
    program = Program.of("x = 1\n")
    for iteration, evaluator in [(2, "a"), (3, "b"), (4, "a")]:
        row = candidate(f"{iteration}.1", ticket=iteration)
        store.candidates.put("run", replace(row, evaluator=evaluator))
    found = store.candidates.find_evaluated("run", program, "a", 9, 1, LandedTickets(9))
    assert (found.id, found.evaluator) == ("2.1", "a")
    assert store.candidates.find_evaluated("run", program, "b", 9, 1, LandedTickets(9)).id == "3.1"
    assert store.candidates.find_evaluated("run", program, "c", 9, 1, LandedTickets(9)) is None
    assert (
        store.candidates.find_evaluated("run", Program.of("x = 2\n"), "a", 9, 1, LandedTickets(9))
        is None
    )
    assert store.candidates.find_evaluated("other", program, "a", 9, 1, LandedTickets(9)) is None


def test_only_verdicts_of_earlier_attempts_are_found(store):
    program = Program.of("x = 1\n")
    store.candidates.put("run", replace(candidate("5.2", ticket=5), evaluator="a"))
    assert store.candidates.find_evaluated("run", program, "a", 5, 2, LandedTickets(5)) is None
    assert store.candidates.find_evaluated("run", program, "a", 4, 9, LandedTickets(4)) is None
    assert store.candidates.find_evaluated("run", program, "a", 5, 3, LandedTickets(5)).id == "5.2"
    assert store.candidates.find_evaluated("run", program, "a", 5, 12, LandedTickets(5)).id == "5.2"


def test_a_verdict_is_looked_up_in_an_index_whatever_the_length_of_the_run(tmp_path):
    path = tmp_path / "run.sqlite"
    RunStore(path).close()
    with closing(sqlite3.connect(path)) as connection:
        plan = connection.execute(
            "EXPLAIN QUERY PLAN SELECT facts FROM costada_candidate WHERE run_id = 'r'"
            " AND code_hash = 'c' AND evaluator = 'e' AND ticket < 9 ORDER BY ticket LIMIT 1"
        ).fetchall()
    assert [row[3] for row in plan] == [
        "SEARCH costada_candidate USING INDEX costada_candidate_by_verdict"
        " (run_id=? AND code_hash=? AND evaluator=? AND ticket<?)"
    ]


def test_a_charge_sums_the_calls_of_its_iteration_exactly(store):
    for cost in ("0.1", "0.2", "0.0000006"):
        store.call_log.put_call("run", call(1, cost))
    store.call_log.put_call("run", call(1, "0.4", role="guide"))
    charge = store.ledger.charge("run", 1, [1])
    assert (charge.cost, charge.spent) == (Decimal("0.7000006"), Decimal("0.7000006"))
    assert charge.guide_calls == 1


def test_charging_an_iteration_again_counts_nothing_twice(store):
    store.call_log.put_call("run", call(1, "0.25"))
    store.call_log.put_call("run", call(2, "0.50"))
    store.ledger.charge("run", 1, [1])
    first = store.ledger.charge("run", 2, [2])
    assert store.ledger.charge("run", 2, [2]) == first
    assert first.spent == Decimal("0.75")


def test_what_is_given_back_is_not_charged_again(store):
    for ticket, cost in ((1, "0.25"), (2, "0.50"), (3, "0.75")):
        store.call_log.put_call("run", call(ticket, cost))
        store.ledger.charge("run", ticket, [ticket])
    store.ledger.give_back("run", {2: Decimal("0.125"), 1: Decimal("-0.5")})
    assert [store.ledger.spent("run", each) for each in (1, 2, 3)] == [
        Decimal("0.75"),
        Decimal("1.125"),
        Decimal("1.875"),
    ]
    assert store.ledger.charge("run", 3, [3]).spent == Decimal("1.875")


def test_an_iteration_without_calls_costs_nothing(store):
    store.call_log.put_call("run", call(1, "0.25"))
    store.ledger.charge("run", 1, [1])
    charge = store.ledger.charge("run", 2, [2])
    assert (charge.cost, charge.spent) == (Decimal(0), Decimal("0.25"))


def test_steps_come_back_in_order_and_are_replaced(store):
    store.put_step("run", 2, {"iteration": 2, "score": None})
    store.put_step("run", 1, {"iteration": 1, "events": ["backoff"]})
    store.put_step("run", 2, {"iteration": 2, "score": 0.5})
    assert store.steps("run") == [
        {"iteration": 1, "events": ["backoff"]},
        {"iteration": 2, "score": 0.5},
    ]


def test_the_last_tactic_batches_come_oldest_first(store):
    for iteration in (3, 9, 15):
        store.put_tactics("run", iteration, {"at": iteration})
    assert [row[0] for row in store.tactics("run", before=15, count=5)] == [3, 9]
    assert store.tactics("run", before=16, count=1) == [(15, '{"at": 15}')]


@pytest.mark.parametrize("address", SHARED, indirect=True)
def test_texts_are_stored_once_and_survive_reopening(open_store):
    with open_store() as store:
        name = store.put_text("hello")
        assert store.put_text("hello") == name
        assert store.put_text("") == ""
        store.open_run("run", "costada", "toy")
    with open_store() as store:
        assert store.text(name) == "hello"
        assert store.text("") == ""
        assert store.run_ids() == ["run"]


def test_an_unknown_text_is_an_error_that_names_it(store):
    with pytest.raises(ValueError, match="text feed: not in the run file"):
        store.text("feed")


def test_a_file_that_is_no_database_is_refused(tmp_path):
    path = tmp_path / "run.sqlite"
    path.write_text("not a database, but long enough to be looked at as one" * 20)
    with pytest.raises(ValueError, match=r"run\.sqlite: is not a run file, or is damaged"):
        RunStore(path)


@pytest.mark.parametrize("address", SHARED, indirect=True)
def test_a_reader_sees_a_run_and_cannot_change_it(open_store):
    with open_store() as writer:
        writer.open_run("run", "costada", "toy")
        with open_store(is_read_only=True) as reader:
            assert reader.run_ids() == ["run"]
            with pytest.raises(PermissionError, match="may not be written"):
                reader.open_run("other", "costada", "toy")


def test_a_run_in_a_folder_that_cannot_be_written_can_be_read(tmp_path, monkeypatch):
    path = tmp_path / "run.sqlite"
    with RunStore(path) as writer:
        writer.open_run("run", "costada", "toy")
    monkeypatch.setattr("os.access", lambda *_: False)
    with RunStore(path, is_read_only=True) as reader:
        assert reader.run_ids() == ["run"]


@pytest.mark.parametrize("address", SHARED, indirect=True)
def test_seconds_are_kept_by_iteration_and_summed_by_node(open_store):
    with open_store() as store:
        store.timing.put("a", 1, {"generate": 2.0000004, "evaluate": 0.5})
        store.timing.put("a", 2, {"generate": 1.0, "guide": 4.0})
        store.timing.put("b", 1, {"generate": 9.0})
    with open_store(is_read_only=True) as store:
        assert store.timing.steps("a") == [
            (1, {"generate": 2.0, "evaluate": 0.5}),
            (2, {"generate": 1.0, "guide": 4.0}),
        ]
        assert store.timing.by_node("a") == {"generate": 3.0, "evaluate": 0.5, "guide": 4.0}


def test_a_step_that_is_executed_again_replaces_its_own_row(store):
    store.timing.put("a", 1, {"evaluate": 5.0})
    store.timing.put("a", 1, {"evaluate": 0.25})
    assert store.timing.by_node("a") == {"evaluate": 0.25}


def test_a_copy_of_a_run_takes_over_the_seconds_of_its_steps(tmp_path):
    original, copy = tmp_path / "run.sqlite", tmp_path / "copy.sqlite"
    with RunStore(original) as store:
        for iteration in (1, 2, 3):
            store.timing.put("a", iteration, {"evaluate": float(iteration)})
    copy_file(original, copy)
    cut_back(copy, Cut("a", 2, 2, landings=0, last_ticket=2, in_flight={}), "fork")
    with RunStore(copy) as store:
        assert store.timing.steps("fork") == [(1, {"evaluate": 1.0}), (2, {"evaluate": 2.0})]
        assert store.timing.steps("a") == []


def test_a_fork_keeps_the_copy_of_a_step_that_landed_as_the_number_of_one_in_flight(tmp_path):
    original, copy = tmp_path / "original.sqlite", tmp_path / "fork.sqlite"
    migrant = replace(candidate("3.2>1@2", ticket=3), migrated_in=2)
    with RunStore(original) as store:
        store.open_run("a", "costada", "toy")
        for each in (candidate("3.2", ticket=3), migrant, candidate("2.2", ticket=2)):
            store.candidates.put("a", each)
    copy_file(original, copy)
    cut_back(copy, Cut("a", 2, 2, landings=2, last_ticket=3, in_flight={2: 1}), "fork")
    with RunStore(copy) as store:
        assert store.candidates.find("fork", migrant.id) == migrant
        assert store.candidates.find("fork", "2.2") is None


def test_the_copy_of_a_candidate_that_had_not_landed_gives_no_verdict(store):
    for each in (candidate("4.1", ticket=4), candidate("4.1>1@2", ticket=4)):
        migrated_in = 2 if ">" in each.id else None
        store.candidates.put("run", replace(each, evaluator="a", migrated_in=migrated_in))
    program = Program.of("x = 1\n")
    assert (
        store.candidates.find_evaluated("run", program, "a", 5, 1, LandedTickets(5, (4, 5))) is None
    )
    assert (
        store.candidates.find_evaluated("run", program, "a", 6, 1, LandedTickets(6, (6,))).id
        == "4.1"
    )


KEY = CallKey("run", 1, "generation", 1)
MOMENT = 0.05


def is_awaited(calls: InFlightCalls, until: Callable[[], None]) -> bool:
    passed = Event()

    def need_its_end() -> None:
        with calls.none_of(KEY):
            passed.set()

    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(need_its_end)
        came_early = passed.wait(MOMENT)
        until()
        waiting.result(timeout=10)
    return not came_early


def test_a_call_is_awaited_until_its_last_request_has_ended() -> None:
    calls = InFlightCalls()
    calls.begin(KEY)
    calls.begin(KEY)
    calls.end(KEY)
    assert is_awaited(calls, until=lambda: calls.end(KEY))
    assert not is_awaited(calls, until=lambda: None)


def test_another_call_is_not_awaited() -> None:
    calls = InFlightCalls()
    calls.begin(KEY._replace(attempt=2))
    assert not is_awaited(calls, until=lambda: None)


def test_stores_of_one_place_share_its_calls_in_flight(open_store, address) -> None:
    one, other = open_store(), open_store()
    assert (one.call_log.in_flight is other.call_log.in_flight) is (address is not None)


def test_a_file_is_the_same_by_whatever_path(tmp_path: Path) -> None:
    paths = tmp_path / "run.sqlite", tmp_path / "." / "run.sqlite"
    with RunStore(paths[0]) as one, RunStore(paths[1]) as other:
        assert one.call_log.in_flight is other.call_log.in_flight


FILES = {"pkg/a.py": "x = 1\n", "pkg/empty.py": "", "notes.md": "# π\n"}


def test_a_program_of_several_files_comes_back_as_it_was_stored(store):
    row = replace(candidate("1.1"), program=Program.of(FILES))
    store.candidates.put("run", row)
    found = store.candidates.get("run", "1.1")
    assert found == row
    assert dict(found.program) == FILES
    assert store.program(store.put_program(row.program)) == row.program


def test_the_texts_of_equal_files_are_stored_once(store):
    for number in range(50):
        store.put_program(Program.of({**FILES, "changed.py": f"y = {number % 5}\n"}))
    ((count,),) = store._db.rows("SELECT COUNT(*) FROM costada_blob")
    assert count == 2 + 5 + 5  # files that stay, files that change, and lists of all files


def test_a_program_of_files_that_was_judged_is_found_in_any_order_of_its_files(store):
    row = replace(candidate("1.1"), program=Program.of(FILES), evaluator="e")
    store.candidates.put("run", row)
    same = Program.of(dict(reversed(FILES.items())))
    other = Program.of({**FILES, "notes.md": ""})
    seen = LandedTickets(5, ())
    assert store.candidates.find_evaluated("run", same, "e", 6, 1, seen) == row
    assert store.candidates.find_evaluated("run", other, "e", 6, 1, seen) is None


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        ('{"../../home/a": ""}', "a file '../../home/a', expected a relative path"),
        ('{"/etc/passwd": ""}', "a file '/etc/passwd', expected a relative path"),
        ('{"a/.ssh/b": ""}', "a file 'a/.ssh/b', expected a path without hidden parts"),
        ('{"a": "", "a/b": ""}', "expected the latter a folder"),
        ("{}", "0 files, expected 1 to"),
        ("[1]", "expected a JSON object"),
        ('{"a": {}}', "a row in it is damaged"),
        ('{"a": "0000"}', "text 0000: not in the run file"),
    ],
)
def test_a_list_of_files_that_no_run_writes_is_refused(store, contents, expected):
    name = f"files-{store.put_text(contents)}"
    with pytest.raises(ValueError, match=expected):
        store.program(name)


def test_one_text_named_by_many_files_is_refused_before_it_fills_the_memory(store):
    name = store.put_text("a" * 2**20)
    contents = json.dumps({f"{number}.py": name for number in range(17)})
    with pytest.raises(ValueError, match="larger than any that a run has"):
        store.program(f"files-{store.put_text(contents)}")
    with pytest.raises(ValueError, match="program of 17,825,792 bytes: expected at most 16,777"):
        store.put_program(Program.of({f"{number}.py": "a" * 2**20 for number in range(17)}))


def test_an_empty_path_is_refused_and_not_taken_for_memory():
    with pytest.raises(ValueError, match="path: got an empty string, expected a file, or None"):
        RunStore("")


@pytest.mark.parametrize("seconds", [0.5, True, "30", None, float("inf"), float("nan")])
def test_a_time_of_a_lease_is_seconds_of_at_least_1(seconds):
    with pytest.raises(ValueError, match=rf"lease_seconds: got {seconds!r}, expected seconds of"):
        RunStore.postgres("postgresql://u@h/d", lease_seconds=seconds)

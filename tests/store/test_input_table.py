import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest
from rows import call_row, trace_row
from store_backends import SHARED
from waiting import within

from costada.store.run_copy import Cut, cut_back
from costada.store.run_store import RunStore
from costada.store.user_inputs import MAX_IDEA, MAX_PROGRAM, MAX_WAITING, InputKind
from costada.values.candidate import Candidate, Program

RUN = "run"
PATIENCE = 60.0


def begun(store):
    if not store.run_ids():
        store.open_run(RUN, "costada", "toy")
        store.candidates.put(RUN, Candidate(id="0.1", program=Program.of("a = 1\n"), score=0.5))
    return store


def opened(path):
    return begun(RunStore(path))


@pytest.fixture
def store(open_store):
    return begun(open_store())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.sqlite"


def test_the_oldest_input_is_taken_and_the_same_step_finds_it_again(store):
    assert [store.inputs.put_idea(RUN, text) for text in ("one", "two")] == [1, 2]
    first = store.inputs.take(RUN, 5)
    assert (first.number, first.kind, first.text, first.ticket) == (1, InputKind.TACTIC, "one", 5)
    assert store.inputs.take(RUN, 6).number == 2
    assert store.inputs.take(RUN, 5) == first
    assert store.inputs.take(RUN, 7) is None


def test_a_step_that_has_sent_a_request_takes_nothing(store):
    store.call_log.put_call(RUN, call_row(ticket=3))
    store.inputs.put_idea(RUN, "one")
    assert store.inputs.take(RUN, 3) is None
    assert store.inputs.take(RUN, 4).text == "one"


def test_an_input_that_was_taken_before_a_request_is_found_after_it(store):
    store.inputs.put_idea(RUN, "one")
    store.inputs.take(RUN, 3)
    store.call_log.put_call(RUN, call_row(ticket=3))
    assert store.inputs.take(RUN, 3).text == "one"


def test_a_released_input_waits_for_the_next_step(store):
    store.inputs.put_idea(RUN, "one")
    store.inputs.take(RUN, 3)
    store.inputs.release(RUN, 3)
    assert [each.ticket for each in store.inputs.waiting(RUN)] == [None]
    assert store.inputs.take(RUN, 4).number == 1


@pytest.mark.parametrize("address", SHARED, indirect=True)
def test_many_writers_lose_nothing_and_get_numbers_of_their_own(store, open_store):
    def put(number):
        with open_store() as writer:
            return writer.inputs.put_idea(RUN, f"idea {number}")

    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(put, range(24)))
    assert sorted(numbers) == list(range(1, 25))
    taken = [store.inputs.take(RUN, ticket).number for ticket in range(1, 25)]
    assert taken == list(range(1, 25))


def test_an_input_that_another_client_is_taking_is_not_taken_again(postgres_address):
    """On a server the later statement has chosen its input before the earlier one commits."""
    store = begun(RunStore.postgres(postgres_address))
    store.inputs.put_idea(RUN, "one")
    with store, psycopg.connect(postgres_address) as other, ThreadPoolExecutor(1) as pool:
        other.execute("UPDATE costada.costada_input SET ticket = 5")
        later = pool.submit(store.inputs.take, RUN, 6)
        waiting = "SELECT 1 FROM pg_locks WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
        within(PATIENCE, lambda: other.execute(waiting).fetchall())
        other.commit()
        assert later.result() is None
        assert store.inputs.take(RUN, 5).text == "one"


def test_an_input_of_another_run_in_the_file_is_not_taken(store):
    store.open_run("other", "costada", "toy")
    store.inputs.put_idea("other", "one")
    assert store.inputs.take(RUN, 1) is None


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "idea: got 0 characters, expected 1 to 2,000"),
        ("x" * (MAX_IDEA + 1), "idea: got 2,001 characters"),
        ("a\ud800b", r"idea: got the character U\+D800, expected plain text"),
        ("a\x1b[2Jb", r"idea: got the character U\+001B"),
        ("try \u202eswor lanogaxeh", r"idea: got the character U\+202E"),
        ("a\u2066b", r"idea: got the character U\+2066"),
        (7, "idea: got 7, expected a string"),
    ],
)
def test_an_idea_that_cannot_be_shown_is_refused(store, text, match):
    with pytest.raises(ValueError, match=match):
        store.inputs.put_idea(RUN, text)
    assert store.inputs.waiting(RUN) == []


@pytest.mark.parametrize(
    ("program", "match"),
    [
        (" \n", "program: got an empty one"),
        ("a" * (MAX_PROGRAM + 1), "program: got 4,194,305 bytes, expected at most 4,194,304"),
        ("a = '\ud800'", "program: got half of a surrogate pair, expected UTF-8"),
        ({"a.py": "a", "../b.py": "b"}, r"program: got a file '\.\./b\.py'"),
        ({"a.py": "a"}, "program: got several files, expected one text"),
        (b"a = 1", "program: got a bytes, expected a string, or strings by path"),
    ],
)
def test_a_program_that_no_step_could_evaluate_is_refused(store, program, match):
    with pytest.raises(ValueError, match=match):
        store.inputs.put_program(RUN, program)


def test_one_text_is_refused_where_programs_have_several_files(open_store):
    store = open_store()
    store.open_run(RUN, "costada", "toy")
    seed = Program.of({"a.py": "a", "b.py": "b"})
    store.candidates.put(RUN, Candidate(id="0.1", program=seed, score=0.5))
    with pytest.raises(ValueError, match=r"got one text, expected a folder with a\.py, b\.py"):
        store.inputs.put_program(RUN, "a")


def test_no_more_inputs_wait_than_steps_could_take(store):
    for number in range(MAX_WAITING):
        store.inputs.put_idea(RUN, str(number))
    with pytest.raises(ValueError, match="100 ideas and programs wait for a step"):
        store.inputs.put_idea(RUN, "one more")
    store.inputs.take(RUN, 1)
    assert store.inputs.put_idea(RUN, "one more") == MAX_WAITING + 1


def test_a_run_that_has_not_begun_takes_no_input(store):
    with pytest.raises(ValueError, match="run 'unknown': has not started"):
        store.inputs.put_idea("unknown", "one")


@pytest.mark.parametrize(
    "change",
    ["kind = 'order'", "text_hash = 'gone'", "text_hash = 7", "sent_at = 'now'", "ticket = 'one'"],
)
def test_a_damaged_input_of_a_strangers_file_is_refused(path, change):
    with opened(path) as store:
        store.inputs.put_idea(RUN, "one")
        store.inputs.take(RUN, 1)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE costada_input SET {change}")
    with RunStore(path) as store:
        if change == "ticket = 'one'":
            assert store.inputs.take(RUN, 1) is None
            return
        with pytest.raises(ValueError, match=r"run\.sqlite: user input .* is damaged"):
            store.inputs.take(RUN, 1)


def test_an_older_file_of_this_format_gets_the_table_when_it_is_written(path):
    opened(path).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE costada_input")
    with RunStore(path, is_read_only=True) as store:
        assert store.inputs.waiting(RUN) == []
    with RunStore(path) as store:
        assert store.inputs.put_idea(RUN, "one") == 1


def test_a_fork_keeps_the_inputs_that_its_tickets_took_and_no_others(path):
    with opened(path) as store:
        for number in (1, 2, 3):
            store.inputs.put_idea(RUN, str(number))
        store.inputs.take(RUN, 4)
        store.inputs.take(RUN, 9)
    cut_back(path, Cut(RUN, 5, 5, 5, 6, {}), "fork")
    with RunStore(path) as store:
        assert store.inputs.take("fork", 4).text == "1"
        assert store.inputs.take("fork", 7) is None


@pytest.mark.parametrize("number", ["abc", -3, 2**63 - 1])
def test_an_input_is_refused_where_the_numbers_of_earlier_ones_are_damaged(path, number):
    with opened(path) as store:
        store.inputs.put_idea(RUN, "one")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE costada_input SET number = ?", (number,))
    with opened(path) as store, pytest.raises(ValueError, match="number of a user input"):
        store.inputs.put_idea(RUN, "two")


def test_the_ideas_that_steps_carried_out_come_with_what_they_gained(store):
    store.inputs.put_idea(RUN, "one")
    for number, best, score in ((1, 0.5, 0.25), (2, 0.75, 0.75), (3, 0.75, None)):
        steered = {"kind": "tactic", "idea": f"idea {number}"}
        row = trace_row(iteration=number, best_score=best, score=score, steered=steered)
        store.put_step(RUN, number, row)
    assert store.inputs.outcomes(RUN, before=4, count=9) == [
        (1, "idea 1", -0.25),
        (2, "idea 2", 0.25),
        (3, "idea 3", 0.0),
    ]
    assert store.inputs.outcomes(RUN, before=3, count=1) == [(2, "idea 2", 0.25)]

"""Graphs and scripts that submit searches to a queue and look at them later."""

import signal
from math import nan

import psycopg
import pytest
from begun_commands import BegunCommand
from doc_blocks import ROOT, blocks_of
from queue_servers import states
from waiting import within

from costada import enqueue, job_status, load_run
from costada.runs.shared_purse import PurseAddress
from costada.store.address import shown_address

pytestmark = pytest.mark.process

SECONDS = 120


@pytest.fixture
def database(postgres_address):
    address = shown_address(postgres_address)
    PurseAddress(address, "product").create(1, "crossing").close()
    return address


@pytest.fixture
def serve(database, tmp_path):
    """Begins a server that ends with the test."""
    begun = []

    def begin():
        teams = tmp_path / "teams.toml"
        teams.write_text("[product]\nbudget = 1\n")
        place = "--teams", teams, "--out", tmp_path / "runs", "--problems", "circle_packing"
        begun.append(BegunCommand(tmp_path / "server.txt", "serve", database, *place))

    yield begin
    for each in begun:
        each.send_signal(signal.SIGKILL)
        each.exit_code()


def test_a_node_submits_searches_and_another_one_looks_at_them_later(serve, database, capsys):
    [block] = [
        block.text for block in blocks_of(ROOT / "docs/how-to/queue.md") if block.language == "py"
    ]
    names = {"DSN": database}
    exec(block, names)
    assert capsys.readouterr().out == "['waiting', 'waiting']\n"
    graph, thread = names["graph"], names["thread"]
    assert graph.invoke({}, thread)["states"] == ["waiting", "waiting"]
    serve()
    within(SECONDS, lambda: {*states(database).values()} == {"finished"})
    found = graph.invoke({}, thread)
    assert found["states"] == ["finished", "finished"]
    runs = [load_run(run) for run in found["runs"]]
    assert [run.settings["seed"] for run in runs] == [0, 1]
    best = max(runs, key=lambda run: run.best_score)
    assert found["code"] == best.best_program != ""
    first = job_status(found["runs"][0])
    assert (first["team"], first["problem"]) == ("product", "circle_packing")
    assert (first["run"], first["stop_reason"], first["error"]) == (found["runs"][0], "budget", "")


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"team": "green"}, "team: got 'green', expected a team of its servers"),
        ({"team": None}, "team: got None, expected"),
        ({"budget": "1"}, "budget: got '1', expected a number"),
        ({"budget": nan}, "budget: got nan, expected"),
        ({"budget": None}, "budget: got None, expected a value"),
        ({"budget": 1e-30}, "budget: got 1e-30, expected at least 1e-9 and less than"),
        ({"seeds": [None]}, "seed: got None, expected a value"),
        ({"problem": None}, "problem: got None, expected a value"),
        ({"seeds": 3}, "seeds: got 3, expected a list of integers"),
        ({"seeds": []}, r"seeds: got \[\], expected a list of integers"),
        ({"seeds": ["a"]}, "seed: got 'a', expected a number"),
        ({"seeds": [1, 1]}, "seeds: got 1, 1, expected different ones"),
        ({"seeds": [[1]]}, "seed: got "),
        ({"seeds": b"ab"}, "seeds: got b'ab', expected a list of integers"),
        ({"priority": 2**63}, "priority: got 9223372036854775808, expected an integer from -9"),
        ({"target": "high"}, "target: got 'high', expected a number"),
        ({"priority": 1.5}, "priority: got 1.5, expected an integer"),
        ({"name": "界" * 100}, "name: got the name .*, expected parts of at most 255 bytes"),
        ({"problem": "p" * 250}, "name: got the name 'p+', expected 1 to 200 printable"),
        ({"name": 5}, "name: got 5, expected a string"),
        ({"name": "a b"}, "name: got the name 'a b', expected letters"),
        ({"problem": ""}, "problem: got '', expected"),
        ({"problem": 3}, "problem: got 3, expected"),
        ({"database": "runs.sqlite"}, "database: got 'runs.sqlite', expected postgresql://"),
    ],
)
def test_a_wrong_argument_is_refused_by_its_name_and_nothing_is_added(database, given, fault):
    words = {"database": database, "problem": "p", "team": "product", "budget": 0.1, **given}
    with pytest.raises(ValueError, match=fault):
        enqueue(words.pop("database"), words.pop("problem"), **words)
    assert states(database) == {}


def test_a_job_says_why_it_has_failed_and_what_is_no_job_is_refused(database):
    [run] = enqueue(database, "p", team="product", budget=0.1, target=0.5, name="study")
    assert run == f"{database}#study"
    assert job_status(run)["state"] == "waiting"
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE costada.costada_job SET ended = 'failed', error = 'why'")
    expected = {"state": "failed", "stop_reason": "failed", "error": "why"}
    assert {name: job_status(run)[name] for name in expected} == expected
    for other, fault in (
        (f"{run}-2", "expected that of a job"),
        (database, "names a database"),
        (None, "address: got None, expected what enqueue has returned"),
    ):
        with pytest.raises(ValueError, match=fault):
            job_status(other)
    with pytest.raises(ValueError, match="name: got 'study', but 'study' is taken"):
        enqueue(database, "p", team="product", budget=0.1, name="study")

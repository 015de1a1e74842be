import json
import subprocess
import sys
from contextlib import closing
from decimal import Decimal
from shutil import rmtree
from threading import Timer
from urllib.parse import quote
from uuid import uuid4

import psycopg
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from psycopg.conninfo import make_conninfo
from waiting import within

from costada import create_discovery_graph, discover, load_run
from costada.runs.config import RunConfig
from costada.runs.folder import OWNER, RunFolder, config_text
from costada.runs.runner import is_finished, saved_state
from costada.runs.shared_purse import PurseAddress
from costada.runs.stored_index import StoredIndex
from costada.runs.stored_run import StoredRun, lease_name, named_runs, run_at
from costada.store.address import RunAddress, check_database, shown_address
from costada.store.candidates import SEED_ID
from costada.store.postgres_checkpoints import PostgresRunSaver
from costada.store.postgres_lease import PATIENCE_SECONDS, Leases
from costada.store.run_store import RunStore
from costada.values.numbering import Iteration

pytestmark = pytest.mark.process

SECRET = "hidden-4711"


@pytest.fixture
def url(postgres_address):
    return shown_address(postgres_address)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Work in an empty folder, as another machine would."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def begin(invoke, near, url, tmp_path):
    """Run three iterations in the database: begin("name", *options)."""

    def beginning(name, *options):
        words = ("--max-iterations", 3, "--store", url, "--out", tmp_path / name)
        return invoke("run", near, *words, *options)

    return beginning


def rows(invoke, place):
    return json.loads(invoke("trace", place, "--json").stdout)


def test_a_run_in_postgres_does_what_one_in_a_folder_does(begin, invoke, finished, url, tmp_path):
    result = begin("hex")
    assert result.exit_code == 0, result.output
    assert f"kept in         {url}#hex" in result.output
    assert rows(invoke, f"{url}#hex") == rows(invoke, finished)
    names = {file.name for file in (tmp_path / "hex").iterdir()}
    files = {"steps.jsonl", "best_program.py", "report.html", "stored-run.json", "requests.json"}
    assert names == files
    for name in ("steps.jsonl", "best_program.py"):
        assert (tmp_path / "hex" / name).read_bytes() == (finished / name).read_bytes()


def test_the_list_of_runs_follows_what_a_bill_has_returned(begin, url):
    begin("hex")
    with closing(StoredIndex(url)) as index, RunStore.postgres(url, "hex") as store:
        (before,) = index.all_rows()
        store.ledger.give_back(store.last_run(), {Iteration(2): Decimal("0.001")})
        within(20, lambda: index.all_rows()[0]["spent"] < before["spent"])
        (after,) = index.all_rows()
    assert after["spent"] == pytest.approx(before["spent"] - 0.001)


def test_it_is_resumed_where_there_is_nothing_of_it(begin, invoke, near, url, tmp_path, elsewhere):
    begin("hex")
    whole = tmp_path / "whole"
    invoke("run", near, "--max-iterations", 5, "--out", whole)
    result = invoke("resume", f"{url}#hex", "--max-iterations", 5)
    assert result.exit_code == 0, result.output
    folder = elsewhere / "runs-out" / "hex"
    assert (folder / "steps.jsonl").read_text() == (whole / "steps.jsonl").read_text()
    assert (folder / "best_program.py").read_text() == (whole / "best_program.py").read_text()


@pytest.mark.parametrize("table", ["steps", "calls", "candidates"])
def test_it_is_exported_as_a_folder_is(begin, invoke, finished, url, table):
    begin("hex")
    exported = [
        [
            json.loads(line)
            for line in invoke(
                "export", place, "--to", "jsonl", "--table", table
            ).stdout.splitlines()
        ]
        for place in (f"{url}#hex", finished)
    ]
    timed = {"seconds", "ended_at", "provider_id"}
    stored, kept = (
        [{k: row[k] for k in row if k not in timed} for row in each] for each in exported
    )
    assert stored == kept


def test_readers_take_its_address(begin, invoke, finished, url, elsewhere):
    begin("hex")
    assert invoke("report", f"{url}#hex", "--out", "p.html").exit_code == 0
    assert '"state":"finished"' in (elsewhere / "p.html").read_text()
    assert invoke("diff", f"{url}#hex").stdout == invoke("diff", finished).stdout
    graph = invoke("graph", "--run", f"{url}#hex").stdout
    assert graph.startswith("---")
    assert "$" in graph


def test_the_runs_of_a_database_are_listed_and_compared(begin, invoke, url, elsewhere):
    begin("one", "--seed", 1)
    begin("two", "--seed", 2, "--method", "evox")
    listed = json.loads(invoke("runs", url, "--json").stdout)
    assert [(row["run"], row["method"], row["holder"]) for row in listed] == [
        ("one", "costada", ""),
        ("two", "evox", ""),
    ]
    for row in listed:
        (*_, last) = rows(invoke, f"{url}#{row['run']}")
        assert (row["best"], row["spent"]) == (last["best_objective"], last["spent"])
    assert invoke("compare", url).exit_code == 0
    alone = invoke("compare", f"{url}#one", "--out", "alone")
    assert (alone.exit_code, "evox" in alone.output) == (0, False)
    none = invoke("compare", f"{url}#on")
    assert (none.exit_code, f"{url}#on: holds no finished run" in none.output) == (2, True)
    assert {"costada", "evox"} <= set(
        (elsewhere / "comparison/comparison.csv").read_text().split(",")
    )


def test_python_runs_resumes_and_loads_it(near, url, elsewhere, tmp_path):
    begun = discover(near, "offline", budget=1.0, max_iterations=2, out="a/hex", store=url)
    place = tmp_path / "again" / "hex"
    found = discover(
        near, "offline", budget=1.0, max_iterations=3, out=place, store=url, resume=True
    )
    loaded, whole = load_run(f"{url}#hex"), discover(near, "offline", budget=1.0, max_iterations=3)
    assert (begun.iterations, loaded.iterations, loaded.state) == (2, 3, "finished")
    assert loaded.best_program == found.best_program == whole.best_program
    assert loaded.program(SEED_ID) == (near / "initial_program.py").read_text()
    assert loaded.spent == found.spent == whole.spent
    with pytest.raises(ValueError, match="store: got an address without out"):
        discover(near, "offline", budget=1.0, store=url)
    refused = pytest.raises(ValueError, match="store: got a RunStore, expected the string")
    with RunStore.postgres(url) as opened, refused:
        discover(near, "offline", budget=1.0, out="other", store=opened)


def test_its_folder_is_named_by_the_command_that_resumes_it(begin, invoke, url, tmp_path):
    begin("shown")
    again = begin("shown")
    command = f"costada resume '{url}#shown' --out {tmp_path / 'shown'}"
    assert command in again.output.replace("\n", "")
    assert run_at(f"{url}#shown").resume_command == f"costada resume '{url}#shown'"
    refused = invoke("resume", tmp_path / "shown")
    assert refused.exit_code == 2
    assert "its run is in Postgres; give the address that stored-run.json in it names" in (
        " ".join(refused.output.split())
    )


def test_an_idea_of_a_user_waits_in_the_database(begin, invoke, url, elsewhere):
    begin("hex")
    assert invoke("steer", f"{url}#hex", "a wider step").exit_code == 0
    resumed = invoke("resume", f"{url}#hex", "--max-iterations", 4, "--json")
    assert resumed.exit_code == 0, resumed.output
    assert json.loads(resumed.stdout)["waiting_inputs"] == 0
    assert rows(invoke, f"{url}#hex")[-1]["steered"]["idea"] == "a wider step"


def test_files_of_another_run_are_not_overwritten(begin, invoke, near, url, elsewhere):
    begin("hex")
    place = elsewhere / "runs-out" / "hex"
    invoke("run", near, "--max-iterations", 1, "--out", place)
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    for words in (("resume", "--max-iterations", 4), ("report",), ("report", "--png")):
        refused = invoke(words[0], f"{url}#hex", *words[1:])
        assert (refused.exit_code, "holds a run of its own" in refused.output) == (2, True)
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before


def test_a_page_is_written_where_there_is_nothing_of_the_run(begin, invoke, url, elsewhere):
    begin("hex")
    assert invoke("report", f"{url}#hex").stdout.strip() == "runs-out/hex/report.html"
    assert (elsewhere / "runs-out" / "hex" / "report.html").is_file()
    assert invoke("report", f"{url}#hex", "--png", "--out", "hex.png").exit_code == 0
    rmtree(elsewhere / "runs-out")
    assert invoke("report", f"{url}#hex", "--png").stdout.strip() == "runs-out/hex/report.png"
    missing = invoke("report", f"{url}#nix")
    assert (missing.exit_code, "no run of this name" in missing.output) == (2, True)


def test_a_name_is_taken_once(begin, url):
    begin("hex")
    again = begin("hex")
    assert again.exit_code == 2
    assert f"{url}#hex: already holds a run. Resume it: costada resume" in again.output


def test_runs_without_a_name_get_the_next_one(invoke, near, url, elsewhere):
    for _ in range(2):
        invoke("run", near, "--max-iterations", 1, "--store", url)
    assert [run.address.run for run in named_runs(url)] == ["near-1", "near-2"]
    assert (elsewhere / "runs-out" / "near-2" / "report.html").is_file()


def test_a_second_process_is_refused_and_the_holder_named(begin, invoke, url, elsewhere):
    begin("hex")
    holding = (
        "import sys\nfrom costada.runs.stored_run import run_at\n"
        "with run_at(sys.argv[1]).hold():\n    print('held', flush=True)\n    sys.stdin.read()"
    )
    words = [sys.executable, "-c", holding, f"{url}#hex"]
    with subprocess.Popen(words, stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout.readline() == "held\n"
        refused = invoke("resume", f"{url}#hex", "--max-iterations", 4)
        assert (refused.exit_code, f"process {other.pid} on " in refused.output) == (2, True)
        (row,) = json.loads(invoke("runs", url, "--json").stdout)
        assert row["holder"].startswith(f"process {other.pid} on ")
        other.kill()
    assert invoke("resume", f"{url}#hex", "--max-iterations", 4).exit_code == 0


def test_no_password_is_written_or_shown(invoke, near, url, tmp_path, elsewhere):
    secret = url.replace("postgres@", f"postgres:{quote(SECRET)}@", 1)
    assert SECRET in secret
    out = tmp_path / "hex"
    shown = [invoke("run", near, "--max-iterations", 1, "--store", secret, "--out", out).output]
    shown += [invoke(word, f"{secret}#hex").output for word in ("trace", "report", "steer")]
    shown += [invoke("resume", f"{secret}#hex").output, invoke("runs", secret).output]
    shown += [invoke("resume", f"{secret}#nix").output]
    shown += [invoke("diff", f"{secret}#hex", f"{secret}#nix").output]
    shown += [invoke("fork", f"{secret}#hex", "--at", 1, "--out", "f").output]
    assert not [text for text in shown if SECRET in text]
    files = [path for place in (out, elsewhere) for path in place.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
    with RunStore.postgres(url) as store:
        assert SECRET not in store.named.settings("hex")


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("{url}", "names a database and no run, expected {url}#RUN"),
        ("{url}#nix", "{url}#nix: no run of this name in the database"),
        ("{url}#../x", "expected letters, digits"),
        ("{url}#/etc", "expected letters, digits"),
        ("{url}#a b", "expected letters, digits"),
        ("{url}#" + "a" * 201, "expected 1 to 200 printable characters"),
        ("postgresql://u:half#hidden@h/d#x", "in a password, write # as %23"),
        ("postgresql://u:half#hidden@h/d", "in a password, write # as %23"),
        ("postgresql://u@h/d?password=half#hidden", "the address ends with a password"),
        ("postgresql://h/d?user=u&pass%77ord=half#hidden", "the address ends with a password"),
        ("postgresql://[half#x", "cannot be read, expected postgresql://USER@HOST"),
        ("postgresql://u@127.0.0.1:1/x#y", "cannot connect; check host"),
    ],
)
def test_an_address_that_does_not_work_is_refused_by_name(invoke, begin, url, place, message):
    begin("hex")
    refused = invoke("trace", place.replace("{url}", url))
    words = " ".join(refused.output.replace("│", " ").split())
    assert refused.exit_code == 2
    assert "hidden" not in refused.output
    assert "".join(message.replace("{url}", url).split()) in "".join(words.split())


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://u:half#hidden@h/d",
        "postgresql://h/d?password=half#hidden",
        "postgresql://h/d?user=u&sslpassword=half#hidden",
    ],
)
def test_the_address_of_a_purse_repeats_no_half_of_a_password(address):
    with pytest.raises(ValueError, match="address: the") as refused:
        PurseAddress.read(address)
    assert "hidden" not in str(refused.value)


def test_an_address_of_another_kind_is_refused_without_its_password():
    with pytest.raises(ValueError, match="store: got 'an address of another kind'"):
        check_database("Postgresql://u:hidden@h/d")


def test_a_store_that_is_no_address_is_refused_before_the_problem_is_tried(invoke, tmp_path):
    refused = invoke("run", "no-such-problem", "--store", tmp_path, "--out", tmp_path / "x")
    assert refused.exit_code == 2
    assert "store: got" in refused.output


def test_a_path_is_a_folder(tmp_path):
    assert type(run_at(tmp_path)) is RunFolder
    assert type(run_at(str(tmp_path))) is RunFolder
    stored = run_at("postgresql://u@h/d#a/b-1")
    assert isinstance(stored, StoredRun)
    assert str(stored.path) == "runs-out/a/b-1"


def test_a_name_is_refused_that_is_the_thread_of_a_graph(begin, near, url):
    thread = {"configurable": {"thread_id": "hex"}}
    with RunStore.postgres(url) as store, closing(PostgresRunSaver(url)) as saver:
        settings = {"budget": 1.0, "max_iterations": 2}
        graph = create_discovery_graph(near, "offline", **settings, store=store, checkpointer=saver)
        graph.invoke({}, thread)
        before = graph.get_state(thread)
        refused = begin("hex")
        assert (refused.exit_code, "checkpoints of a graph's thread" in refused.output) == (2, True)
        assert named_runs(url) == []
        assert graph.get_state(thread) == before


def test_runs_of_one_name_in_two_databases_share_no_folder(begin, invoke, near, url, tmp_path):
    """The second database is named first in the folder that the runs would share."""
    name = f"other_{uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        other = shown_address(make_conninfo(url, dbname=name))
        begin("hex")
        before = {file.name: file.read_bytes() for file in (tmp_path / "hex").iterdir()}
        words = ("--max-iterations", 1, "--store", other, "--out")
        refused = [invoke("run", near, *words, tmp_path / "hex")]
        invoke("run", near, *words, tmp_path / "elsewhere" / "hex")
        refused += [invoke("resume", f"{other}#hex", "--out", tmp_path / "hex")]
        found = refusal_of(f"{other}#hex", tmp_path / "hex")
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    assert [each.exit_code for each in refused] == [2, 2]
    assert f"holds the files of {url}#hex" in "".join(refused[1].output.split("\n"))
    assert "holds the files of" in found
    assert {file.name: file.read_bytes() for file in (tmp_path / "hex").iterdir()} == before


def refusal_of(place, folder):
    """What is said when the page of a run is to be written to a folder."""
    try:
        run_at(place, folder).take_folder()
    except ValueError as refused:
        return str(refused)
    return ""


def test_a_run_keeps_its_folder_however_its_database_is_addressed(begin, url, tmp_path):
    begin("hex")
    again = f"{url}&connect_timeout=9&application_name=again#hex"
    with run_at(again, tmp_path / "hex").hold():
        assert json.loads((tmp_path / "hex/stored-run.json").read_text())["place"] == f"{url}#hex"


def test_a_damaged_mark_of_a_folder_is_named(begin, url, tmp_path):
    begin("hex")
    (tmp_path / "hex/stored-run.json").write_text("[]")
    with pytest.raises(ValueError, match=r"stored-run\.json: is damaged"):
        run_at(f"{url}#hex", tmp_path / "hex").take_folder()


def test_names_of_threads_and_folders_are_not_given_to_new_runs(invoke, near, url, elsewhere):
    (elsewhere / "runs-out/near-2").mkdir(parents=True)
    (elsewhere / "runs-out/near-3").mkdir()
    (elsewhere / "runs-out/near-3/notes.txt").write_text("mine")
    with RunStore.postgres(url) as store, closing(PostgresRunSaver(url)) as saver:
        settings = {"budget": 1.0, "max_iterations": 1}
        graph = create_discovery_graph(near, "offline", **settings, store=store, checkpointer=saver)
        graph.invoke({}, {"configurable": {"thread_id": "near-1"}})
    for _ in range(2):
        invoke("run", near, "--max-iterations", 1, "--store", url)
    assert [run.address.run for run in named_runs(url)] == ["near-2", "near-4"]


def test_a_name_is_not_taken_while_a_graph_works_on_its_thread(begin, url):
    RunStore.postgres(url).close()  # creates the tables
    graph = Leases(url)  # those of another process
    held = graph.acquire(lease_name("hex"), 30.0)
    refused = begin("hex")
    held.release()
    assert (refused.exit_code, "another process is at work in this run" in refused.output) == (
        2,
        True,
    )
    assert named_runs(url) == []
    assert begin("hex").exit_code == 0


def test_a_name_that_is_taken_while_a_process_waits_for_it_is_named_as_that(begin, url, elsewhere):
    """Its holder has claimed it, has saved checkpoints, and was killed."""
    begin("other")
    config = run_at(f"{url}#other").load()
    with RunStore.postgres(url) as store, closing(PostgresRunSaver(url)) as saver:
        held = Leases(url).acquire(lease_name("hex"), 30.0)

        def die():
            store.named.claim("hex", config_text(config))
            saver.put(*checkpoint_of("hex"))
            held.release()

        timer = Timer(PATIENCE_SECONDS / 2, die)
        timer.start()
        with pytest.raises(ValueError, match="#hex: already holds a run"):
            run_at(f"{url}#hex").claim(config)
        timer.join()


def checkpoint_of(thread):
    config = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    return config, empty_checkpoint(), {}, {}


READER = """
CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA costada TO reader;
GRANT SELECT ON ALL TABLES IN SCHEMA costada TO reader
"""


def test_the_state_of_a_run_is_read_by_a_user_who_may_only_read(begin, url):
    with psycopg.connect(url, autocommit=True) as connection:
        begin("hex")
        connection.execute(READER)
        try:
            run = run_at(f"{shown_address(make_conninfo(url, user='reader'))}#hex")
            assert saved_state(run)["iterations"] == 3
            assert is_finished(run)
        finally:
            connection.execute("DROP OWNED BY reader; DROP ROLE reader")


@pytest.mark.parametrize("is_own", [True, False])
def test_a_run_that_has_bought_nothing_is_forgotten_with_its_own_files_only(
    is_own, url, tmp_path, near
):
    run = StoredRun(tmp_path / "hex", RunAddress(url, "hex"))
    run.claim(RunConfig(problem=str(near)))
    if not is_own:
        (run.path / OWNER).write_text('{"run": "hex", "claimed_at": 1}')
    run.forget_unpaid()
    assert run.claimed_at is None
    assert run.path.exists() is not is_own

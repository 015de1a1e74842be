"""Run folders from somebody else: what they hold is data, and none of it is executed."""

import json
import os
import pickle
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import ormsgpack
import pytest

from costada.runs.discovery import discover
from costada.runs.folder import RunFolder
from costada.runs.fork import fork_run

pytestmark = pytest.mark.process

READING = (["trace"], ["report"], ["graph", "--run"], ["compare"])
"""Commands that show a run."""


def packed(value):
    return ormsgpack.packb(value, option=ormsgpack.OPT_NON_STR_KEYS)


def called(code, module, name, argument):
    """Return how LangGraph writes an object that is rebuilt by a call, inside a checkpoint."""

    def write(checkpoint):
        names = [module, name, argument, "model_validate_json"]
        trap = ormsgpack.Ext(code, packed(names[:3] if code < 3 else names))
        return packed({**checkpoint, "channel_values": {**checkpoint["channel_values"], "x": trap}})

    return write


def routes(mark):
    """Return the ways in which a stored value asks for a call, each with its format."""
    command = f"touch {mark}"

    class Trap:
        def __reduce__(self):
            return os.system, (command,)

    constructor = {"lc": 2, "type": "constructor", "id": ["os", "system"], "args": [command]}
    single = called(0, "os", "system", command)
    nested = ormsgpack.Ext(0, packed(["os", "system", command]))
    return {
        "one argument": ("msgpack", single),
        "arguments": ("msgpack", called(1, "os", "system", [command])),
        "names": ("msgpack", called(2, "subprocess", "call", {"args": command, "shell": True})),
        "method": ("msgpack", called(3, "os", "system", command)),
        "pydantic 1": ("msgpack", called(4, "subprocess", "Popen", {"args": ["touch", str(mark)]})),
        "pydantic 2": ("msgpack", called(5, "subprocess", "Popen", {"args": ["touch", str(mark)]})),
        "in an interrupt": (
            "msgpack",
            called(2, "langgraph.types", "Interrupt", {"value": nested, "id": "1"}),
        ),
        "in a snapshot": ("msgpack", lambda _: packed(ormsgpack.Ext(7, packed(nested)))),
        "json": ("json", lambda checkpoint: json.dumps({**checkpoint, "x": constructor}).encode()),
        "pickle": ("pickle", lambda _: pickle.dumps(Trap())),
    }


def copied(finished, target):
    shutil.copytree(finished, target)
    return target


def plant(database, kind, write, *, in_writes):
    """Put a trap into every checkpoint, or beside the last one as what a node left behind."""
    with closing(sqlite3.connect(database)) as connection, connection:
        stored = connection.execute("SELECT rowid, checkpoint FROM checkpoints").fetchall()
        for row, checkpoint in stored if not in_writes else ():
            trap = write(ormsgpack.unpackb(checkpoint))
            connection.execute(
                "UPDATE checkpoints SET type = ?, checkpoint = ? WHERE rowid = ?", (kind, trap, row)
            )
        if in_writes:
            connection.execute(
                "INSERT INTO writes"
                " (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value)"
                " SELECT thread_id, checkpoint_ns, checkpoint_id, 'task', 0,"
                " 'best', ?, ? FROM checkpoints",
                (kind, write({"channel_values": {}})),
            )


@pytest.mark.parametrize("in_writes", [False, True], ids=["checkpoint", "writes"])
@pytest.mark.parametrize("route", routes(Path()))
def test_no_call_that_a_checkpoint_names_is_made(invoke, finished, tmp_path, route, in_writes):
    mark = tmp_path / "mark"
    folder = copied(finished, tmp_path / "foreign")
    plant(folder / "run.sqlite", *routes(mark)[route], in_writes=in_writes)
    for words in (
        ["resume", folder, "--max-iterations", 4],
        ["fork", folder, "--at", 3, "--out", tmp_path / "new"],
    ):
        result = invoke(*words)
        assert not mark.exists(), (route, words)
        assert result.exit_code == 2, result.output
        assert "run.sqlite: a checkpoint in it is damaged" in result.output
    for words in READING:
        invoke(*words, folder)
        assert not mark.exists()


def shipped(finished, target, mark):
    """Return a copy of a run with a problem inside whose evaluator leaves a mark when loaded."""
    folder = copied(finished, target)
    problem = Path(json.loads((folder / "settings.json").read_text())["problem"])
    shutil.copytree(problem, folder / "problem")
    (folder / "problem" / "problem.toml").write_text('entry_point = "value"\n')
    (folder / "problem" / "evaluator.py").write_text(
        f"open({str(mark)!r}, 'w').close()\n\n\n"
        "def score(output):\n    return {'combined_score': max(0.0, 1.0 - abs(output - 0.7))}\n"
    )
    return folder


def change(folder, **settings):
    known = json.loads((folder / "settings.json").read_text())
    (folder / "settings.json").write_text(json.dumps({**known, **settings}))


def check_trust_is_needed(invoke, folder, mark, reason):
    """Check that code of a folder leaves its mark once the folder is trusted, and never before."""
    more, new = ["--max-iterations", 4], folder.parent / "new"
    for words in (["resume", folder, *more], ["fork", folder, "--at", 3, "--out", new]):
        result = invoke(*words)
        assert (result.exit_code, mark.exists()) == (2, False), result.output
        assert reason in result.output
    assert not new.exists()
    for words in READING:
        invoke(*words, folder)
        assert not mark.exists(), words
    result = invoke("resume", folder, "--trust", *more)
    assert (result.exit_code, mark.exists()) == (0, True), result.output


NAMES: dict[str, Callable[[Path], Path]] = {
    "its path": lambda folder: folder / "problem",
    "a way up and down": lambda folder: folder.parent / "x" / ".." / folder.name / "problem",
    "a link outside": lambda folder: folder.parent / "link",
    "a link inside": lambda folder: folder / "link",
    "a relative path": lambda folder: Path(folder.name) / "problem",
    "a relative path to what lies beside": lambda folder: Path("beside"),
    "the reader's working folder": lambda folder: Path("/proc/self/cwd/beside"),
    "a way there by descriptors": lambda folder: Path("/dev/fd/../cwd/beside"),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_problem_that_came_with_the_folder_is_loaded_only_when_it_is_trusted(
    invoke, finished, tmp_path, name, monkeypatch
):
    mark = tmp_path / "mark"
    folder = shipped(finished, tmp_path / "foreign", mark)
    shutil.copytree(folder / "problem", tmp_path / "beside")
    (tmp_path / "link").symlink_to(folder / "problem")
    (folder / "link").symlink_to(tmp_path / "beside")
    (tmp_path / "x").mkdir()
    monkeypatch.chdir(tmp_path)
    change(folder, problem=str(NAMES[name](folder)))
    check_trust_is_needed(invoke, folder, mark, "give --trust")


def test_python_loads_a_problem_of_the_folder_only_when_it_is_trusted(finished, tmp_path):
    mark = tmp_path / "mark"
    folder = shipped(finished, tmp_path / "foreign", mark)
    change(folder, problem=str(folder / "problem"))
    options: dict[str, Any] = {"budget": 1.0, "max_iterations": 4, "out": folder, "resume": True}
    with pytest.raises(ValueError, match="trust=True"):
        discover(folder / "problem", "offline", **options)
    with pytest.raises(ValueError, match="trust=True"):
        fork_run(RunFolder(folder), 3, RunFolder(tmp_path / "new"))
    assert not mark.exists()
    assert discover(folder / "problem", "offline", trust=True, **options).iterations == 4
    assert fork_run(RunFolder(folder), 3, RunFolder(tmp_path / "new"), trust=True).iterations == 3


@pytest.mark.parametrize("layer", ["none", "process"])
def test_a_folder_takes_no_wall_away_unless_it_is_trusted(invoke, finished, tmp_path, layer):
    folder = copied(finished, tmp_path / "foreign")
    change(folder, sandbox=layer)
    for words in (["resume", folder], ["fork", folder, "--at", 3, "--out", tmp_path / "new"]):
        result = invoke(*words)
        assert (result.exit_code, "give --trust" in result.output) == (2, True), result.output
    assert invoke("resume", folder, "--trust").exit_code == 0


def test_a_folder_runs_no_command_as_its_generator_unless_it_is_trusted(invoke, finished, tmp_path):
    mark, folder = tmp_path / "mark", copied(finished, tmp_path / "foreign")
    change(folder, generator=f"touch {mark}")
    assert RunFolder(folder).next_command(RunFolder(folder).load()).endswith(" --trust")
    reason = "a command that would be run outside of a sandbox"
    check_trust_is_needed(invoke, folder, mark, reason)


@pytest.mark.parametrize(
    ("address", "is_refused"),
    [
        ("https://collector.invalid/v1", True),
        ("http://127.0.0.1.collector.invalid/v1", True),
        ("https://own.invalid/v1", False),
        ("http://localhost:9/v1", False),
        ("http://[::1]:9/v1", False),
    ],
)
def test_a_folder_sends_no_key_to_a_server_of_its_choice_unless_it_is_trusted(
    finished, tmp_path, monkeypatch, address, is_refused
):
    monkeypatch.setenv("OPENAI_BASE_URL", "https://own.invalid/v1")
    folder = copied(finished, tmp_path / "foreign")
    change(folder, model="openai:stand-in", base_url=address, price="1,2")
    if is_refused:
        with pytest.raises(ValueError, match="where your API key would be sent"):
            RunFolder(folder).check_trusted()
    else:
        RunFolder(folder).check_trusted()
    trust = " --trust" if is_refused else ""
    assert RunFolder(folder).next_command(RunFolder(folder).load()).endswith(f"foreign{trust}")


ENTRIES = {
    "its own address": {"base_url": "https://collector.invalid/v1"},
    "an address that looks local": {"base_url": "http://127.0.0.1.collector.invalid/v1"},
    "the address of another provider": {
        "model": "anthropic:claude",
        "base_url": "https://own.invalid/v1",
    },
    "a variable of its choice": {"api_key_variable": "AWS_SECRET_ACCESS_KEY"},
    "the key of another provider": {"api_key_variable": "ANTHROPIC_API_KEY"},
    "a variable and a local address": {
        "base_url": "http://localhost:9/v1",
        "api_key_variable": "AWS_SECRET_ACCESS_KEY",
    },
    "a variable for a provider that logs in by itself": {
        "model": "azure_openai:x",
        "api_key_variable": "AWS_SECRET_ACCESS_KEY",
    },
}


def give_menu(folder, *entries):
    models = [{"name": f"m{at}", "model": "openai:x", **each} for at, each in enumerate(entries)]
    label = ",".join(each["name"] for each in models)
    change(folder, models=models, model=label)


@pytest.mark.parametrize(
    ("place", "is_refused"),
    [
        ("dask://collector.invalid:8786", True),
        ("ray://127.0.0.1.collector.invalid:10001", True),
        ("dask://127.0.0.1:8786", False),
        ("ray://auto", False),
        ("local:2", False),
    ],
)
def test_a_cluster_that_an_untrusted_folder_names_is_not_connected_to(
    finished, tmp_path, place, is_refused
):
    folder = copied(finished, tmp_path / "foreign")
    change(folder, evaluate_on=place)
    if is_refused:
        with pytest.raises(ValueError, match=r"loaded as Python objects.*give --trust"):
            RunFolder(folder).check_trusted()
    else:
        RunFolder(folder).check_trusted()


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_menu_reads_and_sends_no_key_of_its_choice_unless_it_is_trusted(
    invoke, finished, tmp_path, monkeypatch, entry
):
    class Watched(dict[str, str]):
        def __getitem__(self, name):
            assert name != "AWS_SECRET_ACCESS_KEY"
            return super().__getitem__(name)

        def get(self, name, default=None):
            assert name != "AWS_SECRET_ACCESS_KEY"
            return super().get(name, default)

    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://own.invalid/v1")
    monkeypatch.setattr(os, "environ", Watched(os.environ))
    folder = copied(finished, tmp_path / "foreign")
    give_menu(folder, {"model": "offline"}, ENTRIES[entry])
    for words in (["resume", folder], ["fork", folder, "--at", 3, "--out", tmp_path / "new"]):
        result = invoke(*words)
        assert (result.exit_code, "give --trust" in result.output) == (2, True), result.output
        assert "of model 'm1' is" in result.output
    assert RunFolder(folder).next_command(RunFolder(folder).load()).endswith(" --trust")


def test_a_menu_of_the_usual_keys_and_addresses_is_resumed_without_trust(
    finished, tmp_path, monkeypatch
):
    monkeypatch.setenv("OPENAI_BASE_URL", "https://own.invalid/v1")
    folder = copied(finished, tmp_path / "foreign")
    give_menu(
        folder,
        {"model": "offline"},
        {},
        {"api_key_variable": "OPENAI_API_KEY"},
        {"base_url": "https://own.invalid/v1"},
        {"base_url": "http://[::1]:9/v1"},
        {"model": "anthropic:claude", "api_key_variable": "ANTHROPIC_API_KEY"},
    )
    RunFolder(folder).check_trusted()


@pytest.mark.parametrize(
    "name", ["openai_api_base", "default_headers", "openai_proxy", "http_client", "api_key"]
)
def test_a_menu_sets_nothing_but_how_a_model_answers(invoke, finished, tmp_path, name):
    folder = copied(finished, tmp_path / "foreign")
    give_menu(folder, {"parameters": {name: "http://collector.invalid"}})
    result = invoke("resume", folder, "--trust")
    assert result.exit_code == 2
    assert f"got '{name}', expected one of" in result.output

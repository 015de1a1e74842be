"""Runs that are logged to real trackers, read back with the trackers' own readers."""

import json
import logging
import struct
import sys
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any

import pytest
from crash_runs import kill_often, record_of, run_to_end, serve

from costada import discover
from costada.reports.tracking import CHECK_SECONDS

pytestmark = pytest.mark.process

SECRET = "sk-never-to-be-logged"
LOGGED = ("spent", "step_cost", "score", "best_score", "utility", "intensity", "frontier")


@dataclass
class Logged:
    """What a tracker has of one run.

    `values` has a list of iterations and values for each name, in the order of the file.
    """

    values: dict[str, list[tuple[int, float]]]
    settings: str
    reason: str
    files: str


def in_mlflow(store: Path, folder: Path) -> Logged:
    import mlflow
    from mlflow.tracking import MlflowClient

    client = MlflowClient(store.as_uri())
    experiment = client.get_experiment_by_name("costada")
    (run,) = client.search_runs([experiment.experiment_id])
    values = {
        name: [(each.step, each.value) for each in client.get_metric_history(run.info.run_id, name)]
        for name in run.data.metrics
    }
    found = mlflow.artifacts.list_artifacts(run_id=run.info.run_id, tracking_uri=store.as_uri())
    names = " ".join(each.path for each in found)
    return Logged(values, str(run.data.params), run.data.tags["stop_reason"], names)


def in_tensorboard(store: Path, folder: Path) -> Logged:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(
        str(folder / "trackers" / "tensorboard"), {"scalars": 0, "tensors": 0}
    )
    events.Reload()
    values = {
        name: [(each.step, each.value) for each in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }

    def text(name: str) -> str:
        (found,) = events.Tensors(f"{name}/text_summary")
        return found.tensor_proto.string_val[0].decode()

    files = f"{text('best_program')}{text('report')}"
    return Logged(values, text("settings"), text("stop_reason"), files)


def in_wandb(store: Path, folder: Path) -> Logged:
    (run,) = (folder / "trackers" / "wandb").glob("offline-run-*")
    (file,) = run.glob("*.wandb")
    values: dict[str, list[tuple[int, float]]] = {}
    settings, reason, files = "", "", ""
    for record in wandb_records(file):
        items = {item.key or ".".join(item.nested_key): item for item in record.history.item}
        for name, item in items.items():
            if not name.startswith("_"):
                step = record.history.step.num
                values.setdefault(name, []).append((step, json.loads(item.value_json)))
        for item in record.run.config.update:
            settings += f"{item.key or item.nested_key}: {item.value_json} "
        for item in record.summary.update:
            if "stop_reason" in (item.key, *item.nested_key):
                reason = json.loads(item.value_json)
        for entry in (
            *record.artifact.manifest.contents,
            *record.request.log_artifact.artifact.manifest.contents,
        ):
            files += f"{entry.path} "
    return Logged(values, settings, reason, files)


def wandb_records(path: Path):
    """The records of an offline file: the log format of LevelDB behind a header of 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, parts = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        if 2**15 - place % 2**15 < 7:
            place += 2**15 - place % 2**15
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        parts += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield Record.FromString(parts)
            parts = b""


READERS = {
    "mlflow": in_mlflow,
    "wandb": in_wandb,
    "tensorboard": in_tensorboard,
}


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A local store for MLflow, and no network for wandb."""
    store = tmp_path / "mlflow"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    return store


def rows_of(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]


def check(logged: Logged, folder: Path) -> None:
    """Each iteration of the trace file is logged once, with its values."""
    rows = rows_of(folder)
    for name in LOGGED:
        expected = [(row["iteration"], row[name]) for row in rows if row[name] is not None]
        found = logged.values[name]
        assert [step for step, _ in found] == [step for step, _ in expected], name
        for (_, value), (_, wanted) in zip(found, expected, strict=True):
            assert value == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("name", READERS)
def test_a_tracker_has_every_iteration_settings_files_and_the_reason(name, store, near, tmp_path):
    folder = tmp_path / "run"
    discover(near, "offline", budget=1, max_iterations=3, out=folder, log=name)
    logged = READERS[name](store, folder)
    check(logged, folder)
    assert logged.reason == "iterations"
    assert "max_iterations" in logged.settings
    assert "report" in logged.files
    program = (folder / "best_program.py").read_text().splitlines()[1]
    assert "best_program.py" in logged.files or program in logged.files
    everything = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in path.read_bytes() for path in everything)


def test_a_run_that_is_killed_often_is_continued_in_all_trackers(store, tmp_path):
    folder, (server, provider) = tmp_path / "run", serve()
    with server:
        options = {"log": tuple(READERS), "budget": 0.15}
        assert kill_often(folder, server, provider, 1, 1, options) == 1
    for read in READERS.values():
        logged = read(store, folder)
        check(logged, folder)
        assert logged.reason == "budget"


class AnswersErrors(BaseHTTPRequestHandler):
    """Supports no method at all, and says so in one line."""

    error_message_format = "%(message)s"


@pytest.fixture
def failing_mlflow(monkeypatch):
    """A server at MLflow's address that answers every request with an error."""
    with ThreadingHTTPServer(("127.0.0.1", 0), AnswersErrors) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        yield
        server.shutdown()


@pytest.mark.usefixtures("failing_mlflow")
def test_a_tracker_that_fails_warns_once_by_name_and_leaves_the_ledger_as_it_is(tmp_path, caplog):
    server, _ = serve()
    with server, caplog.at_level(logging.WARNING, "costada"):
        for name, log in (("plain", ()), ("logged", "mlflow")):
            run_to_end(tmp_path / name, server.url, {"log": log, "budget": 0.03})
    (warning,) = [each for each in caplog.records if each.name == "costada.trackers"]
    assert warning.getMessage().startswith("mlflow: mlflow.exceptions.MlflowException: API request")
    assert warning.getMessage().count("The run continues without it") == 1
    plain, logged = record_of(tmp_path / "plain"), record_of(tmp_path / "logged")
    assert (plain.result, plain.spent) == (logged.result, logged.spent)


@pytest.fixture
def swept(near, tmp_path, monkeypatch, invoke):
    """Make runs at the same time that are logged: swept("mlflow", seeds=2)."""
    monkeypatch.chdir(tmp_path)

    def sweep(tracker: str, seeds: int) -> Any:
        words = ["--problems", near, "--methods", "uniform", "--seeds", seeds, "--jobs", 2]
        words += ["--max-iterations", 2, "--out", "sweep", "--log", tracker, "--json"]
        done = invoke("sweep", *words)
        assert done.exit_code == 0, done.output
        return done

    return sweep


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of mlflow about sqlalchemy
def test_each_run_of_a_sweep_is_a_run_of_mlflow(store, swept, tmp_path, monkeypatch):
    """MLflow itself creates the tables of a new SQLite file without a lock."""
    from mlflow.tracking import MlflowClient

    if find_spec("sqlalchemy"):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'new.db'}")
    done = swept("mlflow", seeds=2)
    assert [run["warning"] for run in json.loads(done.stdout)] == [None, None]
    client = MlflowClient()
    experiment = client.get_experiment_by_name("costada")
    runs = client.search_runs([experiment.experiment_id])
    assert {run.data.params["seed"] for run in runs} == {"0", "1"}
    for run in runs:
        steps = client.get_metric_history(run.info.run_id, "spent")
        assert [each.step for each in steps] == [1, 2]


def test_a_sweep_says_which_trackers_failed(swept, tmp_path):
    trackers = tmp_path / "sweep" / "near" / "uniform" / "seed-0" / "trackers"
    trackers.mkdir(parents=True)
    (trackers / "tensorboard").symlink_to(tmp_path)
    done = swept("tensorboard", seeds=1)
    (run,) = json.loads(done.stdout)
    assert run["status"] == "finished"
    assert run["warning"].startswith("tensorboard: ")
    assert "is a link, expected a folder of the run's own" in run["warning"]
    assert done.stderr.count("The run is not logged") == 1
    assert not list(tmp_path.rglob("*.log"))


def test_a_link_in_place_of_a_trackers_folder_is_not_followed(near, tmp_path, caplog):
    folder, outside = tmp_path / "run", tmp_path / "outside"
    outside.mkdir()
    (outside / "events.out.tfevents.mine").write_text("mine")
    folder.mkdir()
    (folder / "trackers").mkdir()
    (folder / "trackers" / "tensorboard").symlink_to(outside)
    discover(near, "offline", budget=1, max_iterations=1, out=folder, log="tensorboard")
    assert [path.read_text() for path in outside.iterdir()] == ["mine"]
    assert "is a link, expected a folder of the run's own" in caplog.text


def test_earlier_iterations_are_logged_when_a_tracker_is_added_later(store, near, tmp_path):
    folder = tmp_path / "run"
    options = {"budget": 1, "out": folder}
    discover(near, "offline", max_iterations=2, **options)
    discover(near, "offline", max_iterations=3, resume=True, log="tensorboard", **options)
    check(in_tensorboard(store, folder), folder)
    assert len(rows_of(folder)) == 3


def test_a_missing_library_is_refused_before_anything_is_written(near, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ValueError, match=r"log: mlflow .* pip install 'costada\[mlflow\]'"):
        discover(near, "offline", budget=1, out=tmp_path / "run", log="mlflow")
    assert not (tmp_path / "run").exists()


def test_a_store_that_mlflow_cannot_open_is_refused_before_anything_is_written(
    near, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlyte:///mlflow.db")
    with pytest.raises(ValueError, match=r"log: mlflow: cannot open sqlyte:.*'costada\[mlflow\]'"):
        discover(near, "offline", budget=1, out=tmp_path / "run", log="mlflow")
    assert not (tmp_path / "run").exists()


def test_a_server_of_mlflow_that_cannot_be_reached_is_refused_within_seconds(
    near, tmp_path, monkeypatch
):
    """MLflow itself would try for minutes, after the first iteration is paid."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@127.0.0.1:1")
    words = "log: mlflow: MLFLOW_TRACKING_URI: got the server 127.0.0.1:1, which cannot be reached"
    began = monotonic()
    with pytest.raises(ValueError, match=words):
        discover(near, "offline", budget=1, out=tmp_path / "run", log="mlflow")
    assert monotonic() - began < CHECK_SECONDS
    assert not (tmp_path / "run").exists()


def test_a_folder_of_files_is_refused_by_the_variable_that_allows_it(near, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    words = r"log: mlflow: cannot open file:\S*; set MLFLOW_ALLOW_FILE_STORE=true, or set MLFLOW_"
    with pytest.raises(ValueError, match=words):
        discover(near, "offline", budget=1, out=tmp_path / "run", log="mlflow")
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(bool(find_spec("sqlalchemy")), reason="tried where sqlalchemy is absent")
def test_mlflow_skinny_with_its_default_store_is_refused(near, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_ALLOW_FILE_STORE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match=r"log: mlflow: cannot open sqlite:.*'costada\[mlflow\]'"):
        discover(near, "offline", budget=1, out=tmp_path / "run", log="mlflow")
    assert not (tmp_path / "run").exists()


def test_wandb_without_a_key_is_refused_before_anything_is_written(near, tmp_path, monkeypatch):
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with pytest.raises(ValueError, match="log: wandb: found no API key; run wandb login"):
        discover(near, "offline", budget=1, out=tmp_path / "run", log="wandb")
    assert not (tmp_path / "run").exists()


def test_wrong_trackers_are_refused(near, tmp_path):
    for log, words in (
        ("mlflw", "Did you mean 'mlflow'"),
        (["wandb", "wandb"], "expected different trackers"),
    ):
        with pytest.raises(ValueError, match=words):
            discover(near, "offline", budget=1, out=tmp_path / "run", log=log)
    with pytest.raises(ValueError, match="log: got mlflow without out"):
        discover(near, "offline", budget=1, log="mlflow")

"""Logs runs to MLflow: its server or its local store, by MLflow's own variables."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import time
from urllib.parse import urlsplit

import mlflow
import requests
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from requests.exceptions import ConnectionError as RequestsConnectionError
from requests.exceptions import ReadTimeout, SSLError

from costada.reports.tracking import Step, TrackedEnd, TrackedRun

EXPERIMENT = "costada"
TOKEN_TAG = "costada.run"  # noqa: S105
LAST = "spent"
"""The metric that is logged last of an iteration."""

SQLITE = "sqlite:///"
PROBE_SECONDS = 5.0
INSTALLED = "pip install 'costada[mlflow]'"

MAX_METRICS, MAX_PARAMETERS, MAX_PARAMETER = 1000, 100, 500
"""What one request of MLflow may hold."""


class MlflowTracker:
    """Logs settings as parameters, values as metrics with the iteration as step."""

    def __init__(self) -> None:
        self._id = ""

    def check(self) -> None:
        """Raise `ValueError` if the store cannot be opened, or the server not be reached.

        mlflow-skinny opens no database.
        """
        try:
            with opening_alone():
                self._client = MlflowClient()
        except MlflowException as error:
            uri = mlflow.get_tracking_uri()
            is_folder = urlsplit(uri).scheme in ("", "file")
            mended = "set MLFLOW_ALLOW_FILE_STORE=true" if is_folder else INSTALLED
            raise ValueError(
                f"cannot open {uri}; {mended}, or set MLFLOW_TRACKING_URI to a server. MLflow:"
                f" {' '.join(str(error).split())}"
            ) from None
        check_server(mlflow.get_tracking_uri())

    def begin(self, run: TrackedRun) -> int:
        """Find the run by its token, or create it."""
        client = self._client
        with opening_alone():
            experiment = experiment_id(client)
        wanted = f"tags.`{TOKEN_TAG}` = '{run.token}'"
        found = next(iter(client.search_runs([experiment], wanted, max_results=1)), None)
        if found is None:
            found = client.create_run(experiment, run_name=run.title, tags={TOKEN_TAG: run.token})
        self._id = found.info.run_id
        client.update_run(self._id, status="RUNNING")
        self._set_parameters(run.settings, found.data.params)
        history = client.get_metric_history(self._id, LAST)
        return max((each.step for each in history), default=0)

    def _set_parameters(self, settings: Mapping[str, str], known: Mapping[str, str]) -> None:
        """Log what is new; MLflow never changes a parameter, so a changed setting is a tag."""
        cut = {name: text[:MAX_PARAMETER] for name, text in settings.items() if text}
        new = [Param(name, text) for name, text in cut.items() if name not in known]
        for start in range(0, len(new), MAX_PARAMETERS):
            self._client.log_batch(self._id, params=new[start : start + MAX_PARAMETERS])
        for name, text in cut.items():
            if name in known and known[name] != text:
                self._client.set_tag(self._id, f"resumed.{name}", text)

    def log(self, steps: Sequence[Step]) -> None:
        """Log the metrics, as many iterations in one request as fit."""
        now, batch = int(time() * 1000), list[Metric]()
        for iteration, values in steps:
            ordered = sorted(values.items(), key=lambda item: item[0] == LAST)
            metrics = [Metric(name, value, now, iteration) for name, value in ordered]
            if len(batch) + len(metrics) > MAX_METRICS:
                self._client.log_batch(self._id, metrics=batch)
                batch = []
            batch += metrics
        self._client.log_batch(self._id, metrics=batch)

    def end(self, end: TrackedEnd) -> None:
        """Log the files as artifacts, and set the status."""
        for name, text in end.files.items():
            if Path(text).is_dir():
                self._client.log_artifacts(self._id, text, artifact_path=name)
            else:
                self._client.log_artifact(self._id, text)
        self._client.log_batch(self._id, tags=[RunTag("stop_reason", end.reason)])
        status = "KILLED" if end.reason == "interrupted" else "FINISHED"
        self._client.set_terminated(self._id, "FAILED" if end.has_failed else status)


def check_server(uri: str) -> None:
    """Raise `ValueError` if there is no server at an HTTP address; any response of it will do."""
    address = urlsplit(uri)
    if address.scheme not in ("http", "https"):
        return
    try:
        requests.head(uri, timeout=PROBE_SECONDS, allow_redirects=False)
    except (SSLError, ReadTimeout):
        return  # it is there; variables of MLflow say how it is trusted and how long it may take
    except RequestsConnectionError:
        host = address.netloc.rpartition("@")[2]
        raise ValueError(
            f"MLFLOW_TRACKING_URI: got the server {host}, which cannot be reached; start it, or use"
            " --log none"
        ) from None


@contextmanager
def opening_alone() -> Iterator[None]:
    """Keep the runs of a sweep from opening the store at the same time.

    MLflow creates the tables of a new SQLite file without a lock: of two processes one fails.
    """
    uri = mlflow.get_tracking_uri()
    folder = Path(uri.removeprefix(SQLITE)).parent if uri.startswith(SQLITE) else Path()
    number = os.open(folder if folder.is_dir() else Path(), os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems lock no folders
            fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


def experiment_id(client: MlflowClient) -> str:
    """Find or create the experiment that MLflow's variables name, else the one of our name."""
    if known := os.environ.get("MLFLOW_EXPERIMENT_ID"):
        return known
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return str(client.create_experiment(name))
        except MlflowException:
            found = client.get_experiment_by_name(name)  # a run elsewhere may have created it
            if found is None:
                raise
    return str(found.experiment_id)

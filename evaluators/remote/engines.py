"""The engine of a name or an executor; engines with a name are opened once per process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from threading import Lock

from costada.evaluators.remote.address import ADDRESS, FORMS, HERE
from costada.evaluators.remote.dask_engine import DaskEngine
from costada.evaluators.remote.engine import Engine
from costada.evaluators.remote.executors import LocalEngine, OwnExecutor
from costada.evaluators.remote.ray_engine import RayEngine
from costada.values.redaction import without_passwords

KINDS: dict[str, Callable[[str], Engine]] = {"dask": DaskEngine, "ray": RayEngine}
_engines: dict[str, Engine] = {}
_opening = Lock()


def engine_of(given: str | Executor) -> Engine | None:
    """The engine of a name or an executor, None for HERE; that of a name is opened once.

    Raises:
        ValueError: If it is no name of an engine, or its extra is not installed.
        OSError: If it does not answer.
    """
    if isinstance(given, Executor):
        return OwnExecutor(given)
    if given == HERE:
        return None
    parts = ADDRESS.fullmatch(given)
    if parts is None:
        raise ValueError(f"evaluations is {without_passwords(given)!r}; expected {FORMS}")
    with _opening:
        found = _engines.get(given)
        if found is None or not found.is_connected():
            if found is not None:
                found.close()
            number = parts["number"]
            found = LocalEngine(int(number)) if number else KINDS[parts["cluster"]](parts["place"])
            _engines[given] = found
        return found

"""The function that workers run: it loads a problem once and keeps its sandbox warm."""

from __future__ import annotations

import os
import pickle
import socket
from collections import OrderedDict
from contextlib import nullcontext
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from threading import Lock

from costada.evaluators.fingerprint import known_part
from costada.evaluators.folder_layout import TASK_FILE
from costada.evaluators.folder_settings import SETTINGS_FILE, read_settings
from costada.evaluators.folders import load_folder
from costada.evaluators.granted_models import FunctionCall, ModelsUnreachable
from costada.evaluators.initial_program import read_text
from costada.evaluators.problem import Problem
from costada.evaluators.registry import benchmark_folder
from costada.evaluators.remote.bundle import REPOSITORY, touch, unpacked
from costada.evaluators.remote.task import Answer, Reference, Setting, Task, code_version
from costada.evaluators.repository import load_repository
from costada.evaluators.repository_files import whole_tree
from costada.evaluators.sandbox.concurrency import CANCELLED
from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandboxed import Confined
from costada.values.evaluation import Evaluation

MAX_LOADED = 16
"""Problems that a worker keeps loaded."""

_loaded: OrderedDict[Setting, Problem] = OrderedDict()
_loading = Lock()


def answer(version: str, pickled: bytes, payload: bytes | None = None) -> bytes:
    """Evaluate a program, and return an `Answer` as JSON.

    Args:
        version: The `code_version` of the process that asks.
        pickled: A `Task`.
        payload: What is sent of the problem, for a worker that lacks it.

    Raises:
        ValueError: If this worker has another version, a weaker sandbox, or not what the problem
            needs.
        OSError: If the problem's files cannot be kept here.
        Exception: What `Problem.evaluate_here` raises.
    """
    if version != code_version():
        raise ValueError(f"worker {_name()} has {code_version()}; expected {version}")
    task: Task = pickle.loads(pickled)  # noqa: S301  (from the run that this worker serves)
    problem = _problem(task.setting, payload, may_ask_models=False)
    if problem is None:
        return Answer(_name()).to_json()
    try:
        with task.models.attempt() if task.models else nullcontext() as models:
            evaluation = problem.evaluate_here(
                task.program, task.key, task.incumbent, task.rival, models
            )
    except InterruptedError as error:
        if error.args != (CANCELLED,):  # one that the evaluator raised
            raise
        return Answer(_name(), was_cancelled=True).to_json()
    except ModelsUnreachable as error:
        return Answer(_name(), unreachable=str(error)).to_json()
    layer = problem.sandbox if task.setting.layer else None
    return Answer(_name(), evaluation, layer).to_json()


def call_function(
    version: str, setting: Setting, called: FunctionCall, output: object, payload: bytes | None
) -> Evaluation | None:
    """What a function of a problem says of an output; `None` if the problem's files are needed.

    Raises:
        ValueError: If this process has another version, or not what the problem needs.
        OSError: If the problem's files cannot be kept here.
        Exception: What `Problem.call_here` raises.
    """
    if version != code_version():
        raise ValueError(f"worker {_name()} has {code_version()}; expected {version}")
    problem = _problem(setting, payload, may_ask_models=True)
    return None if problem is None else problem.call_here(called, output)


def _name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def _problem(setting: Setting, payload: bytes | None, *, may_ask_models: bool) -> Problem | None:
    """The problem, loaded once; None if its files are needed first."""
    has_files = setting.reference.kind in ("folder", "repository")
    with _loading:
        if setting in _loaded and has_files and not touch(setting.reference.key):
            del _loaded[setting]  # its files were removed, and are needed again
        if setting in _loaded:
            _loaded.move_to_end(setting)
            return _loaded[setting]
        try:
            found = _load(setting, payload, may_ask_models)
        except (ValueError, OSError) as error:
            kind = ValueError if isinstance(error, ValueError) else OSError
            raise kind(f"worker {_name()}, problem {setting.name!r}: {error}") from None
        if found is not None:
            _loaded[setting] = found
            if len(_loaded) > MAX_LOADED:
                _loaded.popitem(last=False)
        return found


def _load(setting: Setting, payload: bytes | None, may_ask_models: bool) -> Problem | None:
    """Load a problem, check that it is the same here, and choose its layer."""
    python = setting.interpreter
    if python is not None and not os.access(python, os.X_OK):
        raise ValueError(
            f"interpreter is {python!r}, which does not exist or cannot be executed here"
        )
    found = _referenced(setting.reference, payload, python, may_ask_models)
    if found is None:
        return None
    if isinstance(found.evaluate, Confined):
        found.evaluate.check_sendable()
    given = replace(
        found,
        name=setting.name,
        limits=setting.limits,
        sandbox=setting.layer or found.sandbox,
        interpreter=python,
        backend=None,
    )
    if known_part(given.fingerprint) != setting.fingerprint:
        raise ValueError(
            "programs may be evaluated differently: a package that the evaluator uses has another"
            " version here, or a file that it reads is not there"
        )
    # A process that calls functions runs no program: to try the layers would keep a server waiting.
    if setting.layer is None or may_ask_models:
        return given
    return replace(given, sandbox=_layer(setting.layer))


def _referenced(
    reference: Reference, payload: bytes | None, python: str | None, may_ask_models: bool
) -> Problem | None:
    """The problem that a reference names; None if its files or its pickle are needed first."""
    if reference.kind == "benchmark":
        return load_folder(benchmark_folder(reference.key))
    if reference.kind == "object":
        if payload is None:
            return None
        if sha256(payload).hexdigest() != reference.key:
            raise ValueError(f"the object sent has another hash than {reference.key}")
        found: Problem = pickle.loads(payload)  # noqa: S301  (from the run that this worker serves)
        return found
    place = unpacked(reference.key, payload)
    if place is None:
        return None
    if reference.kind == "folder":
        return load_folder(
            Path(place, reference.folder),
            interpreter=python,
            may_ask_models=may_ask_models,
            is_sent=True,
        )
    own = place.resolve()
    settings, task = read_settings(own / SETTINGS_FILE), read_text(own / TASK_FILE, own)
    return load_repository(own, settings, task, whole_tree(own / REPOSITORY))


def _layer(wanted: Layer) -> Layer:
    """The layer asked for if it works here, else the strongest that does.

    Raises:
        ValueError: If that is weaker.
    """
    try:
        return chosen_layer(wanted)
    except ValueError as error:
        reason = error
    strongest = chosen_layer(Layer.AUTO)
    if strongest.implementation.strength < wanted.implementation.strength:
        raise ValueError(
            f"the strongest sandbox is {strongest.value!r}, weaker than {wanted.value!r}"
            f" ({reason}); to allow it: sandbox = {strongest.value!r}"
        )
    return strongest

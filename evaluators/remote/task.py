"""What is sent to a worker for one evaluation, and what comes back."""

from __future__ import annotations

import importlib
import json
import pickle
import sys
from dataclasses import asdict, dataclass, replace
from functools import cache
from hashlib import sha256
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from costada.evaluators.fingerprint import MODELS, PACKAGE, evaluation_code, known_part
from costada.evaluators.folder_evaluators import FolderEvaluator, FolderFunction
from costada.evaluators.granted_models import SentModels, model_descriptions
from costada.evaluators.problem import Problem, layer_of
from costada.evaluators.registry import BENCHMARKS
from costada.evaluators.remote.bundle import bundle, repository_bundle
from costada.evaluators.repository import RepositoryEvaluator
from costada.evaluators.repository_files import files_hash
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.values.candidate import Program
from costada.values.evaluation import Evaluation

CLOUDPICKLE = "cloudpickle"

NOT_SENT: dict[str, Any] = {"backend": None, "seed_evaluation": None, "notes": ()}
"""Fields of a problem that no worker needs, and their values there."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Says which problem a worker is to load.

    Attributes:
        kind: A benchmark of the package, a folder, a repository, or an object.
        key: The benchmark's name, or the hash of what is sent for the others.
        folder: The problem folder below what is sent.
    """

    kind: Literal["benchmark", "folder", "repository", "object"]
    key: str
    folder: str = ""


@dataclass(frozen=True, slots=True)
class Setting:
    """A problem as a worker needs it, the same for all of its evaluations.

    Attributes:
        name: The problem's name.
        reference: What to load.
        fingerprint: What of the problem's fingerprint is the same in every process.
        limits: What one evaluation may take.
        layer: The weakest layer that may confine a candidate; None if the problem's own `evaluate`
            runs it.
        interpreter: Path of the Python that runs candidates; None for the worker's own.
    """

    name: str
    reference: Reference
    fingerprint: str
    limits: Limits
    layer: Layer | None
    interpreter: str | None


@dataclass(frozen=True, slots=True)
class Task:
    """One evaluation: the arguments of `Problem.evaluate_here`."""

    setting: Setting
    program: Program
    key: str
    incumbent: float | None
    rival: tuple[float, ...] = ()
    models: SentModels | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a worker answers.

    Attributes:
        worker: Host and process.
        evaluation: The evaluation; None if the worker lacks the problem's files.
        layer: What confined the candidate; None if the problem's own `evaluate` ran it.
        was_cancelled: Whether the worker was terminated during the evaluation.
        unreachable: Why the worker could not reach the models of the run; empty if it could.
    """

    worker: str
    evaluation: Evaluation | None = None
    layer: Layer | None = None
    was_cancelled: bool = False
    unreachable: str = ""

    def to_json(self) -> bytes:
        """The answer as plain data, which the run can read without executing any code."""
        return json.dumps(asdict(self), default=_plain).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Answer:
        """The answer that a worker sent.

        Raises:
            ValueError: If it is not one.
        """
        return _answers().validate_json(text)


@cache
def _answers() -> TypeAdapter[Answer]:
    return TypeAdapter(Answer)


def _plain(value: object) -> object:
    """A set of names as a list; the numbers of an array library as floats."""
    return sorted(value) if isinstance(value, frozenset) else float(value)  # type: ignore[arg-type]


@cache
def code_version() -> str:
    """The Python and the package that evaluate programs, in words that two machines compare."""
    python = ".".join(map(str, sys.version_info[:2]))
    return f"{PACKAGE} {metadata.version(PACKAGE)} ({evaluation_code()[:12]}) on Python {python}"


def setting_of(problem: Problem) -> tuple[Setting, bytes | None]:
    """What workers need of a problem, and what is sent to those that lack it.

    Raises:
        ValueError: If the problem cannot be sent, with the reason.
    """
    folder, others = _files_of(problem)
    payload: bytes | None = None
    if isinstance(problem.evaluate, RepositoryEvaluator):
        payload, reference = _repository_of(problem.evaluate)
    elif folder is None:
        payload = _pickled(problem)
        reference = Reference("object", sha256(payload).hexdigest())
    elif folder.parent == BENCHMARKS:
        reference = Reference("benchmark", folder.name)
    else:
        sent = bundle(folder, others)
        payload, reference = sent.archive, Reference("folder", sent.digest, sent.folder)
    setting = Setting(
        name=problem.name,
        reference=reference,
        fingerprint=known_part(problem.fingerprint),
        limits=problem.limits,
        layer=layer_of(problem),
        interpreter=problem.interpreter,
    )
    return setting, payload


def _files_of(problem: Problem) -> tuple[Path | None, tuple[Path, ...]]:
    """The folder of a problem, None if it has none, and files elsewhere that its evaluator uses."""
    match problem.scorer, problem.evaluate:
        case FolderFunction(folder=folder, imports=imports), _:
            return folder, tuple(Path(str(each.__file__)) for each in imports)
        case _, FolderEvaluator(evaluator=evaluator):
            return evaluator.folder, tuple(evaluator.shown())
    return None, ()


def _repository_of(evaluator: RepositoryEvaluator) -> tuple[bytes, Reference]:
    """The files of a repository, as they were when the problem was loaded.

    Raises:
        ValueError: If one of them has changed, or they are too large to send.
    """
    repository, base = evaluator.base.repository, evaluator.base
    try:
        sent = repository_bundle(evaluator.folder, repository)
        is_same = files_hash(repository.root, base.paths, repository.links) == base.digest
    except OSError:  # one was removed, or replaced by a link
        is_same = False
    if not is_same:
        raise ValueError(
            f"{repository.root}: its files have changed since the problem was loaded; expected"
            " them to stay until they are sent to workers"
        )
    return sent.archive, Reference("repository", sent.digest)


def _pickled(problem: Problem) -> bytes:
    """A problem that was given as an object, as bytes.

    Raises:
        ValueError: If it cannot be pickled, or refers to what no worker can import.
    """
    described: dict[str, Any] = {
        name: model_descriptions(getattr(problem, name)) for name in MODELS
    }
    plain = replace(problem, **NOT_SENT, **described)
    pickler = importlib.import_module(CLOUDPICKLE) if find_spec(CLOUDPICKLE) else pickle
    try:
        pickled: bytes = pickler.dumps(plain)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"problem {problem.name!r} cannot be sent to workers: {error}; expected functions of a"
            " module, or a problem folder"
        ) from None
    if pickler is pickle and b"__main__" in pickled:
        raise ValueError(
            f"problem {problem.name!r} cannot be sent to workers: it has functions of the main"
            " script; expected functions of a module, cloudpickle installed, or a problem folder"
        )
    return pickled

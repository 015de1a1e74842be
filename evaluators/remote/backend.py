"""Evaluates the programs of one problem with an engine; repeats evaluations of lost workers."""

from __future__ import annotations

import pickle
from concurrent.futures import Executor
from dataclasses import fields, replace
from threading import Lock
from time import monotonic

from costada.evaluators.granted_models import SendableModels
from costada.evaluators.problem import Problem, gpu_note
from costada.evaluators.remote.engine import (
    ALL_WORKERS,
    IN_PROCESS,
    Call,
    Engine,
    ExecutorEngine,
    Outcome,
    Resources,
    checked_address,
    endpoint_place,
    shared_engine,
)
from costada.evaluators.remote.task import (
    NOT_SENT,
    Answer,
    Setting,
    Task,
    code_version,
    setting_of,
)
from costada.evaluators.remote.worker import answer
from costada.evaluators.sandbox.concurrency import CANCELLED, is_cancelled
from costada.evaluators.sandboxed import Confined
from costada.values.candidate import Program
from costada.values.evaluation import SANDBOX, WORKER, Evaluation

POLL_SECONDS = 0.2
"""Maximum time until a waiting thread notices a cancellation."""

CHECK_SECONDS = 5.0
"""How often a waiting thread checks that the engine still has a worker for its evaluation."""

PATIENCE_SECONDS = 60.0
"""How long an evaluation waits while no worker can take it."""

MAX_LOST = 3
"""Workers that may be lost to one evaluation."""


class EngineBackend:
    """Evaluates programs in the workers of an engine; an `EvaluationBackend`.

    Attributes:
        engine: The engine.
    """

    def __init__(self, engine: Engine, endpoint: str | None = None) -> None:
        """Take the engine.

        Args:
            engine: The engine.
            endpoint: Where its workers reach the models of this process, as `HOST` or `HOST:PORT`;
                None for the address that the engine knows.

        Raises:
            ValueError: The endpoint is not such an address.
        """
        self.engine = engine
        self._endpoint = endpoint_place(endpoint) if endpoint else None
        self._lock = Lock()
        self._known: tuple[Problem, Setting, bytes | None] | None = None

    @property
    def name(self) -> str:
        """The engine's name for users."""
        return self.engine.name

    def evaluate(
        self,
        problem: Problem,
        program: Program,
        key: str,
        incumbent: float | None,
        rival: tuple[float, ...] = (),
        models: SendableModels | None = None,
    ) -> Evaluation:
        """A worker's evaluation; its artifacts name the worker and its sandbox layer.

        Raises:
            InterruptedError: If the evaluation was cancelled.
            ValueError: If a worker refuses the problem, with the reason.
            OSError: If there are no workers any more, or several were lost to the program.
            Exception: What the problem's own `evaluate` raises.
        """
        setting, payload = self._sent(problem)
        sent = models.for_worker(*self.place_of_models()) if models else None
        pickled = pickle.dumps(Task(setting, program, key, incumbent, rival, sent))
        needs = _needs(problem)
        answered = self._answer(needs, pickled, None)
        if answered.evaluation is None:
            answered = self._answer(needs, pickled, payload)
        if answered.evaluation is None:
            raise ValueError(f"worker {answered.worker} could not load problem {problem.name!r}")
        known = {WORKER: answered.worker}
        known |= {SANDBOX: answered.layer.value} if answered.layer else {}
        evaluation = answered.evaluation
        return replace(evaluation, artifacts={**evaluation.artifacts, **known})

    def check(self, problem: Problem) -> str:
        """A note about resources, empty for none; raises as `check_backend` does."""
        self._sent(problem)
        notes = [self.engine.check(_needs(problem))]
        if problem.repeats > 1 and problem.evaluations_at_once is None:
            notes.append(
                f"repeats = {problem.repeats}: evaluations at the same time in workers of one"
                " machine disturb each other's measurements; to make one at a time:"
                " --evaluations-at-once 1"
            )
        return "; ".join(filter(None, notes))

    def place_of_models(self) -> tuple[str, int]:
        """Where workers reach the models of this process; raises `OSError` if nowhere."""
        return self._endpoint or (self.engine.own_host(), 0)

    def _sent(self, problem: Problem) -> tuple[Setting, bytes | None]:
        """A problem's setting and payload, packed once."""
        with self._lock:
            if self._known is None or not _is_sent_alike(self._known[0], problem):
                if isinstance(problem.evaluate, Confined):
                    problem.evaluate.check_sendable()
                self._known = (problem, *setting_of(problem))
            return self._known[1:]

    def _answer(self, needs: Resources, pickled: bytes, payload: bytes | None) -> Answer:
        """The answer of a worker; raises as `evaluate` does."""
        call = Call(answer, (code_version(), pickled, payload), needs)
        num_lost, unreachable = 0.0, ""
        while num_lost < MAX_LOST:
            outcome = self._outcome(call)
            if (error := outcome.error) is not None:
                lost = self.engine.lost(error)
                if lost is None:
                    raise self.engine.cause(error)
                if lost == ALL_WORKERS:
                    raise self._unavailable(f"{type(error).__name__}: {error}")
                num_lost += lost
                continue
            answered = self._read(outcome.value)
            if not (answered.was_cancelled or answered.unreachable):
                return answered
            if is_cancelled():
                raise InterruptedError(CANCELLED)
            num_lost += 1
            unreachable = answered.unreachable or unreachable
        raise OSError(
            unreachable
            or f"evaluate_on: {self.engine.name} lost several workers, one after the other, to the"
            " evaluation of one program, which may kill them; the program has no evaluation and is"
            " evaluated again when the run is resumed"
        )

    def _outcome(self, call: Call) -> Outcome:
        """What a worker returned or raised."""
        try:
            [job] = self.engine.start([call])
        except self.engine.faults as refused:
            raise self._unavailable(f"{type(refused).__name__}: {refused}") from None
        needs = call.needs
        outcome = None
        seen = checked = monotonic()
        try:
            while (outcome := self.engine.poll(job, POLL_SECONDS)) is None:
                if is_cancelled():
                    raise InterruptedError(CANCELLED)
                if (now := monotonic()) - checked >= CHECK_SECONDS:
                    checked = now
                    seen = now if self.engine.has_worker(needs) else seen
                if checked - seen > PATIENCE_SECONDS:
                    raise self._unavailable(
                        f"for {checked - seen:.0f} s, no worker that has cpus = {needs.cpus}, gpus"
                        f" = {needs.gpus:g} and memory_mb = {needs.memory_mb}"
                    )
        finally:
            if outcome is None:
                self.engine.cancel(job)
        return outcome

    def _read(self, answered: bytes) -> Answer:
        """Parse the answer of a worker."""
        try:
            return Answer.from_json(answered)
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"evaluate_on: {self.engine.name} returned {answered[:80]!r}; expected the"
                f" answer of a worker as JSON ({type(error).__name__})"
            ) from None

    def _unavailable(self, reason: str) -> OSError:
        return OSError(
            f"evaluate_on: {self.engine.name} is unavailable ({reason}); the run can be resumed,"
            " also on other workers: --evaluate-on local:N, or here"
        )


def evaluated_by(problem: Problem, given: str | Executor, endpoint: str | None = None) -> Problem:
    """The problem with its programs evaluated by an engine.

    Args:
        problem: The problem.
        given: Address of an engine, an open executor, or `IN_PROCESS`.
        endpoint: See `EngineBackend`.

    Raises:
        ValueError: If it is not such an address, or the engine is not installed.
        OSError: If the engine does not respond.
    """
    if isinstance(given, Executor):
        return replace(problem, backend=EngineBackend(ExecutorEngine(given), endpoint))
    if given == IN_PROCESS:
        return problem
    try:
        engine = shared_engine(checked_address(given))
    except ValueError as error:
        raise ValueError(f"evaluate_on: {error}") from None
    except OSError as error:
        raise OSError(f"evaluate_on: {error}") from None
    return replace(problem, backend=EngineBackend(engine, endpoint))


def check_backend(problem: Problem) -> str:
    """Check, before money is spent, that a problem can be sent to workers.

    Returns:
        A note about resources, empty for none.

    Raises:
        ValueError: If it cannot be sent, or no worker has what it asks for.
        OSError: If there are no workers.
    """
    notes = [gpu_note(problem)]
    if isinstance(problem.backend, EngineBackend):
        notes.append(problem.backend.check(problem))
    elif problem.gpus or problem.cpus > 1:
        notes.append(
            f"cpus = {problem.cpus} and gpus = {problem.gpus:g} of the problem are reserved only by"
            " --evaluate-on dask://HOST:PORT or ray://HOST:PORT"
        )
    return "; ".join(filter(None, notes))


def _is_sent_alike(one: Problem, other: Problem) -> bool:
    """Whether two problems are equal, apart from fields that a check adds."""
    derived = {"evaluate"} if one.score else set()
    # each problem has copies of its examples
    copied = {"examples", "validation"}
    left_out = NOT_SENT.keys() | derived | copied
    return one is other or (
        all(getattr(one, name) == getattr(other, name) for name in copied)
        and all(
            getattr(one, each.name) is getattr(other, each.name)
            for each in fields(Problem)
            if each.init and each.name not in left_out
        )
    )


def _needs(problem: Problem) -> Resources:
    return Resources(problem.cpus, problem.gpus, problem.limits.memory_mb)

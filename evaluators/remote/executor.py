"""The engine of an executor that the caller has opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Any, ClassVar

from costada.evaluators.remote.engine import ALL_WORKERS, Call, Engine, Resources
from costada.evaluators.remote.engine_address import GROUP
from costada.values.plugins import loaded, registered


class ExecutorEngine(Engine):
    """An executor of the caller, which assigns no resources. The caller closes it.

    It may have been made by the client of a cluster for which an engine is registered; its errors
    mean what they mean to that engine.
    """

    losses: ClassVar[Mapping[str, float]] = {
        "concurrent.futures._base.BrokenExecutor": ALL_WORKERS,
    }

    def __init__(self, executor: Executor) -> None:
        """Take an open executor."""
        self.name = type(executor).__name__
        self._executor = executor

    @classmethod
    def loss_of(cls, error: BaseException) -> float | None:
        """As `Engine.loss_of`, also of the registered engines."""
        lost = super().loss_of(error)
        for plugin in registered(GROUP).values():
            if lost is None:
                with suppress(ValueError):  # one that cannot be loaded has made no executor
                    engine = loaded(plugin, type)
                    if issubclass(engine, Engine) and not issubclass(engine, ExecutorEngine):
                        lost = engine.loss_of(error)
        return lost

    def start(self, calls: Sequence[Call]) -> list[Future[Any]]:
        """Submit to the executor; a broken or closed one raises `RuntimeError`."""
        return [self._executor.submit(call.function, *call.arguments) for call in calls]

    def check(self, needs: Resources) -> str:
        """Note which resources are not requested from the executor."""
        if needs.gpus or needs.cpus > 1:
            return (
                f"evaluations: {self.name} is not asked for the problem's cpus = {needs.cpus} and"
                f" gpus = {needs.gpus:g}; its workers must have them"
            )
        return ""

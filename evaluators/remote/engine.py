"""What an engine of evaluations has to do, and what the engines share."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol, cast

GONE = inf
"""Number of lost workers if the engine can evaluate nothing any more."""

KILLED_WORKER = "distributed.scheduler.KilledWorker"


@dataclass(frozen=True, slots=True)
class Resources:
    """What one evaluation needs of a worker: whole cores, GPUs (also a fraction of one), MiB."""

    cpus: int
    gpus: float
    memory_mb: int


class Engine(Protocol):
    """Runs `answer` in workers.

    Attributes:
        name: Its name for users.
        faults: What `submit` raises if nothing can be evaluated there any more.
    """

    name: str
    faults: tuple[type[Exception], ...]

    def check(self, needs: Resources) -> str:
        """A note about resources, empty for none.

        Raises:
            ValueError: If no worker has them.
            OSError: If there are no workers.
        """

    def submit(self, needs: Resources, *args: Any) -> Future[bytes]:
        """Run `answer` with these arguments in a worker that has the resources."""

    def stop(self, future: Future[bytes]) -> None:
        """Cancel what was submitted, as far as the engine can."""

    def lost(self, error: BaseException) -> float | None:
        """How many workers were lost, or `GONE`; None if the evaluation itself raised the error."""

    def raised(self, error: BaseException) -> BaseException:
        """The error that the evaluation raised, from one for which `lost` returns None."""

    def has_worker(self, needs: Resources) -> bool:
        """Whether there is a worker that can be reached and has the resources, free or not."""

    def is_connected(self) -> bool:
        """Whether evaluations can be handed to the engine, now or once it has workers."""

    def close(self) -> None:
        """Release what the engine holds in this process."""


def lost_workers(error: BaseException, losses: Mapping[str, float]) -> float | None:
    """How many workers an error says were lost; None if the evaluation itself raised it.

    `losses` has the number by the full name of an error: its package may not be installed.
    """
    names = [f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__]
    if KILLED_WORKER in names:
        return float(cast(Any, error).allowed_failures + 1)
    return next((losses[name] for name in names if name in losses), None)


def has_resources(offered: Mapping[str, float], wanted: Mapping[str, float]) -> bool:
    """Whether a worker or node offers at least the wanted amount of each resource."""
    return all(offered.get(name, 0.0) >= amount for name, amount in wanted.items())


def imported(module: str, extra: str, engine: str) -> Any:
    """The library of an engine; raises `ValueError` naming its extra if it is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise ValueError(
            f"evaluations is {engine!r}, but {module} is not installed: pip install"
            f" 'costada[{extra}]'"
        ) from None


def unreachable(engine: str, error: BaseException) -> OSError:
    """The error for an engine that does not answer."""
    return OSError(f"evaluations: {engine} does not answer: {error}")

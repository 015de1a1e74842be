"""Evaluations by the workers of a Ray cluster."""

from __future__ import annotations

import importlib
import warnings
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import Any, cast

from costada.evaluators.remote.engine import (
    GONE,
    Resources,
    has_resources,
    imported,
    lost_workers,
    unreachable,
)
from costada.evaluators.remote.worker import answer
from costada.evaluators.sandbox.limits import MEBIBYTE

RAY_LOSSES = {
    "ray.exceptions.WorkerCrashedError": 1,
    "ray.exceptions.NodeDiedError": 1,
    "ray.exceptions.OutOfMemoryError": 1,
    "ray.exceptions.ObjectLostError": 1,
    "ray.exceptions.LocalRayletDiedError": 1,
    "ray.exceptions.TaskCancelledError": 1,
    "ray.exceptions.RaySystemError": GONE,
    "ray.exceptions.RpcError": GONE,
    "grpc.RpcError": GONE,
    "builtins.ConnectionError": GONE,  # of a client that has lost its connection
}


class RayEngine:
    """A Ray cluster."""

    _connected_to = ""
    """The cluster that an engine has connected this process to."""

    def __init__(self, place: str) -> None:
        """Connect to it.

        Raises:
            ValueError: If the extra is not installed.
            OSError: If there is no such cluster, or this process is connected to another one.
        """
        self.name = f"ray://{place}"
        self._ray = imported("ray", "ray", self.name)
        self.faults: tuple[type[Exception], ...] = (
            *(RuntimeError, OSError, self._ray.exceptions.RayError),
            ValueError,  # of a closed channel
        )
        if find_spec("grpc"):  # the client of a cluster elsewhere needs it
            self.faults += (importlib.import_module("grpc").RpcError,)
        # Counts all tasks together and appears once; a user of a run cannot act on it.
        warnings.filterwarnings("ignore", "More than 10MB of messages", UserWarning)
        self._refs: dict[Future[bytes], Any] = {}
        self._connect(place)
        self._answer = self._ray.remote(max_retries=0, max_calls=0)(answer)

    def _connect(self, place: str) -> None:
        """Connect this process, which Ray allows to one cluster; an open connection is used."""
        ours = RayEngine._connected_to
        if self._ray.is_initialized() and not (ours and not self._offers_any()):
            if self.name in (ours, "ray://auto"):
                return
            raise OSError(
                f"evaluations is {self.name!r}, but this process is connected to"
                f" {ours or 'a Ray cluster by other code'}; expected one cluster per process:"
                " ray.shutdown() before, or ray://auto for that cluster"
            )
        self._disconnect()
        try:
            self._ray.init(
                address=place if place == "auto" else self.name,
                log_to_driver=False,
                logging_level="ERROR",
            )
        except self.faults as error:
            raise unreachable(self.name, error) from None
        RayEngine._connected_to = self.name

    def check(self, needs: Resources) -> str:
        """Refuse what no node has."""
        if not self.has_worker(needs):
            text = f"cpus = {needs.cpus}, gpus = {needs.gpus:g}, memory_mb = {needs.memory_mb}"
            raise ValueError(
                f"evaluations is {self.name!r}, where no node has {text}, which the problem asks"
                " for; expected such a node, or lower numbers"
            )
        return ""

    def submit(self, needs: Resources, *args: Any) -> Future[bytes]:
        """Submit a task; a warm worker is used again, also with GPUs."""
        task = self._answer.options(
            num_cpus=needs.cpus, num_gpus=needs.gpus, memory=needs.memory_mb * MEBIBYTE
        )
        ref = task.remote(*args)
        future: Future[bytes] = ref.future()
        self._refs[future] = ref
        future.add_done_callback(partial(self._refs.pop))
        return future

    def stop(self, future: Future[bytes]) -> None:
        """Cancel it, and kill the worker that runs it."""
        if ref := self._refs.get(future):
            with suppress(*self.faults):  # a cluster that is gone runs nothing
                self._ray.cancel(ref, force=True)

    def lost(self, error: BaseException) -> float | None:
        """Workers and nodes that Ray reports as lost."""
        is_raised = isinstance(error, self._ray.exceptions.RayTaskError)
        return None if is_raised else lost_workers(error, RAY_LOSSES)

    def raised(self, error: BaseException) -> BaseException:
        """The cause that Ray's own error wraps."""
        if isinstance(error, self._ray.exceptions.RayTaskError):
            return cast(BaseException, error.cause)
        return error

    def has_worker(self, needs: Resources) -> bool:
        """Whether a node has the resources."""
        wanted = {"CPU": needs.cpus, "GPU": needs.gpus, "memory": needs.memory_mb * MEBIBYTE}
        wanted = {name: amount for name, amount in wanted.items() if amount}
        try:
            return any(has_resources(each, wanted) for each in self._offers())
        except self.faults:
            return False

    def is_connected(self) -> bool:
        """Whether this process is connected to the cluster and the cluster responds."""
        return self.name in (RayEngine._connected_to, "ray://auto") and self._offers_any()

    def close(self) -> None:
        """Close the connection of this process, if it is one to this cluster."""
        if RayEngine._connected_to == self.name:
            self._disconnect()

    def _disconnect(self) -> None:
        """Close the connection that an engine has opened, also a lost one."""
        if RayEngine._connected_to:
            RayEngine._connected_to = ""
            with suppress(*self.faults):  # of a cluster that is gone
                self._ray.shutdown()

    def _offers_any(self) -> bool:
        try:
            return bool(self._ray.is_initialized()) and bool(self._offers())
        except self.faults:
            return False

    def _offers(self) -> list[dict[str, float]]:
        """What each node has."""
        return [each["Resources"] for each in self._ray.nodes() if each["Alive"]]

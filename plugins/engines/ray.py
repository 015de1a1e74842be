"""Evaluations and runs of sweeps on a Ray cluster."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import Any, ClassVar, cast

from costada.evaluators.remote.engine import (
    ALL_WORKERS,
    Call,
    Engine,
    Resources,
    SweepSettings,
    engine_and_place,
    has_resources,
)
from costada.evaluators.sandbox.limits import MEBIBYTE
from costada.values.model_access import LOOPBACK

AUTO = ("", "auto")
"""Places of the cluster that this machine belongs to."""


class RayEngine(Engine):
    """A Ray cluster, at an address `ray://HOST:PORT`, `ray://auto` or `ray://`."""

    losses: ClassVar[Mapping[str, float]] = {
        "ray.exceptions.WorkerCrashedError": 1,
        "ray.exceptions.NodeDiedError": 1,
        "ray.exceptions.OutOfMemoryError": 1,
        "ray.exceptions.ObjectLostError": 1,
        "ray.exceptions.LocalRayletDiedError": 1,
        "ray.exceptions.TaskCancelledError": 1,
        "ray.exceptions.RaySystemError": ALL_WORKERS,
        "ray.exceptions.RpcError": ALL_WORKERS,
        "grpc.RpcError": ALL_WORKERS,
        "builtins.ConnectionError": ALL_WORKERS,  # of a client that has lost its connection
    }
    _connected_to = ""
    """The cluster that an engine has connected this process to."""

    def __init__(self, address: str, settings: SweepSettings | None = None) -> None:
        """Connect to it.

        Raises:
            ValueError: If the extra is not installed.
            OSError: If there is no such cluster, or this process is connected to another one.
        """
        try:
            self._ray = importlib.import_module("ray")
            self._errors = importlib.import_module("ray.exceptions")
        except ModuleNotFoundError:
            raise ValueError(f"{address}: needs the extra: pip install 'costada[ray]'") from None
        is_here = engine_and_place(address)[1] in AUTO
        self.name = "ray://auto" if is_here else address
        self.faults = (
            *(RuntimeError, OSError, self._errors.RayError),
            ValueError,  # of a closed channel
        )
        if find_spec("grpc"):  # the client of a cluster elsewhere needs it
            self.faults += (importlib.import_module("grpc").RpcError,)
        # Counts all tasks together and appears once; a user of a run cannot act on it.
        warnings.filterwarnings("ignore", "More than 10MB of messages", UserWarning)
        self._refs: dict[Future[Any], Any] = {}
        self._connect("auto" if is_here else address)
        # Ray must not retry: whoever submits a call counts lost workers and repeats it.
        self._called = self._ray.remote(max_retries=0, max_calls=0)(_called)

    def _connect(self, address: str) -> None:
        """Connect this process, which Ray allows to one cluster; an open connection is used."""
        ours = RayEngine._connected_to
        # A connection of ours to a cluster that is gone is closed below and opened again.
        if self._ray.is_initialized() and not (ours and not self._offers_any()):
            if self.name in (ours, "ray://auto"):
                return
            raise OSError(
                f"{self.name}: this process is connected to {ours or 'a cluster by other code'},"
                " and Ray allows one cluster per process: ray.shutdown() before, or ray://auto for"
                " that cluster"
            )
        self._disconnect()
        try:
            self._ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except self.faults as error:
            raise OSError(f"{self.name}: no Ray cluster responds there ({error})") from None
        RayEngine._connected_to = self.name

    def check(self, needs: Resources) -> str:
        """Refuse what no node has."""
        if not self.has_worker(needs):
            text = f"cpus = {needs.cpus}, gpus = {needs.gpus:g}, memory_mb = {needs.memory_mb}"
            raise ValueError(
                f"evaluate_on is {self.name!r}, where no node has {text}, which the problem asks"
                " for; expected such a node, or lower numbers"
            )
        return ""

    def start(self, calls: Sequence[Call]) -> list[Future[Any]]:
        """Submit tasks; a warm worker is used again, also with GPUs."""
        return [self._started(call) for call in calls]

    def _started(self, call: Call) -> Future[Any]:
        needs = call.needs
        task = self._called.options(
            name=getattr(call.function, "__name__", type(call.function).__name__),
            num_cpus=needs.cpus,
            num_gpus=needs.gpus,
            memory=needs.memory_mb * MEBIBYTE or None,
        )
        ref = task.remote(call.function, *call.arguments)
        future: Future[Any] = ref.future()
        # A call is cancelled by its reference.
        self._refs[future] = ref
        future.add_done_callback(partial(self._refs.pop))
        return future

    def cancel(self, *jobs: Future[Any]) -> None:
        """Cancel them, and kill the workers that execute them."""
        for job in jobs:
            if ref := self._refs.get(job):
                with suppress(*self.faults):  # a cluster that is lost executes nothing
                    self._ray.cancel(ref, force=True)

    def lost(self, error: BaseException) -> float | None:
        """Workers and nodes that Ray reports as lost."""
        # Ray gives this error the class of its cause as well: a ConnectionError of an evaluator
        # would look like a lost cluster.
        is_raised = isinstance(error, self._errors.RayTaskError)
        return None if is_raised else super().lost(error)

    def cause(self, error: BaseException) -> BaseException:
        """The cause that Ray's own error wraps."""
        if isinstance(error, self._errors.RayTaskError):
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

    def own_host(self) -> str:
        """The address that this machine has in the cluster, if there are others in it."""
        if self.name != "ray://auto":
            return super().own_host()
        others = {each["NodeManagerAddress"] for each in self._ray.nodes() if each["Alive"]}
        own = str(self._ray.util.get_node_ip_address())
        return own if others - {own} else LOOPBACK

    def close(self) -> None:
        """Close the connection of this process, if it is one to this cluster."""
        if RayEngine._connected_to == self.name:
            self._disconnect()

    def _disconnect(self) -> None:
        """Close the connection that an engine has opened, also a lost one."""
        if RayEngine._connected_to:
            RayEngine._connected_to = ""
            with suppress(*self.faults):  # of a cluster that is lost
                self._ray.shutdown()

    def _offers_any(self) -> bool:
        try:
            return bool(self._ray.is_initialized()) and bool(self._offers())
        except self.faults:
            return False

    def _offers(self) -> list[dict[str, float]]:
        """What each node has."""
        return [each["Resources"] for each in self._ray.nodes() if each["Alive"]]


def _called(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)

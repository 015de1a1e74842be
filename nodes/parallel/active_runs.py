"""The runs of one execution of a graph, and what happens to them when it is aborted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphBubbleUp

from costada.nodes.calls.purse_charges import close_account
from costada.nodes.context import RunContext
from costada.nodes.parallel.pool import pool_of
from costada.nodes.state import SearchState
from costada.store.lease import Lease, LostLease, guarded_by

ACTIVE_RUNS = "__costada_runs"
"""Key of a configuration: the runs that it executes."""


@dataclass(slots=True)
class ActiveRuns:
    """The runs of one execution of a graph.

    Where other machines can reach the store, this process holds the thread while it executes it,
    and as long as a run has calls in flight: another process would pay for them again.

    Attributes:
        lease: The lease of the thread, `None` where no other machine can execute it.
        contexts: The contexts of the runs by their ids.
        is_aborted: Whether the execution has neither ended nor asked its caller.
        context: What its caller chose, as routes read it; nodes get it from their runtime.
    """

    lease: Lease | None = None
    contexts: dict[str, RunContext] = field(default_factory=dict)
    is_aborted: bool = True
    context: RunContext | None = None

    @contextmanager
    def noting_end(self) -> Iterator[None]:
        """Note whether the block ends, or asks its caller; otherwise the runs are aborted."""
        try:
            yield
        except GraphBubbleUp:
            self.is_aborted = False
            raise
        self.is_aborted = False

    def abort(self) -> None:
        """Cancel the evaluations, and return to the purses of the runs what they did not spend.

        Calls in flight end by themselves, are stored and reported. A run that is resumed evaluates
        again, and draws its budget again. If another process has taken over the thread, or the
        server cannot be asked, the account in the purse is not changed.
        """
        for run_id, context in self.contexts.items():
            pool_of(context.store, run_id).cancel()
        with suppress(LostLease), guarded_by(self.lease):
            if self._is_held():
                for run_id, context in self.contexts.items():
                    close_account(run_id, context)

    def _is_held(self) -> bool:
        """Whether this process still holds the thread; a purse in another database cannot check it.

        Raises:
            LostLease: Another process has taken it over.
        """
        if self.lease is None:
            return True
        try:
            confirm(self.lease)
        except OSError:
            return False
        return True

    def release(self) -> None:
        """End the execution; the thread is free when the last call in flight has ended."""
        if self.lease is None:
            return
        for run_id, context in self.contexts.items():
            self.lease.holder.share(self.lease)
            pool_of(context.store, run_id).when_settled(self.lease.release)
        self.lease.release()


def confirm(lease: Lease) -> None:
    """Ask the server whether a lease is held, where something is written that does not check it.

    Raises:
        LostLease: Another process has taken it over.
        OSError: The server cannot be reached.
    """
    try:
        lease.holder.renew()
    except OSError:
        lease.holder.renew()  # on another connection, as the first one was cut
    lease.check()


def register_run(state: SearchState, config: RunnableConfig, context: RunContext) -> bool:
    """Note in the configuration that it executes the run of a state; whether that is new."""
    runs, run = config.get("configurable", {}).get(ACTIVE_RUNS), state.get("run")
    if run is None or runs is None or run.id in runs.contexts:
        return False
    runs.contexts[run.id] = context
    return True

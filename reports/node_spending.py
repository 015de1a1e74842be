"""What each node of a run has spent: dollars by the ledger, seconds by the clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from costada.store.run_store import RunStore

if TYPE_CHECKING:
    from costada.runs.folder import RunFolder


CALLING_NODES = {"guide": "guide"}
OTHER_CALLS = "generate"
"""Calls of every role but the guide's are made by this node."""


@dataclass(frozen=True, slots=True)
class NodeSpending:
    """What a node has spent; `seconds` is `None` if its run was not timed."""

    dollars: Decimal = Decimal(0)
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class RunSpending:
    """What a run has spent, by node; a node that is not named has spent nothing.

    Attributes:
        iterations: How many have ended.
        nodes: By the name of the node.
    """

    iterations: int
    nodes: Mapping[str, NodeSpending]

    @property
    def dollars(self) -> Decimal:
        """Dollars of all nodes: what the run's ledger says."""
        return sum((node.dollars for node in self.nodes.values()), Decimal(0))

    @property
    def seconds(self) -> float | None:
        """Seconds of all nodes, `None` if the run was not timed."""
        known = [node.seconds for node in self.nodes.values() if node.seconds is not None]
        return sum(known) if known else None

    @property
    def dearest(self) -> Decimal:
        """Dollars of the node that has spent the most, 0 if none has."""
        return max((node.dollars for node in self.nodes.values()), default=Decimal(0))

    @property
    def slowest(self) -> float:
        """Seconds of the node that has taken the longest, 0 if the run was not timed."""
        return max((node.seconds or 0.0 for node in self.nodes.values()), default=0.0)

    def of(self, node: str) -> NodeSpending:
        """Return what a node has spent."""
        return self.nodes.get(node, NodeSpending(seconds=None if self.seconds is None else 0.0))


def spending_of_folder(folder: RunFolder) -> RunSpending:
    """Return what the run in a folder has spent so far, also while it is at work.

    Requests whose bill is unknown count as the run's settings say.

    Raises:
        ValueError: If the folder holds no run, or its run has not begun.
    """
    config = folder.load()
    if not folder.database.is_file():
        raise ValueError(f"{folder.path}: its run has not begun (no {folder.database.name} in it)")
    with RunStore(folder.database, is_read_only=True) as store:
        run_ids = store.run_ids()
        if not run_ids:
            raise ValueError(
                f"{folder.path}: its run has not begun ({folder.database.name} is empty)"
            )
        nodes = spending_by_node(store, run_ids[-1], counts_lost=config.lost_calls == "count")
        iterations = len(store.steps(run_ids[-1]))
    return RunSpending(iterations, nodes)


def spending_by_node(
    store: RunStore, run_id: str, *, counts_lost: bool = True
) -> dict[str, NodeSpending]:
    """Return what each node that was timed or made a call has spent.

    Args:
        store: Where the run is kept.
        run_id: The run.
        counts_lost: Whether requests whose bill is unknown count at their upper bound.
    """
    seconds = store.timing.by_node(run_id)
    dollars: dict[str, Decimal] = {}
    for call in store.call_log.calls(run_id, with_texts=False):
        node = CALLING_NODES.get(call.role, OTHER_CALLS)
        cost = call.cost + (call.bound if counts_lost else Decimal(0))
        dollars[node] = dollars.get(node, Decimal(0)) + cost
    return {
        node: NodeSpending(dollars.get(node, Decimal(0)), seconds.get(node))
        for node in {**seconds, **dollars}
    }

"""How long the nodes of a run took, one small row per iteration."""

import json
from collections.abc import Mapping

from costada.store.bounds import record
from costada.store.database import Database


class TimingTable:
    """Seconds of every node, by iteration.

    They are no part of the trace: two runs that do the same need not take the same time.
    """

    def __init__(self, database: Database) -> None:
        self._db = database

    def put(self, run_id: str, iteration: int, seconds: Mapping[str, float]) -> None:
        """Store the seconds that each node took in an iteration, rounded to microseconds."""
        rounded = {node: round(value, 6) for node, value in seconds.items()}
        self._db.write(
            "INSERT OR REPLACE INTO costada_timing VALUES (?, ?, ?)",
            (run_id, iteration, json.dumps(rounded, separators=(",", ":"))),
        )

    def steps(self, run_id: str) -> list[tuple[int, dict[str, float]]]:
        """Return iteration and seconds by node, in order; none for a run that was not timed.

        An iteration counts what was bought for it before it began, as its step cost does.
        """
        found = self._db.rows(
            "SELECT iteration, seconds FROM costada_timing WHERE run_id = ? ORDER BY iteration",
            (run_id,),
        )
        return [(iteration, record(seconds)) for iteration, seconds in found]

    def by_node(self, run_id: str) -> dict[str, float]:
        """Return the seconds that each node took in the whole run; empty if it was not timed."""
        totals: dict[str, float] = {}
        for _, seconds in self.steps(run_id):
            for node, value in seconds.items():
                totals[node] = totals.get(node, 0.0) + value
        return totals

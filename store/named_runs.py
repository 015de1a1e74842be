"""The runs of a Postgres database by name, with their settings."""

from dataclasses import dataclass
from time import time

from costada.store.database import Database


@dataclass(frozen=True, slots=True)
class NamedRun:
    """A name in a database: its run, once that has begun, and when the name was taken.

    `run_id` is empty before the run begins; `claimed_at` counts seconds since 1970 UTC. `last` is
    the last iteration that has ended.
    """

    name: str
    run_id: str
    claimed_at: float
    last: int


class NamedRuns:
    """Names that are taken once, and the settings of their runs: in place of a folder."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def claim(self, name: str, settings: str) -> bool:
        """Take a name for a new run with these settings; false if it is taken."""
        with self._db.transaction(is_durable=True):
            return bool(
                self._db.rows(
                    "INSERT INTO costada_named (name, settings, run_id, claimed_at)"
                    " VALUES (?, ?, '', ?) ON CONFLICT (name) DO NOTHING RETURNING name",
                    (name, settings, time()),
                )
            )

    def is_thread(self, name: str) -> bool:
        """Whether a graph has saved checkpoints in a thread of this name."""
        return bool(self._threads("WHERE thread_id = ? LIMIT 1", name))

    def taken(self) -> set[str]:
        """All names that no new run can have: those of runs, and of the threads of graphs."""
        return {each.name for each in self.all()} | self._threads()

    def _threads(self, condition: str = "", *values: str) -> set[str]:
        if self._db.rows("SELECT to_regclass('checkpoints') IS NULL") == [(True,)]:
            return set()  # no saver was ever opened
        found = self._db.rows(f"SELECT DISTINCT thread_id FROM checkpoints {condition}", values)  # noqa: S608
        return {str(thread) for (thread,) in found}

    def settings(self, name: str) -> str | None:
        """The settings of a run, `None` if there is none of that name."""
        found = self._db.rows("SELECT settings FROM costada_named WHERE name = ?", (name,))
        return str(found[0][0]) if found else None

    def save(self, name: str, settings: str) -> None:
        """Replace the settings of a run."""
        self._db.rows("UPDATE costada_named SET settings = ?2 WHERE name = ?1", (name, settings))

    def last_row(self, name: str) -> str | None:
        """The trace row of a run's last iteration as JSON, `None` before the first has ended."""
        found = self._db.rows(
            "SELECT row FROM costada_step WHERE run_id ="
            " (SELECT run_id FROM costada_named WHERE name = ?) ORDER BY iteration DESC LIMIT 1",
            (name,),
        )
        return str(found[0][0]) if found else None

    def all(self, name: str | None = None) -> list[NamedRun]:
        """All names in the order in which they were taken, or only one."""
        found = self._db.rows(
            "SELECT name, run_id, claimed_at, COALESCE((SELECT MAX(iteration) FROM costada_step"
            " WHERE costada_step.run_id = costada_named.run_id), 0) FROM costada_named"
            " WHERE name = COALESCE(?1, name) ORDER BY claimed_at, name",
            (name,),
        )
        return [NamedRun(*row) for row in found]

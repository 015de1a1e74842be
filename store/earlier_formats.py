"""Formats of earlier versions, and what makes the next format of each.

`MIGRATIONS` has one function for each earlier format, in the order of their numbers. It changes the
tables by statements that SQLite and Postgres both understand, within a transaction of its caller,
and names what changes the state in a checkpoint. A new format adds a function, and a fixture to
`tests/formats`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from costada.store.earlier_states import State, state_of_5
from costada.store.rows import record
from costada.store.schema import FORMAT

Execute = Callable[[str, Sequence[object]], list[tuple[Any, ...]]]
"""Runs a statement with `?` for values, and returns its rows."""


class Migration(NamedTuple):
    """What makes the next format of one: of its tables, and of the state in a checkpoint."""

    change_tables: Callable[[Execute], None]
    changed_state: Callable[[State], State]


def migrate_tables(found: int, execute: Execute) -> None:
    """Change tables of an earlier format to those of this version, within a transaction.

    Raises:
        ValueError: A row is not what that format has.
    """
    for number in range(found, FORMAT):
        MIGRATIONS[number].change_tables(execute)
    execute("UPDATE costada_format SET version = ?", (FORMAT,))


def migrated_checkpoint(found: int, checkpoint: Mapping[str, Any]) -> dict[str, Any] | None:
    """A checkpoint of an earlier format with the state of this version; `None`: it stays as it is.

    A key that is new gets the newest version of the others: no node has seen it, or waits for it.
    """
    before = checkpoint["channel_values"]
    state = before
    for number in range(found, FORMAT):
        state = MIGRATIONS[number].changed_state(state)
    if state is before:
        return None
    versions = checkpoint["channel_versions"]
    newest = max(versions.values())
    dropped = before.keys() - state.keys()
    kept = {key: version for key, version in versions.items() if key not in dropped}
    changed = {key: newest for key in state if key not in kept or state[key] != before.get(key)}
    return {**checkpoint, "channel_values": state, "channel_versions": {**kept, **changed}}


def can_migrate(found: object) -> bool:
    """Whether a format is an earlier one that this version can upgrade."""
    return type(found) is int and found in MIGRATIONS


def _to_5(execute: Execute) -> None:
    """Tell tickets and iterations apart, and name entries of purses and models that were disabled.

    Format 4 called both numbers `iteration`. A candidate that migrated had that of its migration.
    """
    for table, column in (
        ("candidate", "iteration"),
        ("call", "iteration"),
        ("outcome", "iteration"),
        ("landing", "number"),
    ):
        execute(f"ALTER TABLE costada_{table} RENAME COLUMN {column} TO ticket", ())
    execute("ALTER TABLE costada_candidate ADD COLUMN iteration BIGINT", ())
    execute("DROP INDEX IF EXISTS costada_candidate_by_iteration", ())
    for run_id, name, text in execute("SELECT run_id, id, facts FROM costada_candidate", ()):
        facts = record(text)
        number, is_copy = facts.pop("iteration"), facts.pop("is_copy")
        migrated_in = number if is_copy else None
        # An id begins with the ticket that made the candidate, or the original of a copy.
        ticket = int(name.partition(".")[0])
        changed = json.dumps({**facts, "ticket": ticket, "migrated_in": migrated_in})
        execute(
            "UPDATE costada_candidate SET ticket = ?, iteration = ?, facts = ?"
            " WHERE run_id = ? AND id = ?",
            (ticket, migrated_in, changed, run_id, name),
        )
    for run_id, iteration, text in execute(
        "SELECT run_id, iteration, row FROM costada_step WHERE row LIKE '%put_aside%'", ()
    ):
        row = record(text)
        row["events"] = [each.replace("put_aside:", "disabled:", 1) for each in row["events"]]
        for model in row.get("router", ()):
            model["is_disabled"] = model.pop("is_put_aside")
        execute(
            "UPDATE costada_step SET row = ? WHERE run_id = ? AND iteration = ?",
            (json.dumps(row), run_id, iteration),
        )
    # Accounts of runs are named by the 32 digits of their id; those of agents keep their keys.
    execute(
        "UPDATE costada_entry SET key = 'ticket ' || substr(key, 11) WHERE key LIKE 'iteration %'"
        " AND account IN (SELECT id FROM costada_account WHERE length(name) = 32)",
        (),
    )


MIGRATIONS: Mapping[int, Migration] = {4: Migration(_to_5, state_of_5)}
"""By the format that each begins from."""

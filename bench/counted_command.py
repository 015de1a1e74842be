"""The `costada` command, which counts what it does: `python counted_command.py FILE COMMAND ...`.

At the end it writes a JSON list into the file: an object with the time (`time.time`) and the counts
so far, for each iteration that was stored.
"""

import json
import resource
import sqlite3
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from pathlib import Path
from typing import Any

STORED_STEP = "INSERT OR REPLACE INTO costada_step "
counts = Counter[str]()
snapshots: list[dict[str, float]] = []


def count_calls(owner: type, method: str, name: str) -> None:
    """Count the calls of a method under a name."""
    original = getattr(owner, method)

    @wraps(original)
    def counted(*given: Any, **named: Any) -> Any:
        counts[name] += 1
        return original(*given, **named)

    setattr(owner, method, counted)


def count_statement(statement: str) -> None:
    """Count a statement of SQLite; one that stores an iteration takes a snapshot."""
    counts["statements"] += 1
    counts["commits"] += statement == "COMMIT"
    if statement.startswith(STORED_STEP):
        # Voluntary switches only: others come from what else the machine does.
        counts["switches"] = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
        snapshots.append({"time": time.time(), **counts})


class CountedConnection(sqlite3.Connection):
    """A connection that counts its statements."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.set_trace_callback(count_statement)


def main() -> None:
    """Run the command and write what was counted."""
    file, *words = sys.argv[1:]
    count_calls(threading.Thread, "start", "threads")
    count_calls(ThreadPoolExecutor, "submit", "hand-offs")
    connect = sqlite3.connect
    sqlite3.connect = lambda *given, **named: connect(*given, factory=CountedConnection, **named)  # type: ignore[assignment]
    sys.argv = ["costada", *words]

    from costada.cli.entry import main as command

    try:
        command()
    finally:
        Path(file).write_text(json.dumps(snapshots))


if __name__ == "__main__":
    main()

"""What the requests of a stored run have cost, noted in a file beside its other files.

A database that was restored, or a standby that has taken over, may lack requests that were sent and
billed. The file on the machine that sent them says how many there were and what they can have cost.
"""

import json
from decimal import Decimal
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from costada.store.files import read_text, replace_text
from costada.store.rows import amount, record
from costada.values.usage import exactly

Request = tuple[str, int, str, int, int]
"""Run, ticket, role and attempt of a call, and the number of a request of it."""


class Requests(NamedTuple):
    """The requests of a run, and the most dollars that they can have cost together."""

    run_id: str
    number: int
    dollars: Decimal


class RequestMarker:
    """Keeps the file up to date while a process works on the run; threads may share it."""

    def __init__(self, path: Path, known: Requests) -> None:
        """Begin with the requests that the database has."""
        self._path = path
        self._known = known
        self._lock = Lock()
        if known.number:
            self._add(0, Decimal(0))
        self._begun: dict[Request, Decimal] = {}

    def begin(self, request: Request, bound: Decimal) -> None:
        """Note a request before it is sent; raises `OSError` if the file cannot be written."""
        with self._lock:
            if request[0] != self._known.run_id:
                self._known = Requests(request[0], 0, Decimal(0))
            self._begun[request] = bound
            self._add(1, bound)

    def end(self, request: Request, dollars: Decimal) -> None:
        """Note what a request can have cost at most, now that it has ended."""
        with self._lock:
            if request in self._begun:
                self._add(0, dollars - self._begun.pop(request))

    @exactly
    def _add(self, number: int, dollars: Decimal) -> None:
        run_id, before, spent = self._known
        self._known = Requests(run_id, before + number, spent + dollars)
        facts = self._known._asdict() | {"dollars": f"{self._known.dollars:f}"}
        replace_text(self._path, json.dumps(facts))


def noted_requests(path: Path) -> Requests | None:
    """The requests that were sent from this machine, `None` without a file or in an empty one.

    Raises:
        ValueError: The file is damaged.
    """
    try:
        if not (text := read_text(path)):  # after a power failure
            return None
        facts = record(text)
        return Requests(str(facts["run_id"]), int(facts["number"]), amount(facts["dollars"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: is damaged ({error}); remove it to resume without it") from error

"""What each request of a run can have cost, noted in a file beside its other files.

An older copy of a run file, a database that was restored, or a standby that has taken over may lack
requests that were sent and billed. The file on the machine that sent them has them.
"""

import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from costada.store.files import append_text, read_text, replace_text
from costada.store.rows import amount, parse_json

MAX_NOTES = 2**30
"""Bytes of the file: some 200 for each request."""


class Request(NamedTuple):
    """A request of a call: run, ticket, role and attempt of the call, and its number within it."""

    run_id: str
    ticket: int
    role: str
    attempt: int
    number: int


class RequestNote(NamedTuple):
    """What is known of a request.

    Attributes:
        dollars: The most that it can have cost.
        is_open: Whether it was sent and has not ended.
        gateway: The journal of the gateway that it went through, empty without one.
    """

    dollars: Decimal
    is_open: bool
    gateway: str


class RequestMarker:
    """Keeps the file up to date while a process works on the run; threads may share it."""

    def __init__(self, path: Path, known: Mapping[Request, RequestNote]) -> None:
        """Begin with the requests that the run has."""
        self._path = path
        if known:
            replace_text(path, "".join(_line(*each) for each in known.items()))

    def note(self, request: Request, note: RequestNote, replaced: int | None = None) -> None:
        """Note a request before it is sent, and when it has ended.

        Args:
            request: Which.
            note: What is known of it now.
            replaced: Number of an earlier request of the call in whose place it comes.

        Raises:
            OSError: The file cannot be written.
        """
        gone = "" if replaced is None else _line(request._replace(number=replaced), None)
        # One write, so that several threads and a kill leave whole lines.
        append_text(self._path, gone + _line(request, note))


def _line(request: Request, note: RequestNote | None) -> str:
    facts = note and (f"{note.dollars:f}", note.is_open, note.gateway)
    return f"{json.dumps([*request, facts])}\n"


def noted_requests(path: Path) -> dict[Request, RequestNote]:
    """The requests of the run that last sent one from this machine; none without a file.

    Raises:
        ValueError: The file is damaged.
    """
    found: dict[Request, RequestNote] = {}
    try:
        whole_lines, _, _ = read_text(path, MAX_NOTES).rpartition("\n")  # power may have cut it
        for line in whole_lines.splitlines():
            run_id, ticket, role, attempt, number, facts = parse_json(line)
            request = Request(str(run_id), int(ticket), str(role), int(attempt), int(number))
            found.pop(request, None)
            if facts:
                dollars, is_open, gateway = facts
                found[request] = RequestNote(amount(dollars), bool(is_open), str(gateway))
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: is damaged ({error}); remove it to resume without it") from error
    last = next(reversed(found), None)
    return {each: note for each, note in found.items() if last and each.run_id == last.run_id}

"""The box for ideas on a live page: what waits in a run, and what a reader adds."""

from __future__ import annotations

import json
from email.message import Message
from http import HTTPStatus
from io import BufferedIOBase
from typing import Any

from costada.store.address import StorePlace, is_there
from costada.store.run_store import RunStore
from costada.store.user_inputs import MAX_WAITING, TOO_MANY, InputKind, checked_idea

MAX_BODY = 2**15
"""Bytes of a request with an idea, more than the longest idea has in any spelling."""

KEY = "idea"
NOT_STARTED = "the run has not started"


class BadRequest(Exception):
    """A request that is refused: its status, and the reason as its text."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def waiting(database: StorePlace) -> dict[str, object]:
    """The inputs that wait for a step of a run, oldest first, in JSON types; none before it begins.

    Of a program only the number is shown. Raises as `RunStore` does.
    """
    if not is_there(database):
        return {"waiting": []}
    with RunStore.at(database, is_read_only=True) as store:
        run_ids = store.run_ids()
        found = store.inputs.waiting(run_ids[-1]) if run_ids else []
    return {
        "waiting": [
            {
                "number": each.number,
                "kind": each.kind.value,
                "idea": each.text if each.kind is InputKind.TACTIC else None,
            }
            for each in found
        ]
    }


def read_idea(headers: Message, body: BufferedIOBase) -> object:
    """The idea that a request holds as JSON: `{"idea": TEXT}`.

    Raises:
        BadRequest: It is not JSON of this form, too large, or does not say how large it is.
    """
    if headers.get_content_type() != "application/json":
        raise BadRequest(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "expected application/json")
    length = headers.get("Content-Length", "")
    if not (length.isascii() and length.isdigit()):
        raise BadRequest(HTTPStatus.LENGTH_REQUIRED, "expected a Content-Length")
    if len(length) > len(str(MAX_BODY)) or int(length) > MAX_BODY:
        raise BadRequest(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"expected at most {MAX_BODY:,} bytes"
        )
    try:
        known: Any = json.loads(body.read(int(length)))
    except (ValueError, RecursionError):
        raise BadRequest(HTTPStatus.BAD_REQUEST, "expected JSON") from None
    if not isinstance(known, dict) or known.keys() != {KEY}:
        raise BadRequest(HTTPStatus.BAD_REQUEST, f'expected {{"{KEY}": TEXT}}')
    return known[KEY]


def add_idea(database: StorePlace, idea: object) -> int:
    """Put an idea into a run and return its number.

    Raises:
        BadRequest: The idea is refused, the run has not started, or too many inputs wait in it.
        ValueError: The run file is damaged.
        OSError: The run file cannot be written.
    """
    try:
        text = checked_idea(idea)
    except ValueError as error:
        raise BadRequest(HTTPStatus.BAD_REQUEST, str(error)) from None
    if not is_there(database):
        raise BadRequest(HTTPStatus.CONFLICT, NOT_STARTED)
    with RunStore.at(database) as store:
        if not (run_ids := store.run_ids()):
            raise BadRequest(HTTPStatus.CONFLICT, NOT_STARTED)
        if len(store.inputs.waiting(run_ids[-1])) >= MAX_WAITING:
            raise BadRequest(HTTPStatus.CONFLICT, TOO_MANY)
        return store.inputs.put_idea(run_ids[-1], text)

"""A webhook that hears of each alert of an index of runs once."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from threading import Event, Thread
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import httpx

from costada.reports.run_index import RunIndex

LOOK_SECONDS = 5.0
"""Time between two looks at the runs."""

TIMEOUT_SECONDS = 10.0
RETRY_SECONDS = (1.0, 10.0)
"""Waits before the further attempts of a webhook."""

END_SECONDS = 1.0
"""How long the end waits for a request that is under way."""

JSON_HEADERS = {"Content-Type": "application/json"}
FACTS = ("problem", "method", "model", "state", "spent", "budget", "since_gain", "hourly", "best")


class Webhook:
    """An address that gets JSON by POST.

    Path and query of the address are secret: they are in no message.
    """

    def __init__(self, address: str, waits: Sequence[float] = RETRY_SECONDS) -> None:
        """Take the address, and the seconds before each further attempt.

        Raises:
            ValueError: It is not an http:// or https:// address.
        """
        try:
            parts = urlsplit(address)
            host = parts.hostname
        except ValueError:
            parts, host = urlsplit(""), None
        if parts.scheme not in ("http", "https") or not host:
            raise ValueError("--alert-webhook: expected an address http://HOST/... or https://...")
        self.shown = f"{parts.scheme}://{host}"
        self._address, self._waits = address, waits
        logging.getLogger("httpx").setLevel(logging.WARNING)  # below, it logs whole addresses

    def post(self, content: Mapping[str, object], ending: Event) -> str:
        """Send JSON; returns why that failed, empty if it did not.

        Server errors and lost connections are tried again, until `ending` is set.
        """
        # Names of folders need not be UTF-8: what is not is escaped, as all but ASCII.
        body, fault = json.dumps(content), ""
        for wait in (0.0, *self._waits):
            if ending.wait(wait):
                break
            try:
                answer = httpx.post(
                    self._address, content=body, headers=JSON_HEADERS, timeout=TIMEOUT_SECONDS
                )
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                fault = type(error).__name__  # its text may hold the address
                continue
            if answer.is_success:
                return ""
            fault = f"answered {answer.status_code}"
            is_passing = answer.is_server_error
            if not is_passing and answer.status_code != HTTPStatus.TOO_MANY_REQUESTS:
                break
        return fault


class AlertSender:
    """Sends each alert of an index to a webhook, from a thread of its own.

    An alert is sent once, and again if it comes back after it had ceased. A webhook that fails is
    reported to `say`, once per alert and fault, and asked again at the next look.
    """

    def __init__(self, index: RunIndex, webhook: Webhook, say: Callable[[str], None]) -> None:
        self._index, self._webhook, self._say = index, webhook, say
        self._told: dict[tuple[object, str], str] = {}
        """The alerts that hold, with why each could not be sent; empty if it was sent."""
        self._fault = ""
        self._ending = Event()
        self._thread = Thread(target=self._follow, name="costada-alerts", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(END_SECONDS)

    def look(self) -> None:
        """Look at all runs and send what has not been sent."""
        try:
            rows = self._index.all_rows()
        except (ValueError, OSError, sqlite3.Error) as error:
            if str(error) != self._fault:
                self._say(f"alerts: {error}; looking again")
            self._fault = str(error)
            return
        self._fault = ""
        told, self._told = self._told, {}
        for row in rows:
            for kind, words in row["alerts"].items():
                key = row["id"], kind
                fault = told.get(key)
                self._told[key] = "" if fault == "" else self._send(row, kind, words, fault)

    def _send(self, row: Mapping[str, Any], kind: str, words: str, known: str | None) -> str:
        """Send an alert; returns why that failed, which is reported unless it is `known`."""
        name = unquote(row["id"])
        facts = {fact: row.get(fact) for fact in FACTS}
        content = {"text": f"{name}: {words}", "alert": kind, "run": name, "words": words, **facts}
        fault = self._webhook.post(content, self._ending)
        if fault and fault != known:
            self._say(f"--alert-webhook: {self._webhook.shown} {fault}; not sent: {name}: {words}")
        return fault

    def _follow(self) -> None:
        self.look()
        while not self._ending.wait(LOOK_SECONDS):
            self.look()

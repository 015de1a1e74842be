"""Which request is sent to the provider, and which is answered from the journal.

The rule. Whatever was or may have been billed is retold to each execution of its logical call,
once and in the order of sending: an answer as it came, a request under way by waiting for it, a
lost one as a broken connection. What an execution has been told in full, or is being told, is not
told to it again; what it stopped listening to is. When nothing is left to tell, the request is
sent. So a retry within an execution is sent, and a repetition by a later execution is not.

Refusals and requests that never left cost nothing, so they are sent again, with two exceptions
for calls of several different requests. A refusal before a request that may have been billed is
retold, as it made the execution turn to that one, to a fallback for example. And where an
execution asks what no earlier one asked, though there is something left to tell, that is told as
lost: nobody will ever ask for it, but it may be on the bill.
"""

import asyncio
import sqlite3
from collections import defaultdict
from collections.abc import Callable

from costada.models.errors import describe
from costada.models.gateway.journal import Fate, Journal, RequestKey, Response
from costada.models.gateway.upstream import Flight, Request, Upstream


class Exchange:
    """Lets each request fly once, and everybody who asks the same follow it."""

    def __init__(self, upstream: Upstream, journal: Journal, log: Callable[[str], None]) -> None:
        """Take the provider, the journal, and whom to tell of losses."""
        self._upstream = upstream
        self._journal = journal
        self._log = log
        self._told: defaultdict[str, set[int]] = defaultdict(set)
        self._seen: defaultdict[str, set[int]] = defaultdict(set)
        self._flights: dict[int, Flight] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_busy(self) -> bool:
        """Whether any request is under way."""
        return bool(self._tasks)

    def take(self, key: RequestKey, execution: str, request: Request) -> Flight:
        """Return the flight that an execution is to follow; see the rule above.

        Raises:
            sqlite3.Error: The request cannot be journaled; it was not sent.
        """
        flight = self._retold(key, execution) or self._start(key, request)
        self._told[execution].add(flight.number)
        self._seen[execution].add(flight.number)
        return flight

    def give_back(self, flight: Flight, execution: str) -> None:
        """Note that an execution stopped listening to a flight before its end."""
        self._told[execution].discard(flight.number)

    async def drain(self) -> None:
        """Wait until no request is under way."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    def _retold(self, key: RequestKey, execution: str) -> Flight | None:
        told, seen = self._told[execution], self._seen[execution]
        untold = [entry for entry in self._journal.history(key.call) if entry.number not in told]
        equal = [entry for entry in untold if entry.request_hash == key.request_hash]
        for entry in equal:
            if entry.may_be_billed:
                return self._found(entry.number)
        left = [e.number for e in untold if e.may_be_billed and e.number not in seen]
        if not left:
            return None
        for entry in equal:
            if entry.number < left[-1]:
                return self._found(entry.number)
        self._log(f"{key.call}: not the request that an earlier execution sent")
        return Flight.landed(left[0], Response(Fate.LOST))

    def _found(self, number: int) -> Flight:
        flight = self._flights.get(number)
        return flight or Flight.landed(number, self._journal.response(number))

    def _start(self, key: RequestKey, request: Request) -> Flight:
        flight = Flight(self._journal.begin(key))
        self._flights[flight.number] = flight
        task = asyncio.create_task(self._fly(key.call, request, flight))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return flight

    async def _fly(self, call: str, request: Request, flight: Flight) -> None:
        """Follow a request to its end; those who wait learn of it once it is journaled."""
        fate = await self._upstream.fly(request, flight)
        if fate is Fate.LOST:
            self._log(f"{call}: sent, but no complete response came")
        try:
            self._journal.finish(flight.number, flight.response(fate))
        except sqlite3.Error as error:
            self._log(f"{call}: {fate}, but this cannot be journaled: {describe(error)}")
        else:
            del self._flights[flight.number]
        flight.end(fate)

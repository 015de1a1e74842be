"""The slots of this process: kept warm between evaluations, one candidate in each at a time."""

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

from costada.evaluators.sandbox.launch import SlotKind
from costada.evaluators.sandbox.slot import Slot

MIN_SLOTS = 2


class Pool:
    """Lends slots. Safe to use from several threads at once."""

    def __init__(self, max_slots: int) -> None:
        """Begin with none; there are never more at a time than max_slots."""
        self._max_slots = max_slots
        self._idle: list[Slot] = []
        self._num_lent = 0
        self._change = Condition()

    @contextmanager
    def lend(self, kind: SlotKind) -> Iterator[Slot]:
        """Lend a slot of a kind, started if none is idle; waits while all are at work.

        Raises:
            FileNotFoundError: If the layer's program is not installed.
            RuntimeError: If the slot does not start.
        """
        with self._change:
            self._change.wait_for(lambda: self._num_lent < self._max_slots)
            self._num_lent += 1
        slot = None
        try:
            with self._change:
                slot = self._take(kind)
            slot = slot or Slot(kind)
            yield slot
        finally:
            with self._change:
                self._num_lent -= 1
                self._change.notify()
                if slot is not None:
                    self._idle.append(slot)
                self._drop_dead()

    def _take(self, kind: SlotKind) -> Slot | None:
        """Return an idle slot of the kind; make room for a new one if there is none."""
        self._drop_dead()
        found = next((slot for slot in reversed(self._idle) if slot.kind == kind), None)
        if found is not None:
            self._idle.remove(found)
        elif len(self._idle) + self._num_lent > self._max_slots:
            self._idle.pop(0).close()
        return found

    def _drop_dead(self) -> None:
        """Let go of idle slots that something outside has killed."""
        for slot in [slot for slot in self._idle if not slot.is_alive]:
            self._idle.remove(slot)
            slot.destroy()

    def close(self) -> None:
        """End the idle slots."""
        with self._change:
            while self._idle:
                self._idle.pop().close()

    def forget(self) -> None:
        """Let go of slots that belong to the process this one was forked from."""
        for slot in self._idle:
            slot.let_go()
        self._idle, self._num_lent, self._change = [], 0, Condition()


SLOTS = Pool(max(MIN_SLOTS, os.cpu_count() or 1))
atexit.register(SLOTS.close)
os.register_at_fork(after_in_child=SLOTS.forget)

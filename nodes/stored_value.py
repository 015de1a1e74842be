"""Channels whose values are kept in the run's store: a checkpoint holds only their names.

The best program and the Pareto front are part of the state after each step, and a checkpoint is as
small as without them.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

from langgraph.channels import LastValue
from langgraph.errors import EmptyChannelError

from costada.store.run_store import RunStore
from costada.values.candidate import Program


class StoredKey(NamedTuple):
    """How a value is put into a store, which returns its name, and read from it by that name."""

    put: Callable[[RunStore, Any], str]
    read: Callable[[RunStore, str], Any]


STORED_KEYS: Mapping[str, StoredKey] = {
    "best_program": StoredKey(RunStore.put_text, RunStore.text),
    "best_files": StoredKey(
        lambda store, files: store.put_program(Program.of(files)) if files else "",
        lambda store, name: store.program(name).by_path if name else {},
    ),
    "pareto_front": StoredKey(
        lambda store, front: store.put_text(json.dumps(front)),
        lambda store, name: json.loads(store.text(name)),
    ),
}
"""The keys of the state that are kept in the store."""


class _Name(str):
    """The name of a value that has not been read yet."""

    __slots__ = ()


class StoredValue(LastValue[Any]):
    """The last value of a key in `STORED_KEYS`, read from the store when it is first asked for."""

    __slots__ = ("_name", "_store")

    def __init__(self, typ: Any, key: str, store: RunStore) -> None:
        """Begin without a value."""
        super().__init__(typ, key)
        self._store, self._name = store, ""

    def copy(self) -> Self:
        """A channel with the same value."""
        copied = self.__class__(self.typ, self.key, self._store)
        copied.value, copied._name = self.value, self._name
        return copied

    def from_checkpoint(self, checkpoint: Any) -> Self:
        """A channel with the value whose name a checkpoint holds."""
        restored = self.__class__(self.typ, self.key, self._store)
        if isinstance(checkpoint, str):
            restored.value, restored._name = _Name(checkpoint), checkpoint
        return restored

    def update(self, values: Any) -> bool:
        """Take a value, and put it into the store."""
        if not super().update(values):
            return False
        self._name = STORED_KEYS[self.key].put(self._store, self.value)
        return True

    def get(self) -> Any:
        """The value.

        Raises:
            EmptyChannelError: It was in a store in memory that no longer exists.
            ValueError: The store is not in memory and does not have the value.
        """
        value = super().get()
        if isinstance(value, _Name):
            try:
                self.value = value = STORED_KEYS[self.key].read(self._store, value)
            except ValueError:
                if self._store.is_in_memory:
                    raise EmptyChannelError from None
                raise
        return value

    def is_available(self) -> bool:
        """Whether there is a value; a store in memory may have lost it."""
        if not (isinstance(self.value, _Name) and self._store.is_in_memory):
            return super().is_available()
        try:
            self.get()
        except EmptyChannelError:
            return False
        return True

    def checkpoint(self) -> Any:
        """The name of the value."""
        return self._name if super().is_available() else super().checkpoint()

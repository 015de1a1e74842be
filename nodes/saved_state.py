"""The state in a checkpoint: large values by their names in the store, and a seal on the rest.

The best program and the Pareto front are part of the state after each step, and a checkpoint is as
small as without them.

A server lets a client execute and update any of its graphs on any thread. Another graph whose state
has keys of the same names, such as a parent that passes on `spent` and `stop_reason`, writes these
keys. So every node seals the state that it leaves with a key that the store alone holds, and none
is executed on a state without its seal. An earlier state of the same run has one too: its calls are
repeated from the store.
"""

import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from secrets import token_hex
from typing import Any, NamedTuple, Self

from langgraph.channels import LastValue
from langgraph.errors import EmptyChannelError

from costada.nodes.context import PerRun
from costada.nodes.state import Run, SearchState, plain
from costada.store.run_store import RunStore
from costada.values.candidate import Program


class StoredKey(NamedTuple):
    """How a value is stored under a name, and read by that name."""

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


UNSEALED = {"seed", "seal", "newest_checkpoint", *STORED_KEYS}
"""Keys without a seal: the caller's seed, the seal, a place on the thread, and unread results."""

SEALED = sorted(SearchState.__annotations__.keys() - UNSEALED)

_keys: PerRun[list[str]] = PerRun(list)
"""The seal key of each run once it has been read from the store; an empty list before."""


def new_seal_key() -> str:
    """A secret for the seals of one run."""
    return token_hex(32)


def seal_of(state: Mapping[str, Any], key: str) -> str:
    """The seal of a state, the same after a round trip through any saver."""
    values: dict[str, object] = {}
    texts = []
    for name in SEALED:
        if name not in state:
            continue
        if is_dataclass(state[name]):
            texts.append(f"{name} {_text_of(state[name])}")
        else:
            values[name] = _in_one_form(state[name])
    # JSON has no line breaks of its own, so no two states have the same text.
    text = "\n".join((_encode(values), *texts))
    return hmac.digest(key.encode(), text.encode(), "sha256").hex()


def _earlier_seal_of(state: Mapping[str, Any], key: str) -> str:
    """The seal of a state that was saved before records had texts of their own."""
    values = {name: _in_one_form(plain(state[name])) for name in SEALED if name in state}
    return hmac.digest(key.encode(), _encode(values).encode(), "sha256").hex()


def with_seal(
    state: SearchState, written: Mapping[str, object], store: RunStore
) -> dict[str, object]:
    """What a node writes, with the seal of the state that it leaves.

    Raises:
        ValueError: The store has no such run.
    """
    key = _key_of(state["run"].id, store)
    return {**written, "seal": seal_of(state, key)} if key else {**written}


def check_seal(state: SearchState, store: RunStore) -> None:
    """Refuse a state that its search has not sealed.

    Raises:
        ValueError: Its seal is missing or wrong, or the store has no such run.
    """
    run, given = state["run"], state.get("seal", "")
    if not isinstance(run, Run):
        raise ValueError(f"state: got run {run!r:.100}, which no search has begun")
    # Compared as bytes and in constant time: the seal comes from whoever wrote the checkpoint.
    key = _key_of(run.id, store)
    seals = (made(state, key) for made in (seal_of, _earlier_seal_of))
    if key and not any(hmac.compare_digest(str(given).encode(), each.encode()) for each in seals):
        raise ValueError(
            f"state: not as run {run.id} left it, expected no other graph to change the state of a"
            " search; resume from an earlier checkpoint, or begin a new run on another thread"
        )


def _key_of(run_id: str, store: RunStore) -> str:
    """The seal key of a run; empty for one that began without."""
    known = _keys.of(store, run_id)
    if not known:
        setup = store.setup(run_id)
        if setup is None:
            raise ValueError(
                f"state: got run {run_id!r}, which the graph's store does not hold;"
                " give create_discovery_graph the store that the run was started with"
            )
        known.append(setup.seal_key)
    return known[0]


def _in_one_form(value: object) -> object:
    """A value in one form: savers that use JSON do not tell 1 from 1.0, or 0.0 from -0.0."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) + 0.0
    return value


_encode = json.JSONEncoder(sort_keys=True).encode

_TEXTS: dict[type, tuple[object, str]] = {}
"""The last record of each type with its text: most nodes change two of the eight records.

By identity, as `_PLAIN` in `state.py`: a record is frozen, so the same object has the same text.
"""


def _text_of(record: object) -> str:
    """A record as JSON, with the keys of mappings sorted."""
    known = _TEXTS.get(type(record))
    if known is None or known[0] is not record:
        # Not by pydantic, whose JSON writes `null` for a number that is not finite.
        known = _TEXTS[type(record)] = record, _encode(plain(record))
    return known[1]

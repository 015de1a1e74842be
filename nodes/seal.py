"""A seal on the state of a search, which only the search can make.

A server lets a client execute and update any of its graphs on any thread. Another graph whose state
has keys of the same names, such as a parent that passes on `spent` and `stop_reason`, writes these
keys. So every node seals the state that it leaves with a key that the store alone holds, and none
is executed on a state without its seal. An earlier state of the same run has one too: its calls are
repeated from the store.
"""

import hmac
import json
from collections.abc import Mapping
from secrets import token_hex
from typing import Any

from costada.nodes.per_run import PerRun
from costada.nodes.state import Run, SearchState, plain, restored
from costada.nodes.stored_value import STORED_KEYS
from costada.store.run_store import RunStore

UNSEALED = {"seed", "seal", "newest_checkpoint", *STORED_KEYS}
"""What a caller passes, the seal itself, a place on the thread, and results that no node reads."""

SEALED = SearchState.__annotations__.keys() - UNSEALED

_keys: PerRun[list[str]] = PerRun(list)


def new_seal_key() -> str:
    """A secret for the seals of one run."""
    return token_hex(32)


def seal_of(state: Mapping[str, Any], key: str) -> str:
    """The seal of a state, the same for what any saver makes of it."""
    values = {name: _comparable(state[name]) for name in SEALED if name in state}
    text = json.dumps(values, sort_keys=True)
    return hmac.digest(key.encode(), text.encode(), "sha256").hex()


def sealed(state: SearchState, update: SearchState, store: RunStore) -> SearchState:
    """An update of a state, with the seal of what it makes of the state.

    Raises:
        ValueError: The store has no such run.
    """
    left = restored({**state, **update})
    if not (key := _key_of(left["run"].id, store)):
        return update
    return {**update, "seal": seal_of(left, key)}


def check_seal(state: SearchState, store: RunStore) -> None:
    """Refuse a state that its search has not left so.

    Raises:
        ValueError: Its seal is missing or wrong, or the store has no such run.
    """
    run, given = state["run"], state.get("seal", "")
    if not isinstance(run, Run):
        raise ValueError(f"state: got run {run!r:.100}, which no search has begun")
    key = _key_of(run.id, store)
    if key and not hmac.compare_digest(str(given).encode(), seal_of(state, key).encode()):
        raise ValueError(
            f"state: got one that run {run.id} has not left so, expected no other graph to"
            " change the state of a search; resume from an earlier checkpoint, or begin a new run"
            " on another thread"
        )


def _key_of(run_id: str, store: RunStore) -> str:
    """The key of a run; empty for one that began without."""
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


def _comparable(value: object) -> object:
    """A plain value; savers that keep numbers as JSON do not tell 1 from 1.0, or 0.0 from -0.0."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) + 0.0
    return plain(value)

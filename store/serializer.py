"""Checkpoints as bytes: plain values and interrupts, and nothing that is rebuilt by a call."""

from collections.abc import Iterable
from typing import Any, Self

from langgraph.checkpoint.serde.jsonplus import EXT_CONSTRUCTOR_KW_ARGS, JsonPlusSerializer
from langgraph.types import Interrupt

LARGEST_CHECKPOINT = 4 * 2**20
"""Bytes of a checkpoint; the state of a run needs some thousands, however long the run is."""

INTERRUPT = (Interrupt.__module__, Interrupt.__name__)
"""How the one type that is no plain value is named in a checkpoint."""


class StateSerializer(JsonPlusSerializer):
    """LangGraph's serializer for a run file, which may come from an untrusted party.

    By default LangGraph imports and calls whatever a checkpoint names. The state of a run holds
    plain values, so anything else is refused: other types, and the formats of old checkpoints.
    """

    def __init__(self) -> None:
        super().__init__(__unpack_ext_hook__=self._extension)

    def with_msgpack_allowlist(self, extra_allowlist: Iterable[tuple[str, ...] | type]) -> Self:
        """Return this serializer: what a run file may hold does not depend on a graph."""
        return self

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return a stored value.

        Raises:
            ValueError: It is of another format, too large, or names a type that no run saves.
        """
        kind, packed = data
        if kind not in ("msgpack", "null"):
            raise ValueError(f"its format is {kind!r}, expected 'msgpack'")
        if kind == "msgpack" and len(packed) > LARGEST_CHECKPOINT:
            raise ValueError(f"{len(packed)} bytes, expected at most {LARGEST_CHECKPOINT}")
        return super().loads_typed(data)

    def _extension(self, code: int, packed: bytes) -> Interrupt:
        """Return an interrupt; LangGraph writes all other types as extensions as well."""
        match self.loads_typed(("msgpack", packed)):
            case [str() as module, str() as name, {"value": value, "id": str() as id}, *_] if (
                code == EXT_CONSTRUCTOR_KW_ARGS and (module, name) == INTERRUPT
            ):
                return Interrupt(value, id)
            case [str() as module, str() as name, *_]:
                raise ValueError(f"it names {f'{module}.{name}'!r}, which no run saves")
        raise ValueError("it holds an extension that no run saves")

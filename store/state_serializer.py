"""How the state in a checkpoint is read and written; a run file may come from anyone."""

from collections.abc import Iterable
from typing import Any, Self

from langgraph.checkpoint.serde.jsonplus import EXT_CONSTRUCTOR_KW_ARGS, JsonPlusSerializer
from langgraph.types import Interrupt

MAX_CHECKPOINT = 4 * 2**20
"""Bytes of a checkpoint; the state of a run needs some thousands, however long the run is."""

INTERRUPT = (Interrupt.__module__, Interrupt.__name__)
"""The only type that a checkpoint may name."""


class StateSerializer(JsonPlusSerializer):
    """LangGraph's serializer for a run file, which may come from an untrusted party.

    By default LangGraph imports and calls whatever a checkpoint names. The channels of a run save
    plain values, so other types and the formats of old checkpoints are refused.
    """

    def __init__(self) -> None:
        super().__init__(__unpack_ext_hook__=self._extension)

    def with_msgpack_allowlist(self, extra_allowlist: Iterable[tuple[str, ...] | type]) -> Self:
        """This serializer; what a run file may hold does not depend on a graph."""
        return self

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """A stored value.

        Raises:
            ValueError: It is of another format, too large, or names a type that no run saves.
        """
        kind, packed = data
        if kind not in ("msgpack", "null"):
            raise ValueError(f"its format is {kind!r}, expected 'msgpack'")
        if kind == "msgpack" and len(packed) > MAX_CHECKPOINT:
            raise ValueError(f"{len(packed)} bytes, expected at most {MAX_CHECKPOINT}")
        return super().loads_typed(data)

    def _extension(self, code: int, packed: bytes) -> Interrupt:
        """An interrupt; LangGraph writes all other types as extensions as well."""
        match self.loads_typed(("msgpack", packed)):
            case [str() as module, str() as name, {"value": value, "id": str() as id}, *_] if (
                code == EXT_CONSTRUCTOR_KW_ARGS and (module, name) == INTERRUPT
            ):
                return Interrupt(value, id)
            case [str() as module, str() as name, *_]:
                raise ValueError(f"it names {f'{module}.{name}'!r}, which no run saves")
        raise ValueError("it holds an extension that no run saves")

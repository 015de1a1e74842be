"""One request in a ledger, as tests need it: quiet defaults, changed by keyword."""

from decimal import Decimal
from typing import Any

from costada.store.rows import CallRow
from costada.values.usage import Usage


def call_row(**changes: Any) -> CallRow:
    fields: dict[str, Any] = {
        "iteration": 1,
        "role": "generation",
        "attempt": 1,
        "model": "stand-in",
        "usage": Usage(1000, 500, 300, 200),
        "cost": Decimal("0.002"),
        "price_in": "1",
        "price_out": "2",
        "price_source": "given",
        "is_cache_hit": False,
        "is_estimated": False,
        "provider": "openai",
        "provider_id": "answer-1",
        "finish_reason": "stop",
        "ended_at": 1000.5,
        "seconds": 2.25,
        "prompt": "a secret prompt",
        "answer": "a secret answer",
        "error": None,
    }
    return CallRow(**{**fields, **changes})

"""What the calls of a run used, by role."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from costada.store.rows import CallRow

ROLES = ("generation", "retry", "guide")


@dataclass(frozen=True, slots=True)
class RoleSum:
    """What the calls of one role used; `dollars` is exact.

    `in_doubt` counts requests whose bill is unknown (timed out, broken off, or in flight when their
    process died). They are no part of `dollars`; `in_doubt_dollars` is the most they can have cost.
    """

    calls: int = 0
    in_doubt: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    dollars: Decimal = Decimal(0)
    in_doubt_dollars: Decimal = Decimal(0)

    def plus(self, call: CallRow) -> RoleSum:
        """Return the sum with one more call."""
        return RoleSum(
            self.calls + 1,
            self.in_doubt + call.is_in_doubt,
            self.input_tokens + call.input_tokens,
            self.output_tokens + call.output_tokens,
            self.cached_tokens + call.cached_tokens,
            self.reasoning_tokens + call.reasoning_tokens,
            self.dollars + call.cost,
            self.in_doubt_dollars + call.bound,
        )


def sum_by_role(calls: Iterable[CallRow]) -> Mapping[str, RoleSum]:
    """Return what each role used; every usual role is named, also one without a call."""
    sums = dict.fromkeys(ROLES, RoleSum())
    for call in calls:
        sums[call.role] = sums.get(call.role, RoleSum()).plus(call)
    return sums

"""What an evaluation may spend on models."""

from decimal import Decimal
from threading import Lock

from costada.nodes.context import RunContext, budget_of
from costada.nodes.state import SearchState
from costada.store.call_log import AnsweredRequest


class Allowance:
    """What the grants of one piece of work may cost together, in dollars, however often it begins.

    Requests that a killed process has lost do not count: they are on the ledger alone.

    Attributes:
        name: What a refusal calls it.
        is_strict: Whether no answer may exceed it, so that each has to be limited.
    """

    def __init__(self, limit: float, name: str, *, is_strict: bool) -> None:
        """Allow so many dollars."""
        self._limit, self.name = Decimal(str(limit)), name
        self.is_strict = is_strict
        self._spent = self._reserved = self._in_doubt = Decimal(0)
        self._counted: set[AnsweredRequest] = set()
        self._num_reserving = self._num_changes = 0
        self._lock = Lock()

    @property
    def left(self) -> Decimal:
        """What further requests may cost."""
        with self._lock:
            return self._limit - self._spent - self._reserved

    @property
    def num_changes(self) -> int:
        """How often what is left has changed."""
        return self._num_changes

    def may_leave_more(self, num_changes: int) -> bool:
        """Whether requests in flight may leave more than was left after so many changes.

        One that has ended since then may have left it already.
        """
        with self._lock:
            return self._num_reserving > 0 or self._num_changes != num_changes

    def note_counted(self, answered: AnsweredRequest) -> None:
        """Note that a request counts: it was settled."""
        with self._lock:
            self._counted.add(answered)

    def count_stored(self, answered: AnsweredRequest, dollars: Decimal) -> None:
        """Count what a stored answer has cost, unless it counts already."""
        with self._lock:
            if answered not in self._counted:
                self._counted.add(answered)
                self._spent += dollars
                self._num_changes += 1

    def forget_doubts(self) -> None:
        """Count no longer what requests may have cost that an outage of the provider has ended.

        The ledger still does.
        """
        with self._lock:
            self._spent -= self._in_doubt
            self._in_doubt = Decimal(0)
            self._num_changes += 1

    def reserve(self, bound: Decimal) -> None:
        """Count the most that a request can cost."""
        with self._lock:
            self._reserved += bound
            self._num_reserving += 1
            self._num_changes += 1

    def settle(self, bound: Decimal, dollars: Decimal, in_doubt: Decimal) -> None:
        """Count what a request has cost, or may have, in the place of what it had reserved.

        Args:
            bound: What it had reserved.
            dollars: What counts now.
            in_doubt: The part of it that may not have been billed.
        """
        with self._lock:
            self._reserved -= bound
            self._spent += dollars
            self._in_doubt += in_doubt
            self._num_reserving -= 1
            self._num_changes += 1

    def refusal(self, bound: Decimal) -> str:
        """What a refusal says of a request that it cannot pay for."""
        return f"not asked: it may cost ${bound:.6f}, and ${self.left:.6f} are left of {self.name}"


def allowance_of_evaluation(state: SearchState, context: RunContext) -> Allowance:
    """What the models of one evaluation may cost: `evaluation_dollars`, or else the budget."""
    limit = context.problem.evaluation_dollars
    return Allowance(
        budget_of(state, context) if limit is None else limit,
        "the budget" if limit is None else "evaluation_dollars",
        is_strict=limit is not None,
    )

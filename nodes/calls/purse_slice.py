"""A slice of a run's account: dollars that the run spends without a write to its purse."""

from collections.abc import Mapping
from decimal import Decimal

from costada.store.purse import Amounts, Purse
from costada.values.usage import exactly

SLICE = "slice"
"""The name of the entry that reserves dollars for what the entries of steps do not show yet."""

NOTHING = Decimal(0), Decimal(0)

MAX_STEPS = 1000
"""Steps that are settled at once: all of them change in one transaction."""


class PurseSlice:
    """Settles the steps of a run in its account when they have used up what is reserved.

    The entries of the steps and the slice together are never less than what the steps have cost.
    One thread at a time uses it, and no longer once a method has raised: the purse may have more
    than this knows.
    """

    def __init__(
        self, account: Purse, dollars: Decimal, settled: Mapping[str, Amounts], reserve: Decimal
    ) -> None:
        """Begin with an account whose entries are exact.

        Args:
            account: Of the run.
            dollars: What is reserved whenever steps are settled.
            settled: The entries of steps in the account.
            reserve: What is reserved now.
        """
        self.account = account
        self._dollars, self._reserve, self._used = dollars, reserve, Decimal(0)
        self._settled, self._changed = dict(settled), dict[str, Amounts]()

    @exactly
    def report(self, key: str, amounts: Amounts) -> None:
        """Note what a step has cost so far; what exceeds the reserve is settled at once."""
        before = self._changed.get(key) or self._settled.get(key, NOTHING)
        self._changed[key] = amounts
        self._used += sum(amounts) - sum(before)
        if self._used > self._reserve or len(self._changed) == MAX_STEPS:
            self._settle()

    def _settle(self) -> None:
        changed = {
            key: amounts
            for key, amounts in self._changed.items()
            if amounts != self._settled.get(key)
        }
        self._reserve = self.account.put_and_reserve(changed, SLICE, self._dollars)
        self._settled.update(changed)
        self._changed.clear()
        self._used = Decimal(0)

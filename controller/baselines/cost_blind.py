"""What methods have in common that never look at money."""

from typing import Self


class CostBlind:
    """A method for which the budget changes nothing but when the run ends."""

    __slots__ = ()

    def with_budget(self, budget: float) -> Self:
        """Return the controller itself: it does not know its budget."""
        return self

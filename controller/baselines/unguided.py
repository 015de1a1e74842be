"""What methods have in common that never buy a guide."""

from typing import ClassVar, Self

from costada.controller.baselines.cost_blind import CostBlind


class Unguided(CostBlind):
    """A method that plans no call and follows no tactic.

    A run never asks it for one; who does is told so.
    """

    __slots__ = ()

    pending: ClassVar[str | None] = None
    cycle: ClassVar[None] = None

    def open_cycle(self, num_tactics: int) -> Self:
        """Refuse: no guide was pending.

        Raises:
            ValueError: Always.
        """
        raise ValueError(f"num_tactics: got {num_tactics}, expected no guide to be called")

    def fail_guide(self) -> Self:
        """Refuse: no guide was pending.

        Raises:
            ValueError: Always.
        """
        raise ValueError("pending: got None, expected a scheduled guide")

    def use_tactic(self) -> tuple[Self, int]:
        """Refuse: there is no tactic.

        Raises:
            ValueError: Always.
        """
        raise ValueError("cycle: no tactic has a use left, expected an active cycle")

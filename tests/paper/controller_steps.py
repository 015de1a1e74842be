"""Algorithm 1 driven without models: costs, scores and guide outcomes are given."""

from dataclasses import dataclass
from random import Random

from costada.controller.allocation import Allocation
from costada.controller.constants import Constants
from costada.controller.costada import (
    allocate,
    credit,
    fail_guide,
    intervene,
    open_cycle,
    use_tactic,
)
from costada.controller.credit import Credit
from costada.controller.guidance import Mode, is_active
from costada.controller.intervention import Intervention
from costada.controller.state import ControllerState


@dataclass(frozen=True)
class Step:
    """One finished iteration and what it decided on the way."""

    guide: Mode | None
    allocation: Allocation
    credit: Credit
    intervention: Intervention
    state: ControllerState


def run_step(
    state: ControllerState,
    cost: float,
    score: float | None,
    constants: Constants,
    rng: Random,
    *,
    attempts: int = 1,
    num_tactics: int = 3,
) -> Step:
    """Return one iteration; a pending guide yields `num_tactics` tactics, or fails at 0."""
    allocation = allocate(state, rng, constants)
    guide = state.pending
    if guide is not None:
        state = open_cycle(state, num_tactics, constants) if num_tactics else fail_guide(state)
    for _ in range(attempts):
        if is_active(state.cycle):
            state, _tactic = use_tactic(state)
    spent = state.spent + cost
    state, earned = credit(state, allocation, score, cost, constants, spent)
    state, decision = intervene(state, allocation, constants)
    return Step(guide, allocation, earned, decision, state)

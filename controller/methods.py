"""Every method by the name that `--method` is given."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from costada.controller.baselines.adaevolve import AdaEvolve
from costada.controller.baselines.best_of_n import BestOfN
from costada.controller.baselines.evox import EvoX
from costada.controller.baselines.uniform import Uniform
from costada.controller.constants import Constants
from costada.controller.costada import CostAda
from costada.controller.costada_thompson import CostAdaThompson
from costada.controller.method import Controller


class ControllerKind(Protocol):
    """A class of controllers, which are frozen dataclasses."""

    def start(self, seed_score: float, constants: Constants) -> Controller:
        """The controller before the first step, given the score of the initial program (y_0)."""
        ...


@dataclass(frozen=True, slots=True)
class Method:
    """One way to spend a budget.

    Attributes:
        name: What `--method` is given.
        kind: The class of its controllers.
        summary: What it does, in a line.
        switches: What an ablation changes in `Constants`.
    """

    name: str
    kind: ControllerKind
    summary: str
    switches: Mapping[str, bool]

    def start(self, seed_score: float, constants: Constants) -> Controller:
        """The controller of a run that begins."""
        return self.kind.start(seed_score, self.adjusted(constants))

    def adjusted(self, constants: Constants) -> Constants:
        """The constants with the switches of an ablation."""
        return replace(constants, **self.switches) if self.switches else constants


DEFAULT_METHOD = "costada"

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("costada", CostAda, "credit per dollar, conditioned on the remaining budget", {}),
        Method(
            "costada-thompson",
            CostAdaThompson,
            "CostAda with frontiers drawn by gain per dollar",
            {},
        ),
        Method("adaevolve", AdaEvolve, "adaptive frontiers, blind to cost", {}),
        Method("evox", EvoX, "search strategies written by the model, blind to cost", {}),
        Method(
            "no-cost-calibration",
            CostAda,
            "CostAda without the division by cost",
            {"calibrates_cost": False},
        ),
        Method(
            "no-remaining-budget",
            CostAda,
            "CostAda that does not see what is left",
            {"conditions_on_budget": False},
        ),
        Method(
            "no-intervention-gating",
            CostAda,
            "CostAda that buys guides on stagnation alone",
            {"gates_intervention": False},
        ),
        Method("uniform", Uniform, "frontiers in turn, no guide", {}),
        Method("best-of-n", BestOfN, "independent changes of the initial program", {}),
    )
}
"""The methods there are; a third party adds its own as an entry."""

"""A method of a third party: registered in a line, run by the graph, typed for mypy."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from costada.controller.methods import METHODS

ROOT = Path(__file__).parents[2]
FROM_SCRATCH = """
from collections.abc import Sequence
from random import Random
from typing import ClassVar, Self

from pydantic.dataclasses import dataclass

from costada.controller.allocation import Allocation
from costada.controller.constants import Constants
from costada.controller.credit import NO_CREDIT, Credit
from costada.controller.intensity import Action
from costada.controller.intervention import Intervention
from costada.controller.method import Evidence, PaidStep, ParentRule
from costada.controller.methods import METHODS, Method
from costada.controller.money import Balance
from costada.values.numbering import START, Iteration, next_iteration
from dataclasses import replace


@dataclass(frozen=True)
class Restarts:
    iteration: Iteration
    incumbent_score: float
    parents: ClassVar[ParentRule] = ParentRule.SEED
    pending: ClassVar[None] = None

    @classmethod
    def start(cls, seed_score: float, constants: Constants) -> Self:
        return cls(START, seed_score)

    def ask(
        self,
        balance: Balance,
        rng: Random,
        constants: Constants,
        in_flight: Sequence[Allocation] = (),
    ) -> Allocation:
        return Allocation(0, Action.BALANCED, balance.ratio)

    def tell(
        self, allocation: Allocation, step: PaidStep, balance: Balance, constants: Constants
    ) -> tuple[Self, Credit]:
        best = max(self.incumbent_score, step.score or 0.0)
        return replace(self, incumbent_score=best), NO_CREDIT

    def decide(
        self,
        allocation: Allocation,
        balance: Balance,
        constants: Constants,
        *,
        is_last: bool = False,
    ) -> tuple[Self, Intervention]:
        ended = replace(self, iteration=next_iteration(self.iteration))
        return ended, Intervention(None, False, False)

    def record(self) -> Evidence:
        return Evidence()


METHODS["restarts"] = Method("restarts", Restarts, "the seed, again and again", {})
"""
INHERITED = """
from collections.abc import Sequence
from random import Random

from costada.controller.allocation import Allocation
from costada.controller.baselines.uniform import Uniform
from costada.controller.constants import Constants
from costada.controller.intensity import Action
from costada.controller.methods import METHODS, Method
from costada.controller.money import Balance


class BestFirst(Uniform):
    def ask(
        self,
        balance: Balance,
        rng: Random,
        constants: Constants,
        in_flight: Sequence[Allocation] = (),
    ) -> Allocation:
        best = self.best_scores.index(max(self.best_scores))
        return Allocation(best, Action.EXPLOITATION, constants.min_intensity)


METHODS["best-first"] = Method("best-first", BestFirst, "the best frontier, always", {})
"""
METHODS_OF_OTHERS = {"restarts": FROM_SCRATCH, "best-first": INHERITED}


@pytest.mark.parametrize("name", METHODS_OF_OTHERS)
def test_an_entry_makes_a_method_known(name: str) -> None:
    try:
        exec(METHODS_OF_OTHERS[name], {"__name__": "others"})
        simulation = pytest.importorskip("costada.plugins.lab.landscape.simulation")
        run = simulation.simulate_run(name, seed=1, budget=0.2)
    finally:
        del METHODS[name]
    assert len(run.points) > 3


@pytest.mark.process
def test_mypy_accepts_methods_of_others_and_tells_what_is_missing(tmp_path: Path) -> None:
    for name, text in METHODS_OF_OTHERS.items():
        (tmp_path / f"{name.replace('-', '_')}.py").write_text(text)
    broken = dedent(
        """
        from costada.controller.methods import METHODS, Method

        class Nothing:
            def start(self) -> None: ...

        METHODS["nothing"] = Method("nothing", Nothing, "not a method", {})
        """
    )
    (tmp_path / "broken.py").write_text(broken)
    options = ("--config-file=pyproject.toml",)
    command = [sys.executable, "-m", "mypy", *options]
    files = sorted(map(str, tmp_path.glob("*.py")))
    run = subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True, check=False)
    (error,) = [line for line in run.stdout.splitlines() if ": error:" in line]
    assert "broken.py:7" in error
    assert "ControllerKind" in error

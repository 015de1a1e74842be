"""Runs of every router on every menu, and what is kept of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean

from costada.controller.constants import Constants
from costada.controller.methods import DEFAULT_METHOD
from costada.controller.router import ROUTERS, start_router
from costada.controller.router_rules import DEFAULT_ROUTER, FIXED
from costada.experiments.comparison.metrics import (
    RunOutcome,
    best_score_at,
    curve_of,
    normalized_auc,
)
from costada.plugins.lab.landscape.landscape_menu import Chooser, SimulatedEntry, SimulatedMenu
from costada.plugins.lab.landscape.simulation import SimulatedRun, expected_cost
from costada.plugins.lab.landscape.worlds import LANDSCAPE, answers_of
from costada.plugins.lab.menus.menu_file import Menu
from costada.plugins.lab.menus.paper_rule import PaperRule

PAPER_RULE = "paper-rule"
"""The paper's rule for frontiers, applied to models."""

COMPARED = (
    DEFAULT_ROUTER,
    PAPER_RULE,
    *(rule for rule in ROUTERS if rule != DEFAULT_ROUTER),
)
"""What chooses a model, in the order in which it is shown."""

CHEAPEST, MOST_EXPENSIVE, ANY, BEST = (
    f"{FIXED}cheapest",
    f"{FIXED}most-expensive",
    f"{FIXED}any",
    f"{FIXED}best",
)
"""One model for the whole run: of a menu sorted by price the first and the last, one that the seed
draws, and the one whose run had the highest area under its curve, which only hindsight knows."""

SHARES = tuple(number / 200 for number in range(201))
"""Shares of the budget at which the best score of a run is kept."""

MAX_ITERATIONS = 100_000
"""Cheap models make many more steps than the default allows; only the budget ends a run here."""


@dataclass(frozen=True, slots=True)
class MenuBatch:
    """The runs of a comparison: every router, and every model alone, on every menu and seed."""

    menus: Mapping[str, Menu]
    routers: tuple[str, ...]
    seeds: tuple[int, ...]
    budget: float  # dollars of each run (B)
    method: str = DEFAULT_METHOD
    parallel: int = 1  # most steps in flight (K)
    world: str = LANDSCAPE

    @property
    def runs(self) -> list[MenuRun]:
        """Every run, menu by menu and seed by seed."""
        return [
            MenuRun(
                name, entries, router, seed, self.budget, self.method, self.parallel, self.world
            )
            for name, menu in self.menus.items()
            for seed in self.seeds
            for entries, router in self._compared(menu.of_seed(seed))
        ]

    def _compared(
        self, menu: tuple[SimulatedEntry, ...]
    ) -> Iterator[tuple[tuple[SimulatedEntry, ...], str]]:
        """The routers with the whole menu, and each model with a menu of its own."""
        yield from ((menu, router) for router in self.routers)
        yield from (((entry,), f"{FIXED}{entry.name}") for entry in menu)


@dataclass(frozen=True, slots=True)
class MenuRun:
    """A run of a router on a menu."""

    menu: str
    entries: tuple[SimulatedEntry, ...]  # the cheapest first
    router: str
    seed: int
    budget: float
    method: str = DEFAULT_METHOD
    parallel: int = 1
    world: str = LANDSCAPE


@dataclass(frozen=True, slots=True)
class Measured:
    """What is kept of a finished run."""

    menu: str
    router: str
    seed: int
    auc: float  # normalised area under its curve
    final_score: float
    overshoot: float  # share of the budget spent beyond it
    scores: tuple[float, ...]  # best score at each of `SHARES`


def simulate_menu_run(run: MenuRun, chooser: Chooser | None = None) -> RunOutcome:
    """A finished run of a router on a menu.

    As in the graph, the reference cost is the mean expected cost of the menu. Guides come from a
    model of their own at the world's prices, so that routers differ in their attempts alone.

    Args:
        run: What is run.
        chooser: What chooses a model, in the place of the run's router.
    """
    expected = fmean(expected_cost(entry) for entry in run.entries)
    constants = Constants(reference_cost=expected, max_iterations=MAX_ITERATIONS)
    menu = SimulatedMenu(run.entries, chooser or _chooser(run, constants))
    answers = answers_of(run.world, run.seed)
    simulation = SimulatedRun(
        run.method, run.seed, run.budget, constants, answers, run.parallel, menu
    )
    for _ in simulation.steps():
        pass
    return simulation.outcome()


def _chooser(run: MenuRun, constants: Constants) -> Chooser:
    names = [entry.name for entry in run.entries]
    if run.router == PAPER_RULE:
        return PaperRule.start(names, constants, run.budget)
    return start_router(run.router, names)


def measure_run(run: MenuRun) -> Measured:
    """Make a run, and keep what the comparison needs of it."""
    outcome = simulate_menu_run(run)
    curve = curve_of(outcome)
    return Measured(
        menu=run.menu,
        router=run.router,
        seed=run.seed,
        auc=normalized_auc(outcome),
        final_score=best_score_at(outcome, 1.0),
        overshoot=sum(outcome.dollars_by_role.values()) / run.budget - 1.0,
        scores=tuple(curve.at(share) for share in SHARES),
    )


def by_menu(batch: MenuBatch, found: Sequence[Measured]) -> dict[str, list[Measured]]:
    """The runs of each menu in the order of the batch, with the single models last.

    For each seed, the runs of one model alone become those of the cheapest, the most expensive,
    any and the best model.
    """
    places = {(run.menu, run.router, run.seed): place for place, run in enumerate(batch.runs)}
    ordered = sorted(found, key=lambda each: places[each.menu, each.router, each.seed])
    return {
        menu: list(_with_single_models([each for each in ordered if each.menu == menu]))
        for menu in batch.menus
    }


def _with_single_models(runs: Sequence[Measured]) -> Iterator[Measured]:
    alone: dict[int, list[Measured]] = {}
    for run in runs:
        if run.router.startswith(FIXED):
            alone.setdefault(run.seed, []).append(run)
        else:
            yield run
    for seed, models in alone.items():
        chosen = {
            CHEAPEST: models[0],
            MOST_EXPENSIVE: models[-1],
            ANY: Random(f"any model {seed}").choice(models),
            BEST: max(models, key=lambda run: run.auc),
        }
        for name, run in chosen.items():
            yield replace(run, router=name)

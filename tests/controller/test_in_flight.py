"""Controllers with several steps in flight."""

from collections import Counter
from dataclasses import replace
from math import log, sqrt
from random import Random
from typing import Any

import pytest
from controller_samples import CONSTANTS, adaevolve

from costada.controller.allocation import Action, Allocation, Frontier, select_frontier
from costada.controller.baselines.adaevolve import AdaEvolve
from costada.controller.baselines.adaevolve_frontiers import AdaEvolveFrontier
from costada.controller.constants import Constants
from costada.controller.costada import CostAda
from costada.controller.credit import Balance
from costada.controller.guidance import GuidanceCycle, Mode, after_landing
from costada.controller.method import Controller, PaidStep
from costada.controller.methods import METHODS
from costada.controller.step import ask_step, draws

FULL = Balance(2.0)
HERE = Allocation(0, Action.BALANCED, 0.5)
SEED = CostAda.start(0.4, CONSTANTS)
ADAEVOLVE = adaevolve(AdaEvolveFrontier(0.5, 0.1, 2, 5, 5, 0.5, 3.0), history=(False,) * 10)


def launched(controller: Controller, count: int, constants: Constants) -> list[Allocation]:
    """The choices of steps that are launched one after the other while none lands."""
    chosen: list[Allocation] = []
    for number in range(1, count + 1):
        chosen.append(ask_step(controller, FULL, 1, constants, ticket=number, in_flight=chosen))
    return chosen


def ended(controller: Any, score: float | None, *, is_guided: bool = False) -> tuple[Any, Any]:
    """Controller and decision once a step that cost nothing has landed."""
    step = PaidStep(score, is_kept=score is not None, cost=0.0, is_guided=is_guided)
    told, _ = controller.tell(HERE, step, FULL, CONSTANTS)
    return told.decide(HERE, FULL, CONSTANTS)


def test_a_step_in_flight_lowers_the_bonus_and_not_the_estimate() -> None:
    # rho 1, scale 0.5: 0.3 + 0.5 sqrt(ln 5 / 4) = 0.617 > 0.1 + 0.5 sqrt(ln 5 / 2) = 0.549;
    # with two in flight 0.3 + 0.5 sqrt(ln 7 / 6) = 0.585 < 0.1 + 0.5 sqrt(ln 7 / 2) = 0.593
    frontiers = (
        Frontier(0.5, allocation_estimate=0.3, visits=3),
        Frontier(0.5, allocation_estimate=0.1, visits=1),
    )
    assert select_frontier(frontiers, 1.0, CONSTANTS) == 0
    assert select_frontier(frontiers, 1.0, CONSTANTS, in_flight=(0, 0)) == 1


def test_promise_is_that_of_the_paper_with_launched_steps_as_visits() -> None:
    rng = Random(3)
    for _ in range(300):
        frontiers = tuple(
            Frontier(0.5, 0.0, rng.random() * 0.4, rng.randrange(9)) for _ in range(3)
        )
        in_flight = rng.choices(range(3), k=rng.choice([0, 0, 1, 5]))
        ratio = rng.random()
        counts = [frontier.visits for frontier in frontiers]
        for index in in_flight:
            counts[index] += 1
        bonus = ratio * CONSTANTS.optimism_scale
        ucb_scores = [
            frontier.allocation_estimate + bonus * sqrt(log(sum(counts) + 1) / (count + 1))
            for frontier, count in zip(frontiers, counts, strict=True)
        ]
        chosen = select_frontier(frontiers, ratio, CONSTANTS, in_flight)
        assert chosen == ucb_scores.index(max(ucb_scores))


@pytest.mark.parametrize("method", ["costada", "uniform"])
@pytest.mark.parametrize("num_frontiers", [2, 4])
def test_launches_from_the_start_spread_evenly(method: str, num_frontiers: int) -> None:
    constants = Constants(num_frontiers=num_frontiers)
    chosen = launched(METHODS[method].start(0.5, constants), 8, constants)
    counted = Counter(allocation.frontier for allocation in chosen)
    assert counted == dict.fromkeys(range(num_frontiers), 8 // num_frontiers)


def test_only_the_first_launch_on_a_frontier_is_a_first_visit() -> None:
    chosen = launched(SEED, 40, CONSTANTS)
    assert [each.action for each in chosen[:2]] == [Action.EXPLORATION, Action.BALANCED]
    assert {each.action for each in chosen[2:]} == set(Action)


def test_launches_of_adaevolve_fill_up_rarely_visited_frontiers() -> None:
    # the initial program is one visit of the first frontier; each is to have three
    chosen = launched(AdaEvolve.start(0.5, CONSTANTS), 5, CONSTANTS)
    assert chosen[0].frontier == 0
    assert Counter(each.frontier for each in chosen) == {0: 2, 1: 3}


def test_adaevolve_counts_a_frontier_whose_visits_are_all_in_flight() -> None:
    controller = AdaEvolve.start(0.5, CONSTANTS)
    busy = [Allocation(index, Action.BALANCED, 0.5) for index in (0, 0, 1, 1, 1)]
    # 1 + 1.41 sqrt(ln 6 / 3) on the first frontier, 0 + 1.41 sqrt(ln 6 / 3) on the second
    assert controller.ask(FULL, Random(1), CONSTANTS, busy).frontier == 0
    poor = replace(controller.frontiers[0], reward=0.0)
    poorer = replace(controller, frontiers=(poor, controller.frontiers[1]))
    assert poorer.ask(FULL, Random(1), CONSTANTS, [busy[0], *busy]).frontier == 1


def test_the_draws_of_a_launch_go_by_its_number() -> None:
    seen = replace(SEED, iteration=4, frontiers=(Frontier(0.4, visits=2), Frontier(0.4, visits=2)))
    for number in range(5, 30):
        expected = seen.ask(FULL, draws(7, number, "action"), CONSTANTS)
        assert ask_step(seen, FULL, 7, CONSTANTS, ticket=number) == expected
    fifth = ask_step(seen, FULL, 7, CONSTANTS, ticket=5)
    assert ask_step(seen, FULL, 7, CONSTANTS) == fifth


def test_a_consolidation_holds_no_more_steps_than_it_has_left() -> None:
    holding = replace(SEED, consolidation_left=2, held_frontier=1)
    held = Allocation(1, Action.EXPLOITATION, CONSTANTS.min_intensity)
    asked = [HERE, HERE]
    for _ in range(4):
        asked.append(holding.ask(FULL, Random(1), CONSTANTS, asked))
    assert [each == held for each in asked] == [False, False, True, True, False, False]


def test_only_a_held_step_counts_a_consolidation_down() -> None:
    holding = replace(SEED, consolidation_left=2, held_frontier=1)
    held = Allocation(1, Action.EXPLOITATION, CONSTANTS.min_intensity)
    after, _ = holding.decide(HERE, FULL, CONSTANTS)
    assert after.consolidation_left == 2
    after, _ = after.decide(held, FULL, CONSTANTS)
    assert after.consolidation_left == 1


def guided(controller: Any, uses: int) -> Any:
    """The controller after as many steps took a tactic each of a fresh cycle."""
    cycle = GuidanceCycle(Mode.REFINEMENT, controller.incumbent_score, (1, 1))
    controller = replace(controller, cycle=cycle)
    for _ in range(uses):
        controller, _ = controller.use_tactic(is_first=True)
    return controller


def test_a_cycle_fails_only_when_its_last_guided_step_has_landed() -> None:
    stalled = replace(guided(SEED, 2), stagnation=40, guidance_proven=True)
    waiting, decided = ended(stalled, 0.3, is_guided=True)
    assert (decided.scheduled, decided.backed_off) == (None, False)
    assert waiting.cycle.guided_in_flight == 1
    assert waiting.mode_override is None
    # an unguided step lands between: still nothing is judged
    waiting, decided = ended(waiting, 0.3)
    assert (decided.scheduled, decided.backed_off) == (None, False)
    failed, decided = ended(waiting, 0.3, is_guided=True)
    assert (decided.scheduled, decided.backed_off) == (None, True)
    assert (failed.cycle, failed.stagnation) == (None, 0)
    assert failed.mode_override is Mode.BREAKTHROUGH


def test_a_late_guided_step_can_still_succeed() -> None:
    waiting, _ = ended(guided(SEED, 2), 0.3, is_guided=True)
    after, decided = ended(waiting, 0.6, is_guided=True)
    assert decided.opened_consolidation
    assert not decided.backed_off
    assert after.cycle is None
    assert (after.consolidation_left, after.held_frontier) == (2, 0)


def test_retries_of_a_guided_step_are_one_step_in_flight() -> None:
    controller = guided(SEED, 1)
    retried, _ = controller.use_tactic(is_first=False)
    assert retried.cycle.guided_in_flight == 1
    failed, decided = ended(retried, None, is_guided=True)
    assert decided.backed_off
    assert failed.cycle is None


def test_what_another_step_gains_is_no_success_of_the_cycle() -> None:
    raised, decided = ended(guided(SEED, 1), 0.6)
    assert not decided.opened_consolidation
    assert raised.cycle.baseline_score == pytest.approx(0.6)
    same, decided = ended(raised, 0.55, is_guided=True)
    assert not decided.opened_consolidation
    assert (same.incumbent_score, same.cycle.uses_left) == (0.6, (0, 1))


def test_gains_of_the_cycle_below_the_threshold_stay_its_own() -> None:
    # 8e-6 by a guided step, 0.1 by another, 8e-6 by a guided one: 16e-6 exceed the 10e-6
    controller = guided(SEED, 2)
    controller, decided = ended(controller, 0.4 + 8e-6, is_guided=True)
    assert not decided.opened_consolidation
    controller, decided = ended(controller, 0.5 + 8e-6)
    assert not decided.opened_consolidation
    controller, decided = ended(controller, 0.5 + 16e-6, is_guided=True)
    assert decided.opened_consolidation


@pytest.mark.parametrize("cycle", [None, GuidanceCycle(Mode.REFINEMENT, 0.5, (1, 1))])
def test_a_guided_step_that_was_not_launched_is_refused(cycle: GuidanceCycle | None) -> None:
    with pytest.raises(ValueError, match="is_guided: got True, expected a guided step in flight"):
        after_landing(cycle, is_guided=True, incumbent_rise=0.0)


@pytest.mark.parametrize(
    "controller",
    [
        replace(SEED, stagnation=40, pending=Mode.REFINEMENT),
        replace(ADAEVOLVE, pending=Mode.BREAKTHROUGH),
    ],
    ids=["costada", "adaevolve"],
)
def test_a_guide_under_way_is_kept_and_none_is_scheduled_beside_it(controller: Any) -> None:
    after, decided = ended(controller, None)
    assert decided.scheduled is None
    assert after.pending is controller.pending
    assert after.iteration == controller.iteration + 1
    # without it, the same evidence buys one
    after, decided = ended(replace(controller, pending=None), None)
    assert after.pending is decided.scheduled is not None


def test_adaevolve_buys_no_guide_while_a_guided_step_is_in_flight() -> None:
    waiting, decided = ended(guided(ADAEVOLVE, 2), None, is_guided=True)
    assert decided.scheduled is None
    after, decided = ended(waiting, None, is_guided=True)
    assert after.cycle is None
    assert decided.scheduled is Mode.BREAKTHROUGH

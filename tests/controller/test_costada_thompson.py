"""Frontiers chosen by gain per dollar: who is tried first, who is drawn, and what is credited."""

from collections import Counter
from dataclasses import asdict, replace
from random import Random

import pytest
from controller_samples import bill, random_scores, records
from hypothesis import given, settings
from hypothesis import strategies as st

from costada.controller.allocation import Action, Allocation
from costada.controller.arms import ModelRecord
from costada.controller.constants import Constants
from costada.controller.costada import CostAda
from costada.controller.costada_thompson import CostAdaThompson
from costada.controller.credit import Balance
from costada.controller.method import PaidStep
from costada.controller.router import Router

CONSTANTS = Constants(num_frontiers=2, reference_cost=0.01)
SEED = CostAdaThompson.start(0.5, CONSTANTS)
STEPS = 120


def known(*rows: tuple[float, int, float]) -> CostAdaThompson:
    """A controller whose frontiers have this credit, these steps and these dollars."""
    started = CostAdaThompson.start(0.5, CONSTANTS.model_copy(update={"num_frontiers": len(rows)}))
    names = map(str, range(1, len(rows) + 1))
    found = tuple(ModelRecord(name, *row) for name, row in zip(names, rows, strict=True))
    return replace(started, router=Router("budgeted-thompson", found))


def chosen(controller: CostAdaThompson, balance: Balance, seed: int = 0) -> int:
    return controller.ask(balance, Random(seed), CONSTANTS).frontier


def told(
    controller: CostAdaThompson, frontier: int, score: float | None, cost: float, spent: float
) -> CostAdaThompson:
    step = PaidStep(score, is_kept=score is not None, cost=cost)
    where = Allocation(frontier, Action.BALANCED, 0.3)
    after, _ = controller.tell(where, step, Balance(1.0, spent), CONSTANTS)
    ended, _ = after.decide(where, Balance(1.0, spent), CONSTANTS)
    return ended


def test_each_frontier_has_four_first_tries_in_turn_while_nothing_gains() -> None:
    controller, visited = SEED, []
    for step in range(8):
        visited.append(chosen(controller, Balance(1.0, 0.01 * step), step))
        controller = told(controller, visited[-1], None, 0.01, 0.01 * (step + 1))
    assert visited == [0, 1] * 4


def test_a_frontier_that_gained_is_owed_no_further_first_try() -> None:
    controller = told(SEED, 0, 0.6, 0.01, 0.01)
    tries = []
    for step in range(1, 5):
        tries.append(chosen(controller, Balance(1.0, 0.01 * step), step))
        controller = told(controller, tries[-1], 0.2, 0.01, 0.01 * (step + 1))
    assert tries == [1, 1, 1, 1]


def test_first_tries_of_a_frontier_end_at_their_share_of_the_budget() -> None:
    # 0.145 spent on the first and 0.01 expected exceed 15 % of the budget, 0.14 do not
    costly, cheap = known((0, 1, 0.145), (0, 4, 0.001)), known((0, 1, 0.139), (0, 4, 0.001))
    drawn = [chosen(costly, Balance(1.0, 0.3), seed) for seed in range(20)]
    assert Counter(drawn)[1] > 15
    assert {chosen(cheap, Balance(1.0, 0.3), seed) for seed in range(20)} == {0}


def test_only_a_rise_of_the_incumbent_is_credited() -> None:
    higher_there = replace(SEED, incumbent_score=0.7)
    for score, credit in ((0.71, 1.0), (0.7, 0.0), (0.6, 0.0), (None, 0.0)):
        after = told(higher_there, 1, score, 0.25, 0.25)
        assert after.router.records == (
            ModelRecord("1"),
            ModelRecord("2", credit, 1, 0.25, fruitless=int(not credit)),
        )


@given(
    st.lists(
        st.tuples(st.integers(4, 30), st.floats(0, 1), st.floats(0.01, 0.3)),
        min_size=2,
        max_size=12,
    ),
    st.integers(0, 10**6),
)
@settings(max_examples=60)
def test_the_drawn_chance_per_dollar_decides(
    rows: list[tuple[int, float, float]], seed: int
) -> None:
    controller = known(*((share * tries, tries, price * tries) for tries, share, price in rows))
    rng, ratios = Random(seed), {}
    for name in sorted(str(number) for number in range(1, len(rows) + 1)):
        tries, share, price = rows[int(name) - 1]
        gained, dollars = share * tries, price * tries
        drawn = rng.betavariate(4 * (0.5 + gained), 4 * (1.5 + tries - gained))
        ratios[int(name) - 1] = drawn / ((0.01 + dollars) / (1 + tries))
    assert chosen(controller, Balance(100.0, 1.0), seed) == max(ratios, key=lambda i: ratios[i])


def test_a_frontier_beyond_what_is_left_is_chosen_only_if_all_are() -> None:
    # prices 0.0406 and 0.194; the first gained nothing, the second always
    controller = known((0, 9, 0.396), (4, 4, 0.96))
    assert {chosen(controller, Balance(1.0, 0.85), seed) for seed in range(50)} == {0}
    assert {chosen(controller, Balance(1.0, 0.99), seed) for seed in range(50)} == {0}
    assert 1 in {chosen(controller, Balance(1.0, 0.5), seed) for seed in range(50)}


def test_steps_in_flight_are_first_tries_and_spoken_for() -> None:
    launched: list[Allocation] = []
    for number in range(8):
        launched.append(SEED.ask(Balance(1.0), Random(number), CONSTANTS, launched))
    assert [each.frontier for each in launched] == [0, 1] * 4
    # 0.1 are left; with seven steps of 0.01 in flight the second frontier's 0.05 is too much
    controller = known((0, 9, 0.09), (9, 9, 0.49))
    flying = [Allocation(0, Action.BALANCED, 0.3)] * 7
    for seed in range(30):
        assert controller.ask(Balance(1.0, 0.9), Random(seed), CONSTANTS, flying).frontier == 0
    assert chosen(controller, Balance(1.0, 0.9)) == 1


def test_a_consolidation_holds_its_frontier() -> None:
    held = replace(known((4, 4, 0.04), (0, 4, 0.4)), consolidation_left=1, held_frontier=1)
    assert held.ask(Balance(1.0, 0.5), Random(0), CONSTANTS) == Allocation(
        1, Action.EXPLOITATION, CONSTANTS.min_intensity
    )


def test_what_a_step_earns_and_when_a_guide_is_due_is_as_in_costada() -> None:
    own, paper = SEED, CostAda.start(0.5, CONSTANTS)
    events = []
    for number, score in enumerate(random_scores(5, STEPS), start=1):
        where = Allocation(number % 2, Action.BALANCED, 0.3)
        step = PaidStep(score, score is not None, 0.005)
        balance = Balance(1.0, 0.005 * number)
        own, credit = own.tell(where, step, balance, CONSTANTS)
        paper, expected = paper.tell(where, step, balance, CONSTANTS)
        assert credit == expected
        own, decided = own.decide(where, balance, CONSTANTS)
        paper, due = paper.decide(where, balance, CONSTANTS)
        assert decided == due
        events.append(decided.scheduled)
        own, paper = (each.fail_guide() if each.pending else each for each in (own, paper))
        ours = asdict(own)
        del ours["router"]
        assert ours == asdict(paper)
    assert any(events)


def test_steps_and_dollars_of_all_frontiers_add_up() -> None:
    costs = [Random(8).uniform(0.001, 0.02) for _ in range(STEPS)]
    bills = [(cost, sum(costs[: i + 1])) for i, cost in enumerate(costs)]
    run = records("costada-thompson", random_scores(5, STEPS), bills, budget=5.0)
    for number, controller in enumerate(run, start=1):
        found = controller.router.records
        assert sum(record.tries for record in found) == number
        assert sum(record.dollars for record in found) == pytest.approx(bills[number - 1][1])
        assert [record.tries for record in found] == [
            frontier.visits for frontier in controller.frontiers
        ]


def test_costs_decide_which_frontier_is_next() -> None:
    scores = random_scores(5, STEPS)
    cheap, costly = (
        records("costada-thompson", scores, bill(STEPS, amount), budget=5.0)
        for amount in (0.001, 0.04)
    )
    visits = [[each.frontiers[0].visits for each in run] for run in (cheap, costly)]
    assert visits[0] != visits[1]


def test_a_seed_score_must_be_finite() -> None:
    with pytest.raises(ValueError, match="seed_score: got nan, expected a finite number"):
        CostAdaThompson.start(float("nan"), CONSTANTS)

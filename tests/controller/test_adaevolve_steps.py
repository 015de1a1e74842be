"""What AdaEvolve decides between two steps: where to search, and when to buy a guide."""

from collections import Counter
from dataclasses import FrozenInstanceError, replace
from random import Random

import pytest
from controller_samples import (
    BALANCE,
    CONSTANTS,
    FAILED,
    adaevolve,
    ask,
    bill,
    decide,
    kept,
    played,
    tell,
)

from costada.controller.allocation import Allocation
from costada.controller.baselines.adaevolve import AdaEvolve, is_fruitless
from costada.controller.baselines.adaevolve_frontiers import AdaEvolveFrontier
from costada.controller.guidance import GuidanceCycle, Mode
from costada.controller.intensity import Action

HERE = Allocation(0, Action.BALANCED, 0.3)
VISITED = AdaEvolveFrontier(0.5, 0.1, 2, 5, 5, 0.5, 3.0)
FRUITLESS = (True, *(False,) * 9)


def test_the_first_step_takes_the_first_frontier_and_draws_the_action_alone() -> None:
    controller = AdaEvolve.start(0.5, CONSTANTS)
    rng, action_only = Random(4), Random(4)
    assert controller.ask(BALANCE, rng, CONSTANTS).frontier == 0
    action_only.random()
    assert rng.getstate() == action_only.getstate()


def test_later_steps_count_completed_iterations_in_the_bonus() -> None:
    first = AdaEvolveFrontier(0.5, 0.1, 1, 4, 4, 0.06, 3.0)
    second = AdaEvolveFrontier(0.5, 0.4, 1, 3, 3, 0.0, 2.71)
    allocation = ask(adaevolve(first, second, iteration=7), 1)
    assert allocation.frontier == 1
    assert allocation.intensity == pytest.approx(0.15 + 0.35 / (1 + 0.4**0.5), abs=1e-6)


def test_actions_are_drawn_with_the_intensity_of_the_frontier() -> None:
    controller = adaevolve(VISITED)
    rng = Random(2)
    drawn = Counter(controller.ask(BALANCE, rng, CONSTANTS).action for _ in range(6000))
    intensity = 0.4159
    assert drawn[Action.EXPLORATION] / 6000 == pytest.approx(intensity, abs=0.02)
    assert drawn[Action.EXPLOITATION] / 6000 == pytest.approx(0.7 * (1 - intensity), abs=0.02)
    assert drawn[Action.BALANCED] / 6000 == pytest.approx(0.3 * (1 - intensity), abs=0.02)


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        (FRUITLESS, True),
        ((False,) * 10, True),
        ((True, True, *(False,) * 8), False),
        ((False,) * 9, False),
        ((), False),
    ],
)
def test_at_most_one_new_incumbent_in_ten_entries_is_fruitless(
    history: tuple[bool, ...], expected: bool
) -> None:
    assert is_fruitless(history) is expected


def test_the_history_of_this_step_decides_on_the_guide_of_the_next() -> None:
    before = adaevolve(VISITED, history=(True, True, *(False,) * 8))
    credited, _ = tell(before, HERE, kept(0.1))
    after, decided = decide(credited, HERE)
    assert after.history == FRUITLESS
    assert (decided.scheduled, after.pending) == (Mode.BREAKTHROUGH, "breakthrough")
    assert (decided.opened_consolidation, decided.backed_off, decided.notes) == (False, False, ())
    assert after.iteration == before.iteration + 1


def test_a_failed_step_leaves_the_history_as_it_was() -> None:
    before = adaevolve(VISITED, history=(True, True, *(False,) * 8))
    after, decided = decide(tell(before, HERE, FAILED)[0], HERE)
    assert decided.scheduled is None
    assert after.history == before.history


def test_no_guide_is_bought_while_a_tactic_is_left() -> None:
    cycle = GuidanceCycle(Mode.BREAKTHROUGH, 0.5, (0, 1), 1, is_guided=True)
    after, decided = decide(adaevolve(VISITED, history=FRUITLESS, cycle=cycle), HERE)
    assert decided.scheduled is None
    assert after.cycle == GuidanceCycle(Mode.BREAKTHROUGH, 0.5, (0, 1), 1, is_guided=False)


def test_a_guide_can_follow_at_once_when_a_batch_ends() -> None:
    cycle = GuidanceCycle(Mode.BREAKTHROUGH, 0.5, (0, 1), 1)
    guided, tactic = adaevolve(VISITED, history=FRUITLESS, cycle=cycle).use_tactic()
    after, decided = decide(guided, HERE)
    assert tactic == 1
    assert after.cycle is None
    assert decided.scheduled is Mode.BREAKTHROUGH


def test_success_neither_ends_a_batch_nor_holds_a_frontier() -> None:
    cycle = GuidanceCycle(Mode.BREAKTHROUGH, 0.5, (2, 2, 2))
    guided, _ = adaevolve(VISITED, history=FRUITLESS, cycle=cycle).use_tactic()
    after, decided = decide(tell(guided, HERE, kept(0.9))[0], HERE)
    assert after.cycle == GuidanceCycle(Mode.BREAKTHROUGH, 0.5, (1, 2, 2), 1)
    assert decided.opened_consolidation is False
    assert after.record().consolidation_left == 0


def test_a_failed_guide_is_tried_again_after_the_step() -> None:
    pending = adaevolve(VISITED, history=FRUITLESS, pending=Mode.BREAKTHROUGH)
    failed = pending.fail_guide()
    assert failed.pending is None
    after, decided = decide(tell(failed, HERE, FAILED)[0], HERE)
    assert (decided.scheduled, decided.backed_off) == (Mode.BREAKTHROUGH, False)
    assert after.pending == "breakthrough"


def test_a_guide_opens_two_uses_of_each_tactic_in_rotation() -> None:
    controller = adaevolve(VISITED, pending=Mode.BREAKTHROUGH).open_cycle(3, CONSTANTS)
    assert controller.pending is None
    used = []
    for _ in range(6):
        controller, tactic = controller.use_tactic()
        used.append(tactic)
    assert used == [0, 1, 2, 0, 1, 2]


def test_calls_out_of_turn_are_refused() -> None:
    idle = adaevolve(VISITED)
    with pytest.raises(ValueError, match="pending: got None, expected a scheduled guide"):
        idle.open_cycle(3, CONSTANTS)
    with pytest.raises(ValueError, match="pending: got None, expected a scheduled guide"):
        idle.fail_guide()
    with pytest.raises(ValueError, match="cycle: no tactic has a use left"):
        idle.use_tactic()
    with pytest.raises(ValueError, match="num_tactics: got 4, expected 1 to 3"):
        adaevolve(VISITED, pending=Mode.BREAKTHROUGH).open_cycle(4, CONSTANTS)


def test_stagnation_counts_all_steps_since_the_incumbent_rose() -> None:
    scores = [0.4, None, 0.6, 0.6, None, 0.1]
    counts = [c.record().stagnation for c, _ in played("adaevolve", scores, bill(6))]
    assert counts == [1, 2, 0, 1, 2, 3]


def test_a_steady_climb_never_buys_a_guide() -> None:
    scores = [0.5 + 0.01 * step for step in range(1, 41)]
    assert {c.pending for c, _ in played("adaevolve", scores, bill(40))} == {None}


def test_ten_fruitless_entries_buy_a_guide() -> None:
    bought = [c.pending for c, _ in played("adaevolve", [0.4] * 9, bill(9))]
    assert bought == [None] * 8 + ["breakthrough"]


def test_a_step_replaces_the_controller_and_never_changes_it() -> None:
    controller = adaevolve(VISITED, history=FRUITLESS)
    before = replace(controller)
    decide(tell(controller, HERE, kept(0.9))[0], HERE)
    assert controller == before
    with pytest.raises(FrozenInstanceError):
        controller.frontiers[0].visits = 9  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        controller.history = ()  # type: ignore[misc]

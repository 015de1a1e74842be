"""The life of a tactic batch, and the decision to buy a guide."""

from dataclasses import replace
from itertools import product

import pytest

from costada.controller.constants import Constants
from costada.controller.guidance import (
    GuidanceCycle,
    Mode,
    after_step,
    after_use,
    backs_off,
    can_afford_guide,
    consolidation_left,
    current_tactic,
    cycle_succeeded,
    default_mode,
    failed_mode,
    guide_mode,
    has_low_yield,
    held_frontier,
    is_active,
    is_free_for_guide,
    is_stagnant,
    mode_override,
    new_cycle,
    required_patience,
    should_intervene,
    tactic_uses_left,
)

CONSTANTS = Constants()

BREAKTHROUGH, REFINEMENT = Mode.BREAKTHROUGH, Mode.REFINEMENT


def used_tactics(cycle: GuidanceCycle) -> list[int]:
    order = []
    while current_tactic(cycle) is not None:
        cycle, tactic = after_use(cycle, is_first=not order)
        order.append(tactic)
    return order


@pytest.mark.parametrize(
    ("num_tactics", "order"), [(3, [0, 1, 2, 0, 1, 2]), (2, [0, 1, 0, 1]), (1, [0, 0])]
)
def test_tactics_rotate_until_each_is_used_up(num_tactics: int, order: list[int]) -> None:
    assert used_tactics(new_cycle(BREAKTHROUGH, 0.5, num_tactics, CONSTANTS)) == order


def test_the_rotation_skips_an_exhausted_tactic() -> None:
    cycle = GuidanceCycle(BREAKTHROUGH, 0.5, (1, 0, 2), next_tactic=1)
    assert used_tactics(cycle) == [2, 0, 2]


@pytest.mark.parametrize("num_tactics", [0, 4])
def test_a_cycle_needs_one_to_three_tactics(num_tactics: int) -> None:
    with pytest.raises(ValueError, match=rf"num_tactics: got {num_tactics}, expected 1 to 3"):
        new_cycle(BREAKTHROUGH, 0.5, num_tactics, CONSTANTS)


def test_a_cycle_is_active_while_a_use_is_left() -> None:
    assert is_active(GuidanceCycle(BREAKTHROUGH, 0.5, (0, 1, 0)))
    assert not is_active(GuidanceCycle(BREAKTHROUGH, 0.5, (0, 0, 0)))
    assert not is_active(None)


def test_the_uses_of_all_tactics_are_counted() -> None:
    assert tactic_uses_left(new_cycle(BREAKTHROUGH, 0.5, 3, CONSTANTS)) == 6
    assert tactic_uses_left(None) == 0
    assert current_tactic(None) is None


def test_a_cycle_succeeds_only_in_a_guided_step_above_its_baseline() -> None:
    guided = GuidanceCycle(BREAKTHROUGH, 0.5, (1,), is_guided=True)
    assert cycle_succeeded(guided, 0.51, CONSTANTS)
    assert not cycle_succeeded(guided, 0.500005, CONSTANTS)
    assert not cycle_succeeded(replace(guided, is_guided=False), 0.51, CONSTANTS)
    assert not cycle_succeeded(None, 0.51, CONSTANTS)


def test_a_success_is_remembered_and_raises_the_baseline() -> None:
    cycle = GuidanceCycle(BREAKTHROUGH, 0.5, (1,), is_guided=True)
    after = GuidanceCycle(BREAKTHROUGH, 0.6, (1,), has_succeeded=True)
    assert after_step(cycle, True, 0.6) == after
    assert after_step(after, False, 0.7) == after
    assert after_step(None, False, 0.7) is None


def test_only_a_cycle_exhausted_without_success_has_failed() -> None:
    spent = GuidanceCycle(REFINEMENT, 0.5, (0, 0))
    assert failed_mode(spent) is REFINEMENT
    assert failed_mode(replace(spent, has_succeeded=True)) is None
    assert failed_mode(replace(spent, uses_left=(0, 1))) is None
    assert failed_mode(None) is None


def test_a_failed_cycle_and_a_failed_guide_both_back_off() -> None:
    assert backs_off(BREAKTHROUGH, guide_failed=False)
    assert backs_off(None, guide_failed=True)
    assert not backs_off(None, guide_failed=False)


def test_proven_guidance_refines_unless_corrected() -> None:
    assert default_mode(guidance_proven=False) is BREAKTHROUGH
    assert default_mode(guidance_proven=True) is REFINEMENT
    assert guide_mode(None, guidance_proven=True) is REFINEMENT
    assert guide_mode(BREAKTHROUGH, guidance_proven=True) is BREAKTHROUGH


@pytest.mark.parametrize(
    ("previous", "succeeded", "failed", "was_proven", "expected"),
    [
        (BREAKTHROUGH, True, None, True, None),
        (None, False, REFINEMENT, True, BREAKTHROUGH),
        (None, False, REFINEMENT, False, None),
        (BREAKTHROUGH, False, BREAKTHROUGH, True, None),
        (None, False, BREAKTHROUGH, False, None),
        (BREAKTHROUGH, False, None, True, BREAKTHROUGH),
        (None, False, None, True, None),
    ],
)
def test_the_mode_correction_follows_its_table(
    previous: Mode | None,
    succeeded: bool,
    failed: Mode | None,
    was_proven: bool,
    expected: Mode | None,
) -> None:
    assert mode_override(previous, succeeded, failed, was_proven) is expected


def test_consolidation_holds_one_step_per_frontier_and_counts_down() -> None:
    assert consolidation_left(0, True, 2, is_held=False) == 2
    assert [consolidation_left(left, False, 2, is_held=True) for left in (2, 1, 0)] == [1, 0, 0]
    assert [consolidation_left(left, False, 2, is_held=False) for left in (2, 1, 0)] == [2, 1, 0]


def test_the_held_frontier_changes_only_at_a_success() -> None:
    assert held_frontier(0, True, 1) == 1
    assert held_frontier(0, False, 1) == 0
    assert held_frontier(None, False, 1) is None


CHOICE = (False, True)


@pytest.mark.parametrize(
    ("ratio", "patience"), [(1.0, 4), (0.9, 4), (1 / 3 + 1e-6, 4), (0.32, 5), (0.16, 6), (0.0, 6)]
)
def test_patience_grows_as_the_budget_runs_out(ratio: float, patience: int) -> None:
    assert required_patience(ratio, 2, CONSTANTS) == patience


def test_rounding_does_not_lift_a_whole_patience() -> None:
    assert 20 * (1 - 0.7) > 6
    assert required_patience(0.7, 1, Constants(base_patience=20)) == 6


def test_patience_is_at_least_two_visits_per_frontier() -> None:
    assert required_patience(1.0, 5, CONSTANTS) == 10


def test_stagnation_must_reach_the_patience() -> None:
    assert not is_stagnant(3, 0.9, 2, CONSTANTS)
    assert is_stagnant(4, 0.9, 2, CONSTANTS)


@pytest.mark.parametrize(
    ("stagnation", "cost", "ratio", "expected"),
    [
        (2, 0.02, 0.5, True),
        (1, 0.02, 0.5, False),
        (2, 0.0199, 0.5, False),
        (2, 0.02, 0.4999, False),
    ],
)
def test_low_yield_needs_half_the_budget_a_visit_each_and_a_guide_of_dollars(
    stagnation: int, cost: float, ratio: float, expected: bool
) -> None:
    assert has_low_yield(stagnation, cost, ratio, 2, CONSTANTS) is expected


def test_a_guide_is_affordable_with_one_step_after_it() -> None:
    assert not can_afford_guide(1.0, 1.0 - 0.0299, CONSTANTS)
    assert can_afford_guide(1.0, 1.0 - 0.0301, CONSTANTS)


def test_consolidation_cycle_and_backoff_each_stand_in_the_way() -> None:
    cycle = GuidanceCycle(Mode.BREAKTHROUGH, 0.5, (1,))
    assert is_free_for_guide(0, None, backed_off=False)
    assert not is_free_for_guide(1, None, backed_off=False)
    assert not is_free_for_guide(0, cycle, backed_off=False)
    assert not is_free_for_guide(0, None, backed_off=True)


def test_a_guide_is_bought_when_free_affordable_and_either_evidence_holds() -> None:
    bought = {
        case
        for case in product(CHOICE, CHOICE, CHOICE, CHOICE)
        if should_intervene(*case, constants=CONSTANTS)
    }
    free = afford = stagnant = low_yield = True
    assert bought == {
        (free, afford, stagnant, False),
        (free, afford, False, low_yield),
        (free, afford, stagnant, low_yield),
    }


def test_without_gating_stagnation_alone_decides() -> None:
    ungated = Constants(gates_intervention=False)
    for free, afford, stagnant, low_yield in product(CHOICE, CHOICE, CHOICE, CHOICE):
        decision = should_intervene(free, afford, stagnant, low_yield, ungated)
        assert decision is (free and stagnant)


def test_always_and_never_put_a_fixed_answer_in_the_place_of_the_evidence() -> None:
    always, never = Constants(guides="always"), Constants(guides="never")
    for free, afford, stagnant, low_yield in product(CHOICE, CHOICE, CHOICE, CHOICE):
        case = free, afford, stagnant, low_yield
        assert should_intervene(*case, always) is (free and afford)
        assert should_intervene(*case, never) is False

from dataclasses import replace

import pytest

from costada.controller.constants import Constants
from costada.controller.guidance import (
    GuidanceCycle,
    Mode,
    after_step,
    after_use,
    backs_off,
    consolidation_left,
    current_tactic,
    cycle_succeeded,
    default_mode,
    failed_mode,
    guide_mode,
    held_frontier,
    is_active,
    mode_override,
    new_cycle,
    tactic_uses_left,
)

CONSTANTS = Constants()
BREAKTHROUGH, REFINEMENT = Mode.BREAKTHROUGH, Mode.REFINEMENT


def used_tactics(cycle: GuidanceCycle) -> list[int]:
    """Return the tactics in the order the rotation yields them."""
    order = []
    while current_tactic(cycle) is not None:
        cycle, tactic = after_use(cycle)
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
    assert consolidation_left(0, True, 2) == 2
    assert [consolidation_left(left, False, 2) for left in (2, 1, 0)] == [1, 0, 0]


def test_the_held_frontier_changes_only_at_a_success() -> None:
    assert held_frontier(0, True, 1) == 1
    assert held_frontier(0, False, 1) == 0
    assert held_frontier(None, False, 1) is None

"""EvoX between two steps."""

from math import log, sqrt
from random import Random

import pytest
from controller_samples import CONSTANTS, ask, decide, tell

from costada.controller.allocation import Action, Allocation
from costada.controller.constants import Constants
from costada.controller.method import Evidence, PaidStep, ParentRule
from costada.controller.step import num_seeds
from costada.plugins.evox.controller import (
    LABELS,
    STRATEGY,
    EvoX,
    ScoredStrategy,
    best_strategy,
    draw_context,
    strategy_stagnation,
    switch_interval,
    window_score,
)

EVERYWHERE = Allocation(0, Action.BALANCED, 0.0)


def started(seed_score: float = 0.5) -> EvoX:
    return EvoX.start(seed_score, CONSTANTS).with_labels()


def after_step(controller: EvoX, score: float | None, constants: Constants = CONSTANTS) -> EvoX:
    reviewed = controller.review(score, constants)
    return reviewed if reviewed.pending else ended(reviewed, score, constants)


def ended(controller: EvoX, score: float | None = None, constants: Constants = CONSTANTS) -> EvoX:
    updated, _ = tell(controller, EVERYWHERE, PaidStep(score, score is not None, 0.01))
    return decide(updated, EVERYWHERE, constants)[0]


def stagnant(controller: EvoX) -> EvoX:
    while controller.pending is None:
        controller = after_step(controller, None)
    return controller


def evolved(controller: EvoX, strategy: str) -> EvoX:
    return ended(stagnant(controller).adopt(strategy, CONSTANTS))


def steps_until_evolution(scores: list[float], seed_score: float) -> int:
    controller = started(seed_score)
    for number, score in enumerate(scores, start=1):
        controller = after_step(controller, score)
        if controller.pending == STRATEGY:
            return number
    return 0


def test_creeping_progress_evolves_the_strategy_after_the_eleventh_step() -> None:
    assert steps_until_evolution([0.5 + 0.005 * k for k in range(30)], 0.4) == 11


def test_a_jump_in_the_sixth_step_puts_the_evolution_off_to_ten_steps_later() -> None:
    creeping = [0.5 + 0.005 * k for k in range(5)]
    jumped = [creeping[-1] + 0.02 + 0.005 * k for k in range(30)]
    assert steps_until_evolution(creeping + jumped, 0.4) == 16


def test_a_run_begins_with_the_labels_and_the_initial_strategy() -> None:
    controller = EvoX.start(0.5, CONSTANTS)
    assert (controller.pending, controller.strategy, controller.iteration) == (LABELS, "", 0)
    assert controller.with_labels().pending is None


def test_one_frontier_without_choice_takes_parents_from_the_population() -> None:
    controller = started()
    assert controller.parents is ParentRule.POPULATION
    assert num_seeds(controller) == 1
    assert ask(controller) == EVERYWHERE


def test_a_step_raises_the_iteration_once() -> None:
    controller = after_step(started(), 0.7)
    assert (controller.iteration, controller.incumbent_score) == (1, 0.7)
    assert after_step(controller, 0.6).incumbent_score == 0.7


def test_credit_tells_the_gain_over_the_incumbent_and_nothing_of_cost() -> None:
    cheap, costly = (tell(started(), EVERYWHERE, PaidStep(0.8, True, cost)) for cost in (0, 9))
    assert cheap == costly
    earned = cheap[1]
    assert (earned.local_gain, earned.global_gain) == pytest.approx((0.3, 0.3))
    assert (earned.cost_divisor, earned.utility, earned.allocation_reward) == (1.0, 0.0, 0.0)


def test_stagnation_is_the_evidence() -> None:
    controller = after_step(after_step(after_step(started(), None), None), None)
    assert controller.record() == Evidence(stagnation=2)


def test_an_evolution_is_bought_within_the_step_that_asked_for_it() -> None:
    asked = stagnant(started())
    assert (asked.iteration, asked.pending, asked.record().stagnation) == (10, STRATEGY, 0)
    adopted, decided = decide(asked.adopt("a", CONSTANTS), EVERYWHERE)
    assert (adopted.iteration, adopted.pending, adopted.strategy) == (11, None, "a")
    assert decided.notes == ("strategy_adopted",)
    kept, decided = decide(asked.keep_strategy(CONSTANTS), EVERYWHERE)
    assert (kept.iteration, kept.pending, kept.strategy) == (11, None, "")
    assert decided.notes == ("strategy_kept",)


def test_a_step_evolves_at_most_once_even_where_every_step_is_stagnant() -> None:
    constants = Constants(max_iterations=10)
    controller = after_step(started(), None, constants)
    for iteration in range(2, 5):
        asked = after_step(controller, None, constants)
        assert asked.pending == STRATEGY
        controller = ended(asked.keep_strategy(constants), None, constants)
        assert (controller.iteration, controller.pending) == (iteration, None)


def test_a_step_that_is_not_reviewed_evolves_nothing() -> None:
    constants = Constants(max_iterations=3)
    asked = after_step(after_step(started(), None, constants), None, constants)
    assert asked.pending == STRATEGY
    kept = ended(asked.keep_strategy(constants), None, constants)
    assert (ended(kept, None, constants).iteration, ended(kept).pending) == (3, None)
    assert after_step(kept, None, constants).pending == STRATEGY


def test_a_review_counts_the_step_that_has_not_been_told_and_leaves_its_gain() -> None:
    asked = stagnant(started())
    reviewed = ended(asked.keep_strategy(CONSTANTS)).review(0.8, CONSTANTS)
    assert (reviewed.best_score, reviewed.incumbent_score) == (0.8, 0.5)
    _, earned = tell(reviewed, EVERYWHERE, PaidStep(0.8, True, 0.01))
    assert earned.global_gain == pytest.approx(0.3)


def test_the_next_evolution_comes_after_as_many_stagnant_steps_again() -> None:
    once = evolved(started(), "a")
    assert stagnant(once).iteration == 11 + 9


def test_a_strategy_is_scored_over_its_own_window() -> None:
    controller = after_step(evolved(started(0.5), "a"), 0.8)
    assert controller.strategy_score(CONSTANTS) == pytest.approx(0.133334, abs=1e-6)
    later = evolved(controller, "b")
    assert [each.strategy for each in later.scored] == ["", "a"]
    assert later.scored[1].score == pytest.approx(0.133334, abs=1e-6)
    assert later.strategy_score(CONSTANTS) == 0.0


def test_a_score_tells_when_its_window_was_and_how_far_it_came() -> None:
    later = evolved(after_step(evolved(started(0.5), "a"), 0.8), "b")
    initial, first = later.scored
    assert (initial.since, initial.until, initial.start, initial.end) == (0, 11, 0.5, 0.5)
    assert (first.since, first.until, first.start, first.end) == (11, 22, 0.5, 0.8)
    assert later.active_since == 22


def test_a_strategy_that_is_kept_is_scored_once() -> None:
    kept, _ = decide(stagnant(started()).keep_strategy(CONSTANTS), EVERYWHERE)
    assert kept.strategy_score(CONSTANTS) is None
    again, _ = decide(stagnant(after_step(kept, 0.9)).keep_strategy(CONSTANTS), EVERYWHERE)
    assert [each.strategy for each in again.scored] == [""]


def test_the_best_strategy_becomes_the_parent_of_the_next() -> None:
    controller = evolved(after_step(evolved(started(), "a"), 0.8), "b")
    parent, context = stagnant(controller).draw_strategies(Random(0), CONSTANTS)
    assert parent.strategy == "a"
    assert {each.strategy for each in context} == {"", "b"}


def test_a_strategy_that_fails_makes_way_for_the_one_before() -> None:
    controller = evolved(evolved(started(), "a"), "b").fall_back()
    assert (controller.strategy, controller.strategy_score(CONSTANTS)) == ("a", None)
    assert controller.fall_back().strategy == ""
    assert controller.fall_back().fall_back().strategy == ""


def test_a_strategy_that_failed_never_gets_a_score() -> None:
    controller = evolved(evolved(started(), "a"), "b").fall_back()
    later = evolved(controller, "c")
    assert [each.strategy for each in later.scored] == ["", "a"]
    assert later.fall_back().strategy == "a"


def test_a_failure_is_reported_in_the_step_it_happened_in() -> None:
    failed = evolved(started(), "a").fall_back()
    after, decided = decide(failed, EVERYWHERE)
    assert decided.notes == ("strategy_failed",)
    assert decide(after, EVERYWHERE)[1].notes == ()


def test_what_does_not_fit_is_refused() -> None:
    controller = started()
    with pytest.raises(ValueError, match="pending: got None, expected 'labels'"):
        controller.with_labels()
    with pytest.raises(ValueError, match="pending: got None, expected 'strategy'"):
        controller.adopt("a", CONSTANTS)
    with pytest.raises(ValueError, match="pending: got 'strategy', expected None"):
        decide(stagnant(controller), EVERYWHERE)
    with pytest.raises(ValueError, match="strategy: got an empty text"):
        stagnant(controller).adopt("", CONSTANTS)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0.5, 0.8, 0.3 * (1 + log(1.5)) / sqrt(10)), (0.5, 0.8, 0.133334), (0.0, 0.8, 0.252982)],
)
def test_a_window_is_worth_its_rise_weighted_by_where_it_began(
    start: float, end: float, expected: float
) -> None:
    assert window_score(start, end, 10) == pytest.approx(expected, abs=1e-6)


def test_a_window_without_improvement_is_worth_nothing() -> None:
    assert window_score(0.5, 0.5, 10) == 0.0
    assert window_score(0.5, 0.4, 10) == 0.0


def test_a_start_below_zero_gets_no_weight() -> None:
    assert window_score(-0.5, 0.0, 1) == 0.5


@pytest.mark.parametrize(
    ("max_iterations", "interval"), [(1, 1), (9, 1), (19, 1), (20, 2), (100, 10), (250, 25)]
)
def test_a_tenth_of_the_iterations_may_stagnate(max_iterations: int, interval: int) -> None:
    assert switch_interval(Constants(max_iterations=max_iterations)) == interval


def test_only_a_rise_above_the_threshold_ends_stagnation() -> None:
    assert strategy_stagnation(4, 0.5, 0.52) == 0
    assert strategy_stagnation(4, 0.5, 0.505) == 5
    assert strategy_stagnation(4, 0.0, 0.01) == 5


def test_the_first_judgement_never_counts_as_stagnant() -> None:
    assert strategy_stagnation(0, None, 0.5) == 0


def scored(strategy: str, score: float) -> ScoredStrategy:
    return ScoredStrategy(strategy, score, 0, 10, 0.5, 0.6)


def test_the_oldest_of_equally_good_strategies_is_the_best() -> None:
    assert best_strategy([scored("", 0.1), scored("a", 0.3), scored("b", 0.3)]).strategy == "a"
    with pytest.raises(ValueError, match="scored: got none"):
        best_strategy([])


def test_two_others_make_the_context_and_a_text_counts_once() -> None:
    parent = scored("a", 0.3)
    others = [scored("", 0.1), scored("b", 0.0), scored("b", 0.2), scored("a", 0.0)]
    context = draw_context([parent, *others], parent, Random(1))
    assert {(each.strategy, each.score) for each in context} == {("", 0.1), ("b", 0.2)}


def test_the_context_is_drawn_at_random_and_again_alike_for_the_same_randomness() -> None:
    strategies = [scored(name, 0.1) for name in "abcdef"]
    draws = [draw_context(strategies, strategies[0], Random(k)) for k in range(20)]
    assert {len(draw) for draw in draws} == {2}
    assert len({each.strategy for draw in draws for each in draw}) == 5
    assert draws == [draw_context(strategies, strategies[0], Random(k)) for k in range(20)]


def test_a_lonely_strategy_has_no_context() -> None:
    assert draw_context([scored("", 0.1)], scored("", 0.1), Random(0)) == ()

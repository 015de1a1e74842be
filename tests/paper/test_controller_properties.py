"""What the paper asserts of the controller, over whole random trajectories."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

from controller_trace import Step, run_step
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from costada.controller.allocation import Action, Allocation
from costada.controller.constants import Constants
from costada.controller.costada import CostAda
from costada.controller.credit import Balance, Credit, cost_divisor, global_weight, utility
from costada.controller.method import PaidStep
from costada.controller.step import stop_reason
from costada.nodes.state import FrozenValue
from costada.values.usage import Price, Usage, call_cost

RATIOS = st.floats(0, 1)
COSTS = st.floats(0, 10)
PRICE = Price("0.60", "1.92")


@dataclass(frozen=True)
class Plan:
    """What one step would meet.

    Attributes:
        usage: Tokens of its calls.
        rise: Score above the incumbent; None when nothing was evaluated.
        attempts: Attempts it makes.
        num_tactics: Tactics a pending guide yields.
    """

    usage: Usage
    rise: float | None
    attempts: int
    num_tactics: int

    def score_after(self, state: CostAda) -> float | None:
        return None if self.rise is None else max(0.0, state.incumbent_score + self.rise)


PLANS = st.lists(
    st.builds(
        Plan,
        usage=st.builds(Usage, st.integers(2000, 20_000), st.integers(1000, 9000)),
        rise=st.sampled_from([None, -0.3, -0.2, -0.1, 0.0, 1e-6, 0.004, 0.05]),
        attempts=st.integers(1, 3),
        num_tactics=st.integers(0, 3),
    ),
    min_size=20,
    max_size=40,
)
STATES = st.builds(
    lambda first, rise: replace(CostAda.start(first, Constants()), incumbent_score=first + rise),
    RATIOS,
    RATIOS,
)
SPENT = st.floats(0, 0.9)
HERE = Allocation(0, Action.BALANCED, 0.3)


def credit(state: CostAda, score: float, cost: float, spent: float) -> Credit:
    step = PaidStep(score, is_kept=True, cost=cost)
    return state.tell(HERE, step, Balance(1.0, spent), Constants())[1]


def reloaded(state: CostAda) -> object:
    channel = FrozenValue(CostAda)
    channel.update([state])
    serde = JsonPlusSerializer(allowed_msgpack_modules=None)
    return channel.from_checkpoint(serde.loads_typed(serde.dumps_typed(channel.checkpoint()))).get()


def trajectory(
    plans: list[Plan],
    constants: Constants,
    *,
    budget: float = 0.3,
    price: Price = PRICE,
    rng_seed: int = 0,
) -> Iterator[tuple[CostAda, Step]]:
    state, balance, rng = CostAda.start(0.2, constants), Balance(budget), Random(rng_seed)
    for plan in plans:
        step = run_step(
            state,
            balance,
            float(call_cost(plan.usage, price)),
            plan.score_after(state),
            constants,
            rng,
            attempts=plan.attempts,
            num_tactics=plan.num_tactics,
        )
        yield state, step
        state, balance = step.state, step.balance
        if stop_reason(budget, balance.spent, state.iteration, constants.max_iterations):
            return


@given(PLANS)
@settings(max_examples=25)
def test_the_remaining_ratio_stays_in_bounds_and_never_rises(plans: list[Plan]) -> None:
    ratios = [step.balance.ratio for _, step in trajectory(plans, Constants())]
    assert all(0.0 <= ratio <= 1.0 for ratio in ratios)
    assert all(later <= earlier for earlier, later in pairwise([1.0, *ratios]))


@given(PLANS)
@settings(max_examples=25)
def test_credit_is_never_negative_and_the_divisor_at_least_one(plans: list[Plan]) -> None:
    for _, step in trajectory(plans, Constants()):
        assert step.credit.cost_divisor >= 1.0
        assert step.credit.utility >= 0.0
        assert step.credit.allocation_reward >= 0.0


@given(PLANS)
@settings(max_examples=25)
def test_intensity_stays_between_its_bounds(plans: list[Plan]) -> None:
    constants = Constants()
    for _, step in trajectory(plans, constants):
        strength = step.allocation.intensity
        assert constants.min_intensity <= strength <= constants.max_intensity


@given(PLANS, st.integers(1, 4))
@settings(max_examples=25)
def test_a_step_leaves_idle_frontiers_unchanged(plans: list[Plan], num_frontiers: int) -> None:
    for before, step in trajectory(plans, Constants(num_frontiers=num_frontiers)):
        for index, frontier in enumerate(before.frontiers):
            if index != step.allocation.frontier:
                assert step.state.frontiers[index] is frontier


@given(PLANS)
@settings(max_examples=25)
def test_a_guide_is_never_scheduled_in_consolidation_cycle_or_backoff(plans: list[Plan]) -> None:
    for _, step in trajectory(plans, Constants()):
        if step.intervention.scheduled is not None:
            assert step.state.consolidation_left == 0
            assert step.state.cycle is None
            assert not step.intervention.backed_off


@given(RATIOS, COSTS)
def test_the_divisor_is_at_least_one(ratio: float, cost: float) -> None:
    assert cost_divisor(cost, ratio, Constants()) >= 1.0


@given(STATES, SPENT, RATIOS)
def test_at_zero_cost_utility_is_the_plain_mixture(
    state: CostAda, spent: float, score: float
) -> None:
    earned = credit(state, score, 0.0, spent)
    weight = global_weight(Balance(1.0, spent).ratio, Constants())
    mixture = weight * earned.global_gain + (1 - weight) * earned.local_gain
    assert earned.utility == mixture
    assert earned.allocation_reward == earned.global_gain


@given(RATIOS, RATIOS, RATIOS, COSTS, COSTS)
def test_at_one_ratio_equal_gain_at_higher_cost_earns_no_more(
    local_gain: float, global_gain: float, ratio: float, cost: float, extra: float
) -> None:
    weight = global_weight(ratio, Constants())
    cheap, dear = (cost_divisor(paid, ratio, Constants()) for paid in (cost, cost + extra))
    assert utility(local_gain, global_gain, weight, dear) <= utility(
        local_gain, global_gain, weight, cheap
    )


@given(STATES, SPENT, RATIOS, st.floats(0, 0.1), st.floats(0, 0.1))
def test_a_costlier_step_of_equal_score_never_earns_more_credit(
    state: CostAda, spent: float, score: float, cost: float, extra: float
) -> None:
    rounding = 1e-15
    cheap = credit(state, score, cost, spent + cost)
    costly = credit(state, score, cost + extra, spent + cost + extra)
    assert costly.utility <= cheap.utility + rounding
    assert costly.allocation_reward <= cheap.allocation_reward


@given(PLANS, st.integers(-4, 8), st.integers(0, 9))
@settings(max_examples=25)
def test_scaling_all_money_together_changes_no_decision(
    plans: list[Plan], exponent: int, rng_seed: int
) -> None:
    factor = 2.0**exponent
    base = Constants()
    scaled = Constants(
        reference_cost=base.reference_cost * factor, cost_stabilizer=base.cost_stabilizer * factor
    )
    price = Price("0.5", "2")
    dearer = Price(0.5 * factor, 2 * factor)
    plain = trajectory(plans, base, price=price, rng_seed=rng_seed)
    rich = trajectory(plans, scaled, budget=0.3 * factor, price=dearer, rng_seed=rng_seed)
    for (_, one), (_, other) in zip(plain, rich, strict=True):
        assert one.allocation == other.allocation
        assert one.credit == other.credit
        assert one.intervention == other.intervention
        assert one.guide == other.guide


@given(PLANS, st.integers(0, 39))
@settings(max_examples=25)
def test_a_run_resumed_from_a_checkpoint_continues_as_if_never_stopped(
    plans: list[Plan], stop: int
) -> None:
    constants, rng, resumed_rng = Constants(), Random(1), Random(1)
    state = resumed = CostAda.start(0.2, constants)
    balance = Balance(5.0)
    for number, plan in enumerate(plans):
        cost = float(call_cost(plan.usage, PRICE))
        if number == stop:
            resumed = reloaded(resumed)
        step = run_step(state, balance, cost, plan.score_after(state), constants, rng)
        score = plan.score_after(resumed)
        resumed = run_step(resumed, balance, cost, score, constants, resumed_rng).state
        state, balance = step.state, step.balance
        assert reloaded(state) == state
    assert resumed == state

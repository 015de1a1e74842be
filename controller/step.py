"""One step of a search, and why a run stops: what the graph's nodes and the simulation both call.

In the order of a step: `ask_step`, `draw_attempt` for each attempt, `tell_step`, then the method's
own `decide` and `stop_reason`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import pow
from operator import attrgetter
from random import Random
from typing import Literal

from costada.controller.allocation import Action, Allocation
from costada.controller.archive import FITNESS_ONLY, Archive, distance, novelties
from costada.controller.constants import Constants
from costada.controller.credit import Balance, Credit, has_crossed, made_progress
from costada.controller.method import Controller, PaidStep, is_archiving
from costada.values.candidate import Candidate, Program
from costada.values.numbering import Iteration, TicketNumber, next_iteration


def draws(seed: int, number: TicketNumber | Iteration, purpose: str) -> Random:
    """The random numbers for one purpose in the step of a number, the same on every execution."""
    return Random(f"{seed}/{number}/{purpose}")


MIN_NOVELTY = 0.001
"""Smallest weight in the roulette, so that a look-alike keeps a chance."""

LOCAL_SHARE = 0.6
"""Part of the inspirations that comes from the frontier of the parent."""


def draw_parent(archive: Archive, action: Action, rng: Random) -> Candidate:
    """The candidate to edit (p^par, Alg. 1).

    Exploitation draws from the best quarter, exploration by novelty, and balanced tosses a coin
    between the best fifth and novelty.

    Raises:
        ValueError: The archive is empty.
    """
    if not archive.members:
        raise ValueError("members: got none, expected at least the seed")
    if action is Action.EXPLOITATION:
        return rng.choice(archive.top(max(1, len(archive.members) // 4)))
    if action is Action.BALANCED and rng.random() < 0.5:
        return rng.choice(archive.elite())
    weights = [max(each, MIN_NOVELTY) for each in novelties(archive)]
    return rng.choices(archive.members, weights)[0]


def draw_inspirations(
    archive: Archive, archives: Sequence[Archive], parent: Candidate, count: int
) -> tuple[Candidate, ...]:
    """The candidates shown next to the parent (context set, Alg. 1).

    First those of the frontier that differ most from the parent among its better half, then the
    best of all frontiers. A text appears once; the parent's own text does not appear.

    Args:
        archive: Archive of the step's frontier.
        archives: Archives of all frontiers, by index.
        parent: The drawn parent; it may come from another frontier.
        count: Candidates wanted, at least 0; fewer when texts repeat or members are few.
    """
    if count == 0:
        return ()
    num_local = max(1, int(count * LOCAL_SHARE))
    chosen = (
        *_most_different(archive, parent, num_local),
        *_best_of_all(archives, parent, count - num_local),
    )
    distinct: dict[Program, Candidate] = {}
    for candidate in chosen:
        distinct.setdefault(candidate.program, candidate)
    distinct.pop(parent.program, None)
    return tuple(distinct.values())


def _most_different(archive: Archive, parent: Candidate, count: int) -> list[Candidate]:
    better_half = archive.top(max(2 * count, len(archive.members) // 2))
    others = [member for member in better_half if member.id != parent.id]
    others.sort(key=lambda member: -distance(member.program, parent.program))
    return others[:count]


def _best_of_all(archives: Sequence[Archive], parent: Candidate, count: int) -> list[Candidate]:
    members = (member for archive in archives for member in archive.members)
    others = [member for member in members if member.id != parent.id]
    others.sort(key=attrgetter("score"), reverse=True)
    return others[:count]


def seed_archives(
    controller: Controller, seeds: Sequence[Candidate], constants: Constants
) -> tuple[Archive, ...]:
    """The archives before the first step: one copy of the seed each, see `num_seeds`."""
    weights = controller.archive_weights if is_archiving(controller) else (FITNESS_ONLY,)
    pairs = zip(seeds, weights, strict=True)
    return tuple(Archive((seed,), constants.archive_size, each) for seed, each in pairs)


def num_seeds(controller: Controller) -> int:
    """Copies of the initial program that a run begins with: one per frontier."""
    return len(controller.archive_weights) if is_archiving(controller) else 1


def ask_step(
    controller: Controller,
    balance: Balance,
    run_seed: int,
    constants: Constants,
    *,
    ticket: TicketNumber | None = None,
    in_flight: Sequence[Allocation] = (),
) -> Allocation:
    """Frontier, action and intensity of the next step (k_t, a_t, I_t, Sec. 4.3).

    Args:
        controller: As it is at the launch.
        balance: Budget and spending at the launch.
        run_seed: Start of the run's randomness.
        constants: The method's constants.
        ticket: That of the step; default: the one after the completed iterations, for a run with
            one step in flight.
        in_flight: Choices of the steps that have not landed.
    """
    if ticket is None:
        ticket = TicketNumber(controller.iteration + 1)
    rng = draws(run_seed, ticket, "action")
    return controller.ask(balance, rng, constants, in_flight)


def draw_attempt(
    archives: Sequence[Archive],
    allocation: Allocation,
    ticket: TicketNumber,
    attempt: int,
    run_seed: int,
    constants: Constants,
    *,
    chosen: Candidate | None = None,
) -> tuple[Candidate, tuple[Candidate, ...]]:
    """Parent and inspirations of an attempt (p^par and context set, Alg. 1).

    Args:
        archives: Of all frontiers, by index.
        allocation: Where and how the step searches.
        ticket: That of the step.
        attempt: Number of the attempt in it, from 1.
        run_seed: Start of the run's randomness.
        constants: Source of the number of inspirations.
        chosen: Parent of an attempt that does not draw it from the archive.
    """
    rng = draws(run_seed, ticket, f"sources of attempt {attempt}")
    archive = archives[allocation.frontier]
    drawn = draw_parent(archive, allocation.action, rng)
    parent = chosen or drawn
    return parent, draw_inspirations(archive, archives, parent, constants.num_inspirations)


@dataclass(frozen=True, slots=True)
class BookedStep:
    """Controller and archives after a paid step, and what the step earned."""

    controller: Controller
    archives: tuple[Archive, ...]
    credit: Credit


def tell_step(
    controller: Controller,
    archives: tuple[Archive, ...],
    allocation: Allocation,
    candidate: Candidate | None,
    cost: float,
    balance: Balance,
    run_seed: int,
    constants: Constants,
    *,
    is_guided: bool = False,
) -> BookedStep:
    """Keep the step's candidate, credit the step and maintain the frontiers (Sec. 4.2, 4.3).

    Args:
        controller: As it is when the step lands, all its tactics taken.
        archives: Of all frontiers; empty for a method that keeps none.
        allocation: Where and how the step searched.
        candidate: What its last attempt brought; None when that failed.
        cost: Dollars of all calls of the step (c_t).
        balance: Budget and spending after the step.
        run_seed: Start of the run's randomness.
        constants: The method's constants.
        is_guided: Whether an attempt of the step followed a tactic of the active cycle.
    """
    is_kept, kept = candidate is not None, list(archives)
    if archives and candidate is not None:
        kept[allocation.frontier] = archives[allocation.frontier].insert(candidate)
        is_kept = kept[allocation.frontier] is not archives[allocation.frontier]
    step = PaidStep(candidate.score if candidate else None, is_kept, cost, is_guided)
    iteration = next_iteration(controller.iteration)
    updated, earned = controller.tell(allocation, step, balance, constants)
    if not is_archiving(updated):
        return BookedStep(updated, tuple(kept), earned)
    rng = draws(run_seed, iteration, "maintenance")
    maintained, changed = updated.maintain(tuple(kept), rng, constants)
    return BookedStep(maintained, changed, earned)


StopReason = Literal["target", "budget", "failures", "iterations", "flat"]

OUT_OF_MONEY = "out_of_money"
"""The trace's event of a step whose last attempt a hard budget could not pay for."""

FLAT = "flat"
"""The trace's event of a step after which another gain is too unlikely."""

TARGET = "target"
"""The trace's event of a step after which the best program reaches the target."""

SHAPE = 2.0
"""Shape of the prior of the rate of gains (a)."""

STEPS_SCALE, SPENT_SCALE = 2.0, 0.5
"""Weights of the mean step cost and of the dollars up to the last gain in the prior's scale (s)."""


def spent_at_gain(before: float, spent: float, global_gain: float, constants: Constants) -> float:
    """Dollars spent when the best score last rose (G), after a step.

    Args:
        before: The same before the step; 0 if there was no gain.
        spent: Dollars spent after the step (C).
        global_gain: What the step gained over the incumbent (g_t).
        constants: Source of the threshold of progress.
    """
    return spent if made_progress(global_gain, constants) else before


def chance_of_gain(
    balance: Balance, gained_at: float, iterations: int, constants: Constants
) -> float:
    """Chance that the best score rises once more with what is left of the budget, in [0, 1].

    The model, in dollars, as steps of different models and tiers differ in price:

    - *Observed.* When the best score last rose, by more than the threshold of progress (eps_g), the
      run had spent `G` dollars. It has spent `C` now, so `w = C - G` dollars brought nothing.
    - *Prior.* After a gain, the next one comes at a constant, unknown rate per dollar until it has
      come. The rate has a Gamma distribution of shape `a = 2` and rate parameter `s = 2 c + G / 2`
      dollars, where `c` is the mean cost of a step so far. Its mean `a / s` falls as
      `4 / (4 c + G)`: the more money the best program took, the rarer is a better one, as for the
      records of a series of draws.
    - *Posterior.* Nothing in `w` dollars makes it a Gamma distribution with `a` and `s + w`.
    - *Chance.* Another gain within `r` dollars misses with probability
      `((s + w) / (s + w + r)) ** a`, the mean of `exp(-rate * r)`. `r` is what is left of the
      budget, or what the iterations that are left cost at `c` each, whichever is less.

    Shape and scale were set on simulated runs. In runs of CostAda, $1 each, the chance differs from
    how often a gain followed by at most 0.06 on the landscape. In the recorded world it is too high
    in the middle of its range: where it is 0.75 on average, a gain followed in 0.62 to 0.68 of
    cases by the seeds, and where it is 0.55, in 0.41. A gain counts whatever its size.

    Args:
        balance: Budget and spending after the last step.
        gained_at: Dollars spent when the best score last rose (G), 0 without a gain.
        iterations: Iterations completed, at least 1.
        constants: Source of the iteration limit.
    """
    step_cost = balance.spent / iterations
    payable = (constants.max_iterations - iterations) * step_cost
    left = max(0.0, min(balance.budget - balance.spent, payable))
    if left == 0.0:
        return 0.0
    waited = _waited(balance, gained_at, iterations)
    return 1.0 - pow(waited / (waited + left), SHAPE)


def _waited(balance: Balance, gained_at: float, iterations: int) -> float:
    """Rate parameter of the posterior of the rate of gains, in dollars (s + w)."""
    scale = STEPS_SCALE * balance.spent / iterations + SPENT_SCALE * gained_at
    return scale + balance.spent - gained_at


def max_in_flight(
    parallel: int, max_gains: float | None, balance: Balance, gained_at: float, iterations: int
) -> int:
    """Steps that may be in flight at a time, from 1 to `parallel`.

    A step that is launched beside others does not know what they bring, so several in flight lose
    most where gains are frequent: early in a run, and after a gain. By the model of
    `chance_of_gain` the mean rate of gains is `a / (s + w)` per dollar, and `n` steps of mean cost
    bring `n * c * a / (s + w)` of them.

    Args:
        parallel: Most steps in flight (K).
        max_gains: Gains that the steps in flight are expected to bring, at most; None: `parallel`
            steps whatever they bring.
        balance: Budget and spending after the last step.
        gained_at: Dollars spent when the best score last rose (G), 0 without a gain.
        iterations: Iterations completed.
    """
    if max_gains is None:
        return parallel
    if iterations == 0 or balance.spent == 0.0:
        return 1
    gains_per_step = SHAPE / _waited(balance, gained_at, iterations) * balance.spent / iterations
    return max(1, min(parallel, int(max_gains / gains_per_step)))


def is_flat(
    threshold: float | None,
    balance: Balance,
    gained_at: float,
    iterations: int,
    constants: Constants,
) -> bool:
    """Whether a further gain is less likely than the threshold.

    Never without a threshold, nor where nothing is left: then budget or iterations end the run.
    """
    if threshold is None or iterations == 0:
        return False
    return 0.0 < chance_of_gain(balance, gained_at, iterations, constants) < threshold


def stop_reason(
    budget: float,
    spent: float,
    iteration: int,
    max_iterations: int,
    *,
    is_out_of_money: bool = False,
    is_failing: bool = False,
    is_flat: bool = False,
    has_reached_target: bool = False,
) -> StopReason | None:
    """Why a run ends after the completed step, None when it continues (Alg. 1).

    The same for every method: the step that crosses the budget is the last one. One that reaches
    the target counts as that, whatever it spent.

    Args:
        budget: Dollars the run may spend (B).
        spent: Dollars it has spent (C_t).
        iteration: Iterations completed (t).
        max_iterations: Iterations after which a run ends whatever it spent (T_max).
        is_out_of_money: Whether what is left cannot pay for the call that was to be made next.
        is_failing: Whether so many attempts in a row failed that something must be wrong.
        is_flat: Whether another gain is too unlikely, where a run stops for that.
        has_reached_target: Whether the best program is as good as the run is to find.
    """
    if has_reached_target:
        return "target"
    if is_out_of_money or has_crossed(budget, spent):
        return "budget"
    if is_failing:
        return "failures"
    if iteration >= max_iterations:
        return "iterations"
    return "flat" if is_flat else None

"""Guides: the life of a tactic batch, and the decision to buy one (B.4).

A cycle opens when a guide yields tactics. It ends when no tactic has a use left and no step that
followed one is in flight; success does not end it. A success opens a consolidation, a failure
corrects the mode of the next guide and backs off. Patience and the tests on evidence and money then
decide whether to intervene.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil

from costada.controller.constants import Constants
from costada.controller.credit import made_incumbent_progress, normalized_gain, remaining


class Mode(StrEnum):
    """What a guide is asked for (m_t, B.4.3)."""

    BREAKTHROUGH = "breakthrough"
    REFINEMENT = "refinement"


@dataclass(frozen=True, slots=True)
class GuidanceCycle:
    """The active batch of tactics (G_t, B.4.3).

    Attributes:
        mode: What the guide was asked for.
        baseline_score: Incumbent score a success must exceed (y_base).
        uses_left: Attempts each tactic still allows.
        next_tactic: Index of the tactic the rotation has reached.
        is_guided: Whether the step at hand, which has landed, used a tactic (guided_t).
        has_succeeded: Whether any step of the cycle succeeded.
        guided_in_flight: Steps that used a tactic and have not landed.
    """

    mode: Mode
    baseline_score: float
    uses_left: tuple[int, ...]
    next_tactic: int = 0
    is_guided: bool = False
    has_succeeded: bool = False
    guided_in_flight: int = 0

    @property
    def is_exhausted(self) -> bool:
        """Whether no tactic has a use left and every guided step has landed (exhaust_t)."""
        return self.guided_in_flight == 0 and not any(self.uses_left)


def new_cycle(
    mode: Mode, baseline_score: float, num_tactics: int, constants: Constants
) -> GuidanceCycle:
    """The cycle a successful guide opens.

    Raises:
        ValueError: The number of tactics is not between 1 and the number asked for.
    """
    if not 1 <= num_tactics <= constants.tactics_per_guide:
        raise ValueError(
            f"num_tactics: got {num_tactics}, expected 1 to {constants.tactics_per_guide}"
        )
    return GuidanceCycle(mode, baseline_score, (constants.uses_per_tactic,) * num_tactics)


def is_active(cycle: GuidanceCycle | None) -> bool:
    """Whether a tactic still has a use left (the indicator of G_t, B.4.3)."""
    return cycle is not None and any(cycle.uses_left)


def current_tactic(cycle: GuidanceCycle | None) -> int | None:
    """The index of the tactic the next attempt follows, None when there is none."""
    if cycle is None or not any(cycle.uses_left):
        return None
    count = len(cycle.uses_left)
    rotation = ((cycle.next_tactic + step) % count for step in range(count))
    return next(index for index in rotation if cycle.uses_left[index])


def tactic_uses_left(cycle: GuidanceCycle | None) -> int:
    """The attempts all tactics together still allow, 0 without a cycle."""
    return 0 if cycle is None else sum(cycle.uses_left)


def after_use(cycle: GuidanceCycle | None, *, is_first: bool) -> tuple[GuidanceCycle, int]:
    """The cycle after one attempt followed its current tactic, and the index of that tactic.

    The rotation moves on, and the step counts as guided (guided_t, B.4.3).

    Args:
        cycle: The active batch of tactics.
        is_first: Whether no earlier attempt of the step followed a tactic.

    Raises:
        ValueError: No tactic has a use left.
    """
    tactic = current_tactic(cycle)
    if cycle is None or tactic is None:
        raise ValueError("cycle: no tactic has a use left, expected an active cycle")
    uses_left = tuple(uses - (index == tactic) for index, uses in enumerate(cycle.uses_left))
    used = replace(
        cycle,
        uses_left=uses_left,
        next_tactic=tactic + 1,
        guided_in_flight=cycle.guided_in_flight + is_first,
    )
    return used, tactic


def after_landing(
    cycle: GuidanceCycle | None, *, is_guided: bool, incumbent_rise: float
) -> GuidanceCycle | None:
    """The cycle once a step has landed, to be judged next.

    A cycle is judged by what its own steps gain: where another step raises the incumbent, the
    baseline rises with it.

    Args:
        cycle: The active batch of tactics.
        is_guided: Whether the step followed a tactic of it.
        incumbent_rise: How far the step raised the incumbent score, at least 0.

    Raises:
        ValueError: The step is guided, but no guided step is in flight.
    """
    if is_guided:
        if cycle is None or cycle.guided_in_flight == 0:
            raise ValueError("is_guided: got True, expected a guided step in flight")
        return replace(cycle, is_guided=True, guided_in_flight=cycle.guided_in_flight - 1)
    if cycle is None or incumbent_rise == 0.0:
        return cycle
    return replace(cycle, baseline_score=cycle.baseline_score + incumbent_rise)


def cycle_succeeded(
    cycle: GuidanceCycle | None, incumbent_score: float, constants: Constants
) -> bool:
    """Whether a guided step lifted the incumbent above the baseline (zeta_t, B.4.3)."""
    if cycle is None or not cycle.is_guided:
        return False
    cycle_gain = normalized_gain(incumbent_score, cycle.baseline_score)
    return made_incumbent_progress(cycle_gain, constants)


def after_step(
    cycle: GuidanceCycle | None, succeeded: bool, incumbent_score: float
) -> GuidanceCycle | None:
    """The cycle at the end of a step, judged but not yet closed (B.4.3).

    A success raises the baseline, so that the next one must be new.
    """
    if cycle is None:
        return None
    if succeeded:
        return replace(cycle, is_guided=False, has_succeeded=True, baseline_score=incumbent_score)
    return replace(cycle, is_guided=False)


def failed_mode(cycle: GuidanceCycle | None) -> Mode | None:
    """The mode of a cycle exhausted without success, else None (B.4.5)."""
    if cycle is None or not cycle.is_exhausted or cycle.has_succeeded:
        return None
    return cycle.mode


def backs_off(failed_mode: Mode | None, guide_failed: bool) -> bool:
    """Whether guidance came to nothing in this step (Backoff_t, B.4.5).

    A guide without a usable tactic counts like a cycle exhausted without success.
    """
    return failed_mode is not None or guide_failed


def default_mode(guidance_proven: bool) -> Mode:
    """What a guide is asked for without correction (m^0_t, B.4.3)."""
    return Mode.REFINEMENT if guidance_proven else Mode.BREAKTHROUGH


def guide_mode(mode_override: Mode | None, guidance_proven: bool) -> Mode:
    """What the next guide is asked for (m_t, B.4.3)."""
    return mode_override or default_mode(guidance_proven)


def mode_override(
    previous: Mode | None, succeeded: bool, failed_mode: Mode | None, was_proven: bool
) -> Mode | None:
    """The correction of the next mode, None for none (o_t, B.4.3).

    A success clears it. A failed refinement after proven guidance asks for a breakthrough; any
    other failed cycle clears it.

    Args:
        previous: Correction before the step.
        succeeded: Whether the cycle succeeded in this step.
        failed_mode: Mode of the cycle exhausted without success in this step, if any.
        was_proven: Whether guidance had succeeded before the step (Z_{t-1}).
    """
    if succeeded:
        return None
    if failed_mode is None:
        return previous
    return Mode.BREAKTHROUGH if was_proven and failed_mode is Mode.REFINEMENT else None


def consolidation_left(previous: int, succeeded: bool, num_frontiers: int, *, is_held: bool) -> int:
    """The steps still held to exploit one frontier (w_t, B.4.4).

    Only the end of a step that was held counts down (`is_held`).
    """
    return num_frontiers if succeeded else max(previous - is_held, 0)


def held_frontier(previous: int | None, succeeded: bool, frontier: int) -> int | None:
    """The index of the frontier consolidation holds (kappa_t, B.4.4)."""
    return frontier if succeeded else previous


CEILING_TOLERANCE = 1e-9
"""Keeps rounding in the ratio from lifting a whole patience to the next number."""


@dataclass(frozen=True, slots=True)
class Intervention:
    """What the end of one step decided.

    Attributes:
        scheduled: Mode of the guide the next step calls, None for no guide (m_t).
        opened_consolidation: Whether guidance succeeded in this step (zeta_t).
        backed_off: Whether guidance came to nothing in this step (Backoff_t).
        notes: Events that only one method knows, for the trace.
    """

    scheduled: Mode | None
    opened_consolidation: bool
    backed_off: bool
    notes: tuple[str, ...] = ()


def required_patience(remaining_ratio: float, num_frontiers: int, constants: Constants) -> int:
    """The stagnant steps that justify a guide (nu_req, B.4.1).

    Patience grows as money runs out, and never falls below two visits per frontier.
    """
    patience = constants.base_patience * (1.0 - remaining_ratio)
    return max(ceil(patience - CEILING_TOLERANCE), 2 * num_frontiers)


def is_stagnant(
    stagnation: int, remaining_ratio: float, num_frontiers: int, constants: Constants
) -> bool:
    """Whether stagnation has used up the patience (P_t, B.4.1)."""
    return stagnation >= required_patience(remaining_ratio, num_frontiers, constants)


def has_low_yield(
    stagnation: int,
    low_yield_cost: float,
    remaining_ratio: float,
    num_frontiers: int,
    constants: Constants,
) -> bool:
    """Whether early money goes nowhere (Y_t, B.4.1).

    Half of the budget must be left, each frontier must have had a chance, and the fruitless
    spending must have reached the price of a guide.
    """
    return (
        remaining_ratio >= 0.5
        and stagnation >= num_frontiers
        and low_yield_cost >= constants.guide_cost_estimate
    )


def can_afford_guide(budget: float, spent: float, constants: Constants) -> bool:
    """Whether a guide and one step after it fit into what is left (A_t, B.4.1)."""
    return remaining(budget, spent) >= constants.guide_cost_estimate + constants.reference_cost


def is_free_for_guide(
    consolidation_left: int, cycle: GuidanceCycle | None, backed_off: bool
) -> bool:
    """Whether no consolidation, cycle or backoff stands in the way (B.4.6)."""
    return consolidation_left == 0 and cycle is None and not backed_off


def has_reason(is_stagnant: bool, has_low_yield: bool, constants: Constants) -> bool:
    """Whether a guide is wanted where it is free and affordable (P_t or Y_t, B.4.6).

    With `always` and `never`, a fixed answer takes the place of the paper's evidence.
    """
    if constants.guides in ("always", "never"):
        return constants.guides == "always"
    return is_stagnant or has_low_yield


def should_intervene(
    is_free: bool, can_afford: bool, is_stagnant: bool, has_low_yield: bool, constants: Constants
) -> bool:
    """Whether to buy a guide for the next step (the decision of B.4.6).

    The ablation without gating asks for stagnation only.
    """
    if not constants.gates_intervention:
        return is_free and is_stagnant
    return is_free and can_afford and has_reason(is_stagnant, has_low_yield, constants)

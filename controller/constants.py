"""Every constant of the controller and its scaffold, with the ablation switches."""

from dataclasses import dataclass, fields
from math import inf
from sys import float_info

MAX_ITERATIONS = 1_000_000
"""Most iterations of a run: its file would have several gigabytes."""

MAX_FRONTIERS = 1_000
"""Most frontiers: each is part of every checkpoint, and its archive is read in every step."""

MAX_COUNT = MAX_ITERATIONS
"""Most of anything else that is counted: no run makes more iterations, so more has no effect."""

RANGES: dict[str, tuple[float, float]] = {
    "num_frontiers": (1, MAX_FRONTIERS),
    "max_iterations": (1, MAX_ITERATIONS),
    "min_intensity": (0, 1),
    "max_intensity": (0, 1),
    "exploitation_share": (0, 1),
    "utility_smoothing": (0, 1),
    "allocation_smoothing": (0, 1),
    "optimism_scale": (0, inf),
    "min_cost_weight": (0, 1),
    "fixed_global_weight": (0, 1),
    "base_patience": (0, MAX_COUNT),
    "guide_cost_ratio": (0, inf),
    "archive_size": (2, MAX_COUNT),
    "num_inspirations": (0, MAX_COUNT),
    "max_attempts": (1, MAX_COUNT),
    "tactics_per_guide": (1, MAX_COUNT),
    "uses_per_tactic": (1, MAX_COUNT),
    "max_guide_calls": (1, MAX_COUNT),
    "migration_interval": (1, MAX_COUNT),
    "num_migrants": (0, MAX_COUNT),
}
"""Smallest and largest accepted value; a field not listed must be positive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The numbers and switches a run keeps from its first step to its last.

    Attributes:
        num_frontiers: Frontiers searched side by side (K).
        max_iterations: Iterations after which a run ends whatever it spent (T_max).
        min_intensity: Smallest exploration intensity, a probability (I_min, Sec. 4.3).
        max_intensity: Largest exploration intensity, a probability (I_max, Sec. 4.3).
        intensity_stabilizer: Keeps the square root of the utility smooth at zero (eps_H).
        exploitation_share: Part of the non-exploring probability that exploits (pi_local, B.2).
        utility_smoothing: Share the old smoothed utility keeps (alpha, Sec. 4.2).
        allocation_smoothing: Share the old allocation estimate keeps (gamma, Sec. 4.3).
        optimism_scale: Weight of the bonus for rarely visited frontiers (c_ucb, B.3).
        min_cost_weight: Smallest weight of cost in the divisor (lambda_min, Sec. 4.2).
        reference_cost: Dollars one step is expected to cost (c-bar, Sec. 3.1).
        cost_stabilizer: Dollars added to the reference cost (eps_c, Sec. 3.1).
        guide_cost_ratio: Estimated price of a guide in reference costs (c^_guide / c-bar, B.4.1).
        base_patience: Stagnant steps tolerated once nothing is left to spend (nu_0, B.4.1).
        progress_threshold: Gain above which a step made progress (eps_g, B.4.2).
        archive_size: Candidates one archive holds.
        num_inspirations: Candidates shown next to the parent.
        max_attempts: Attempts one iteration may make.
        tactics_per_guide: Tactics asked of one guide.
        uses_per_tactic: Attempts that may follow one tactic.
        max_guide_calls: Calls one guide may make until it yields a tactic.
        migration_interval: Iterations between migrations.
        num_migrants: Candidates each frontier sends to the next one.
        calibrates_cost: Whether credit is divided by the cost divisor.
        conditions_on_budget: Whether credit and control see the remaining budget.
        gates_intervention: Whether a guide must be affordable and evidence of low yield counts.
        fixed_global_weight: Global weight when the budget is hidden.

    Raises:
        ValueError: A value is outside its range, not finite, or not whole where it counts things.
    """

    num_frontiers: int = 2
    max_iterations: int = 100
    min_intensity: float = 0.15
    max_intensity: float = 0.5
    intensity_stabilizer: float = 1e-8
    exploitation_share: float = 0.7
    utility_smoothing: float = 0.9
    allocation_smoothing: float = 0.9
    optimism_scale: float = 0.5
    min_cost_weight: float = 0.25
    reference_cost: float = 0.01
    cost_stabilizer: float = 1e-8
    guide_cost_ratio: float = 2.0
    base_patience: int = 6
    progress_threshold: float = 1e-6
    archive_size: int = 20
    num_inspirations: int = 4
    max_attempts: int = 3
    tactics_per_guide: int = 3
    uses_per_tactic: int = 2
    max_guide_calls: int = 2
    migration_interval: int = 15
    num_migrants: int = 5
    calibrates_cost: bool = True
    conditions_on_budget: bool = True
    gates_intervention: bool = True
    fixed_global_weight: float = 0.5

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            _check_type(field.name, value, field.default)
            if not isinstance(value, bool):
                _check_range(field.name, value)
        if self.min_intensity > self.max_intensity:
            raise ValueError(
                f"min_intensity: got {self.min_intensity}, "
                f"expected at most max_intensity ({self.max_intensity})"
            )

    @property
    def incumbent_threshold(self) -> float:
        """The cycle gain above which guidance succeeded (eps_inc, B.4.2)."""
        return 10 * self.progress_threshold

    @property
    def guide_cost_estimate(self) -> float:
        """The dollars a guide is expected to cost (c^_guide, B.4.1)."""
        return self.guide_cost_ratio * self.reference_cost


def _check_type(name: str, value: object, default: object) -> None:
    expected = {bool: "true or false", int: "a whole number", float: "a number"}[type(default)]
    accepted = (int, float) if isinstance(default, float) else type(default)
    if not isinstance(value, accepted) or isinstance(value, bool) != isinstance(default, bool):
        raise ValueError(f"{name}: got {value!r}, expected {expected}")


def _check_range(name: str, value: float) -> None:
    if name not in RANGES:
        if not 0 < value <= float_info.max:
            raise ValueError(f"{name}: got {value!r}, expected a finite number above 0")
        return
    low, high = RANGES[name]
    if not low <= value <= min(high, float_info.max):
        limit = f"at least {low}" if high == inf else f"between {low} and {high}"
        raise ValueError(f"{name}: got {value!r}, expected {limit}")

"""Every constant of the controller and its scaffold, with the ablation switches."""

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from costada.values.setting import Setting, refusals

MAX_ITERATIONS = 1_000_000
"""Most iterations of a run: its file would have several gigabytes."""

MAX_FRONTIERS = 1_000
"""Most frontiers: each is part of every checkpoint, and its archive is read in every step."""

MAX_COUNT = MAX_ITERATIONS
"""Most of anything else that is counted: no run makes more iterations, so more has no effect."""

Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Natural = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Positive = Annotated[float, Field(gt=0)]
Ratio = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Guides = Literal["paper", "always", "never", "learned"]


class Constants(BaseModel):
    """The numbers and switches that stay fixed during a run.

    Raises:
        ValueError: With one line per wrong field: the field, its value and what was expected.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    num_frontiers: Annotated[
        int, Field(ge=1, le=MAX_FRONTIERS), Setting("costada.controller.costada:CostAda.start")
    ] = 2
    """Frontiers searched side by side (K)."""

    max_iterations: Annotated[
        int, Field(ge=1, le=MAX_ITERATIONS), Setting("costada.controller.step:stop_reason")
    ] = 100
    """Iterations after which a run ends whatever it spent (T_max)."""

    min_intensity: Annotated[Share, Setting("costada.controller.allocation:intensity")] = 0.15
    """Smallest exploration intensity, a probability (I_min, Sec. 4.3)."""

    max_intensity: Annotated[Share, Setting("costada.controller.allocation:intensity")] = 0.5
    """Largest exploration intensity, a probability (I_max, Sec. 4.3)."""

    intensity_stabilizer: Annotated[
        Positive, Setting("costada.controller.allocation:intensity")
    ] = 1e-8
    """Keeps the square root of the utility smooth at zero (eps_H)."""

    exploitation_share: Annotated[Share, Setting("costada.controller.allocation:sample_action")] = (
        0.7
    )
    """Part of the non-exploring probability that exploits (pi_local, B.2)."""

    utility_smoothing: Annotated[Share, Setting("costada.controller.allocation:after_visit")] = 0.9
    """Share the old smoothed utility keeps (alpha, Sec. 4.2)."""

    allocation_smoothing: Annotated[Share, Setting("costada.controller.allocation:after_visit")] = (
        0.9
    )
    """Share the old allocation estimate keeps (gamma, Sec. 4.3)."""

    optimism_scale: Annotated[Ratio, Setting("costada.controller.allocation:optimism_bonus")] = 0.5
    """Weight of the bonus for rarely visited frontiers (c_ucb, B.3)."""

    min_cost_weight: Annotated[Share, Setting("costada.controller.credit:cost_weight")] = 0.25
    """Smallest weight of cost in the divisor (lambda_min, Sec. 4.2)."""

    reference_cost: Annotated[Positive, Setting("costada.controller.credit:normalized_cost")] = 0.01
    """Dollars one step is expected to cost (c-bar, Sec. 3.1)."""

    cost_stabilizer: Annotated[Positive, Setting("costada.controller.credit:normalized_cost")] = (
        1e-8
    )
    """Dollars added to the reference cost (eps_c, Sec. 3.1)."""

    guide_cost_ratio: Annotated[Ratio, Setting("costada.controller.guidance:can_afford_guide")] = (
        2.0
    )
    """Estimated price of a guide in reference costs (c^_guide / c-bar, B.4.1)."""

    base_patience: Annotated[Natural, Setting("costada.controller.guidance:required_patience")] = 6
    """Stagnant steps tolerated once nothing is left to spend (nu_0, B.4.1)."""

    progress_threshold: Annotated[Positive, Setting("costada.controller.credit:made_progress")] = (
        1e-6
    )
    """Gain above which a step made progress (eps_g, B.4.2)."""

    archive_size: Annotated[
        int, Field(ge=2, le=MAX_COUNT), Setting("costada.controller.step:seed_archives")
    ] = 20
    """Candidates one archive holds."""

    num_inspirations: Annotated[Natural, Setting("costada.controller.step:draw_attempt")] = 4
    """Candidates shown next to the parent."""

    max_attempts: Annotated[Count, Setting("costada.graph.routes:after_evaluation")] = 3
    """Attempts one iteration may make."""

    tactics_per_guide: Annotated[Count, Setting("costada.nodes.tactic_batch:buy_tactics")] = 3
    """Tactics asked of one guide."""

    uses_per_tactic: Annotated[Count, Setting("costada.controller.guidance:new_cycle")] = 2
    """Attempts that may follow one tactic."""

    max_guide_calls: Annotated[Count, Setting("costada.nodes.tactic_batch:buy_tactics")] = 2
    """Calls one guide may make until it yields a tactic."""

    migration_interval: Annotated[Count, Setting("costada.controller.archive:is_migration_due")] = (
        15
    )
    """Iterations between migrations."""

    num_migrants: Annotated[Natural, Setting("costada.controller.archive:exchange")] = 5
    """Candidates each frontier sends to the next one."""

    calibrates_cost: Annotated[bool, Setting("costada.controller.credit:cost_divisor")] = True
    """Whether credit is divided by the cost divisor."""

    conditions_on_budget: Annotated[bool, Setting("costada.controller.credit:visible_ratio")] = True
    """Whether credit and control see the remaining budget."""

    gates_intervention: Annotated[bool, Setting("costada.controller.guidance:should_intervene")] = (
        True
    )
    """Whether a guide must be affordable and evidence of low yield counts."""

    guides: Annotated[Guides, Setting("costada.controller.guidance:has_reason")] = "paper"
    """When CostAda buys a guide. paper: when progress slows. always: whenever no tactic is left and
    the budget has room. never. learned: as paper, but low yield buys none while steps without a
    tactic pay off."""

    fixed_global_weight: Annotated[Share, Setting("costada.controller.credit:global_weight")] = 0.5
    """Global weight when the budget is hidden."""

    if not TYPE_CHECKING:  # type checkers know the fields as arguments

        def __init__(self, **given: object) -> None:
            try:
                super().__init__(**given)
            except ValidationError as error:
                raise ValueError(refusals(error)) from None

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.min_intensity > self.max_intensity:
            raise ValueError(
                f"min_intensity: got {self.min_intensity}, "
                f"expected at most max_intensity ({self.max_intensity})"
            )
        return self

    @model_validator(mode="after")
    def _check_guides(self) -> Self:
        if self.guides != "paper" and not self.gates_intervention:
            raise ValueError(
                f"guides: got {self.guides!r} without gates_intervention, expected 'paper'"
            )
        return self

    @property
    def uses_per_guide(self) -> int:
        """Steps that a guide with all of its tactics is used for."""
        return self.tactics_per_guide * self.uses_per_tactic

    @property
    def incumbent_threshold(self) -> float:
        """The cycle gain above which guidance succeeded (eps_inc, B.4.2)."""
        return 10 * self.progress_threshold

    @property
    def guide_cost_estimate(self) -> float:
        """The dollars a guide is expected to cost (c^_guide, B.4.1)."""
        return self.guide_cost_ratio * self.reference_cost

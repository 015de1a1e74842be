"""What the numbers say of the proposition, in sentences whose numbers are computed."""

from collections.abc import Sequence

from costada.controller.allocation import optimism_bonus
from costada.controller.credit import cost_divisor
from costada.controller.money import normalized_cost
from costada.experiments.theory.proposition import (
    NUM_URNS,
    POLICIES,
    RANKING,
    SMALL_BONUS,
    SMALL_BONUS_NO_COST,
    Finding,
    Instance,
)

COSTADA, UNIFORM = "costada", "uniform"


def conclusions(findings: Sequence[Finding]) -> list[str]:
    """Return what holds, and where CostAda's own rule falls short of the ranking policy."""
    num_steps = max(finding.instance.num_steps for finding in findings)
    longest = [finding for finding in findings if finding.instance.num_steps == num_steps]
    return [
        _on_the_bound(findings),
        _on_ranking(longest),
        _on_costada(longest),
        _on_the_bonus(longest),
        _on_the_logarithm(longest),
        _on_the_diagnosis(longest),
        _on_the_model(findings),
    ]


def _on_the_bound(findings: Sequence[Finding]) -> str:
    used = [
        (finding.shares[policy.name].mean / finding.instance.bound, policy.name, finding.instance)
        for finding in findings
        for policy in POLICIES
        if policy.is_cost_blind
    ]
    num_above = sum(ratio > 1 for ratio, _, _ in used)
    ratio, name, instance = max(used, key=lambda each: each[0])
    return (
        f"Bound: of {len(used)} shares of cost-blind methods {num_above} are above 1/K + 1/kappa."
        f" The nearest is {name} with {ratio:.1%} of the bound at {_named(instance)}."
    )


def _on_ranking(longest: Sequence[Finding]) -> str:
    shares = [finding.shares[RANKING].mean for finding in longest]
    return (
        f"Ranking by gain per cost: {_range(shares)} of OPT at B/c = {_steps(longest)}."
        " It loses the first visits to dear frontiers, at most (K-1)(kappa-1) cheap steps,"
        " which is o(1) as B/c grows."
    )


def _on_costada(longest: Sequence[Finding]) -> str:
    shares = [finding.shares for finding in longest]
    own = [each[COSTADA].mean for each in shares]
    to_ranking = [each[COSTADA].mean / each[RANKING].mean for each in shares]
    to_uniform = [each[COSTADA].mean / each[UNIFORM].mean for each in shares]
    num_above = sum(finding.shares[COSTADA].mean > finding.instance.bound for finding in longest)
    return (
        f"CostAda's own rule: {_range(own)} of OPT at B/c = {_steps(longest)}, which is"
        f" {_range(to_ranking)} of what ranking obtains and {_range(to_uniform)} times the"
        f" share of taking turns. It exceeds 1/K + 1/kappa in {num_above} of {len(longest)} cases."
    )


def _on_the_bonus(longest: Sequence[Finding]) -> str:
    finding = longest[len(longest) // 2]
    instance = finding.instance
    total = round(finding.shares[COSTADA].mean * instance.num_steps / 2)
    visits = total // instance.num_frontiers
    bonus = optimism_bonus(visits, total, 0.5, instance.constants)
    scale = instance.constants.optimism_scale
    return (
        f"Why, first: optimism has a fixed scale (c_ucb = {scale:g}), but scores end at 1, so that"
        f" B/c equal gains are at most c/B each. Halfway through {_named(instance)} the bonus of a"
        f" frontier visited {visits} times is {bonus:.3g}, {bonus / instance.gain:.0f} times the"
        f" gain of a step ({instance.gain:.3g}), so frontiers are visited almost evenly until the"
        " remaining budget takes the bonus away."
    )


def _on_the_logarithm(longest: Sequence[Finding]) -> str:
    instance = max((finding.instance for finding in longest), key=lambda each: each.cost_ratio)
    early, late = (_divisor_ratio(instance, ratio) for ratio in (1.0, 0.0))
    return (
        "Why, second: credit is divided by 1 + lambda^c ln(1 + c/c-bar). A step that costs"
        f" {instance.cost_ratio} times more is credited {early:.2f} times less at the start and"
        f" {late:.2f} times less at the end, not {instance.cost_ratio} times."
    )


def _divisor_ratio(instance: Instance, remaining_ratio: float) -> float:
    """Return by how much more a dear step's gain is divided than a cheap one's."""
    constants = instance.constants
    cheap, dear = (
        cost_divisor(
            normalized_cost(price * constants.reference_cost, constants),
            remaining_ratio,
            constants,
        )
        for price in (1, instance.cost_ratio)
    )
    return dear / cheap


def _on_the_diagnosis(longest: Sequence[Finding]) -> str:
    small = [finding.shares[SMALL_BONUS].mean for finding in longest]
    blind = [finding.shares[SMALL_BONUS_NO_COST].mean for finding in longest]
    return (
        f"Diagnosis, not a method: with a bonus of the size of a gain ({SMALL_BONUS}) the same"
        f" rule obtains {_range(small)} of OPT, without the division by cost"
        f" ({SMALL_BONUS_NO_COST}) {_range(blind)}. It still differs from ranking by the"
        " logarithm, the smoothing and the repeated visits that optimism asks for."
    )


def _on_the_model(findings: Sequence[Finding]) -> str:
    guides = sum(share.num_guides for finding in findings for share in finding.shares.values())
    return (
        f"How it was played: {guides} guides were due, as every step makes progress, so gating"
        " changes nothing here. best-of-n knows one frontier and stays on the first. EvoX knows"
        " none: its first strategy, a parent drawn evenly from all programs, is played as an urn"
        f" whose programs belong to their parent's frontier (mean of {NUM_URNS} draws)."
        " no-cost-calibration sees no cost but what is left of the budget, so it is not counted"
        " as cost-blind."
    )


def _steps(findings: Sequence[Finding]) -> int:
    return findings[0].instance.num_steps


def _named(instance: Instance) -> str:
    return (
        f"K = {instance.num_frontiers}, kappa = {instance.cost_ratio}, B/c = {instance.num_steps}"
    )


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.3f} to {max(values):.3f}"

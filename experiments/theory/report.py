"""The picture of the proposition: shares of OPT over the budget and over the cost ratio."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from costada.controller.allocation import optimism_bonus
from costada.controller.credit import cost_divisor
from costada.controller.money import normalized_cost
from costada.experiments.theory.proposition import (
    NUM_URNS,
    POLICIES,
    RANKING,
    SEED_SCORE,
    SMALL_BONUS,
    SMALL_BONUS_NO_COST,
    TOTAL_GAIN,
    Finding,
    Instance,
    Share,
)
from costada.store.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes


COSTADA, UNIFORM = "costada", "uniform"


def conclusions(findings: Sequence[Finding]) -> list[str]:
    """What holds, and where CostAda's own rule falls short of the ranking policy."""
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
        " It loses the first visits to expensive frontiers, at most (K-1)(kappa-1) cheap steps,"
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
    """How much more an expensive step's gain is divided than a cheap one's."""
    constants = instance.constants
    cheap, expensive = (
        cost_divisor(
            normalized_cost(price * constants.reference_cost, constants), remaining_ratio, constants
        )
        for price in (1, instance.cost_ratio)
    )
    return expensive / cheap


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


NAME_WIDTH, CELL_WIDTH = 20, 5

Cell = Callable[[Share], float]


def theory_text(findings: Sequence[Finding]) -> str:
    """The shares of OPT as tables, one per K and one of the worst places."""
    num_steps = max(finding.instance.num_steps for finding in findings)
    names = _different_names(findings)
    tables = [
        _table(
            f"Share of OPT, K = {count}, mean over the {count} places of the cheap frontier",
            [finding for finding in findings if finding.instance.num_frontiers == count],
            names,
            lambda share: share.mean,
        )
        for count in sorted({finding.instance.num_frontiers for finding in findings})
    ]
    worst = _table(
        f"Share of OPT at the worst place, B/c = {num_steps}",
        [finding for finding in findings if finding.instance.num_steps == num_steps],
        names,
        lambda share: share.worst,
    )
    return "\n\n".join([*tables, worst])


def theory_json(findings: Sequence[Finding], conclusions: Sequence[str]) -> str:
    """Everything that was computed as one JSON object."""
    return json.dumps(
        {
            "seed_score": SEED_SCORE,
            "total_gain": TOTAL_GAIN,
            "num_urns": NUM_URNS,
            "policies": [
                {
                    "name": policy.name,
                    "is_cost_blind": policy.is_cost_blind,
                    "is_method": policy.is_method,
                }
                for policy in POLICIES
            ],
            "rows": [_row(finding) for finding in findings],
            "conclusions": list(conclusions),
        },
        indent=2,
    )


def _row(finding: Finding) -> dict[str, object]:
    instance = finding.instance
    shares = {name: asdict(share) for name, share in finding.shares.items()}
    return {**asdict(instance), "bound": instance.bound, "shares": shares}


def _different_names(findings: Sequence[Finding]) -> list[str]:
    """The policies to print: of methods with the same shares throughout, the first."""
    shares = {
        policy.name: tuple(finding.shares[policy.name] for finding in findings)
        for policy in POLICIES
    }
    first = {values: name for name, values in reversed(shares.items())}
    return [name for name, values in shares.items() if first[values] == name]


def _table(title: str, findings: Sequence[Finding], names: Sequence[str], cell: Cell) -> str:
    instances = [finding.instance for finding in findings]
    lines = [title, *_heads(instances), _line("bound", [_number(each.bound) for each in instances])]
    lines += [
        _line(name, [_number(cell(finding.shares[name])) for finding in findings]) for name in names
    ]
    return "\n".join(lines)


def _heads(instances: Sequence[Instance]) -> list[str]:
    """The lines that name what differs between the columns."""
    symbols = {"K": "num_frontiers", "kappa": "cost_ratio", "B/c": "num_steps"}
    columns = {
        symbol: [str(getattr(instance, field)) for instance in instances]
        for symbol, field in symbols.items()
    }
    return [_line(symbol, cells) for symbol, cells in columns.items() if len(set(cells)) > 1]


def _line(name: str, cells: Sequence[str]) -> str:
    return f"{name:<{NAME_WIDTH}}" + "".join(f"{cell:>{CELL_WIDTH}}" for cell in cells)


def _number(value: float) -> str:
    return f"{value:.2f}"


PICTURE_INCHES = (12.0, 5.2)
DOTS_PER_INCH = 130
BOUND_COLOUR = "#b2182b"
STYLES = {
    RANKING: ("#1b7837", "-", "o", "ranking by gain per cost"),
    SMALL_BONUS: ("#2166ac", "--", "D", "CostAda, bonus of the size of a gain"),
    "costada": ("#2166ac", "-", "s", "CostAda"),
    "adaevolve": ("#e08214", "-", "^", "AdaEvolve"),
    "evox": ("#8073ac", "-", "v", "EvoX (urn)"),
    "uniform": ("#4d4d4d", ":", "x", "uniform"),
    "best-of-n": ("#c51b7d", ":", "+", "best-of-n"),
}
"""Colour, line, mark and name of each policy in the picture."""


def write_theory_figure(findings: Sequence[Finding], paths: Sequence[Path]) -> None:
    """Write the picture in the format of each file's ending, for the middle K and kappa.

    matplotlib is loaded here and draws without a display.

    Raises:
        OSError: If a file cannot be written.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    middle = findings[len(findings) // 2].instance
    same_k = [each for each in findings if each.instance.num_frontiers == middle.num_frontiers]
    num_steps = max(each.instance.num_steps for each in findings)
    over_budget = [each for each in same_k if each.instance.cost_ratio == middle.cost_ratio]
    over_ratio = [each for each in same_k if each.instance.num_steps == num_steps]
    figure = Figure(figsize=PICTURE_INCHES, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    title = f"K = {middle.num_frontiers}, kappa = {middle.cost_ratio}"
    _draw(
        left, over_budget, lambda each: each.instance.num_steps, title, "Budget in cheap steps, B/c"
    )
    left.set_ylabel("Share of OPT, mean over places of the cheap frontier")
    title = f"K = {middle.num_frontiers}, B/c = {num_steps}"
    _draw(right, over_ratio, lambda each: each.instance.cost_ratio, title, "Cost ratio kappa")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    with rc_context({"svg.hashsalt": "theory"}):
        for path in paths:
            with replacing(path) as file:
                kind = path.suffix.removeprefix(".")
                figure.savefig(file, format=kind, dpi=DOTS_PER_INCH, metadata=_metadata(path))


def _draw(
    axes: Axes, findings: Sequence[Finding], place: Callable[[Finding], int], title: str, label: str
) -> None:
    places = [place(finding) for finding in findings]
    for name, (colour, line, mark, legend) in STYLES.items():
        shares = [finding.shares[name].mean for finding in findings]
        axes.plot(places, shares, color=colour, linestyle=line, marker=mark, label=legend)
    bounds = [finding.instance.bound for finding in findings]
    axes.plot(places, bounds, color=BOUND_COLOUR, linewidth=2.4, label="1/K + 1/kappa")
    axes.set_xscale("log")
    axes.set_xticks(places, [str(each) for each in places])
    axes.minorticks_off()
    axes.set_ylim(0.0, 1.03)
    axes.set_title(title, y=1.0)
    axes.set_xlabel(label)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


def _metadata(path: Path) -> dict[str, None]:
    """What keeps the moment of drawing out of a file."""
    return {"Date": None} if path.suffix == ".svg" else {}

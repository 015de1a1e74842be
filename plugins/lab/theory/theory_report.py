"""The findings on the proposition as sentences, tables, JSON and a figure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from costada.controller.allocation import optimism_bonus
from costada.controller.credit import cost_divisor, normalized_cost
from costada.controller.router_rules import DEFAULT_ROUTER
from costada.plugins.lab.theory.games import TOTAL_GAIN, Share
from costada.plugins.lab.theory.policies import (
    CHEAPEST,
    KUBE,
    NUM_URNS,
    RANKING,
    SEED_SCORE,
    SMALL_BONUS,
    SMALL_BONUS_NO_COST,
    UCB1,
)
from costada.plugins.lab.theory.proposition import POLICIES, Finding, Instance
from costada.plugins.lab.theory.unknown_gains import EVEN, GAINS, LEARNERS, NUM_DRAWS, Learned
from costada.store.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes


COSTADA, THOMPSON, UNIFORM = "costada", "costada-thompson", "uniform"


def conclusions(findings: Sequence[Finding]) -> list[str]:
    """Whether the bound holds, and where CostAda's rule obtains less than the ranking policy."""
    num_steps = max(finding.instance.num_steps for finding in findings)
    longest = [finding for finding in findings if finding.instance.num_steps == num_steps]
    return [*_on_shares(findings, longest), *_on_reasons(longest), _on_the_model(findings)]


def _on_shares(findings: Sequence[Finding], longest: Sequence[Finding]) -> list[str]:
    used = [
        (finding.shares[policy.name].mean / finding.instance.bound, policy.name, finding.instance)
        for finding in findings
        for policy in POLICIES
        if policy.is_cost_blind
    ]
    num_above = sum(ratio > 1 for ratio, _, _ in used)
    ratio, name, instance = max(used, key=lambda each: each[0])
    num_steps = longest[0].instance.num_steps
    ranking, own, uniform = (_means(longest, name) for name in (RANKING, COSTADA, UNIFORM))
    to_ranking = [one / other for one, other in zip(own, ranking, strict=True)]
    to_uniform = [one / other for one, other in zip(own, uniform, strict=True)]
    num_better = sum(finding.shares[COSTADA].mean > finding.instance.bound for finding in longest)
    return [
        f"Bound: of {len(used)} shares of cost-blind methods {num_above} are above 1/K + 1/kappa."
        f" The nearest is {name} with {ratio:.1%} of the bound at {_named(instance)}.",
        f"Ranking by gain per cost: {_range(ranking)} of OPT at B/c = {num_steps}."
        " It loses the first visits to expensive frontiers, at most (K-1)(kappa-1) cheap steps,"
        " which is o(1) as B/c grows.",
        f"CostAda's own rule: {_range(own)} of OPT at B/c = {num_steps}, which is"
        f" {_range(to_ranking)} of what ranking obtains and {_range(to_uniform)} times the share of"
        f" taking turns. It exceeds 1/K + 1/kappa in {num_better} of {len(longest)} cases.",
        f"Gain per dollar, drawn: {THOMPSON} obtains {_range(_means(longest, THOMPSON))} of OPT at"
        f" B/c = {num_steps}, fractional KUBE {_range(_means(longest, KUBE))}, UCB1"
        f" {_range(_means(longest, UCB1))}.",
    ]


def _on_reasons(longest: Sequence[Finding]) -> list[str]:
    middle = longest[len(longest) // 2]
    instance, game = middle.instance, middle.instance.game(0)
    total = round(middle.shares[COSTADA].mean * instance.num_steps / 2)
    visits = total // instance.num_frontiers
    bonus = optimism_bonus(visits, total, 0.5, game.constants)
    scale = game.constants.optimism_scale
    costliest = max((finding.instance for finding in longest), key=lambda each: each.cost_ratio)
    constants = costliest.game(0).constants
    cheap, expensive = (
        normalized_cost(price * constants.reference_cost, constants)
        for price in (1, costliest.cost_ratio)
    )
    early, late = (
        cost_divisor(expensive, remaining, constants) / cost_divisor(cheap, remaining, constants)
        for remaining in (1.0, 0.0)
    )
    small, blind = (_means(longest, name) for name in (SMALL_BONUS, SMALL_BONUS_NO_COST))
    return [
        f"Why, first: optimism has a fixed scale (c_ucb = {scale:g}), but scores end at 1, so that"
        f" B/c equal gains are at most c/B each. Halfway through {_named(instance)} the bonus of a"
        f" frontier visited {visits} times is {bonus:.3g}, {bonus / game.gain:.0f} times the gain"
        f" of a step ({game.gain:.3g}), so frontiers are visited almost evenly until the remaining"
        " budget takes the bonus away.",
        "Why, second: credit is divided by 1 + lambda^c ln(1 + c/c-bar). A step that costs"
        f" {costliest.cost_ratio} times more is credited {early:.2f} times less at the start and"
        f" {late:.2f} times less at the end, not {costliest.cost_ratio} times.",
        f"Diagnosis, not a method: with a bonus of the size of a gain ({SMALL_BONUS}) the same"
        f" rule obtains {_range(small)} of OPT, without the division by cost"
        f" ({SMALL_BONUS_NO_COST}) {_range(blind)}. It still differs from ranking by the"
        " logarithm, the smoothing and the repeated visits that optimism asks for.",
    ]


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


def conclusions_on_unknown_gains(cases: Sequence[Learned]) -> list[str]:
    """What learning costs, and which policy is best for each kind of gains."""
    num_steps = max(case.instance.num_steps for case in cases)
    longest = {case.gains: case for case in cases if case.instance.num_steps == num_steps}
    best = {
        gains: max(case.shares, key=lambda name: case.shares[name].mean)
        for gains, case in longest.items()
    }
    others = "; ".join(
        f"{gains}: {name} {_with_error(longest[gains].shares[name])}"
        + (
            ""
            if name == THOMPSON
            else f", {THOMPSON} {_with_error(longest[gains].shares[THOMPSON])}"
        )
        for gains, name in best.items()
    )
    kinds = "; ".join(f"{gains.name}: {gains.summary}" for gains in GAINS)
    return [
        f"Unknown gains: a step gains with a chance that is drawn for each frontier and game."
        f" {kinds[0].upper()}{kinds[1:]}.",
        *(_with_even_chances(case) for case in cases if case.gains == EVEN),
        f"The best policy for each kind of gains at B/c = {num_steps}. {others}.",
        f"{CHEAPEST} knows the prices and learns nothing. The rules know the prices in advance,"
        f" methods learn them from their bills. {THOMPSON} pays for up to four first tries of each"
        " frontier, so small budgets and rare gains leave it less.",
    ]


def _with_even_chances(case: Learned) -> str:
    names = (THOMPSON, DEFAULT_ROUTER, KUBE, CHEAPEST, RANKING, UCB1, COSTADA)
    named = ", ".join(f"{name} {_with_error(case.shares[name])}" for name in names)
    return f"With even chances, {_named(case.instance)}: {named}."


def _with_error(share: Share) -> str:
    return f"{share.mean:.3f} +- {share.error:.3f}"


def _means(findings: Sequence[Finding | Learned], policy: str) -> list[float]:
    return [finding.shares[policy].mean for finding in findings]


def _named(instance: Instance) -> str:
    return (
        f"K = {instance.num_frontiers}, kappa = {instance.cost_ratio}, B/c = {instance.num_steps}"
    )


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.3f} to {max(values):.3f}"


NAME_WIDTH, CELL_WIDTH, WIDE_CELL = 20, 5, 15


def theory_text(findings: Sequence[Finding]) -> str:
    """The shares of OPT as tables, one per K and one of the worst places.

    Of methods with the same shares throughout, the first is printed.
    """
    num_steps = max(finding.instance.num_steps for finding in findings)
    shares = {
        policy.name: tuple(finding.shares[policy.name] for finding in findings)
        for policy in POLICIES
    }
    names = _first_of_equals(shares)
    tables = [
        _table(
            f"Share of OPT, K = {count}, mean over the {count} places of the cheap frontier",
            [finding for finding in findings if finding.instance.num_frontiers == count],
            names,
            lambda share: share.mean,
        )
        for count in sorted({finding.instance.num_frontiers for finding in findings})
    ]
    longest = [finding for finding in findings if finding.instance.num_steps == num_steps]
    title = f"Share of OPT at the worst place, B/c = {num_steps}"
    return "\n\n".join([*tables, _table(title, longest, names, lambda share: share.worst)])


def unknown_gains_text(cases: Sequence[Learned]) -> str:
    """The shares of OPT where gains are unknown, one table per budget.

    Of methods with the same shares throughout, the first is printed.
    """
    shares = {each.name: tuple(case.shares[each.name] for case in cases) for each in LEARNERS}
    names = _first_of_equals(shares)
    tables = []
    for num_steps in sorted({case.instance.num_steps for case in cases}):
        columns = [case for case in cases if case.instance.num_steps == num_steps]
        lines = [
            f"Share of OPT, unknown gains, {_named(columns[0].instance)}, {NUM_DRAWS} games",
            _line("gains", [case.gains for case in columns], WIDE_CELL),
        ]
        for name in names:
            cells = [_with_error(case.shares[name]) for case in columns]
            lines.append(_line(name, cells, WIDE_CELL))
        tables.append("\n".join(lines))
    return "\n\n".join(tables)


def _first_of_equals(shares: Mapping[str, Sequence[Share]]) -> list[str]:
    """Names of policies, without those that obtain the same as an earlier one throughout."""
    first: dict[tuple[tuple[float, float], ...], str] = {}
    for name, found in shares.items():
        first.setdefault(tuple((share.mean, share.worst) for share in found), name)
    return list(first.values())


def theory_json(
    findings: Sequence[Finding], cases: Sequence[Learned], conclusions: Sequence[str]
) -> str:
    """Everything that was computed as one JSON object; `cases` are those of unknown gains."""
    policies = [
        {"name": each.name, "is_cost_blind": each.is_cost_blind, "is_method": each.is_method}
        for each in dict.fromkeys((*POLICIES, *LEARNERS))
    ]
    rows = [
        {
            **asdict(each.instance),
            "bound": each.instance.bound,
            "shares": {name: asdict(share) for name, share in each.shares.items()},
        }
        for each in findings
    ]
    unknown = [
        {
            "gains": each.gains,
            **asdict(each.instance),
            "shares": {
                name: {**asdict(share), "error": share.error} for name, share in each.shares.items()
            },
        }
        for each in cases
    ]
    facts = {"seed_score": SEED_SCORE, "total_gain": TOTAL_GAIN, "num_urns": NUM_URNS}
    found = {
        "policies": policies,
        "rows": rows,
        "unknown_gains": {
            "num_draws": NUM_DRAWS,
            "kinds": {gains.name: gains.summary for gains in GAINS},
            "rows": unknown,
        },
        "conclusions": list(conclusions),
    }
    return json.dumps({**facts, **found}, indent=2)


def _table(
    title: str, findings: Sequence[Finding], names: Sequence[str], cell: Callable[[Share], float]
) -> str:
    """The table with a column per finding, headed by what differs between the columns."""
    lines = [title]
    for symbol, field in (("K", "num_frontiers"), ("kappa", "cost_ratio"), ("B/c", "num_steps")):
        heads = [str(getattr(finding.instance, field)) for finding in findings]
        if len(set(heads)) > 1:
            lines.append(_line(symbol, heads))
    lines.append(_line("bound", [f"{finding.instance.bound:.2f}" for finding in findings]))
    for name in names:
        lines.append(_line(name, [f"{cell(finding.shares[name]):.2f}" for finding in findings]))
    return "\n".join(lines)


def _line(name: str, cells: Sequence[str], width: int = CELL_WIDTH) -> str:
    return f"{name:<{NAME_WIDTH}}" + "".join(f"{cell:>{width}}" for cell in cells)


PICTURE_INCHES = (17.0, 5.8)
DOTS_PER_INCH = 130
BOUND_COLOUR = "#b2182b"
STYLES = {
    RANKING: ("#1b7837", "-", "o", "ranking by gain per cost"),
    SMALL_BONUS: ("#2166ac", "--", "D", "CostAda, bonus of the size of a gain"),
    "costada": ("#2166ac", "-", "s", "CostAda"),
    THOMPSON: ("#542788", "-", "P", "CostAda, gain per dollar drawn"),
    DEFAULT_ROUTER: ("#542788", "--", "p", "budgeted Thompson, prices known"),
    KUBE: ("#8c510a", "--", "h", "fractional KUBE"),
    UCB1: ("#bf812d", ":", "1", "UCB1"),
    "adaevolve": ("#e08214", "-", "^", "AdaEvolve"),
    "evox": ("#8073ac", "-", "v", "EvoX (urn)"),
    "uniform": ("#4d4d4d", ":", "x", "uniform"),
    "best-of-n": ("#c51b7d", ":", "+", "best-of-n"),
}
"""Colour, line, mark and name of each policy in the picture."""
CHEAPEST_STYLE = ("#000000", "none", "_", "always the cheapest")
"""Drawn where gains are unknown; with equal gains it is OPT."""


def write_theory_figure(
    findings: Sequence[Finding], cases: Sequence[Learned], paths: Sequence[Path]
) -> None:
    """Write the picture in the format of each file's ending, for the middle K and kappa.

    The third panel holds the `cases` of unknown gains with the largest budget.

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
    left, right, unknown = figure.subplots(1, 3, sharey=True, width_ratios=(1, 1, 1.2))
    steps = [each.instance.num_steps for each in over_budget]
    _draw(left, over_budget, steps, "Budget in cheap steps, B/c")
    left.set_title(f"K = {middle.num_frontiers}, kappa = {middle.cost_ratio}", y=1.0)
    left.set_ylabel("Share of OPT, mean over places of the cheap frontier")
    _draw(right, over_ratio, [each.instance.cost_ratio for each in over_ratio], "Cost ratio kappa")
    right.set_title(f"K = {middle.num_frontiers}, B/c = {num_steps}", y=1.0)
    _draw_unknown(unknown, [each for each in cases if each.instance.num_steps == num_steps])
    handles, labels = left.get_legend_handles_labels()
    more_handles, more_labels = unknown.get_legend_handles_labels()
    figure.legend(handles + more_handles, labels + more_labels, loc="outside lower center", ncols=6)
    with rc_context({"svg.hashsalt": "theory"}):
        for path in paths:
            # The moment of drawing stays out of the file.
            metadata = {"Date": None} if path.suffix == ".svg" else {}
            kind = path.suffix.removeprefix(".")
            with replacing(path) as file:
                figure.savefig(file, format=kind, dpi=DOTS_PER_INCH, metadata=metadata)


def _draw(axes: Axes, findings: Sequence[Finding], places: Sequence[int], label: str) -> None:
    for name, (colour, line, mark, legend) in STYLES.items():
        shares = _means(findings, name)
        axes.plot(places, shares, color=colour, linestyle=line, marker=mark, label=legend)
    bounds = [finding.instance.bound for finding in findings]
    axes.plot(places, bounds, color=BOUND_COLOUR, linewidth=2.4, label="1/K + 1/kappa")
    axes.set_xscale("log")
    axes.set_xticks(places, [str(each) for each in places])
    axes.minorticks_off()
    axes.set_ylim(0.0, 1.03)
    axes.set_xlabel(label)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


def _draw_unknown(axes: Axes, cases: Sequence[Learned]) -> None:
    """Mean and two standard errors of each policy, side by side for each kind of gains."""
    styles = {name: style for name, style in STYLES.items() if name in cases[0].shares}
    styles[CHEAPEST] = CHEAPEST_STYLE
    for number, (name, (colour, _, mark, legend)) in enumerate(styles.items()):
        shares = [case.shares[name] for case in cases]
        offset = 0.8 * (number / (len(styles) - 1) - 0.5)
        axes.errorbar(
            [place + offset for place in range(len(shares))],
            [share.mean for share in shares],
            yerr=[2 * share.error for share in shares],
            color=colour,
            linestyle="none",
            marker=mark,
            capsize=2,
            label=legend if name not in STYLES else None,
        )
    axes.set_xticks(range(len(cases)), [case.gains for case in cases])
    axes.set_title(f"Unknown gains, {_named(cases[0].instance)}", y=1.0)
    axes.set_xlabel("Kind of gains; bars: two standard errors")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, axis="y")

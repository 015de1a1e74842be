"""What the runs on menus show: a table of each menu, wins and losses, and one picture."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from operator import attrgetter
from statistics import fmean
from typing import TYPE_CHECKING

from rich.console import Console

from costada.controller.router_rules import DEFAULT_ROUTER
from costada.experiments.comparison.comparison import Summary, summarize
from costada.experiments.comparison.figures import LineStyle, svg_of
from costada.plugins.lab.menus.menu_batch import (
    ANY,
    BEST,
    CHEAPEST,
    MOST_EXPENSIVE,
    PAPER_RULE,
    SHARES,
    Measured,
)
from costada.reports.formats import percent
from costada.reports.terminal import TerminalTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METRICS: Mapping[str, Callable[[Measured], float]] = {
    "auc": attrgetter("auc"),
    "final_score": attrgetter("final_score"),
    "overshoot": attrgetter("overshoot"),
}


@dataclass(frozen=True, slots=True)
class RouterResult:
    """One router on one menu.

    Attributes:
        means: Of each of `METRICS`, over seeds.
        differences: The first router's minus this one's, paired by seed; none for the first.
        money: Share of the budget at which the first router's mean curve reaches this one's mean
            final score; `None` where it does not.
        curve: Mean best score at each of `SHARES`.
    """

    router: str
    means: Mapping[str, float]
    differences: Mapping[str, Summary]
    money: float | None
    curve: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class MenuResult:
    """All routers on one menu; the others are compared with the first."""

    menu: str
    about: str
    num_seeds: int
    routers: tuple[RouterResult, ...]


def menu_result(menu: str, about: str, runs: Sequence[Measured]) -> MenuResult:
    """The comparison on one menu; every router has a run of every seed."""
    by_router: dict[str, dict[int, Measured]] = {}
    for run in runs:
        by_router.setdefault(run.router, {})[run.seed] = run
    first = next(iter(by_router.values()))
    first_curve = _mean_curve(first)
    routers = []
    for router, of_seed in by_router.items():
        means, differences = {}, {}
        for name, metric in METRICS.items():
            means[name] = fmean(metric(of_seed[seed]) for seed in first)
            gaps = [metric(first[seed]) - metric(of_seed[seed]) for seed in first]
            if of_seed is not first:
                differences[name] = summarize([gaps])
        target = means["final_score"]
        reached = [
            share for share, height in zip(SHARES, first_curve, strict=True) if height >= target
        ]
        curve = _mean_curve(of_seed)
        money = reached[0] if reached else None
        routers.append(RouterResult(router, means, differences, money, curve))
    return MenuResult(menu, about, len(first), tuple(routers))


def _mean_curve(of_seed: Mapping[int, Measured]) -> tuple[float, ...]:
    return tuple(map(fmean, zip(*(run.scores for run in of_seed.values()), strict=True)))


MIN_SEEDS = 10
"""Seeds below which an interval decides nothing: of two it covers the mean in half of the cases."""

LEGEND = (
    "Means over seeds; differences are {first}'s minus the other's, paired by seed, with 95 %"
    " bootstrap intervals.\nMoney: share of the budget at which the mean curve of {first} reaches"
    " the final score of the other.\nfixed:best is known only in hindsight, from the runs"
    " themselves. The worlds are simulated: no language model answered."
)


def print_menu(result: MenuResult, console: Console) -> None:
    """Print every router on a menu."""
    header = ("router", "AUC", "difference", "final score", "difference ", "money", "overshoot")
    rows = [
        (
            each.router,
            f"{each.means['auc']:.4f}",
            _difference(each.differences.get("auc")),
            f"{each.means['final_score']:.4f}",
            _difference(each.differences.get("final_score")),
            "" if not each.differences else _money(each.money),
            percent(each.means["overshoot"]),
        )
        for each in result.routers
    ]
    console.print(f"{result.menu}: {result.about}" if result.about else result.menu, markup=False)
    TerminalTable(header, rows, words=("router",), optional=("difference ", "final score")).print(
        console
    )


def _difference(found: Summary | None) -> str:
    if found is None or found.interval is None:
        return "" if found is None else f"{found.mean:+.4f}"
    return f"{found.mean:+.4f} [{found.interval.low:+.4f}, {found.interval.high:+.4f}]"


def _money(share: float | None) -> str:
    return "never" if share is None else f"{share:.0%}"


def print_wins(results: Sequence[MenuResult], console: Console) -> None:
    """Print where the first router wins and loses, menu by menu."""
    first, *others = [each.router for each in results[0].routers]
    rows = [
        (result.menu, *(_win_cell(each.differences["auc"]) for each in result.routers[1:]))
        for result in results
    ]
    console.print(f"AUC of {first} minus that of the other; (in brackets: interval holds 0)")
    TerminalTable(("menu", *others), rows, words=("menu",)).print(console)
    tallies = []
    for place, other in enumerate(others, 1):
        signs = [_sign(result.routers[place].differences["auc"]) for result in results]
        tallies.append((other, str(signs.count(1)), str(signs.count(0)), str(signs.count(-1))))
    header = (f"{first} against", "menus won", "undecided", "lost")
    TerminalTable(header, tallies, words=header[:1]).print(console)
    console.print(LEGEND.format(first=first), markup=False)
    text = f"{results[0].num_seeds} seeds."
    if results[0].num_seeds < MIN_SEEDS:
        text += f" Nothing is decided by fewer than {MIN_SEEDS}: their intervals are too narrow."
    console.print(text)


def _sign(found: Summary) -> int:
    """1 for an interval above zero, -1 below, 0 for one that holds it or is of too few seeds."""
    interval = found.interval
    if interval is None or interval.low <= 0.0 <= interval.high or found.n < MIN_SEEDS:
        return 0
    return 1 if interval.low > 0.0 else -1


def _win_cell(found: Summary) -> str:
    text = f"{found.mean:+.3f}"
    return text if _sign(found) else f"({text})"


STYLES: Mapping[str, LineStyle] = {
    DEFAULT_ROUTER: LineStyle("#0072b2", "-", 2.6),
    "cautious-thompson": LineStyle("#56b4e9", "-", 1.5),
    PAPER_RULE: LineStyle("#d55e00", "-", 1.8),
    "round-robin": LineStyle("#7f7f7f", ":", 1.8),
    "ucb1": LineStyle("#009e73", "--", 1.5),
    "cascade": LineStyle("#cc79a7", "--", 1.5),
    "patience": LineStyle("#44aa99", "-", 2.2),
    "shinka": LineStyle("#332288", "--", 1.5),
    "shinka-price-blind": LineStyle("#332288", ":", 1.5),
    CHEAPEST: LineStyle("#e69f00", ":", 1.5),
    MOST_EXPENSIVE: LineStyle("#882255", ":", 1.5),
    ANY: LineStyle("#000000", ":", 1.8),
    BEST: LineStyle("#000000", "-.", 1.2),
}
COLUMNS = 3
PANEL_INCHES = (4.1, 3.1)
DRAWN = 4
"""Distance in `SHARES` of the points that are drawn."""

SHOWN_FROM = 0.05
"""Share of the budget from which the height of a panel counts every curve."""


def quality_figure(results: Sequence[MenuResult]) -> str:
    """Mean best score over dollars for every router, one panel for each menu; as SVG."""

    def draw(figure: Figure) -> None:
        columns = min(COLUMNS, len(results))
        rows = ceil(len(results) / columns)
        figure.set_size_inches(columns * PANEL_INCHES[0], rows * PANEL_INCHES[1] + 0.6)
        panels = list(figure.subplots(rows, columns, squeeze=False).flatten())
        for axes, result in zip(panels, results, strict=False):
            _panel(axes, result)
        for axes in panels[len(results) :]:
            axes.set_axis_off()
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)

    return svg_of(draw, "menus")


def _panel(axes: Axes, result: MenuResult) -> None:
    shown = [share for share in SHARES if share >= SHOWN_FROM]
    low, high = 1.0, 0.0
    for each in result.routers:
        style = STYLES.get(each.router, LineStyle("#999933", "-.", 1.2))
        axes.plot(
            SHARES[::DRAWN],
            each.curve[::DRAWN],
            label=each.router,
            color=style.colour,
            linestyle=style.dashes,
            linewidth=style.width,
        )
        heights = each.curve[-len(shown) :]
        low, high = min(low, heights[0]), max(high, heights[-1])
    margin = 0.04 * (high - low) or 0.05
    axes.set_ylim(low - margin, high + margin)
    axes.set_xlim(0.0, 1.0)
    axes.set_title(result.menu, fontsize=10, fontweight="bold")
    axes.set(xlabel="Share of the budget", ylabel="Best score so far")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)


def menus_json(results: Sequence[MenuResult]) -> str:
    """All numbers of a comparison but the curves, as JSON."""
    found = [
        {
            "menu": result.menu,
            "about": result.about,
            "seeds": result.num_seeds,
            "routers": [
                {
                    "router": each.router,
                    "means": dict(each.means),
                    "first_minus_this": {
                        name: {
                            "mean": found.mean,
                            "low": found.interval.low if found.interval else None,
                            "high": found.interval.high if found.interval else None,
                        }
                        for name, found in each.differences.items()
                    },
                    "money": each.money,
                }
                for each in result.routers
            ],
        }
        for result in results
    ]
    return json.dumps(found, indent=2) + "\n"

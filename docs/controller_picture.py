"""Draws `images/controller.svg` from the trace of the run on the controller's page.

costada run circle_packing --budget 0.15 --seed 2 --prompt-order paper --out packing --quiet
python docs/controller_picture.py packing/steps.jsonl
"""

import json
import sys
from math import log, sqrt
from pathlib import Path

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

COLORS = ("#0072b2", "#d55e00")
PICTURE = Path(__file__).parent / "images" / "controller.svg"


def ucb_scores(rows: list[dict]) -> list[list[float]]:
    """UCB score of each frontier before each step, as the page recomputes it."""
    reward, visits, rho, scores = [0.0, 0.0], [0, 0], 1.0, []
    for row in rows:
        bonus = [rho * 0.5 * sqrt(log(sum(visits) + 1) / (count + 1)) for count in visits]
        scores.append([brought + extra for brought, extra in zip(reward, bonus, strict=True)])
        k, rho = row["frontier"] - 1, row["remaining_ratio"]
        reward[k] = 0.9 * reward[k] + 0.1 * row["allocation_reward"]
        visits[k] += 1
    return scores


def draw(rows: list[dict]) -> Figure:
    """The four panels over the steps."""
    steps = [row["iteration"] for row in rows]
    figure = Figure(figsize=(8, 8), layout="constrained")
    where, how, credit, best = figure.subplots(4, 1, sharex=True)
    scores = ucb_scores(rows)
    for k, color in enumerate(COLORS):
        values = [each[k] for each in scores]
        where.plot(steps, values, color=color, label=f"frontier {k + 1}")
        chosen = [
            (t, y)
            for t, y, row in zip(steps, values, rows, strict=True)
            if row["frontier"] == k + 1
        ]
        where.plot(*zip(*chosen, strict=True), "o", color=color)
    how.plot(steps, [row["intensity"] for row in rows], color=COLORS[0], label="intensity I")
    how.plot(steps, [row["remaining_ratio"] for row in rows], "--", color="#555", label="rho")
    credit.bar(
        [t - 0.2 for t in steps],
        [row["utility"] for row in rows],
        0.4,
        label="utility u",
        color=COLORS[0],
    )
    rewards = [row["allocation_reward"] for row in rows]
    credit.bar([t + 0.2 for t in steps], rewards, 0.4, label="reward r", color=COLORS[1])
    best.step(
        steps, [row["best_score"] for row in rows], where="post", color="#000", label="best score"
    )
    for row in rows:
        if "guide_charged" in row["events"]:
            best.axvline(row["iteration"], color=COLORS[1], label="guide bought")
        if row["consolidation_left"]:
            start = row["iteration"] + 0.5
            best.axvspan(start, start + 1, color=COLORS[0], alpha=0.15, lw=0, label="consolidation")
    for axes, name in zip(
        (where, how, credit, best), ("UCB score", "ratio", "credit", "score"), strict=True
    ):
        axes.set_ylabel(name)
        axes.grid(alpha=0.3)
        labels = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        axes.legend(
            labels.values(),
            labels.keys(),
            loc="center left",
            bbox_to_anchor=(1, 0.5),
            frameon=False,
        )
    best.set_xlabel("step t")
    best.set_xticks(steps)
    return figure


if __name__ == "__main__":
    mpl.rcParams.update(
        {"svg.hashsalt": "costada", "svg.fonttype": "none", "font.family": "sans-serif"}
    )
    trace = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    FigureCanvasSVG(draw(trace)).print_svg(PICTURE, metadata={"Date": None})

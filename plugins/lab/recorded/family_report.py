"""The tables of a comparison over the family, for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from costada.experiments.comparison.metrics import Interval
from costada.plugins.lab.recorded.family import World
from costada.plugins.lab.recorded.family_comparison import (
    AUC,
    METRICS,
    OVERSHOOT,
    TO_95,
    TO_99,
    FamilyBatch,
    Judgement,
    Measured,
    holm,
    judgements,
    verdict,
    weighted_means,
)

BASELINES = ("costada", "adaevolve")
"""What other methods are compared with, where they were run."""

FORMS = {TO_95: ".3f", TO_99: ".3f", OVERSHOOT: ".2%"}
"""How metrics are written that are no scores."""


@dataclass(frozen=True, slots=True)
class FamilyTable:
    """A table: the first column names methods."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def family_tables(
    measured: Measured, batch: FamilyBatch, world_weights: Mapping[World, float]
) -> Iterator[FamilyTable]:
    """What is measured of every method, and the differences to each baseline."""
    yield FamilyTable(
        "Means by weight",
        ("method", *METRICS),
        [_means(measured, batch, world_weights, method) for method in batch.methods],
    )
    for baseline in BASELINES:
        if baseline not in batch.methods or len(batch.methods) == 1:
            continue
        found = judgements(measured, batch, world_weights, baseline)
        yield FamilyTable(
            f"{AUC} minus {baseline}",
            (
                "method",
                "mean by weight",
                "p (Holm)",
                "in the worst world",
                "worst credible world",
                "verdict",
            ),
            list(_judged(found)),
        )
        yield FamilyTable(
            f"{AUC} minus {baseline} in the credible worlds",
            ("method", *(world.name for world in next(iter(found.values())).in_credible)),
            [
                (
                    name,
                    *(_cell(each.mean, each.interval, ".3f") for each in of.in_credible.values()),
                )
                for name, of in found.items()
            ],
        )
    if BASELINES[0] in batch.methods and len(batch.methods) > 1:
        yield _secondary(measured, batch, world_weights)


def _means(
    measured: Measured, batch: FamilyBatch, world_weights: Mapping[World, float], method: str
) -> tuple[str, ...]:
    means = weighted_means(measured, batch, world_weights, method)
    forms = [FORMS.get(name, ".4f") for name in METRICS]
    return method, *(f"{mean:{form}}" for mean, form in zip(means, forms, strict=True))


def _judged(found: Mapping[str, Judgement]) -> Iterator[tuple[str, ...]]:
    corrected = holm({name: each.p_value for name, each in found.items()})
    for name, each in found.items():
        yield (
            name,
            _cell(each.mean, each.interval, ".4f"),
            f"{corrected[name]:.3f}",
            f"{each.in_worst:+.4f}",
            each.worst.name,
            verdict(each, corrected[name]),
        )


def _secondary(
    measured: Measured, batch: FamilyBatch, world_weights: Mapping[World, float]
) -> FamilyTable:
    names = [name for name in METRICS if name != AUC]
    found = {name: judgements(measured, batch, world_weights, BASELINES[0], name) for name in names}
    others = [method for method in batch.methods if method != BASELINES[0]]
    rows = [
        (
            method,
            *(
                _cell(each[method].mean, each[method].interval, FORMS.get(name, ".4f"))
                for name, each in found.items()
            ),
        )
        for method in others
    ]
    return FamilyTable(f"The other metrics minus {BASELINES[0]}", ("method", *names), rows)


def _cell(mean: float, interval: Interval | None, form: str) -> str:
    if interval is None:
        return f"{mean:+{form}}"
    return f"{mean:+{form}} [{interval.low:+{form}}, {interval.high:+{form}}]"


def markdown(tables: Sequence[FamilyTable]) -> str:
    """The tables as Markdown."""
    parts = []
    for table in tables:
        lines = [f"**{table.title}**", ""]
        lines.append(f"| {' | '.join(table.header)} |")
        lines.append("|" + "---|" * len(table.header))
        lines += [f"| {' | '.join(row)} |" for row in table.rows]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"

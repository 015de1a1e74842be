"""What the calls of a run used, why a run ended, and an evaluation in words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from decimal import Decimal
from operator import attrgetter
from statistics import fmean
from typing import TYPE_CHECKING

from costada.controller.step import OUT_OF_MONEY
from costada.evaluators.sandbox.layer_choice import described_layer
from costada.evaluators.sandbox.layers import Layer
from costada.reports.formats import counted, percent, short_dollars
from costada.reports.terminal import printable
from costada.store.history import UsedCalls
from costada.values.evaluation import LOG, MARKS, Evaluation
from costada.values.roles import ROLES, SEARCHING
from costada.values.usage import total

if TYPE_CHECKING:
    from costada.nodes.trace_row import TraceRow

REASONS = {
    "target": "the target is reached",
    "budget": "the budget is used up",
    "iterations": "the iteration limit is reached",
    "flat": "another gain is too unlikely",
    "failures": "too many attempts in a row yielded no usable program",
    "interrupted": "",
}
"""Why a run has ended."""

NUM_EXAMPLES = 3
"""Examples of a data set that are printed of an evaluation."""

NUM_LINES, NUM_CHARACTERS = 20, 2000
"""Limits of a printed text of an evaluation."""


def end_text(reason: str, remaining: float) -> str:
    """Why a run has ended, with `remaining` dollars of its budget left."""
    if reason == "budget" and remaining > 0:
        return "no further call fits the budget"
    return REASONS[reason]


def crossing_text(over: float, parallel: int) -> str:
    """Why a run spent `over` dollars more than its budget; empty if it did not."""
    if over <= 0:
        return ""
    which = "the step that crossed it" if parallel == 1 else "the steps in flight"
    return f"{short_dollars(Decimal(over))} over the budget: {which} completed"


def sum_by_role(used: Iterable[UsedCalls]) -> Mapping[str, UsedCalls]:
    """What each role used; those of the search are included if they made no call."""
    by_role = {role: UsedCalls(role, "") for role in ROLES}
    for each in used:
        by_role[each.role] = by_role.get(each.role, UsedCalls(each.role, "")) + each
    return {role: each for role, each in by_role.items() if each.calls or role in SEARCHING}


def sum_by_model(used: Iterable[UsedCalls], menu: Iterable[str]) -> Mapping[str, UsedCalls]:
    """What each model of a menu used, in the order of the menu, guides included."""
    by_model = {name: UsedCalls("", name) for name in menu}
    for each in used:
        if each.entry in by_model:
            by_model[each.entry] += each
    return by_model


def cache_text(sums: Iterable[UsedCalls]) -> str:
    """Which share of the prompts came from providers' caches, and what that saved.

    Empty if nothing was read from a cache or written to one.
    """
    found = list(sums)
    used = total(each.usage for each in found)
    saved = sum((each.saved for each in found), Decimal(0))
    if not used.cached_tokens and not used.cache_write_tokens:
        return ""
    effect = f"${saved:.6f} saved" if saved >= 0 else f"${-saved:.6f} more, for writing them"
    return f"{percent(used.cached_tokens / used.input_tokens)} of the tokens in, {effect}"


def failures_text(rows: Sequence[TraceRow]) -> str:
    """How many iterations of a run without any gain failed, and why the last one did.

    Empty if the run has found something better than its start, or no iteration failed. One that
    could not be paid for has not failed.
    """
    reasons = [
        row["failure"] for row in rows if row["failure"] and OUT_OF_MONEY not in row["events"]
    ]
    if not reasons or any(row["global_gain"] > 0 for row in rows):
        return ""
    lines = printable(reasons[-1]).splitlines()
    return f"{len(reasons)} of {counted(len(rows), 'iteration')}, the last one: {lines[0]}"


def evaluation_text(evaluation: Evaluation, sandbox: Layer | None) -> str:
    """An evaluation in lines, with beginning and end of each of its texts."""
    objective = "none" if evaluation.objective is None else f"{evaluation.objective:.10g}"
    lines = [
        f"objective  {objective}",
        f"score      {evaluation.score:.10g}",
        f"valid      {'yes' if evaluation.is_valid else 'no'}",
        f"seconds    {evaluation.seconds:.3f}",
        *_series("measured", evaluation.measurements),
        *_series("confirmed", evaluation.confirmation),
        *_example_lines(evaluation),
        f"sandbox    {described_layer(sandbox) if sandbox else 'up to the problem'}",
        *(f"  {name} = {value:.10g}" for name, value in _other_metrics(evaluation).items()),
    ]
    notes = {k: text for k, text in evaluation.artifacts.items() if k not in (*MARKS, LOG)}
    texts = {"error": evaluation.error, **notes, LOG: evaluation.artifacts.get(LOG)}
    for name, text in texts.items():
        if text:
            shown = _excerpt(text)
            lines.append(f"{name}:\n{shown}" if "\n" in shown else f"{name:<10} {shown}")
    return "\n".join(lines)


def _example_lines(evaluation: Evaluation) -> list[str]:
    """On how many examples a program was judged, and the first line on each of the worst."""
    if not evaluation.examples:
        return []
    lines = [f"examples   {len(evaluation.examples)}, the worst of them:"]
    for each in sorted(evaluation.examples, key=attrgetter("score"))[:NUM_EXAMPLES]:
        said = "".join(_excerpt(each.feedback).splitlines()[:1])
        lines.append(f"  [{each.place}] {each.score:.6g} {said}".rstrip())
    if validation := evaluation.validation:
        lines.append(f"validation {fmean(validation):.6g} on {len(validation)} examples")
    return lines


def _other_metrics(evaluation: Evaluation) -> dict[str, float]:
    """The metrics that the lines above them have not shown under another name."""
    shown = {
        "combined_score": (evaluation.score, evaluation.objective),
        "target_ratio": (evaluation.score,),
        "eval_time": (evaluation.seconds,),
    }
    metrics = evaluation.metrics.items()
    return {name: value for name, value in metrics if value not in shown.get(name, ())}


def _series(name: str, values: Sequence[float]) -> list[str]:
    return [f"{name:<10} {', '.join(f'{each:.6g}' for each in values)}"] if values else []


def evaluation_json(evaluation: Evaluation, sandbox: Layer | None) -> str:
    """An evaluation with its artifacts as one JSON object."""
    known = {**asdict(evaluation), "sandbox": sandbox}
    del known["not_finite"]
    if not evaluation.measurements:
        del known["measurements"], known["confirmation"]
    return json.dumps(known, indent=2, default=dict)


def _excerpt(text: str) -> str:
    safe = "".join(each if each.isprintable() or each in "\n\t" else "?" for each in text)
    if len(safe) <= NUM_CHARACTERS and len(safe.splitlines()) <= NUM_LINES:
        return "\n".join(line.rstrip() for line in safe.splitlines())
    first = safe[: NUM_CHARACTERS // 2].splitlines()[: NUM_LINES // 2]
    last = safe[-NUM_CHARACTERS // 2 :].splitlines()[-NUM_LINES // 2 :]
    note = f"[the beginning and the end of {len(text)} characters; --json prints them all]"
    return "\n".join(line.rstrip() for line in (*first, note, *last))

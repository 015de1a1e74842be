"""The result of a run, as lines for a terminal and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from costada.reports.formats import budget_text, counted, percent
from costada.runs.config import RunConfig
from costada.runs.folder import RunFolder
from costada.values.roles import COMPUTE, JUDGING

if TYPE_CHECKING:
    from costada.nodes.trace_row import ModelRow
    from costada.store.history import UsedCalls
    from costada.values.example_score import JudgedExamples
    from costada.values.search_result import Discovery


def summary_text(
    result: Discovery,
    config: RunConfig,
    folder: RunFolder,
    sums: Mapping[str, UsedCalls],
    num_cached: int,
    models: Sequence[tuple[ModelRow, UsedCalls]],
    failures: str,
    num_waiting: int,
    examples: JudgedExamples,
) -> str:
    """The result in a few lines; `models` are those of a menu, with what their calls used.

    `failures` says how many iterations failed and why, where none has found anything better;
    `num_waiting` counts the ideas and programs of users that no step has taken.
    """
    from costada.reports.summary import cache_text, end_text

    end = {"interrupted": "Interrupted", "failures": "Stopped"}.get(result.stop_reason, "Finished")
    reason = end_text(result.stop_reason, result.remaining)
    over = result.spent - config.budget
    overshoot = f" (overshoot {percent(over / config.budget)})" if over > 0 else ""
    not_charged = uncharged(result, config, sums)
    unfinished = f", and ${not_charged:.6f} in unfinished iterations" if not_charged else ""
    lines = [f"{end} after {counted(result.iterations, 'iteration')}{reason and f': {reason}'}."]
    if result.last_failure:
        lines.append(f"  last failure    {last_failure(result)}")
    lines += [f"  failed          {failures}"] if failures and not result.last_failure else []
    if result.best_objective is not None:
        objective = f"{result.best_objective:.10g}"
        lines.append(f"  best objective  {objective} (score {result.best_score:.6f})")
    if result.validation_score is not None:
        gap = result.best_score - result.validation_score
        side = "below" if gap >= 0 else "above"
        lines.append(
            f"  validation      {result.validation_score:.6f}, {abs(gap):.6f} {side} the score on"
            " the examples"
        )
    lines.append(
        f"  spent           ${result.spent:.6f} of {budget_text(config.budget)}"
        f"{overshoot}{unfinished}"
    )
    lines += [f"    {role:<12}  {_calls_text(used)}" for role, used in sums.items() if used.calls]
    if cached := cache_text(sums.values()):
        lines.append(f"    cached        {cached}")
    if examples.judged:
        lines.append(f"  examples        {_examples_text(examples, sums)}")
    if models:
        width = max(12, *(len(row["name"]) for row, _ in models))
        lines.append(f"  models          chosen by {config.router}")
        lines += [f"    {row['name']:<{width}}  {_model_text(row, used)}" for row, used in models]
    if result.sandbox:
        lines.append(f"  sandbox         {result.sandbox}")
    if num_cached:
        lines.append(f"  known programs  {num_cached} not run again")
    inputs = "1 idea or program" if num_waiting == 1 else f"{num_waiting} ideas and programs"
    waiting = f"  waiting         {inputs}; costada resume continues with them"
    lines += [waiting] if num_waiting else []
    if folder.place != str(folder.path):
        lines.append(f"  kept in         {folder.place}")
    best = "no valid one yet" if result.best_objective is None else folder.best_program
    lines.append(f"  best program    {best}")
    if folder.pareto.is_dir():
        lines.append(f"  Pareto front    {folder.pareto}")
    if folder.report.is_file():
        lines.append(f"  report          {folder.report.resolve().as_uri()}")
    return "\n".join(lines)


def _examples_text(examples: JudgedExamples, sums: Mapping[str, UsedCalls]) -> str:
    judged, spared = examples
    share = percent(judged / (judged + spared))
    saved = saved_dollars(examples, sums)
    dollars = f", which saved about ${saved:.6f}" if saved else ""
    return f"candidates were judged on {judged:,} of {judged + spared:,} ({share}){dollars}"


def saved_dollars(examples: JudgedExamples, sums: Mapping[str, UsedCalls]) -> float:
    """Dollars that judging the spared examples would have cost, at the mean of those judged."""
    paid = sum((sums[role].dollars for role in JUDGING if role in sums), Decimal(0))
    return float(paid) * examples.spared / examples.judged if examples.judged else 0.0


def _model_text(row: ModelRow, used: UsedCalls) -> str:
    attempts = f"{counted(row['tries'], 'attempt')} with credit {row['credit']:.2f}"
    disabled = "; disabled" if row["is_disabled"] else ""
    return f"{_calls_text(used)}, {attempts}{disabled}"


def _calls_text(used: UsedCalls) -> str:
    notes = []
    if used.role != COMPUTE:
        tokens = used.usage
        notes.append(f"{tokens.input_tokens:,} tokens in, {tokens.output_tokens:,} out")
    if used.in_doubt:
        most = f"at most ${used.in_doubt_dollars:.6f} more"
        notes.append(f"the bill of {used.in_doubt} is unknown, {most}")
    number = counted(used.calls, "evaluation" if used.role == COMPUTE else "call")
    text = f"${used.dollars:.6f} for {number}"
    return f"{text} ({'; '.join(notes)})" if notes else text


def summary_json(
    result: Discovery,
    config: RunConfig,
    folder: RunFolder,
    sums: Mapping[str, UsedCalls],
    num_cached: int,
    models: Sequence[tuple[ModelRow, UsedCalls]],
    num_waiting: int,
    examples: JudgedExamples,
) -> str:
    """The result as one JSON object; dollars are numbers, files are paths.

    No file is named as the best program while none is valid.

    `models` are those of a menu: each is an object of the trace's router, in which `dollars` are
    those of its attempts, and under `ledger` what all its calls used, guides included.
    `num_waiting` counts the ideas and programs of users that no step has taken.
    """
    settings = ("problem", "method", "model", "guide_model", "seed", "budget")
    facts = {
        **{name: getattr(config, name) for name in settings},
        "stop_reason": result.stop_reason,
        "last_failure": result.last_failure,
        "iterations": result.iterations,
        "best_score": result.best_score,
        "best_objective": result.best_objective,
        "best_metrics": dict(result.best_metrics),
        "spent": result.spent,
        "remaining": result.remaining,
        "overshoot": max(0.0, result.spent - config.budget),
        "uncharged": uncharged(result, config, sums),
        "ledger": {role: _calls_json(used) for role, used in sums.items()},
        "sandbox": result.sandbox,
        "cached_evaluations": num_cached,
        "waiting_inputs": num_waiting,
        "folder": str(folder.path),
        "best_program": None if result.best_objective is None else str(folder.best_program),
        "report": str(folder.report) if folder.report.is_file() else None,
    }
    if examples.judged:
        facts["examples"] = {
            **examples._asdict(),
            "saved_dollars": saved_dollars(examples, sums),
            "validation_score": result.validation_score,
        }
    if folder.pareto.is_dir():
        facts["pareto"] = str(folder.pareto)
    if models:
        facts["router"] = config.router
        facts["models"] = [{**row, "ledger": _calls_json(used)} for row, used in models]
    return json.dumps(facts, indent=2)


def _calls_json(used: UsedCalls) -> dict[str, float]:
    return {
        "calls": used.calls,
        "in_doubt": used.in_doubt,
        "input_tokens": used.usage.input_tokens,
        "output_tokens": used.usage.output_tokens,
        "cached_tokens": used.usage.cached_tokens,
        "reasoning_tokens": used.usage.reasoning_tokens,
        "dollars": float(used.dollars),
        "cache_saved_dollars": float(used.saved),
        "in_doubt_dollars": float(used.in_doubt_dollars),
    }


def uncharged(result: Discovery, config: RunConfig, sums: Mapping[str, UsedCalls]) -> float:
    """Dollars of calls in an unfinished iteration, which is charged when the run is resumed."""
    counts_lost = config.lost_calls == "count"
    paid = sum(
        (used.dollars + counts_lost * used.in_doubt_dollars for used in sums.values()), Decimal(0)
    )
    return max(0.0, float(paid - Decimal(str(result.spent))))


def last_failure(result: Discovery) -> str:
    """The first line of the last failure."""
    return next(iter(result.last_failure.splitlines()), "unknown")

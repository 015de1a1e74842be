"""The result of a run in words for a person and in JSON for a program."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from decimal import Decimal

from costada.reports.formats import counted, percent
from costada.reports.summary import REASONS, RoleSum
from costada.runs.config import RunConfig
from costada.runs.folder import RunFolder
from costada.values.discovery import Discovery

ENDS = {"interrupted": "Interrupted", "failures": "Stopped"}


def summary_text(
    result: Discovery,
    config: RunConfig,
    folder: RunFolder,
    sums: Mapping[str, RoleSum],
    num_cached: int = 0,
) -> str:
    """Return the result in a few lines."""
    objective = "none" if result.best_objective is None else f"{result.best_objective:.10g}"
    lines = [
        _ending(result),
        *([f"  last failure    {_first_line(result)}"] if result.last_failure else []),
        f"  best objective  {objective} (score {result.best_score:.6f})",
        f"  spent           ${result.spent:.6f} of ${config.budget:g}{_overshoot(result, config)}",
        *(_role_line(role, used) for role, used in sums.items() if used.calls),
        *_uncharged_line(uncharged(result, config, sums)),
        *([f"  sandbox         {result.sandbox}"] if result.sandbox else []),
        *([f"  known programs  {num_cached} not run again"] if num_cached else []),
        f"  best program    {folder.best_program}",
        f"  report          {folder.report}",
    ]
    if result.stop_reason in ("interrupted", "failures"):
        lines.append(f"Resume with: {folder.next_command(config)}")
    return "\n".join(lines)


def summary_json(
    result: Discovery,
    config: RunConfig,
    folder: RunFolder,
    sums: Mapping[str, RoleSum],
    num_cached: int = 0,
) -> str:
    """Return the result as one JSON object; dollars are numbers, files are paths."""
    facts = {
        "problem": config.problem,
        "method": config.method,
        "model": config.model,
        "guide_model": config.guide_model,
        "seed": config.seed,
        "budget": config.budget,
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
        "ledger": {role: _plain(used) for role, used in sums.items()},
        "sandbox": result.sandbox,
        "cached_evaluations": num_cached,
        "folder": str(folder.path),
        "best_program": str(folder.best_program),
        "report": str(folder.report),
    }
    return json.dumps(facts, indent=2)


def uncharged(result: Discovery, config: RunConfig, sums: Mapping[str, RoleSum]) -> float:
    """Return the dollars of calls in an unfinished iteration, charged when it is gone on with."""
    counts_lost = config.lost_calls == "count"
    paid = sum(
        (used.dollars + counts_lost * used.in_doubt_dollars for used in sums.values()), Decimal(0)
    )
    return max(0.0, float(paid - Decimal(str(result.spent))))


def _plain(used: RoleSum) -> dict[str, object]:
    dollars, in_doubt = float(used.dollars), float(used.in_doubt_dollars)
    return {**asdict(used), "dollars": dollars, "in_doubt_dollars": in_doubt}


def _ending(result: Discovery) -> str:
    end = ENDS.get(result.stop_reason, "Finished")
    reason = REASONS[result.stop_reason]
    if result.stop_reason == "budget" and result.remaining > 0:
        reason = "what is left of the budget pays for no further call"
    why = f": {reason}" if reason else ""
    return f"{end} after {counted(result.iterations, 'iteration')}{why}."


def failures_line(result: Discovery) -> str:
    """Return in one line that failures ended the run, and what the last of them was."""
    return f"{REASONS['failures']}; look first at the last failure: {_first_line(result)}"


def _first_line(result: Discovery) -> str:
    return next(iter(result.last_failure.splitlines()), "unknown")


def _uncharged_line(dollars: float) -> list[str]:
    return [f"    not charged   ${dollars:.6f} in the unfinished iteration"] if dollars else []


def _overshoot(result: Discovery, config: RunConfig) -> str:
    over = result.spent - config.budget
    return f" (overshoot {percent(over / config.budget)})" if over > 0 else ""


def _role_line(role: str, used: RoleSum) -> str:
    tokens = f"{used.input_tokens:,} tokens in, {used.output_tokens:,} out"
    calls = counted(used.calls, "call")
    most = f"at most ${used.in_doubt_dollars:.6f} more"
    doubt = f"; the bill of {used.in_doubt} is unknown, {most}" if used.in_doubt else ""
    return f"    {role:<12}  ${used.dollars:.6f} for {calls} ({tokens}{doubt})"

"""An evaluation in words for a person and in JSON for a program."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal

from costada.evaluators.sandbox.choice import described_layer
from costada.evaluators.sandbox.layers import Layer
from costada.reports.formats import counted, percent
from costada.runs.config import RunConfig
from costada.runs.folder import RunFolder
from costada.store.rows import CallRow
from costada.values.discovery import Discovery
from costada.values.evaluation import MARKS, Evaluation

ROLES = ("generation", "retry", "guide")


@dataclass(frozen=True, slots=True)
class RoleSum:
    """What the calls of one role used; `dollars` is exact.

    `in_doubt` counts requests whose bill is unknown (timed out, broken off, or in flight when their
    process died). They are no part of `dollars`; `in_doubt_dollars` is the most they can have cost.
    """

    calls: int = 0
    in_doubt: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    dollars: Decimal = Decimal(0)
    in_doubt_dollars: Decimal = Decimal(0)

    def plus(self, call: CallRow) -> RoleSum:
        """Return the sum with one more call."""
        return RoleSum(
            self.calls + 1,
            self.in_doubt + call.is_in_doubt,
            self.input_tokens + call.input_tokens,
            self.output_tokens + call.output_tokens,
            self.cached_tokens + call.cached_tokens,
            self.reasoning_tokens + call.reasoning_tokens,
            self.dollars + call.cost,
            self.in_doubt_dollars + call.bound,
        )


def sum_by_role(calls: Iterable[CallRow]) -> Mapping[str, RoleSum]:
    """Return what each role used; every usual role is named, also one without a call."""
    sums = dict.fromkeys(ROLES, RoleSum())
    for call in calls:
        sums[call.role] = sums.get(call.role, RoleSum()).plus(call)
    return sums


REASONS = {
    "budget": "the budget is used up",
    "iterations": "the iteration limit is reached",
    "failures": "too many attempts in a row yielded no usable program",
    "interrupted": "",
}
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
        lines.append(f"Go on with: {folder.next_command(config)}")
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


LOG = "log"
NUM_LINES = 20
NUM_CHARACTERS = 2000


def verdict_text(evaluation: Evaluation, sandbox: Layer | None) -> str:
    """Return a verdict in lines, with the beginning of each text that came with it."""
    objective = "none" if evaluation.objective is None else f"{evaluation.objective:.10g}"
    lines = [
        f"objective  {objective}",
        f"score      {evaluation.score:.10g}",
        f"valid      {'yes' if evaluation.is_valid else 'no'}",
        f"seconds    {evaluation.seconds:.3f}",
        f"sandbox    {described_layer(sandbox) if sandbox else 'up to the problem'}",
        *(f"  {name} = {value:.10g}" for name, value in evaluation.metrics.items()),
    ]
    notes = {k: text for k, text in evaluation.artifacts.items() if k not in (*MARKS, LOG)}
    texts = {"error": evaluation.error, **notes, LOG: evaluation.artifacts.get(LOG)}
    lines += [_titled(name, text) for name, text in texts.items() if text]
    return "\n".join(lines)


def verdict_json(evaluation: Evaluation, sandbox: Layer | None) -> str:
    """Return a verdict as one JSON object with everything that came with it."""
    return json.dumps({**asdict(evaluation), "sandbox": sandbox}, indent=2, default=dict)


def _titled(name: str, text: str) -> str:
    """Return a text behind its name; one of several lines stands below it."""
    shown = _excerpt(text)
    return f"{name:<10} {shown}" if "\n" not in shown else f"{name}:\n{shown}"


def _excerpt(text: str) -> str:
    """Return the beginning of a program's text, harmless to a terminal."""
    safe = "".join(each if each.isprintable() or each in "\n\t" else "?" for each in text)
    lines = safe[:NUM_CHARACTERS].splitlines()[:NUM_LINES]
    shown = "\n".join(line.rstrip() for line in lines)
    is_cut = len(safe) > NUM_CHARACTERS or len(safe.splitlines()) > NUM_LINES
    return f"{shown}\n[the beginning of {len(text)} characters]" if is_cut else shown

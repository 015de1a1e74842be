"""What a sweep may cost and what came of it, in words for a person and in JSON for a program."""

import json
from collections.abc import Sequence
from pathlib import Path

from costada.runs.exit_codes import ExitCode
from costada.runs.sweep.progress import clock
from costada.runs.sweep.sweep import Status, SweepRun


def largest_bill(runs: Sequence[SweepRun]) -> float:
    """Return the dollars that unfinished runs may still spend within their budgets."""
    return sum(
        max(0.0, run.config.budget - run.spent) for run in runs if run.status is not Status.FINISHED
    )


def headline(runs: Sequence[SweepRun], num_jobs: int) -> str:
    """Return how many runs there are and what they may cost."""
    num_finished = sum(run.status is Status.FINISHED for run in runs)
    num_begun = sum(run.status is not Status.FINISHED and run.has_begun for run in runs)
    parts = [f"{_counted(runs)}, at most {num_jobs} at once"]
    if num_finished:
        parts.append(f"{num_finished} finished before")
    if num_begun:
        parts.append(f"{num_begun} begun before")
    return (
        f"{', '.join(parts)}. Largest bill from here on: ${largest_bill(runs):g}"
        f" = {_budgets(runs)}; {_limit(runs)}."
    )


def sweep_text(runs: Sequence[SweepRun], out: Path, seconds: float) -> str:
    """Return the result in a few lines; failures come last."""
    finished = [run for run in runs if run.status is Status.FINISHED]
    spent = sum(run.spent for run in runs)
    lines = [
        f"Finished {len(finished)} of {_counted(runs)}; all together spent ${spent:.4f}"
        f" ({clock(seconds)} in this sweep).",
        f"  runs            {out}",
    ]
    if len(finished) < len(runs):
        lines.append("Go on by giving the same command again.")
    failures = [run for run in runs if run.status is Status.FAILED]
    if failures:
        lines.append(f"Failed: {len(failures)}")
        lines += [f"  {run.name}: {run.error}" for run in failures]
        lines.append("What else they said is in the .log files beside their folders.")
    return "\n".join(lines)


def sweep_json(runs: Sequence[SweepRun]) -> str:
    """Return the runs as one JSON array, a run per line; dollars are numbers."""
    lines = ",\n".join(f"  {json.dumps(_facts(run))}" for run in runs)
    return f"[\n{lines}\n]"


def exit_code(runs: Sequence[SweepRun]) -> ExitCode:
    """Return what the command answers: any failure counts more than an interruption."""
    statuses = {run.status for run in runs}
    if Status.FAILED in statuses:
        return ExitCode.FAILED
    return ExitCode.FINISHED if statuses <= {Status.FINISHED} else ExitCode.INTERRUPTED


def _facts(run: SweepRun) -> dict[str, object]:
    step = run.step
    return {
        "problem": run.config.problem,
        "method": run.config.method,
        "model": run.config.model,
        "seed": run.config.seed,
        "budget": run.config.budget,
        "status": run.status,
        "iterations": step.iteration if step else 0,
        "spent": run.spent,
        "best_score": step.best_score if step else None,
        "best_objective": step.best_objective if step else None,
        "error": run.error or None,
        "folder": str(run.folder.path),
    }


def _limit(runs: Sequence[SweepRun]) -> str:
    """Return how firmly a budget holds; the runs of a sweep share their policy."""
    if any(run.config.budget_policy == "crossing" for run in runs):
        return "a run's last iteration may go beyond its budget"
    return "no run goes beyond its budget"


def _budgets(runs: Sequence[SweepRun]) -> str:
    """Return what the largest bill is made of."""
    todo = [run for run in runs if run.status is not Status.FINISHED]
    budgets = sorted({run.config.budget for run in todo})
    counts = [(sum(run.config.budget == each for run in todo), each) for each in budgets]
    terms = " + ".join(f"{count} x ${each:g}" for count, each in counts) or "nothing to do"
    spent = sum(run.spent for run in todo)
    return f"{terms} - ${spent:.4f} spent" if spent else terms


def _counted(runs: Sequence[SweepRun]) -> str:
    return "1 run" if len(runs) == 1 else f"{len(runs)} runs"

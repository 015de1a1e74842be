"""What a run's page opens with: the task, the best program, how the run stands, its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from functools import lru_cache
from pathlib import Path
from typing import Any

from costada.evaluators.folder_settings import SETTINGS_FILE, read_settings
from costada.evaluators.registry import is_built_in
from costada.evaluators.registry import problem as problem_named
from costada.reports.patch import program_patch, program_rows
from costada.reports.run_view import RunSettings, RunView
from costada.reports.summary import REASONS, crossing_text, end_text
from costada.reports.trace import end_after, failures_in_a_row, reaches_target
from costada.store.candidates import SEED_ID
from costada.store.history import RunHistory
from costada.store.rows import RunSetup
from costada.values.setting import OBJECT_MARK

WAITING, RUNNING, FINISHED, STOPPED = "waiting", "running", "finished", "stopped"
SETTINGS = (
    *("method", "model", "guide_model", "seed", "budget", "budget_policy", "max_iterations"),
    *("parallel", "order", "router"),
)
MAX_SHOWN = 400_000
"""Characters of a program that the page opens with; files beyond are only named."""


def heading(
    run: RunView, settings: RunSettings, history: RunHistory | None = None, run_id: str = ""
) -> dict[str, object]:
    """The settings and the problem of a run in JSON types.

    Money and limits are the settings'; name, `reference` and `direction` are the problem's when the
    run began. Before that they are looked up, `None` where the problem cannot be found. No code of
    the problem is run. Only the names of folders are shown.
    """
    origin = history.origin(run_id) if history else None
    setup = history.setup(run_id) if history else None
    forked = f"{Path(origin.folder).name} after iteration {origin.iteration}" if origin else ""
    return {
        "folder": run.path.resolve().name,
        "language": setup.problem.get("language", "") if setup else "",
        "program_file": run.best_program.name,
        "sandbox": history.sandbox(run_id) if history else "",
        "origin": forked,
        **{name: getattr(settings, name) for name in SETTINGS},
        **problem_facts(settings, setup),
    }


def problem_facts(settings: RunSettings, setup: RunSetup | None) -> dict[str, object]:
    """Name, `reference` and `direction` of a run's problem: as the run began, or looked up."""
    if setup is None:
        return {"problem": name_of(settings.problem), **_objective(settings.problem)}
    reference = setup.problem.get("reference")
    return {
        "problem": setup.problem["name"],
        "reference": None if reference is None else float(reference),
        "direction": setup.problem["direction"],
    }


def name_of(problem: str) -> str:
    """What a problem is called before a run of it has begun."""
    return Path(problem).name.removeprefix(OBJECT_MARK)


# Until a run begins, its page asks for this with every poll.
@lru_cache(maxsize=8)
def _objective(name: str) -> dict[str, object]:
    """Reference and direction of a problem, as far as they can be known."""
    try:
        if is_built_in(name):
            known = problem_named(name)
            return {"reference": known.reference, "direction": known.direction}
        if Path(name).is_dir():
            found = read_settings(Path(name) / SETTINGS_FILE)
            return {"reference": found.reference, "direction": found.direction}
    except (ValueError, OSError):
        pass
    return {"reference": None, "direction": None}


def task_of(settings: RunSettings, history: RunHistory | None = None, run_id: str = "") -> str:
    """The task as the run's models read it, empty where nothing says.

    Runs of earlier versions keep only its hash; that of a benchmark is looked up.
    """
    setup = history.setup(run_id) if history else None
    if history and setup and setup.task:
        return history.text(setup.task)
    return problem_named(settings.problem).task if is_built_in(settings.problem) else ""


def settings_rows(settings: RunSettings) -> list[tuple[object, ...]]:
    """Every setting: name, value, whether that is the default, and what it means."""
    return [astuple(each) for each in settings.listed]


def best_program(history: RunHistory, run_id: str, candidate_id: str) -> dict[str, object] | None:
    """A program with all its files, and its difference from the start; `None` if it is missing.

    `diff` is the difference as rows to be shown, `patch` as a string that `git apply` takes. A file
    beyond `MAX_SHOWN` has no text, and such a program no difference.
    """
    program = history.program_of(run_id, candidate_id)
    if program is None:
        return None
    start = history.program_of(run_id, SEED_ID)
    texts: list[tuple[str, str | None]] = []
    left = MAX_SHOWN
    for path, text in program.items():
        left -= len(text)
        texts.append((path, text if left >= 0 else None))
    is_small = left >= 0 and start is not None and sum(map(len, start.values())) <= MAX_SHOWN
    facts: dict[str, object] = {"id": candidate_id, "files": texts, "diff": None, "patch": None}
    if start is None or not is_small:
        return facts
    changes = program_patch(start, program, history.setup(run_id))
    return {**facts, "diff": program_rows(start, program), "patch": changes}


def standing(
    run: RunView,
    settings: RunSettings,
    steps: Sequence[Mapping[str, Any]],
    problem: Mapping[str, object],
    start_score: float | None = None,
) -> dict[str, str]:
    """Where a run stands: `state` in one word, `words` in a sentence, `over` why it overspent.

    Args:
        run: The folder of the run.
        settings: Its settings.
        steps: Trace rows of its finished iterations.
        problem: Its heading.
        start_score: Score of the initial program, if it is evaluated.
    """
    left = settings.budget - (steps[-1]["spent"] if steps else 0.0)
    state, words = _state_of(run, settings, steps, problem, start_score, left)
    return {"state": state, "words": words, "over": crossing_text(-left, settings.parallel)}


def _state_of(
    run: RunView,
    settings: RunSettings,
    steps: Sequence[Mapping[str, Any]],
    problem: Mapping[str, object],
    start_score: float | None,
    left: float,
) -> tuple[str, str]:
    """The state in one word and in a sentence, with `left` dollars of the budget."""
    if run.is_running:
        return RUNNING, "Running"
    if not steps:
        if start_score is not None and reaches_target(start_score, settings.target, problem):
            return FINISHED, f"Finished: {REASONS['target']}"
        return WAITING, "No iteration is finished yet"
    num_failures = failures_in_a_row(steps, settings.max_failures, settings.parallel)
    is_failing = num_failures >= settings.max_failures
    reason = end_after(steps[-1], settings, problem, is_failing=is_failing)
    if reason is None:
        return STOPPED, f"Stopped; resume with {run.resume_command}"
    if reason == "failures":
        return STOPPED, f"Stopped: {REASONS[reason]}; resume with {run.resume_command}"
    return FINISHED, f"Finished: {end_text(reason, left)}"

"""What a page says about a run as a whole: what it was asked to do, and where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from costada.evaluators.folder_settings import SETTINGS_FILE, read_settings
from costada.evaluators.registry import is_built_in
from costada.evaluators.registry import problem as problem_named
from costada.runs.config import OBJECT_MARK, RunConfig
from costada.runs.folder import RunFolder
from costada.runs.lease import is_held
from costada.runs.rows import end_after
from costada.runs.summary import REASONS
from costada.store.rows import Origin
from costada.store.setup import RunSetup

WAITING, RUNNING, FINISHED, STOPPED = "waiting", "running", "finished", "stopped"


def heading(
    folder: RunFolder,
    config: RunConfig,
    sandbox: str = "",
    origin: Origin | None = None,
    setup: RunSetup | None = None,
) -> dict[str, object]:
    """Return what a run was asked to do, in JSON types.

    Money and limits are the settings'; name, `reference` and `direction` the problem's as they were
    when the run began. Before that they are looked up, `None` where the problem cannot be found. No
    code of the problem is run. Only the names of folders are shown.
    """
    came_from = f"{Path(origin.folder).name} after iteration {origin.iteration}" if origin else ""
    said = ("method", "model", "guide_model", "seed", "budget", "budget_policy", "max_iterations")
    return {
        "problem": setup.problem["name"] if setup else _name(config),
        "folder": folder.path.resolve().name,
        "sandbox": sandbox,
        "origin": came_from,
        **{name: getattr(config, name) for name in said},
        **(_stored_objective(setup) if setup else _objective(config.problem)),
    }


def standing(
    folder: RunFolder, config: RunConfig, last: Mapping[str, Any] | None
) -> dict[str, str]:
    """Return where a run stands: `state` in one word, `words` for a person.

    Args:
        folder: The run's files.
        config: Its settings.
        last: The trace row of its last finished iteration, if there is one.
    """
    reason = None if last is None else end_after(last, config)
    if is_held(folder.path):
        return {"state": RUNNING, "words": "Running"}
    if reason:
        return {"state": FINISHED, "words": f"Finished: {REASONS[reason]}"}
    if last is None:
        return {"state": WAITING, "words": "No iteration is finished yet"}
    return {"state": STOPPED, "words": f"Stopped; go on with {folder.resume_command}"}


def _name(config: RunConfig) -> str:
    return Path(config.problem).name.removeprefix(OBJECT_MARK)


def _stored_objective(setup: RunSetup) -> dict[str, object]:
    reference = setup.problem.get("reference")
    return {
        "reference": None if reference is None else float(reference),
        "direction": setup.problem["direction"],
    }


@lru_cache(maxsize=8)
def _objective(name: str) -> dict[str, object]:
    """Return reference and direction of a problem, as far as they can be known."""
    try:
        if is_built_in(name):
            known = problem_named(name)
            return {"reference": known.reference, "direction": known.direction}
        if Path(name).is_dir():
            said = read_settings(Path(name) / SETTINGS_FILE)
            return {"reference": said.reference, "direction": said.direction}
    except (ValueError, OSError):
        pass
    return {"reference": None, "direction": None}

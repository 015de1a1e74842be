"""More money or more iterations for a run that has begun."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costada.controller.contract import stop_reason
from costada.controller.ledger import remaining
from costada.runs.config import RunConfig
from costada.runs.files import replace_text
from costada.runs.folder import RunFolder
from costada.runs.lease import hold_lease

if TYPE_CHECKING:
    from costada.graph.state import SearchState

RAISED = ("budget", "max_iterations")
"""The settings that may change once a run has begun, and only upwards."""


CHANGEABLE = (*RAISED, "allow_invalid_start")
"""All settings that may change once a run has begun."""


def extended(
    saved: RunConfig,
    *,
    budget: float | None = None,
    max_iterations: int | None = None,
    allow_invalid_start: bool = False,
) -> RunConfig:
    """Return the settings of a run with a higher budget or limit; `None` leaves one as it is.

    An invalid start can be allowed as well, and stays allowed.

    Raises:
        ValueError: If one of them is lower than before.
        pydantic.ValidationError: If one of them can be no budget or limit at all.
    """
    wanted = {"budget": budget, "max_iterations": max_iterations}
    given: dict[str, object] = {k: value for k, value in wanted.items() if value is not None}
    if allow_invalid_start:
        given["allow_invalid_start"] = True
    config = RunConfig.model_validate({**saved.model_dump(), **given})
    for name in RAISED:
        before, now = getattr(saved, name), getattr(config, name)
        if now < before:
            raise ValueError(
                f"{name}: got {now:g}, expected at least {before:g}, which the run has;"
                " it can be raised, not lowered"
            )
    return config


def extend_to(folder: RunFolder, wanted: RunConfig) -> None:
    """Save a higher budget or limit in a folder whose run is to go on.

    Raises:
        ValueError: If the folder holds no run, a limit is lower or another setting differs, or
            another process is at work in the run.
    """
    folder.load()
    with hold_lease(folder.path):
        saved = folder.load()
        raised = extended(
            saved,
            budget=wanted.budget,
            max_iterations=wanted.max_iterations,
            allow_invalid_start=wanted.allow_invalid_start,
        )
        kept = {name: getattr(saved, name) for name in CHANGEABLE}
        folder.check_same(wanted.model_copy(update=kept))
        if raised != saved:
            save_settings(folder, raised)


def save_settings(folder: RunFolder, config: RunConfig) -> None:
    """Replace the settings in a folder; whoever reads them sees the old ones or the new ones."""
    replace_text(folder.settings, config.text)


def can_go_on(state: SearchState, budget: float, max_iterations: int) -> bool:
    """Return whether a run that stopped has something left to do.

    That is so when its budget or its iteration limit was raised, and after any other stop: what
    stood in its way may be gone by now.

    Args:
        state: The run as it stopped.
        budget: Dollars it may spend by now (B).
        max_iterations: Iterations it may make by now (T_max).
    """
    if stop_reason(budget, state["spent"], state["iterations"], max_iterations):
        return False
    if state["stop_reason"] == "budget":
        return remaining(budget, state["spent"]) > state["remaining"]
    return True

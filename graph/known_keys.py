"""Which keys the input, the state and the configuration of a run may have; others are refused."""

from collections.abc import Mapping, Sequence

from langgraph.types import Command, StateUpdate

from costada.controller.constants import Constants
from costada.graph.user_input import check_command
from costada.nodes.settings import Settings
from costada.nodes.state import SearchInput, SearchOutput, SearchState

NOTHING: Mapping[str, object] = {}

SETTING_ARGUMENTS = {
    **{
        name: f"create_discovery_graph(..., controller={{{name!r}: ...}})"
        for name in Constants.__annotations__
    },
    **{name: f"create_discovery_graph(..., {name}=...)" for name in Settings.model_fields},
    **{
        name: f"create_discovery_graph(..., {name}=...)"
        for name in ("max_iterations", "reference_cost", "guide_model", "problem", "models")
    },
    "budget": "create_discovery_graph(..., budget=DOLLARS)",
}
"""How each setting of a search is given. A configurable `model` is a chat model's own."""

RECORDED = {
    *SearchOutput.__annotations__,
    *("best", "extended_budget", "granted_budget", "last_doubt", "spent_at_gain"),
} - {"stop_reason"}
"""Keys of the state that no caller changes: money and results."""


def check_input(given: object, *, is_parents_state: bool = False) -> None:
    """Refuse keys of a run's input that the run would ignore.

    Args:
        given: The input of a run: a mapping, a command, or `None` to resume.
        is_parents_state: Whether it is the whole state of a parent graph, whose own keys pass.

    Raises:
        ValueError: Naming the key, and where it is given if it is named like a setting.
    """
    if isinstance(given, Command):
        check_command(given)
        check_update(given.update)
        return
    if not isinstance(given, Mapping):
        return
    unknown = [key for key in given if key not in SearchInput.__annotations__]
    refused = [key for key in unknown if key in SETTING_ARGUMENTS or not is_parents_state]
    if not refused:
        return
    advice = _advice(refused[0])
    if is_parents_state:
        advice += ", or hide the parent's key: as_discovery_node(graph, input={...}, output={...})"
    expected = ", ".join(SearchInput.__annotations__)
    raise ValueError(f"input: got key {refused[0]!r}, expected {expected}{advice}")


def check_update(values: object) -> None:
    """Refuse keys of an update of the state that it does not have, and its money and results.

    Raises:
        ValueError: Naming the key, and where it is given if it is named like a setting.
    """
    if isinstance(values, Command):
        values = values.update
    if isinstance(values, list | tuple):
        values = dict(values)
    for key in values if isinstance(values, Mapping) else ():
        if key not in SearchState.__annotations__ or key in RECORDED:
            known = ", ".join(each for each in SearchState.__annotations__ if each not in RECORDED)
            origin = ", which follows from the run's calls and programs" if key in RECORDED else ""
            raise ValueError(
                f"state: got key {key!r}{origin}, expected one of {known}{_advice(key)}"
            )


def check_updates(supersteps: Sequence[Sequence[StateUpdate]]) -> None:
    """Do what `check_update` does for all updates of several supersteps."""
    for superstep in supersteps:
        for update in superstep:
            check_update(update.values)


def check_keys(where: str, given: object, known: Mapping[str, object] = NOTHING) -> None:
    """Refuse keys named like a setting in a place where no setting is read; all others pass.

    Args:
        where: What messages call the place.
        given: A mapping, or anything else, which is not checked.
        known: Keys with values that pass all the same.

    Raises:
        ValueError: Naming the key, and where the setting is given.
    """
    for key, value in given.items() if isinstance(given, Mapping) else ():
        if key in SETTING_ARGUMENTS and (key not in known or known[key] != value):
            raise ValueError(f"{where}: got key {key!r}, which is not read there{_advice(key)}")


def _advice(key: str) -> str:
    """Where a setting is given, nothing for another key."""
    if key in SearchInput.__annotations__:
        return f'; it is part of the input: {{"{key}": ...}}'
    return f"; it is set in {SETTING_ARGUMENTS[key]}" if key in SETTING_ARGUMENTS else ""

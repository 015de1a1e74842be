"""A run's gateway: a process that keeps the answers of paid calls when the run is killed.

Gateways are plug-ins: the first entry point of the group `costada.gateways` is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from costada.runs.folder import RunFolder
from costada.values.plugins import load_plugin, plugins_of

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable

    from costada.models.menu import MenuModel
    from costada.nodes.context import ChatModel

    Models = Sequence[Runnable[Any, Any]]
    Change = Callable[[ChatModel], ChatModel]

ENTRY_POINTS = "costada.gateways"
"""Group of entry points; each is a `Gateway`."""

GATEWAY_LOG = "gateway.log"
"""The file in a run's folder that says whether the run has used a gateway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """What a plug-in offers to runs.

    Attributes:
        check: Raises ValueError if models, or those of a menu, cannot call through it.
        through: Called with the models of a run, its folder and the seconds of its longest call.
            Within the context, what it yields makes each model call through the run's gateway,
            marked as `models/asking.py` says. The gateway is started if need be, writes
            `GATEWAY_LOG`, and outlives the run. The caller holds the run's lease.
        stop: Stops the gateway of a run, if one is running, and waits for its end.
    """

    check: Callable[[Models, Sequence[MenuModel]], None]
    through: Callable[[Sequence[ChatModel], RunFolder, float], AbstractContextManager[Change]]
    stop: Callable[[RunFolder], None]


def installed_gateway() -> Gateway:
    """The gateway of the plug-in that is installed.

    Raises:
        ValueError: There is none, or it cannot be loaded.
    """
    plugin = next(iter(plugins_of(ENTRY_POINTS).values()), None)
    if plugin is None:
        raise ValueError("gateway: no gateway is installed; expected the plug-in")
    return load_plugin(plugin, Gateway)


class GatewayChoice(NamedTuple):
    """Whether a run uses a gateway, and what its user is shown about it.

    Attributes:
        is_used: `None`: only if the run has used one before.
        notice: That line; empty for none.
    """

    is_used: bool | None
    notice: str = ""


def gateway_choice(
    wanted: bool | None, parallel: int, models: Models, menu: Sequence[MenuModel] = ()
) -> GatewayChoice:
    """Whether a run that makes up to `parallel` calls at once uses a gateway.

    What the user wants counts. Otherwise one is used for several calls at once, as a killed process
    would lose the answers of all of them, if that is possible.

    Raises:
        ValueError: The user wants one, and it cannot be used.
    """
    if wanted:
        installed_gateway().check(models, menu)
    if wanted is not None or parallel == 1 or not are_paid(models):
        return GatewayChoice(wanted)
    try:
        installed_gateway().check(models, menu)
    except ValueError as error:
        lost = f"if this process is killed, the answers of up to {parallel} calls are lost"
        return GatewayChoice(None, f"Without a gateway: {lost} ({error})")
    return GatewayChoice(
        True,
        f"With a gateway, as up to {parallel} calls are in flight: their answers survive if this"
        " process is killed (--no-gateway turns it off)",
    )


def are_paid(models: Models) -> bool:
    """Whether any of the models has a provider; the offline and the simulated model have none."""
    from costada.models.providers import NO_PROVIDER
    from costada.models.runnable_tree import asked_models

    asked = [each for model in models for each in asked_models(model)]
    return any(each.provider != NO_PROVIDER for each in asked)


def uses_gateway(wanted: bool | None, folder: RunFolder) -> bool:
    """Whether a run uses a gateway: as its user wants, otherwise if it has used one before."""
    return (folder.path / GATEWAY_LOG).exists() if wanted is None else wanted

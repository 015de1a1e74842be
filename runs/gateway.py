"""A run's gateway: started so that it outlives the run, reused if alive, stopped at the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL, TimeoutExpired, run
from time import monotonic, sleep
from typing import TYPE_CHECKING, NamedTuple

from costada.models.gateway.protocol import GatewayAddress, address_file, is_held, read_address
from costada.runs.folder import RunFolder

if TYPE_CHECKING:
    from costada.models.gateway.client import ChatModel
    from costada.runs.plan import Plan

ENTRY = "costada.models.gateway"
START_SECONDS = 60.0
STOP_SECONDS = 10.0
TICK_SECONDS = 0.02


def gateway_journal(folder: RunFolder) -> Path:
    """The file of the responses that a run's gateway has read."""
    return folder.path / "gateway.sqlite"


def gateway_log(folder: RunFolder) -> Path:
    """The file in which a run's gateway logs lost responses and its end."""
    return folder.path / "gateway.log"


class GatewayChoice(NamedTuple):
    """Whether a run uses a gateway, and the line that says so to its user.

    Attributes:
        is_used: `None`: only if the run has used one before.
        notice: That line; empty for none.
    """

    is_used: bool | None
    notice: str = ""


def gateway_choice(
    wanted: bool | None, parallel: int, models: Sequence[ChatModel]
) -> GatewayChoice:
    """Whether a run that makes up to `parallel` calls at once uses a gateway.

    What the user wants counts. Otherwise one is used for several calls at once, as a killed process
    would lose the answers of all of them, if that is possible.
    """
    from costada.models.gateway.client import BYPASSED
    from costada.models.runnable_tree import with_every_model_changed

    if wanted is not None or parallel == 1 or not _are_paid(models):
        return GatewayChoice(wanted)
    try:
        check_installed()
        _upstream(models)
        for model in models:
            with_every_model_changed(model, lambda part: part, BYPASSED)
    except ValueError as error:
        lost = f"if this process is killed, the answers of up to {parallel} calls are lost"
        return GatewayChoice(None, f"Without a gateway: {lost} ({error})")
    return GatewayChoice(
        True,
        f"With a gateway, as up to {parallel} calls are in flight: their answers survive if this"
        " process is killed (--no-gateway turns it off)",
    )


def uses_gateway(wanted: bool | None, folder: RunFolder) -> bool:
    """Whether a run uses a gateway: as its user wants, otherwise if it has used one before."""
    return gateway_log(folder).exists() if wanted is None else wanted


@contextmanager
def gateway_of(plan: Plan, folder: RunFolder) -> Iterator[Plan]:
    """Yield a plan whose `openai:` models call through the run's gateway, if it uses one.

    A running gateway is reused. It exits by itself some time after the block, or by `stop_gateway`.
    The caller holds the run's lease.

    Raises:
        ValueError: The plan cannot use one, see `check_gateway`; the journal of an earlier start is
            missing; it cannot be started.
        OSError: A file cannot be written, or the gateway does not respond.
    """
    if not uses_gateway(plan.gateway, folder):
        yield plan
        return
    check_installed()
    journal = gateway_journal(folder)
    if gateway_log(folder).exists() and not journal.exists():
        raise ValueError(
            f"{journal}: missing, expected the responses that this run's gateway stored; without"
            " them, interrupted calls could be paid for twice"
        )
    from costada.models.gateway.client import hold_gateway, through_gateway

    upstream = _upstream(plan.models)
    address = read_address(address_file(journal))
    if address is not None and address.upstream != upstream:
        stop_gateway(folder)
        address = None
    if address is None:
        address = _start(folder, upstream, plan.settings.retry_policy.call_timeout)
    guide = plan.guide_model
    with hold_gateway(address):
        yield replace(
            plan,
            gateway=True,
            model=through_gateway(plan.model, address),
            guide_model=through_gateway(guide, address) if guide else None,
        )


def check_gateway(plan: Plan) -> None:
    """Refuse a plan that cannot use a gateway.

    Raises:
        ValueError: A package is missing, or the plan's models do not call one OpenAI-compatible
            server.
    """
    check_installed()
    _upstream(plan.models)


def check_installed() -> None:
    """Refuse a gateway without its packages; raises `ValueError` with the command to install."""
    if find_spec("aiohttp") is None:
        raise ValueError('gateway: needs aiohttp, run `pip install "costada[gateway]"`')


def stop_gateway(folder: RunFolder) -> None:
    """Stop the gateway of a run, if one is running, and wait for its end.

    A gateway that is reading a response ends after that.
    """
    from costada.models.gateway import client

    file = address_file(gateway_journal(folder))
    address = read_address(file)
    if address is None:
        return
    client.stop_gateway(address)
    deadline = monotonic() + STOP_SECONDS
    while monotonic() < deadline:
        if not is_held(file):
            file.unlink(missing_ok=True)
            return
        sleep(TICK_SECONDS)


def _upstream(models: Sequence[ChatModel]) -> str:
    from costada.models.gateway.client import upstreams

    found = sorted(set().union(*map(upstreams, models)))
    if len(found) != 1:
        raise ValueError(
            f"gateway: models of this run call {' and '.join(found) or 'no'} OpenAI-compatible"
            " server, expected one; use it with openai: models"
        )
    return found[0]


def _are_paid(models: Sequence[ChatModel]) -> bool:
    """Whether any of the models has a provider; the offline and the simulated model have none."""
    from costada.models.metering import NO_PROVIDER
    from costada.models.runnable_tree import asked_models

    asked = [each for model in models for each in asked_models(model)]
    return any(each.identity.provider != NO_PROVIDER for each in asked)


def _start(folder: RunFolder, upstream: str, call_timeout: float) -> GatewayAddress:
    journal = gateway_journal(folder)
    options = {
        "--upstream": upstream,
        "--journal": journal,
        "--log": gateway_log(folder),
        "--call-timeout": call_timeout,
    }
    words = [str(word) for option in options.items() for word in option]
    try:
        started = run(
            [sys.executable, "-P", "-m", ENTRY, *words],
            stdin=DEVNULL,
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            start_new_session=True,
            check=False,
        )
    except TimeoutExpired:
        raise ValueError(f"gateway: not ready within {START_SECONDS:g} seconds") from None
    address = read_address(address_file(journal))
    if address is None:
        reason = started.stderr.strip().splitlines() or ["it ended without a message"]
        raise ValueError(f"gateway: cannot be started: {reason[-1]}")
    return address

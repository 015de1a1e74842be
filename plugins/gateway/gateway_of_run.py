"""A run's gateway: started so that it outlives the run, reused if alive, stopped at the end.

A gateway calls one server. The models of a run may call several, which have a gateway each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial, reduce
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING

from costada.models.runnable_tree import with_every_model_changed
from costada.plugins.gateway.client import (
    BYPASSED,
    ChatModel,
    HeldGateway,
    stop_gateway,
    through_gateway,
    upstreams,
)
from costada.plugins.gateway.gateway_protocol import (
    GatewayAddress,
    address_file,
    is_held,
    read_address,
)
from costada.plugins.gateway.gateway_starter import STARTER
from costada.runs.folder import RunFolder
from costada.runs.gateways import GATEWAY_LOG, Gateway, are_paid

if TYPE_CHECKING:
    from costada.models.menu import MenuModel

STOP_SECONDS = 10.0
TICK_SECONDS = 0.02


def gateway_journal(folder: RunFolder, number: int = 1) -> Path:
    """The file of the responses that a run's gateway has read; they count from 1."""
    return folder.path / f"{_stem(number)}.sqlite"


def gateway_log(folder: RunFolder, number: int = 1) -> Path:
    """The file in which a run's gateway logs lost responses and its end."""
    return folder.path / f"{_stem(number)}.log"


def _stem(number: int) -> str:
    first = GATEWAY_LOG.removesuffix(".log")
    return first if number == 1 else f"{first}-{number}"


@contextmanager
def through_gateways(
    models: Sequence[ChatModel], folder: RunFolder, call_timeout: float
) -> Iterator[Callable[[ChatModel], ChatModel]]:
    """Yield what makes the `openai:` models of a run call through its gateways.

    A running gateway is reused. It exits by itself some time after the block, or by
    `stop_gateways`.

    Raises:
        ValueError: The models cannot use one, see `check_models`; the journal of an earlier start
            is missing or is refused.
        OSError: A file cannot be written, the gateway cannot be started or does not respond.
    """
    check_installed()
    addresses = []
    with ExitStack() as held:
        for number, upstream in enumerate(_upstreams(models), 1):
            again = partial(_start, folder, number, upstream, call_timeout)
            address = _running(folder, number, upstream) or again(None)
            held.callback(HeldGateway(address, again).release)
            addresses.append(address)
        yield lambda model: reduce(through_gateway, addresses, model)


def _running(folder: RunFolder, number: int, upstream: str) -> GatewayAddress | None:
    """The gateway of a server if it runs; raises `ValueError` if its journal is missing."""
    journal = gateway_journal(folder, number)
    if gateway_log(folder, number).exists() and not journal.exists():
        raise ValueError(
            f"{journal}: missing, expected the responses that this run's gateway stored; without"
            " them, interrupted calls could be paid for twice"
        )
    address = read_address(address_file(journal))
    if address is not None and address.upstream != upstream:
        _stop(journal, address)
        return None
    return address


def check_models(models: Sequence[ChatModel], menu: Sequence[MenuModel] = ()) -> None:
    """Refuse models that cannot call through a gateway.

    Raises:
        ValueError: A package is missing, a model of the menu calls no OpenAI-compatible server, or
            none of the models does, or one is composed in a way in which it would bypass it.
    """
    check_installed()
    _upstreams(models)
    for entry in menu if len(menu) > 1 else ():
        if are_paid([entry.model]) and not upstreams(entry.model):
            raise ValueError(
                f"gateway: {entry.name} calls no OpenAI-compatible server, so its answers could be"
                " lost; expected openai: models only"
            )
    for model in models:
        with_every_model_changed(model, lambda part: part, BYPASSED)


def check_installed() -> None:
    """Refuse a gateway without its packages; raises `ValueError` with the command to install."""
    if find_spec("aiohttp") is None:
        raise ValueError('gateway: needs aiohttp, run `pip install "costada[gateway]"`')


def stop_gateways(folder: RunFolder) -> None:
    """Stop the gateways of a run that are running, and wait for their end.

    A gateway that is reading a response ends after that.
    """
    number = 1
    while number == 1 or gateway_log(folder, number).exists():
        journal = gateway_journal(folder, number)
        if address := read_address(address_file(journal)):
            _stop(journal, address)
        number += 1


def _stop(journal: Path, address: GatewayAddress) -> None:
    file = address_file(journal)
    stop_gateway(address)
    deadline = monotonic() + STOP_SECONDS
    while monotonic() < deadline:
        if not is_held(file):
            file.unlink(missing_ok=True)
            return
        sleep(TICK_SECONDS)


def _upstreams(models: Sequence[ChatModel]) -> list[str]:
    """The servers that the models of a run call, each once, in the order of the models."""
    found = list(dict.fromkeys(each for model in models for each in sorted(upstreams(model))))
    if not found:
        raise ValueError(
            "gateway: models of this run call no OpenAI-compatible server, expected one; use it"
            " with openai: models"
        )
    return found


def _start(
    folder: RunFolder,
    number: int,
    upstream: str,
    call_timeout: float,
    before: GatewayAddress | None,
) -> GatewayAddress:
    """Start the gateway of a server, or start one again that has died."""
    journal = gateway_journal(folder, number)
    STARTER.start(upstream, journal, gateway_log(folder, number), call_timeout, before)
    address = read_address(address_file(journal))
    if address is None:
        raise OSError("gateway: ended at once")
    return address


GATEWAY = Gateway(check=check_models, through=through_gateways, stop=stop_gateways)

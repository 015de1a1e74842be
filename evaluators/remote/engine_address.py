"""Addresses of engines: the name of an engine, and the place of its cluster."""

import re
from contextlib import suppress
from ipaddress import ip_address

from costada.values.plugins import registered
from costada.values.redaction import without_passwords

GROUP = "costada.engines"
"""Group of entry points; see `costada.evaluators.remote.engine.open_engine`."""

IN_PROCESS = "here"
"""Evaluate in the process of the run."""

FORMS = f"{IN_PROCESS}, local:N (1 to 9999), dask://HOST:PORT, ray://HOST:PORT or ray://auto"
CLUSTERS = "slurm, dask://HOST:PORT, ray://HOST:PORT or ray:// (the Ray cluster of this machine)"
"""Where evaluations run, and where the runs of a sweep do, in words for users."""

EVALUATIONS = re.compile(
    r"local:[1-9][0-9]{0,3}|dask://[^\s/@]+:[0-9]+|ray://([^\s/@]+:[0-9]+|auto)"
)
RUNS = re.compile(r"slurm|dask://[^\s/@]+|ray://[^\s/@]*")
OURS = ("local", "slurm", "dask", "ray")
ADDRESS = re.compile(r"(?P<name>[a-z][a-z0-9_-]*)(:(//)?(?P<place>[^\s@]*))?")


def engine_and_place(address: str) -> tuple[str, str]:
    """The name of an engine and the place in its address; both are empty if it is not an address.

    The address has the form `NAME`, `NAME:PLACE` or `NAME://PLACE`.
    """
    parts = ADDRESS.fullmatch(address)
    return (parts["name"], parts["place"] or "") if parts else ("", "")


def checked_address(given: str, pattern: re.Pattern[str] = EVALUATIONS, forms: str = FORMS) -> str:
    """The address as it was given.

    Args:
        given: What a user wrote.
        pattern: Addresses of the engines that CostAda brings along.
        forms: These addresses in words.

    Raises:
        ValueError: If it is neither one of these, nor that of another registered engine.
    """
    name, _ = engine_and_place(given)
    if not pattern.fullmatch(given) and (name in OURS or name not in registered(GROUP)):
        raise ValueError(f"got {without_passwords(given)!r}, expected {forms}")
    return given


def checked_place(given: str) -> str:
    """Where evaluations run, as it was given; raises `ValueError` if it is not such a place."""
    return given if given == IN_PROCESS else checked_address(given)


def is_local(address: str) -> bool:
    """Whether an engine is on this machine, or its cluster is the one this machine belongs to."""
    name, place = engine_and_place(address)
    host = place.rpartition(":")[0].strip("[]")
    if name == "local" or place in ("", "auto") or host == "localhost":
        return True
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return False

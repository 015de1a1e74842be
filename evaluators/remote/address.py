"""The names of the places where evaluations run."""

import re
from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import urlsplit

from costada.values.redaction import without_passwords

HERE = "here"
"""The word for evaluations in the process of the run."""

FORMS = f"{HERE}, local:N (1 to 9999), dask://HOST:PORT, ray://HOST:PORT or ray://auto"
ADDRESS = re.compile(
    r"(?P<cluster>dask|ray)://(?P<place>[^\s/@]+:[0-9]+|(?<=ray://)auto)"
    r"|local:(?P<number>[1-9][0-9]{0,3})"
)


def is_local(place: str) -> bool:
    """Whether a cluster is on this machine, or the one that this machine belongs to."""
    host = urlsplit(place).hostname or ""
    if place == "ray://auto" or host == "localhost":
        return True
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return False


def checked_place(given: str) -> str:
    """The name of a place, as it was given; raises `ValueError` if it is none."""
    if given != HERE and not ADDRESS.fullmatch(given):
        raise ValueError(f"got {without_passwords(given)!r}, expected {FORMS}")
    return given

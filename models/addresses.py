"""Addresses of model servers."""

from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import urlsplit


def checked_address(url: str) -> str:
    """An address as settings may hold it.

    Raises:
        ValueError: It is none of HTTP, or holds what may be a key.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected an address such as http://localhost:8000/v1")
    if parts.username or parts.password or parts.query:
        raise ValueError("expected no key in the address; keys come from the environment")
    return url


def is_loopback(address: str) -> bool:
    """Whether an address is on this machine."""
    host = urlsplit(address).hostname or ""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"

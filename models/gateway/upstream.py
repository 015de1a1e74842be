"""Sending a request to the provider, once, and reading all of its response."""

import ssl
from typing import NamedTuple
from urllib.parse import urlsplit

import certifi
from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientHttpProxyError,
    ClientSession,
    ClientTimeout,
    ConnectionTimeoutError,
    InvalidURL,
    TCPConnector,
)
from yarl import URL

from costada.models.gateway.flight import Flight, is_success
from costada.models.gateway.journal import Fate
from costada.models.gateway.protocol import Headers, kept_of_answer

CONNECT_SECONDS = 30.0
_NEVER_LEFT = (ClientConnectorError, ConnectionTimeoutError, ClientHttpProxyError, InvalidURL)


class Request(NamedTuple):
    """A request as the provider gets it; `path` is what follows the upstream's address."""

    method: str
    path: str
    headers: Headers
    body: bytes


def checked_upstream(url: str) -> str:
    """Return the address of a provider without a final slash.

    Raises:
        ValueError: It is no address, or carries a key.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"upstream: got {url!r}, expected an address such as https://host/v1")
    if parts.username or parts.password or parts.query:
        raise ValueError("upstream: expected no key in the address; keys come with the requests")
    return url.rstrip("/")


class Upstream:
    """The provider. A connection serves one request, so none is ever sent twice by itself."""

    def __init__(self, url: str, call_timeout: float) -> None:
        """Prepare for sending to an address; to be called in a running event loop.

        A response that is not complete after `call_timeout` seconds is given up as lost.
        """
        self._url = url
        trust = ssl.create_default_context()
        trust.load_verify_locations(certifi.where())
        self._session = ClientSession(
            connector=TCPConnector(ssl=trust, force_close=True, limit=0),
            timeout=ClientTimeout(total=call_timeout, sock_connect=CONNECT_SECONDS),
            auto_decompress=True,
            trust_env=True,
        )

    async def fly(self, request: Request, flight: Flight) -> Fate:
        """Send a request, let the flight have what arrives, and return what became of it."""
        try:
            async with self._session.request(
                request.method,
                URL(f"{self._url}{request.path}", encoded=True),
                headers=request.headers,
                data=request.body,
                allow_redirects=False,
            ) as response:
                flight.open(response.status, kept_of_answer(response.headers.items()))
                async for piece in response.content.iter_any():
                    flight.add(piece)
        except _NEVER_LEFT:
            return Fate.UNSENT
        except (ClientError, OSError, TimeoutError):
            return Fate.LOST if flight.status == 0 or is_success(flight.status) else Fate.REFUSED
        return Fate.ANSWERED if is_success(flight.status) else Fate.REFUSED

    async def close(self) -> None:
        """Close what is open."""
        await self._session.close()

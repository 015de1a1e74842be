"""The token that a local server requires: any user of the machine can connect to its loopback.

As with Jupyter, the command prints an address with `?token=...`, to open in a browser; other
clients may send `Authorization: Bearer ...`.
"""

from hmac import compare_digest
from secrets import token_urlsafe
from urllib.parse import parse_qs

TOKEN_BYTES = 32
SCHEME = "bearer "
REFUSAL = "open the address that the command printed: it ends with a token\n"


def new_token() -> str:
    """Return a random token that is safe in a URL."""
    return token_urlsafe(TOKEN_BYTES)


def shows_token(token: str, query: str, authorization: str) -> bool:
    """Return whether a request shows the token, in its query or its authorization header."""
    given = parse_qs(query).get("token", [])
    if authorization[: len(SCHEME)].lower() == SCHEME:
        given.append(authorization[len(SCHEME) :])
    return any(compare_digest(each.encode("utf-8", "replace"), token.encode()) for each in given)

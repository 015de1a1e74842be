"""The token that opens a server of ours: every user and program of a machine reaches its loopback.

As with Jupyter, the command prints an address with `?token=...`, which a browser is given; other
clients may send `Authorization: Bearer ...`.
"""

from hmac import compare_digest
from secrets import token_urlsafe
from urllib.parse import parse_qs

TOKEN_BYTES = 32
SCHEME = "bearer "
REFUSAL = "open the address that the command printed: it ends with a token\n"


def new_token() -> str:
    """Return a token that nobody can guess, of characters that an address may hold."""
    return token_urlsafe(TOKEN_BYTES)


def shows_token(token: str, query: str, authorization: str) -> bool:
    """Return whether a request shows the token, in its query or its authorization header."""
    given = parse_qs(query).get("token", [])
    if authorization[: len(SCHEME)].lower() == SCHEME:
        given.append(authorization[len(SCHEME) :])
    return any(compare_digest(each.encode("utf-8", "replace"), token.encode()) for each in given)

"""Passwords and keys in texts that contain addresses, left out before anybody sees the text."""

import re

LEFT_OUT = "***"


def _letters(word: str) -> str:
    """A pattern for a word whose letters may be percent-encoded."""
    return "".join(f"(?:{letter}|%{ord(letter):x}|%{ord(letter.upper()):x})" for letter in word)


_PORT = r"\d+(?:[/?,;'\")][^\s@]*)?(?=\s|$)"
_DATABASE = re.compile(
    rf"(postgres(?:ql)?:/*[^:\s]*):(?!{_PORT}|\s)(?:[^\n]*@|[^\n]*{re.escape(LEFT_OUT)})",
    re.IGNORECASE,
)
"""A password may hold spaces, slashes and further @; what looks like one ends at the last @. It
does not begin with a space: that follows an address without a password in a sentence.

Without an @, it ends at a parameter that was left out, since that could have held the @.
"""

_OTHER = re.compile(
    r"(?!postgres)(\b[a-z][a-z0-9+.-]{0,30}://)(?:[^\s/@:\[]*:(?!\d+/)\S{0,999}|[^\s/]*)@",
    re.IGNORECASE,
)
"""User, password and key before the host of any other address."""

_VALUE = r"(\s*=\s*)(?:\\*(?P<quote>['\"])(?:.*(?P=quote)\S*|.*)|(?:\\+.|[^\s\\])+)"
_PASSWORD = _letters("password")
_PARAMETER = re.compile(
    rf"((?:^|[?&\s'\"])(?:{_letters('ssl')})?{_PASSWORD}){_VALUE}", re.IGNORECASE | re.MULTILINE
)
"""A parameter of a Postgres address, also one of the form `host=... password='...'`."""

_NAMED = re.compile(rf"({_PASSWORD}){_VALUE}", re.IGNORECASE)
"""A value whose name ends in "password", wherever it is."""

_QUERY = re.compile(
    r"([?&][^=?&\s]{0,40}(?:key|token|secret)[^=?&\s]{0,40})(=)[^&\s]*?(?=['\",;)]{0,2}(?:[&\s]|$))",
    re.IGNORECASE,
)


def without_passwords(text: str) -> str:
    """A text without the passwords and keys of the addresses in it.

    Where an address cannot be read with certainty, more is left out than its password.
    """
    # First, since an @ in a parameter would be taken for the end of the password before the host.
    text = _PARAMETER.sub(rf"\1\2{LEFT_OUT}", text)
    text = _DATABASE.sub(r"\1@", text)
    text = _OTHER.sub(rf"\1{LEFT_OUT}@", text)
    text = _NAMED.sub(rf"\1\2{LEFT_OUT}", text)
    return _QUERY.sub(rf"\1\2{LEFT_OUT}", text)


def has_password(text: str) -> bool:
    """Whether a text contains what `without_passwords` leaves out."""
    return without_passwords(text) != text

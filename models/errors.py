"""The error of a call that cannot be charged, and errors in words. Loads no LangChain."""

import os

from costada.values.redaction import without_passwords

_SECRET_ENDINGS = ("_KEY", "_TOKEN", "_SECRET")
_MIN_SECRET = 8
_MAX_DESCRIPTION = 500
_MAX_READ = 20_000
"""No more of a message is searched for secrets, since a provider may answer with a whole page."""


class ModelUnusable(ValueError):
    """A model refuses all further requests; those of another model may be answered."""


class AccountRefused(ModelUnusable):
    """A provider refuses the key, or the account has no money left, whatever is asked."""


class ModelRefused(ModelUnusable):
    """A provider does not offer a model by its name and address, whatever it is asked."""


class ProviderAway(ModelUnusable):
    """A provider has not answered for as long, or as many requests, as it is waited for."""


class UnmeteredCall(RuntimeError):
    """The cost of a response is unknown: its token counts are missing or impossible."""


class UncountedAnswer(UnmeteredCall):
    """A model answered and did not say how many tokens it billed."""


def describe(error: BaseException) -> str:
    """Class and message of an error, short and free of secrets.

    Providers sometimes quote the key they reject, and descriptions end up in journals and
    terminals. Values of environment variables named like a secret are replaced by the name.
    """
    return f"{type(error).__name__}: {without_secrets(str(error)) or 'no message'}"[
        :_MAX_DESCRIPTION
    ]


def without_secrets(message: str) -> str:
    """The beginning of a message in one line, without what `describe` leaves out."""
    known = message[:_MAX_READ].encode("utf-8", "replace").decode()
    text = without_passwords(" ".join(known.split()))
    for name, value in os.environ.items():
        secret = value.strip()
        if name.endswith(_SECRET_ENDINGS) and len(secret) >= _MIN_SECRET:
            text = text.replace(secret, f"<{name}>")
    return text

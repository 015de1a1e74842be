"""The error of a call that cannot be charged, and errors in words. Loads no LangChain."""

import os

_SECRET_ENDINGS = ("_KEY", "_TOKEN", "_SECRET")
_SHORTEST_SECRET = 8
_LONGEST_DESCRIPTION = 500


class ModelUnusable(ValueError):
    """A model refuses all further requests; those of another model may be answered."""


class UnmeteredCall(RuntimeError):
    """What an answer cost is unknown: its token counts are missing or impossible."""


class UncountedAnswer(UnmeteredCall):
    """A model answered and did not say how many tokens it billed."""


def describe(error: BaseException) -> str:
    """Class and message of an error, short and free of secrets.

    Providers sometimes quote the key they reject, and descriptions end up in journals and
    terminals. Values of environment variables named like a secret are replaced by the name.
    """
    message = str(error).encode("utf-8", "replace").decode()
    text = " ".join(message.split()) or "no message"
    for name, value in os.environ.items():
        secret = value.strip()
        if name.endswith(_SECRET_ENDINGS) and len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, f"<{name}>")
    return f"{type(error).__name__}: {text}"[:_LONGEST_DESCRIPTION]

"""What a client gets of the endpoint of a run: its address, a token, and the names of models."""

from dataclasses import dataclass, field
from secrets import token_urlsafe
from threading import RLock

LOOPBACK = "127.0.0.1"

CLIENT_VARIABLES = RLock()
"""Held while variables of clients are replaced in this process, and while a model of a run is made,
which reads them."""


def new_token() -> str:
    """A token that nobody can guess."""
    return token_urlsafe(32)


@dataclass(frozen=True, slots=True)
class ModelAccess:
    """Access to the metered models of a run.

    Attributes:
        url: Address of the endpoint, without a path.
        token: Stands in the place of a key; it is valid as long as the work that it was given to.
        models: The names that requests may ask for.
    """

    url: str
    token: str = field(repr=False)
    models: tuple[str, ...] = ()

    def environment(self) -> dict[str, str]:
        """The variables by which clients of OpenAI and Anthropic find the endpoint."""
        return {
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "OPENAI_API_BASE": f"{self.url}/v1",
            "OPENAI_API_KEY": self.token,
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": self.token,
        }

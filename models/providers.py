"""What is known of providers, their addresses, and how long a run waits for them.

Loads no model: settings and commands are read before one is needed.
"""

from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import Annotated, NamedTuple, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from costada.values.provider_error import YEAR
from costada.values.setting import MODELS, Setting

KEY_VARIABLES: Mapping[str, str] = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "cohere": "COHERE_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "fireworks": "FIREWORKS_API_KEY",
    "google_genai": "GOOGLE_API_KEY",
    "groq": "GROQ_API_KEY",
    "mistralai": "MISTRAL_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "perplexity": "PPLX_API_KEY",
    "together": "TOGETHER_API_KEY",
    "xai": "XAI_API_KEY",
}
"""Environment variables that hold the keys, by provider."""

OWN_LOGIN = ("azure_openai", "bedrock", "bedrock_converse", "google_vertexai", "ollama")
"""Providers whose LangChain class finds its credentials itself."""

NO_PROVIDER = "costada"
"""What models with no language model behind them name as their provider."""

STANDARD_TIER = "default"
"""The service tier of the list price."""

HALF_PRICE_TIER = "flex"
"""The service tier that costs half the list price and may take longer."""

HALF_PRICE_PATIENCE = 1.5
"""How much longer a call of it may take: OpenAI advises 15 minutes in place of 10."""

SERVICE_TIERS: Mapping[str, tuple[str, ...]] = {
    "openai": (STANDARD_TIER, HALF_PRICE_TIER, "priority"),
}
"""The service tiers that a request may ask for, by provider."""


class Efforts(NamedTuple):
    """The efforts of reasoning that a provider has, and the parameter of its LangChain class."""

    parameter: str
    levels: tuple[str, ...]


_OPENAI = Efforts("reasoning_effort", ("none", "minimal", "low", "medium", "high", "xhigh", "max"))

EFFORTS: Mapping[str, Efforts] = {
    "openai": _OPENAI,
    "azure_openai": _OPENAI,
    "anthropic": Efforts("effort", ("low", "medium", "high", "xhigh", "max")),
    "google_genai": Efforts("thinking_level", ("minimal", "low", "medium", "high")),
    "groq": Efforts("reasoning_effort", ("none", "default", "low", "medium", "high")),
    "xai": Efforts("reasoning_effort", ("low", "medium", "high")),
}
"""Efforts by provider; which of them a model has is for the provider to say."""


def checked_address(url: str) -> str:
    """An address as settings may hold it.

    Raises:
        ValueError: It is not an HTTP address, or holds what may be a key.
    """
    try:
        parts = urlsplit(url)
        is_http = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that are not closed, or a port that is not a number
        is_http = False
    if not is_http:
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


WaitSeconds = Annotated[FiniteFloat, Field(gt=0, le=YEAR)]


class RetryPolicy(BaseModel):
    """How long a run waits for its providers, in seconds.

    Raises `pydantic.ValidationError` naming the field, the value and what was expected.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    call_timeout: Annotated[
        WaitSeconds, Setting("costada.models.asking:ask", MODELS, "SECONDS")
    ] = 600.0
    """Total time of one model call, including its retries."""

    retry_wait: Annotated[
        WaitSeconds, Setting("costada.models.retries:with_visible_requests", MODELS, "SECONDS")
    ] = 5.0
    """First wait after a failed request; it doubles each time."""

    longest_wait: Annotated[
        WaitSeconds, Setting("costada.models.retries:with_visible_requests", MODELS, "SECONDS")
    ] = 300.0
    """Longest wait between two requests; a provider that asks for more stops the run."""

    longest_pause: Annotated[
        WaitSeconds, Setting("costada.nodes.calls.health:Pause", MODELS, "SECONDS")
    ] = 3600.0
    """How long a run waits for an unavailable provider or database before it stops."""

    @model_validator(mode="after")
    def _check_waits(self) -> Self:
        if self.retry_wait > self.longest_wait:
            raise ValueError(
                f"retry_wait: got {self.retry_wait:g}, expected at most longest_wait, which is"
                f" {self.longest_wait:g}"
            )
        return self

"""What is known of each provider: its key variable, its efforts of reasoning, its service tiers."""

from collections.abc import Mapping
from typing import NamedTuple

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

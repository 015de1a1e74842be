"""Chat models: one from its id, which is one line of settings, and the base of those built in."""

import hashlib
import math
import os
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from random import Random
from typing import Any

from langchain_core.language_models import BaseChatModel, LangSmithParams, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import InputTokenDetails, OutputTokenDetails, UsageMetadata
from langchain_core.messages.tool import ToolCall
from langchain_core.runnables import Runnable
from pydantic import SecretStr

from costada.models.langchain_openai import async_http_client, http_client, with_plain_requests
from costada.models.providers import KEY_VARIABLES, NO_PROVIDER, OWN_LOGIN, RetryPolicy
from costada.models.reply_content import text_with_tool_calls
from costada.models.retries import with_retries
from costada.values.model_access import CLIENT_VARIABLES
from costada.values.plugins import call_plugin, plugins_of
from costada.values.usage import Usage

ENTRY_POINTS = "costada.models"
"""Group of entry points; each is a chat model class that takes `seed=`."""

FACTORIES = "costada.model_factories"
"""Group of entry points; each is a function that makes the chat model of `NAME:ARGUMENT`."""

_FORMS = '"offline", "simulated", "replay:FILE", "openai:NAME" or "PROVIDER:NAME"'
# The SDK makes no client without a key.
_KEY_UNUSED = "not-needed"
MAX_TOKENS = 32_000
"""Default limit of an answer, in tokens."""


def chat_model(
    model_id: str,
    *,
    base_url: str | None = None,
    temperature: float = 0.7,
    max_tokens: int | None = None,
    timeout: float = 600.0,
    max_attempts: int = 3,
    retry_wait: float = RetryPolicy().retry_wait,
    longest_wait: float = RetryPolicy().longest_wait,
    api_key_variable: str | None = None,
    service_tier: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    seed: int = 0,
    needs_key: bool = True,
) -> Runnable[LanguageModelInput, AIMessage]:
    """Make the chat model of an id.

    "openai:NAME" is OpenAI or, with a base URL, any server that speaks its protocol;
    "PROVIDER:NAME" is any provider LangChain knows; "offline" is the built-in model that needs
    neither key nor network; "simulated" answers on the problem "landscape" only; "replay:FILE"
    repeats recorded answers (`costada.plugins.replay`). Rate limits, server errors, timeouts and
    lost connections are retried as separate requests, so that a meter sees each of them.

    Args:
        model_id: One of these forms.
        base_url: Address of an OpenAI-compatible server. Without a key in the environment a
            placeholder is sent, as local servers ask for none.
        temperature: Sampling temperature, >= 0. Not sent to models that refuse one.
        max_tokens: Upper bound of an answer's tokens, >= 1; `MAX_TOKENS` when not given, and none
            for the models that need no network.
        timeout: Seconds until a request is given up, > 0.
        max_attempts: Requests sent for one answer at most, >= 1.
        retry_wait: Seconds before the second of them, >= 0; it doubles from request to request.
        longest_wait: Most seconds between two of them, >= 0. A provider that asks for a longer
            wait (Retry-After) is not asked again.
        api_key_variable: Environment variable that holds the key, if not the provider's usual. It
            must hold one, whatever the address.
        service_tier: Service tier to ask for, such as "flex" of OpenAI; none for a model that
            needs no network.
        parameters: Further parameters, by the names that the LangChain class has for them, such
            as reasoning_effort; `PARAMETERS` of `costada.models.menu` lists them. They come
            before `temperature`.
        seed: What the offline and the simulated model draw from; the others do not read it.
        needs_key: Whether a missing key is refused. Otherwise a placeholder takes its place, with
            which the provider answers no request.

    Raises:
        ValueError: If the id or a setting cannot be used, the key is missing from the
            environment, or a package is not installed.
    """
    if not isinstance(model_id, str):
        raise ValueError(f"model id must be {_FORMS}, got {model_id!r}")
    _require("max_attempts", max_attempts, minimum=1)
    _require("retry_wait", retry_wait, minimum=0)
    _require("longest_wait", longest_wait, minimum=0)
    _require("temperature", temperature, minimum=0)
    if max_tokens is not None:
        _require("max_tokens", max_tokens, minimum=1)
    if not _is_finite(timeout) or timeout <= 0:
        raise ValueError(f"timeout must be > 0 seconds, got {timeout!r}")
    if (model := _unprefixed_model(model_id, seed)) is not None:
        if parameters or service_tier or base_url:
            raise ValueError(
                f"model {model_id!r} takes no parameters, service tier and address, expected none"
            )
        return model if max_tokens is None else model.bind(max_tokens=max_tokens)
    provider, name = _provider_and_name(model_id)
    variable = api_key_variable or KEY_VARIABLES.get(provider)
    options: dict[str, Any] = {
        "temperature": temperature,
        "max_tokens": max_tokens or MAX_TOKENS,
        "timeout": timeout,
        # Unseen retries of the SDK could be billed; `with_retries` sends visible ones.
        "max_retries": 0,
        **(parameters or {}),
    }
    if service_tier is not None:
        options["service_tier"] = service_tier
    with CLIENT_VARIABLES, warnings.catch_warnings():
        # An unknown parameter is refused below.
        warnings.filterwarnings("ignore", message=".*is not default parameter")
        if provider == "openai":
            address = base_url or _openai_address()
            is_optional = not needs_key or (bool(address) and not api_key_variable)
            model = _openai_model(name, address, variable, options, is_optional=is_optional)
        else:
            is_keyless = provider in OWN_LOGIN and not api_key_variable
            model = _langchain_model(
                provider,
                name,
                base_url,
                None if is_keyless else variable,
                options,
                needs_key=needs_key,
            )
    _check_parameters(
        model, provider, [*(parameters or {}), *(["service_tier"] if service_tier else [])]
    )
    return with_retries(model, max_attempts, retry_wait, longest_wait)


def _check_parameters(model: BaseChatModel, provider: str, names: Collection[str]) -> None:
    """Refuse a parameter that a LangChain class does not know: it would be sent unchecked."""
    fields = type(model).model_fields
    known = {name for field, facts in fields.items() for name in (field, facts.alias)}
    for name in names:
        if name not in known:
            raise ValueError(
                f"{name}: {type(model).__name__}, the LangChain class of {provider}, has no such"
                " parameter; set what it has in models.toml"
            )


def _require(name: str, value: float, *, minimum: float) -> None:
    if not _is_finite(value) or value < minimum:
        raise ValueError(f"{name} must be >= {minimum}, got {value!r}")


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _unprefixed_model(model_id: str, seed: int) -> BaseChatModel | None:
    """A model that is registered under an entry point; `None` if the name is unknown."""
    if (plugin := plugins_of(ENTRY_POINTS).get(model_id)) is not None:
        return call_plugin(plugin, BaseChatModel, seed=seed)  # type: ignore[type-abstract]
    name, _, argument = model_id.partition(":")
    if (factory := plugins_of(FACTORIES).get(name)) is not None:
        return call_plugin(factory, BaseChatModel, argument, seed=seed)  # type: ignore[type-abstract]
    return None


def _provider_and_name(model_id: str) -> tuple[str, str]:
    """Split an id, or raise ValueError with a better one."""
    provider, _, name = model_id.partition(":")
    known = (*KEY_VARIABLES, *OWN_LOGIN)
    if provider in known and name:
        return provider, name
    word = provider.lower()
    if close := get_close_matches(word, plugins_of(ENTRY_POINTS), n=1, cutoff=0.8):
        suggestion = close[0]
    elif not name:
        suggestion = f"{word}:NAME" if word in known else f"openai:{provider or 'NAME'}"
    else:
        suggestion = f"{(get_close_matches(word, known, n=1) or ['openai'])[0]}:{name}"
    raise ValueError(
        f"model id must be {_FORMS}, got {model_id!r}: did you mean "
        f"{suggestion!r}? Known providers: {', '.join(known)}"
    )


def _openai_address() -> str | None:
    """The address that the environment names in place of OpenAI's own, as its SDK reads it."""
    known = (os.environ.get(name) for name in ("OPENAI_API_BASE", "OPENAI_BASE_URL"))
    return next(filter(None, known), None)


def _openai_model(
    name: str,
    base_url: str | None,
    key_variable: str | None,
    options: dict[str, Any],
    *,
    is_optional: bool,
) -> BaseChatModel:
    from langchain_openai import ChatOpenAI

    key = _api_key("openai", str(key_variable), is_optional=is_optional)
    model = ChatOpenAI(
        model=name,
        api_key=SecretStr(key or _KEY_UNUSED),
        base_url=base_url,
        stream_usage=True,
        # Most other servers that speak the protocol have its chat completions only.
        use_responses_api=False if base_url else None,
        http_client=http_client(),
        http_async_client=async_http_client(),
        **options,
    )
    return with_plain_requests(model)


def _langchain_model(
    provider: str,
    name: str,
    base_url: str | None,
    key_variable: str | None,
    options: dict[str, Any],
    *,
    needs_key: bool,
) -> BaseChatModel:
    if find_spec("langchain") is None:
        raise ValueError(
            f"provider {provider!r} needs the packages langchain and langchain-{provider}: "
            'run `pip install "costada[providers]"` and install the provider\'s own package'
        )
    from langchain.chat_models import init_chat_model

    if base_url:
        options["base_url"] = base_url
    if key_variable:
        key = _api_key(provider, key_variable, is_optional=not needs_key)
        options["api_key"] = SecretStr(key or _KEY_UNUSED)
    try:
        model: BaseChatModel = init_chat_model(name, model_provider=provider, **options)
    except ImportError as error:
        raise ValueError(f"provider {provider!r} cannot be used yet: {error}") from error
    return model


def _api_key(provider: str, variable: str, *, is_optional: bool) -> str:
    """A key from the environment, "" if it is absent and optional."""
    key = os.environ.get(variable, "").strip()
    if not key and not is_optional:
        raise ValueError(
            f"environment variable {variable} must hold the API key of provider {provider!r}, "
            "got nothing; set it before the run"
        )
    return key


TICKET = "costada_ticket"
"""Metadata of a call that distinguishes calls with equal messages."""


_TIMING = re.compile(r"^- \w*(?:time|seconds)\w*: .*$", re.MULTILINE)
"""Metrics that differ from run to run, whatever the program does."""


class BuiltInModel(BaseChatModel):
    """A chat model that needs neither key nor network; its `_llm_type` is its name.

    Attributes:
        seed: Chooses one of many equally good models.
    """

    seed: int = 0

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": self._llm_type, "seed": self.seed}

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        return LangSmithParams(
            ls_provider=NO_PROVIDER, ls_model_name=self._llm_type, ls_model_type="chat"
        )

    def _generator(self, messages: Sequence[BaseMessage], ticket: object) -> Random:
        """What an answer draws from: the same for equal seeds, messages and tickets.

        Run times among the metrics of a prompt make no difference.
        """
        prompt = "\n\n".join(text_with_tool_calls(message) for message in messages)
        origin = self.seed if ticket is None else f"{self.seed}/{ticket}"
        digest = hashlib.sha256(f"{origin}\n{_TIMING.sub('', prompt)}".encode()).digest()
        return Random(int.from_bytes(digest))

    def _message(
        self, text: str, tokens: Usage, finish_reason: str, tool_calls: Sequence[ToolCall] = ()
    ) -> AIMessage:
        """An answer with the token counts that it is charged by."""
        return AIMessage(
            content=text,
            tool_calls=list(tool_calls),
            usage_metadata=UsageMetadata(
                input_tokens=tokens.input_tokens,
                output_tokens=tokens.output_tokens,
                total_tokens=tokens.input_tokens + tokens.output_tokens,
                input_token_details=InputTokenDetails(cache_read=tokens.cached_tokens),
                output_token_details=OutputTokenDetails(reasoning=tokens.reasoning_tokens),
            ),
            response_metadata={"model_name": self._llm_type, "finish_reason": finish_reason},
        )

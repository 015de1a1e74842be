"""The menu of a run: the models that may be asked, each under a name of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    JsonValue,
    ValidationError,
    field_validator,
    model_validator,
)

from costada.models.providers import checked_address
from costada.values.provider_error import YEAR
from costada.values.setting import OBJECT_MARK, refusals
from costada.values.usage import Price

if TYPE_CHECKING:
    from langchain_core.language_models import LanguageModelInput
    from langchain_core.messages import AIMessage
    from langchain_core.runnables import Runnable

    from costada.models.prices import GivenPrice

PARAMETERS = (
    *("effort", "extra_body", "frequency_penalty", "presence_penalty", "reasoning"),
    *("reasoning_effort", "temperature", "thinking", "thinking_budget", "thinking_level"),
    *("top_k", "top_p", "verbosity"),
)
"""Parameters that an entry may set: how a model answers, never where a request goes or its key."""

EXTRA_BODY = (
    *("chat_template_kwargs", "enable_thinking", "min_p", "reasoning", "repetition_penalty"),
    *("thinking", "thinking_budget", "top_k"),
)
"""What `extra_body` may hold: it replaces any other field, also the model that is asked and paid,
the number of answers and their limit."""

ASKED_WITH = ("base_url", "api_key_variable", "service_tier", "max_tokens", "parameters")
"""Fields of an entry that its chat model is made with; they do not change one that exists."""

MAX_NAME = 120

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def checked_name(name: object) -> str:
    """The name of a model in a menu.

    Raises:
        ValueError: It is empty, too long, or holds a comma, a space or what cannot be printed.
    """
    is_text = isinstance(name, str) and name.isprintable() and 0 < len(name) <= MAX_NAME
    if not isinstance(name, str) or not is_text or {" ", ","} & set(name):
        raise ValueError(
            f"models: got the name {name!r}, expected 1 to {MAX_NAME} printable characters"
            " without spaces and commas"
        )
    return name


def price_from(given: object) -> object:
    """A price as it is, from a table of a file, or from a string such as "0.6,1.92"."""
    if isinstance(given, str):
        rates = given.split(",")
        if len(rates) not in (2, 3):
            raise ValueError(
                "expected dollars per million tokens as IN,OUT or IN,OUT,CACHED, such as 0.6,1.92"
            )
        return Price(*rates)
    if isinstance(given, Price):
        return given
    if not isinstance(given, Mapping):
        raise ValueError("expected a price such as Price(0.6, 1.92), a table or a string")
    try:
        return Price(**given)
    except TypeError:
        keys = "input_per_million, output_per_million and, if it differs, cached_per_million"
        raise ValueError(f"expected {keys}") from None


def price_text(price: Price) -> str:
    """A price as `price_from` reads it: IN,OUT or IN,OUT,CACHED in dollars per million tokens."""
    rates = [price.input_per_million, price.output_per_million, price.cached_per_million]
    if rates[2] == rates[0]:
        rates.pop()
    return ",".join(map(str, rates))


PriceField = Annotated[Price, BeforeValidator(price_from)]
"""A price as a field of settings."""

Seconds = Annotated[FiniteFloat, Field(gt=0, le=YEAR)]
ServiceTier = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$")]


class ParameterSet(BaseModel):
    """How a model answers and what that costs: a set of parameters of a models file."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    parameters: Mapping[str, JsonValue] = {}
    """How it answers, by the names that its LangChain class has for that."""

    service_tier: ServiceTier | None = None
    """The service tier that is asked for; `None`: the provider's default."""

    price: PriceField | None = None
    """Its price; `None`: the list price."""

    tier_prices: Mapping[str, PriceField] = {}
    """Its price by the service tier that answers, where that differs from `price`."""

    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Maximum tokens of a response; `None`: as the run's settings say."""

    timeout: Seconds | None = None
    """Seconds of one call, its retries included; `None`: as the run's settings say."""

    @field_validator("parameters")
    @classmethod
    def _check_parameters(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        for name in given:
            if name not in PARAMETERS:
                raise ValueError(f"got {name!r}, expected one of {', '.join(PARAMETERS)}")
        extra = given.get("extra_body", {})
        if not isinstance(extra, Mapping):
            raise ValueError("got an extra_body that is not a table, expected one")
        for name in extra:
            if name not in EXTRA_BODY:
                raise ValueError(f"got extra_body.{name}, expected one of {', '.join(EXTRA_BODY)}")
        return given


class ModelEntry(ParameterSet):
    """One model of a menu with all that is needed to call it, as stored in settings.json.

    Contains no key, only the name of the environment variable that holds one.
    """

    name: str
    """What the trace calls it, for example openai:gpt-5.4@low."""

    model: Annotated[str, Field(min_length=1)]
    """offline, openai:NAME or PROVIDER:NAME."""

    base_url: str | None = None
    """Address of its server; `None`: the provider's own."""

    api_key_variable: str | None = None
    """Environment variable with its key; `None`: the provider's usual one."""

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        return checked_name(name)

    @field_validator("base_url")
    @classmethod
    def _check_address(cls, address: str | None) -> str | None:
        return None if address is None else checked_address(address)

    @field_validator("api_key_variable")
    @classmethod
    def _check_variable(cls, name: str | None) -> str | None:
        if name is not None and not _VARIABLE.fullmatch(name):
            raise ValueError("expected the name of an environment variable, never a key")
        return name

    @model_validator(mode="after")
    def _check_prices(self) -> Self:
        if self.tier_prices and self.price is None:
            raise ValueError("tier_prices: got some without a price, expected both or none")
        return self

    @property
    def text(self) -> str:
        """The entry in one line: its name, and in brackets what is set beside it."""
        apart = {"name", "model", "price"}
        facts = {} if self.model == self.name else {"model": self.model}
        facts |= self.model_dump(mode="json", exclude_defaults=True, exclude=apart)
        facts |= {"price": price_text(self.price)} if self.price else {}
        words = [
            f"{name} {value if isinstance(value, str) else json.dumps(value)}"
            for name, value in facts.items()
        ]
        return f"{self.name} ({', '.join(words)})" if words else self.name

    @property
    def given_price(self) -> GivenPrice | None:
        """The price for `price_book`; `None`: the list price."""
        from costada.models.prices import GivenPrice

        return None if self.price is None else GivenPrice(self.price, self.tier_prices)


@dataclass(frozen=True, slots=True, init=False)
class MenuModel:
    """A chat model of a menu.

    Attributes:
        entry: Its name, its price and what else is set for it.
        model: The chat model, perhaps wrapped.
    """

    entry: ModelEntry
    model: Runnable[LanguageModelInput, AIMessage]

    def __init__(
        self,
        entry: ModelEntry | str,
        model: Runnable[LanguageModelInput, AIMessage],
        price: Price | None = None,
        tier_prices: Mapping[str, Price] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Take a chat model into a menu.

        Args:
            entry: What the trace and the ledger call it, different for each model of a menu; or
                an entry with its name, price and timeout in place of the arguments below.
            model: The chat model, perhaps wrapped.
            price: Its price; `None`: the list price.
            tier_prices: Its price by the service tier that answers, where that differs.
            timeout: Seconds of one call, its retries included; `None`: as the run's settings say.

        Raises:
            ValueError: A value is not what it should be.
        """
        from langchain_core.runnables import Runnable

        if not isinstance(model, Runnable):
            name = entry.name if isinstance(entry, ModelEntry) else entry
            raise ValueError(f"models: {name} is {model!r}, expected a LangChain chat model")
        if not isinstance(entry, ModelEntry):
            try:
                entry = ModelEntry(
                    name=entry,
                    model=label_of(model),
                    price=price,
                    tier_prices=tier_prices or {},
                    timeout=timeout,
                )
            except ValidationError as error:
                raise ValueError(f"models: {entry}: {refusals(error)}") from None
        elif (price, tier_prices, timeout) != (None, None, None):
            raise ValueError(f"models: {entry.name}: expected price and timeout in its entry")
        elif given := entry.model_dump(include={*ASKED_WITH}, exclude_defaults=True):
            name, value = next(iter(given.items()))
            raise ValueError(
                f"models: {entry.name}: {name}: got {value!r} beside a chat model, which it does"
                " not change; expected none: make the chat model with it"
            )
        object.__setattr__(self, "entry", entry)
        object.__setattr__(self, "model", model)

    @classmethod
    def from_entry(cls, entry: ModelEntry, model: Runnable[LanguageModelInput, AIMessage]) -> Self:
        """The chat model that was made from all that an entry says."""
        found = cls.__new__(cls)
        object.__setattr__(found, "entry", entry)
        object.__setattr__(found, "model", model)
        return found

    @property
    def name(self) -> str:
        """What the trace and the ledger call it."""
        return self.entry.name


def label_of(given: object) -> str:
    """How settings refer to a problem or a model: by its name, or by a note of its object."""
    if isinstance(given, str | Path):
        return str(given)
    return f"{OBJECT_MARK}{getattr(given, 'name', None) or type(given).__name__}"

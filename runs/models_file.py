"""The models of a menu as a user writes them, resolved to entries: what `models.toml` is for."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from costada.models.menu import MenuModel, ModelEntry, ParameterSet
from costada.models.providers import EFFORTS, HALF_PRICE_TIER, SERVICE_TIERS, STANDARD_TIER
from costada.runs.user_input import explain, split_list
from costada.store.files import read_text
from costada.values.setting import unknown_name
from costada.values.usage import Price

if TYPE_CHECKING:
    from langchain_core.language_models import LanguageModelInput
    from langchain_core.messages import AIMessage
    from langchain_core.runnables import Runnable

    GivenModel = str | ModelEntry | MenuModel | Runnable[LanguageModelInput, AIMessage]

MODELS_FILE = Path("models.toml")
"""The file that is read if it is there and no other one is given."""

MAX_FILE = 2**20
"""Bytes of a models file."""

OF_ALIASES = ("model", "base_url", "api_key_variable")
"""Fields of a model that is listed by an alias, not by its id."""

SUFFIX = "@"
"""Stands before an effort, a service tier or a named set of parameters."""


class ListedModel(ModelEntry):
    """A model of the file, named by its alias or its id."""

    sets: Mapping[str, ParameterSet] = {}
    """Sets of parameters that it alone may be asked with, by their name."""


class ModelsFile(BaseModel):
    """A file with models and sets of parameters.

    Attributes:
        models: Models by their alias, or by their id.
        sets: Sets of parameters that any model may be asked with, by their name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    models: Mapping[str, ListedModel] = {}
    sets: Mapping[str, ParameterSet] = {}

    @model_validator(mode="before")
    @classmethod
    def _name_models(cls, given: Any) -> Any:
        """Give each model its name, and one that is listed by its id that id."""
        tables = given.get("models") if isinstance(given, Mapping) else None
        if not isinstance(tables, Mapping):
            return given
        named = {}
        for name, table in tables.items():
            if SUFFIX in name or "," in name:
                raise ValueError(f"models.{name}: expected a name without {SUFFIX} and commas")
            fields = table if isinstance(table, Mapping) else {}
            if "name" in fields:
                others = [each for each in ListedModel.model_fields if each != "name"]
                known = [f"models.{name}.{each}" for each in others]
                raise ValueError(unknown_name("setting", f"models.{name}.name", known))
            for field in OF_ALIASES if ":" in name else ():
                if field in fields:
                    raise ValueError(
                        f"models.{name}.{field}: expected only for an alias, whose name has no"
                        " colon, so that a model id means the same with any file"
                    )
            own = {"name": name, "model": name} if ":" in name else {"name": name}
            named[name] = {**fields, **own} if isinstance(table, Mapping) else table
        return {**given, "models": named}


def read_models_file(path: Path | None) -> ModelsFile:
    """The models file of a path; without one that in the working folder, if it is there.

    Raises:
        ValueError: It is missing, not TOML, or holds an unknown or wrong field.
        OSError: It cannot be read.
    """
    if path is None and not MODELS_FILE.is_file():
        return ModelsFile()
    path = path or MODELS_FILE
    known: dict[str, Any] = {}
    try:
        known = tomllib.loads(read_text(path, MAX_FILE))
        return ModelsFile.model_validate(known)
    except FileNotFoundError:
        raise ValueError(f"{path}: does not exist, expected a models file") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from None
    except ValidationError as error:
        raise ValueError(f"{path}: {explain(error, _field_names(known))}") from None


def _field_names(file: Mapping[str, Any]) -> list[str]:
    """The names of all fields that a models file can have, below the tables that it has."""
    names = list(ModelsFile.model_fields)
    for table, kind in (("models", ListedModel), ("sets", ParameterSet)):
        found = file.get(table)
        for name, fields in found.items() if isinstance(found, dict) else ():
            names += [f"{table}.{name}.{field}" for field in kind.model_fields if field != "name"]
            sets = fields.get("sets") if isinstance(fields, dict) else None
            for each in sets if isinstance(sets, dict) else ():
                names += [
                    f"{table}.{name}.sets.{each}.{field}" for field in ParameterSet.model_fields
                ]
    return names


def resolved_menu(given: object, models_file: Path | None = None) -> list[object]:
    """The entries of a menu in place of their texts; chat models and other objects stay.

    Args:
        given: Texts, in one with commas between them or in a list, tables of resolved entries, as
            JSON or as they are, or objects.
        models_file: Explains aliases and named sets; by default `models.toml` in the working
            folder, if there is one. It is read only for strings.

    Raises:
        ValueError: A string names an unknown model, effort, service tier or set, or contradicts
            itself; the file is wrong or there is nothing for it to explain.
        OSError: The file cannot be read.
    """
    if isinstance(given, str) and given.lstrip().startswith("["):
        text = given
        try:
            given = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"models: got {text[:40]!r}, expected a JSON list: {error}") from None
    elif isinstance(given, str):
        given = split_list("--models", given)
    if not isinstance(given, Sequence) or not given:
        raise ValueError(f"models: got {given!r}, expected a list of models")
    texts = [each for each in given if isinstance(each, str)]
    if models_file is not None and not texts:
        raise ValueError(f"models_file: got {models_file} and no model that it could explain")
    file = read_models_file(models_file) if texts else ModelsFile()
    return [resolved_entry(each, file) if isinstance(each, str) else each for each in given]


def named_models(
    given: str | Sequence[GivenModel],
    models_file: str | Path | None = None,
) -> list[ModelEntry | MenuModel]:
    """The models of a menu, each with a name; a bare chat model has that of its constructor.

    Raises:
        ValueError: A string or an object stands for no model, or the models file is wrong.
    """
    from langchain_core.runnables import Runnable

    from costada.models.runnable_tree import AskedModel, underlying_models

    found: list[ModelEntry | MenuModel] = []
    for each in resolved_menu(given, None if models_file is None else Path(models_file)):
        if isinstance(each, ModelEntry | MenuModel):
            found.append(each)
            continue
        if not isinstance(each, Runnable) or not underlying_models(each):
            raise ValueError(f"models: got {each!r}, expected a model id or a chat model")
        found.append(MenuModel(AskedModel(underlying_models(each)[0]).name, each))
    return found


def resolved_entry(text: str, file: ModelsFile) -> ModelEntry:
    """The entry that a string such as `openai:gpt-5.4@low` stands for.

    Raises:
        ValueError: As for `resolved_menu`.
    """
    name, *suffixes = text.split(SUFFIX)
    known = file.models.get(name)
    if known is None and ":" not in name and name not in ("offline", "simulated"):
        raise ValueError(
            f"models: {unknown_name('model', name, [*file.models, 'offline'])} Expected one of"
            f" these, PROVIDER:NAME, or an alias that {MODELS_FILE} defines"
        )
    known = known or ListedModel(name=name, model=name)
    provider = known.model.partition(":")[0]
    fields = known.model_dump(exclude={"sets"}, exclude_unset=True)
    set_by_suffixes: set[str] = set()
    for suffix in suffixes:
        added = _suffix_fields(suffix, text, provider, {**file.sets, **known.sets})
        parameters = added.pop("parameters", {})
        names = {*added, *parameters}
        if twice := set_by_suffixes & names:
            raise ValueError(f"models: {text} sets {min(twice)} twice, expected it once")
        set_by_suffixes |= names
        if "price" in added:
            # Prices of tiers in the file belong to the price that the set replaces.
            fields.pop("tier_prices", None)
        fields |= added
        fields["parameters"] = {**fields.get("parameters", {}), **parameters}
    try:
        entry = ModelEntry.model_validate({**fields, "name": text})
    except ValidationError as error:
        raise ValueError(f"models: {text}: {explain(error, ModelEntry.model_fields)}") from None
    return _with_tier_price(entry)


def _suffix_fields(
    suffix: str, text: str, provider: str, sets: Mapping[str, ParameterSet]
) -> dict[str, Any]:
    """The fields of an entry that a suffix sets; a named set comes before effort and tier."""
    efforts = EFFORTS.get(provider)
    tiers = SERVICE_TIERS.get(provider, ())
    if suffix in sets:
        return sets[suffix].model_dump(exclude_unset=True)
    if suffix in tiers:
        return {"service_tier": suffix}
    if efforts and suffix in efforts.levels:
        return {"parameters": {efforts.parameter: suffix}}
    known = [*sets, *tiers, *(efforts.levels if efforts else ())]
    expected = f"one of {', '.join(known)}" if known else "none, as the provider has none"
    raise ValueError(
        f"models: {text}: got {suffix!r} behind {SUFFIX}, expected {expected}; {MODELS_FILE} may"
        f" define it as a set of parameters ([sets.{suffix}]), or a name with {SUFFIX} as a model"
    )


def _with_tier_price(entry: ModelEntry) -> ModelEntry:
    """The entry with the price of its service tier, where the user gives one of the standard tier.

    Raises:
        ValueError: It is not known how the two compare.
    """
    tier, price = entry.service_tier, entry.price
    if price is None or tier in (None, STANDARD_TIER, *entry.tier_prices):
        return entry
    if tier != HALF_PRICE_TIER:
        raise ValueError(
            f"models: {entry.name} asks for service tier {tier!r} and has a price of its own,"
            f" expected tier_prices.{tier} as well, in {MODELS_FILE}"
        )
    half = Price(
        price.input_per_million / 2, price.output_per_million / 2, price.cached_per_million / 2
    )
    return entry.model_copy(update={"tier_prices": {**entry.tier_prices, tier: half}})

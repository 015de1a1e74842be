"""Files of menus: models with their numbers, or the ranges that they are drawn from."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from math import exp, log
from pathlib import Path
from random import Random
from typing import Annotated, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from costada.plugins.lab.landscape.landscape_menu import SimulatedEntry
from costada.runs.user_input import explain
from costada.store.files import read_text

RANDOM = "random"
MAX_FILE = 2**20
MAX_MODELS = 26
"""Models of one menu: drawn ones are named by a letter."""

Range = tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]]
"""Lowest and highest value, log-uniform between them."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    about: str = ""


class FixedMenu(_Strict):
    """The same models for every seed."""

    entries: Annotated[tuple[SimulatedEntry, ...], Field(min_length=1, max_length=MAX_MODELS)]

    @model_validator(mode="after")
    def _with_different_names(self) -> Self:
        names = [entry.name for entry in self.entries]
        if len(set(names)) < len(names):
            raise ValueError(f"got {', '.join(names)}, expected different names")
        return self

    def of_seed(self, seed: int) -> tuple[SimulatedEntry, ...]:
        """The models, the cheapest first."""
        return tuple(sorted(self.entries, key=lambda entry: entry.price))


class DrawnMenu(_Strict):
    """Models drawn for each seed."""

    models: tuple[
        Annotated[int, Field(ge=1, le=MAX_MODELS)], Annotated[int, Field(ge=1, le=MAX_MODELS)]
    ]
    price: Range
    success: Range
    is_ordered: bool = False  # whether a higher price always comes with a higher success

    @model_validator(mode="after")
    def _with_ranges(self) -> Self:
        for name, (low, high) in (
            ("models", self.models),
            ("price", self.price),
            ("success", self.success),
        ):
            if low > high:
                raise ValueError(f"{name} is [{low:g}, {high:g}], expected the lower bound first")
        if self.success[1] > 1:
            raise ValueError(f"success reaches {self.success[1]:g}, expected at most 1")
        return self

    def of_seed(self, seed: int) -> tuple[SimulatedEntry, ...]:
        """The models of a seed, the cheapest first."""
        rng = Random(f"menu {seed}")
        count = rng.randint(*self.models)
        prices = sorted(_log_uniform(self.price, rng) for _ in range(count))
        successes = [_log_uniform(self.success, rng) for _ in range(count)]
        if self.is_ordered:
            successes.sort()
        numbers = zip(prices, successes, strict=True)
        return tuple(SimulatedEntry(chr(ord("a") + n), *each) for n, each in enumerate(numbers))


Menu = FixedMenu | DrawnMenu


def _log_uniform(bounds: Range, rng: Random) -> float:
    low, high = bounds
    return exp(rng.uniform(log(low), log(high))) if low < high else low


def menus_of(given: str) -> Mapping[str, Menu]:
    """The menus of a file by name, or those of the package for "random".

    Raises:
        ValueError: There is no such file, or it holds no menus; the message names the field.
    """
    if given == RANDOM:
        text = (files("costada.plugins.lab.menus") / "random.toml").read_text("utf-8")
    else:
        path = Path(given)
        if not path.is_file():
            raise ValueError(f"--menu: got {given!r}, expected {RANDOM!r} or a TOML file of menus")
        text = read_text(path, MAX_FILE)
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{given}: expected TOML: {error}") from None
    if not tables:
        raise ValueError(f"{given}: holds no menu, expected a table for each")
    models = tables.get("models")
    if isinstance(models, dict) and any(isinstance(each, dict) for each in models.values()):
        raise ValueError(
            f"{given}: got the models of a run, expected menus of simulated models: a table for"
            " each, with entries of name, price and success, or with ranges to draw them from"
        )
    return {name: _menu(f"{given}: {name}", table) for name, table in tables.items()}


def _menu(place: str, table: object) -> Menu:
    kind = FixedMenu if isinstance(table, dict) and "entries" in table else DrawnMenu
    adapter: TypeAdapter[Menu] = TypeAdapter(kind)
    try:
        return adapter.validate_python(table)
    except ValidationError as error:
        raise ValueError(f"{place}: {explain(error, kind.model_fields)}") from None

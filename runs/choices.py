"""What a caller may choose for one run of a graph, and the schema of these choices."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo

from costada.controller.constants import Constants
from costada.evaluators.problem import Problem
from costada.evaluators.registry import problem
from costada.nodes.generator_command import ONE_ANSWER, WITH_TOOLS
from costada.nodes.settings import MAX_PARALLEL, MAX_SEED, Settings
from costada.runs.config import (
    CONTROLLER,
    FOLDER_SETTINGS,
    RunConfig,
    changed_constants,
    constant_names,
)
from costada.runs.keywords import GraphKeywords
from costada.runs.user_input import explain
from costada.values.python_syntax import docstring
from costada.values.setting import Setting, unknown_name

if TYPE_CHECKING:
    from costada.runs.models_file import GivenModel

MODEL_GENERATORS = (
    "model: one response is one program. agent: the model may call tools before it submits."
)
"""Description of the generators that a caller may choose."""

OWN_FIELDS = ("seed", "parallel")
"""Settings that are chosen by fields of their own."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What the caller of a graph may choose for one run; by default only the seed.

    Attributes:
        max_budget: Maximum dollars of one run; `None`: the budget cannot be chosen.
        requires_budget: Whether every run has to choose its budget: a server drops the keys of a
            context that it does not know, so a misspelt one would spend the graph's budget.
        problems: Problems to choose from by name, beside that of the graph.
        models: Models to choose from by name: names in the graph's `models`, model ids, chat models
            or `MenuModel(name, model, price)`.
        max_parallel: Maximum of `parallel`; `None`: it cannot be chosen.
        settings: Names of the settings that may be chosen, constants as `controller.NAME`. With
            `generator`, callers choose a model with or without tools, never a command.
    """

    max_budget: float | None = None
    problems: Sequence[str | Path | Problem] = ()
    models: Sequence[GivenModel] = ()
    max_parallel: int | None = None
    settings: Sequence[str] = ()
    requires_budget: bool = False

    def __post_init__(self) -> None:
        """Raise `ValueError` naming a wrong limit or problem, and what was expected."""
        dollars = self.max_budget
        if dollars is not None and (
            isinstance(dollars, bool)
            or not isinstance(dollars, int | float)
            or not 0 < dollars < inf
        ):
            raise ValueError(f"max_budget: got {dollars!r}, expected finite dollars above 0")
        if self.requires_budget and dollars is None:
            raise ValueError("requires_budget: got True without max_budget, expected both")
        steps = self.max_parallel
        if steps is not None and (
            isinstance(steps, bool)
            or not isinstance(steps, int)
            or steps not in range(1, MAX_PARALLEL + 1)
        ):
            raise ValueError(
                f"max_parallel: got {steps!r}, expected an integer from 1 to {MAX_PARALLEL}"
            )
        for name in ("problems", "models", "settings"):
            given = getattr(self, name)
            if not isinstance(given, list | tuple):
                raise ValueError(f"{name}: got {given!r}, expected a list or a tuple")
        for each in self.problems:
            if not isinstance(each, Problem):
                try:
                    problem(each)
                except (ValueError, TypeError) as error:
                    raise ValueError(f"problems: {error}") from None
        known = choosable_settings()
        for name in self.settings:
            if name not in known:
                raise ValueError(unknown_name("setting", str(name), known))


def choosable_settings() -> list[str]:
    """The names of the settings that a builder may let callers choose."""
    # A caller must not choose the cluster whose answers this process unpickles, nor open a port.
    apart = {CONTROLLER, "evaluate_on", "endpoint", *OWN_FIELDS}
    constants = (f"{CONTROLLER}.{name}" for name in constant_names())
    return [*(name for name in GraphKeywords.__annotations__ if name not in apart), *constants]


class ContextBase(BaseModel):
    """What may be chosen for one run; what is absent is as the graph was built."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def context_schema(
    choices: Choices, problems: Sequence[str], models: Sequence[str]
) -> type[BaseModel]:
    """The context schema of a graph.

    Args:
        choices: The limits.
        problems: The names of the problems to choose from, at least one.
        models: The names of the models to choose from.
    """
    literal: Any = Literal
    seeds = Annotated[int, Field(ge=0, le=MAX_SEED)]
    fields: dict[str, Any] = {
        "seed": _optional(seeds, "Random seed of the run, also part of the input.")
    }
    if choices.max_budget is not None:
        dollars = Annotated[float, Field(gt=0, le=choices.max_budget, allow_inf_nan=False)]
        text = "Dollars to spend (B)."
        is_required = choices.requires_budget
        fields["budget"] = (
            (dollars, Field(description=text)) if is_required else _optional(dollars, text)
        )
    if choices.problems:
        fields["problem"] = _optional(literal[tuple(problems)], "The problem, by name.")
    if models:
        one: Any = literal[tuple(models)]
        names: Any = Annotated[list[one], Field(min_length=1)]
        text = "The model, or several to choose from before each attempt, by name."
        fields["models"] = _optional(names, text)
    if choices.max_parallel is not None:
        steps = Annotated[int, Field(ge=1, le=choices.max_parallel)]
        fields["parallel"] = _optional(steps, "Steps in flight at the same time (K).")
    if choices.settings:
        fields["settings"] = _optional(_settings_schema(choices.settings), "Further settings.")
    return create_model(
        "SearchContext", __base__=ContextBase, __doc__=docstring(ContextBase), **fields
    )


def _optional(kind: Any, text: str | None) -> tuple[Any, Any]:
    """A field that may be absent, which is not the same as `None`."""
    return kind, Field(
        default=None,
        description=text,
        # A client would read `default: null` as permission to send null, which is refused.
        json_schema_extra=lambda schema: schema.pop("default", None),
    )


def _settings_schema(names: Sequence[str]) -> type[BaseModel]:
    """The schema of the settings that may be chosen, with the types of `RunConfig`."""
    fields: dict[str, Any] = {}
    constants: dict[str, Any] = {}
    for name in names:
        group, dot, constant = name.partition(".")
        if dot and group == CONTROLLER:
            constants[constant] = _field_like(Constants.model_fields[constant])
        else:
            models: tuple[type[BaseModel], ...] = (RunConfig, Settings)
            source = next(each for each in models if name in each.model_fields)
            fields[name] = _field_like(source.model_fields[name])
            if name == "generator":
                # A caller must not run commands on this machine.
                fields[name] = _optional(Literal[ONE_ANSWER, WITH_TOOLS], MODEL_GENERATORS)
    if constants:
        kind = create_model("ControllerConstants", __base__=ContextBase, **constants)
        fields[CONTROLLER] = _optional(kind, "Constants of the controller.")
    return create_model("SearchSettings", __base__=ContextBase, **fields)


def _field_like(field: FieldInfo) -> tuple[Any, Any]:
    """A field with the type, the limits and the description of another one."""
    annotated: Any = Annotated
    limits = tuple(each for each in field.metadata if not isinstance(each, Setting))
    kind = annotated[(field.annotation, *limits)] if limits else field.annotation
    return _optional(kind, field.description)


def read_context(schema: type[BaseModel], context: object) -> dict[str, object]:
    """What a context chooses, as plain values by name.

    Raises:
        ValueError: With one line per unknown name or wrong value.
    """
    if isinstance(context, schema):
        # as it was given: `model_construct` checks nothing
        context = context.model_dump(exclude_unset=True, warnings=False)
    if isinstance(context, Mapping):
        try:
            # As JSON, a string may name a member of an enumeration, and nothing else is converted.
            text = json.dumps({**context, **_nested_settings(context)})
            known = schema.model_validate_json(text, strict=True)
        except TypeError as error:
            raise ValueError(f"context: {error}, expected plain values") from None
        except ValidationError as error:
            lines = explain(error, list(_names(schema)) or ["seed"])
            raise ValueError("\n".join(f"context: {line}" for line in lines.splitlines())) from None
    else:
        expected = ", ".join(schema.model_fields)
        raise ValueError(f"context: got {context!r}, expected a mapping with {expected}")
    return cast(dict[str, object], known.model_dump(mode="json", exclude_unset=True))


def _nested_settings(context: Mapping[str, object]) -> dict[str, object]:
    """The chosen settings, where a constant is given as `controller.NAME`, with a table of them.

    Raises:
        ValueError: A constant is given in both forms.
    """
    given = context.get("settings")
    if not isinstance(given, Mapping):
        return {}
    start = f"{CONTROLLER}."
    dotted = {key: value for key, value in given.items() if str(key).startswith(start)}
    table = given.get(CONTROLLER, {})
    if not dotted or not isinstance(table, Mapping):
        return {}
    constants = {key.removeprefix(start): value for key, value in dotted.items()}
    for name in constants:
        if name in table:
            raise ValueError(
                f"context: settings.{start}{name}: got it twice, also in the table {CONTROLLER!r}"
            )
    rest = {key: value for key, value in given.items() if key not in dotted}
    return {"settings": {**rest, CONTROLLER: {**table, **constants}}}


def _names(schema: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """The names of all fields, also of the tables below."""
    for name, field in schema.model_fields.items():
        yield f"{prefix}{name}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _names(field.annotation, f"{prefix}{name}.")


def merged_settings(
    settings: Mapping[str, object], chosen: Mapping[str, object]
) -> dict[str, object]:
    """The settings of a graph with those that a caller has chosen."""
    added = dict(cast(Mapping[str, object], chosen.get("settings", {})))
    own = {name: chosen[name] for name in ("budget", "parallel") if name in chosen}
    if CONTROLLER in added:
        given = settings.get(CONTROLLER, {})
        known = cast(Mapping[str, object], changed_constants(given))
        added[CONTROLLER] = {**known, **cast(Mapping[str, object], added[CONTROLLER])}
    return {**settings, **own, **added}


def check_graph_settings(settings: Mapping[str, object]) -> None:
    """Refuse settings of a run folder, which a graph does not have; raises `ValueError`."""
    for name in settings:
        if name in FOLDER_SETTINGS:
            raise ValueError(
                f"{name}: got {settings[name]!r}, which a graph does not read; it is a setting of"
                " discover(..., out=FOLDER) and costada run"
            )

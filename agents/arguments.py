"""What an agent may ask of the discovery tool, and how it is told that it asked for something else.

The tool's schema names what the host allows and nothing else, so that the model sees its choices.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, model_validator

LONGEST_SHOWN = 80
"""Characters of a wrong value that are repeated to the model."""

PROBLEM = "Name of the problem whose program is to be improved."
PROGRAM = "Complete source text of the program to start from."
EVALUATOR = "Name of the evaluator that judges the programs; goes with `program`."


class Arguments(BaseModel):
    """The arguments of every discovery tool."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="after")
    def _check_start(self) -> Self:
        given = {name for name in ("problem", "program", "evaluator") if getattr(self, name, None)}
        if given not in ({"problem"}, {"program", "evaluator"}):
            ways = "a problem, or a program together with an evaluator"
            raise ValueError(f"got {' and '.join(sorted(given)) or 'neither'}, expected {ways}")
        return self


def arguments_schema(
    problems: Iterable[str], evaluators: Iterable[str], max_budget: float
) -> type[Arguments]:
    """Return the arguments that a host allows: its names, and a budget.

    A single problem need not be named where there is no other way.

    Args:
        problems: Names to choose from; may be empty.
        evaluators: Names to choose from for a program of one's own; may be empty.
        max_budget: Dollars of one call at most.
    """
    names, judges = tuple(problems), tuple(evaluators)
    fields: dict[str, Any] = {}
    if names:
        is_only = len(names) == 1 and not judges
        default = names[0] if is_only else (None if judges else ...)
        fields["problem"] = (_one_of(names, judges), Field(default, description=PROBLEM))
    if judges:
        default = None if names else ...
        text = str | None if names else str
        fields["program"] = (text, Field(default, description=PROGRAM))
        fields["evaluator"] = (_one_of(judges, names), Field(default, description=EVALUATOR))
    limit = f"Dollars to spend, at most {max_budget:g}; a higher budget is lowered to that."
    fields["budget"] = (float, Field(gt=0, allow_inf_nan=False, description=limit))
    return create_model("DiscoveryArguments", __base__=Arguments, **fields)


def _one_of(names: tuple[str, ...], others: tuple[str, ...]) -> object:
    """Return the type of a name to choose, which may be missing where there is another way."""
    literal: Any = Literal
    choice: Any = literal[names]
    return choice | None if others else choice


def refusal_text(error: object) -> str:
    """Return what is wrong with arguments, argument by argument, for the model to read."""
    if not isinstance(error, ValidationError):
        return f"wrong arguments: {error}"
    lines = [_line(dict(each)) for each in error.errors(include_url=False)]
    return "wrong arguments: " + "; ".join(lines)


def _line(problem: Mapping[str, Any]) -> str:
    place = ".".join(map(str, problem["loc"]))
    what = str(problem["msg"]).removeprefix("Value error, ")
    if not place:
        return what
    value = repr(problem["input"])
    shown = value if len(value) <= LONGEST_SHOWN else f"{value[:LONGEST_SHOWN]}..."
    return f"{place}: {what}" if problem["type"] == "missing" else f"{place}: got {shown}. {what}"

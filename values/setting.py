"""What a setting says of itself, and the words in which a value is refused."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from costada.values.redaction import without_passwords

if TYPE_CHECKING:  # the help of a command is shown without pydantic
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

MONEY, SEARCH, MODELS = "Money", "Search", "Models"
EVALUATION, OUTPUT = "Evaluation", "Output"
"""Headings of the groups of options in the help of a command."""

OBJECT_MARK = "object:"
"""Begins the value of a setting that a Python caller gave as an object."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a setting takes effect, and how the help of a command shows it.

    Attributes:
        effect: `module:function` where it takes effect.
        panel: Heading of its group of options; empty if it has no option of its own.
        metavar: Placeholder of the value; `None`: its type or its choices.
        default: Text in place of the default value.
        names: Accepted names, listed behind the description.
        given: Type that a Python caller may give, in source text; `None`: that of the field.
    """

    effect: str
    panel: str = ""
    metavar: str | None = None
    default: str | None = None
    names: Collection[str] = ()
    given: str | None = None


KINDS = {
    "int": "expected an integer",
    "float": "expected a number",
    "bool": "expected true or false",
    "sequence": "expected a list, not one string",
    "tuple": "expected a list",
    "dict": "expected a table of names and values",
    "model": "expected a table of names and values",
}
"""What is expected where pydantic cannot read a value, by the first part of the error's type."""


def expectation(details: ErrorDetails) -> str:
    """What pydantic expected of a value."""
    text = details["msg"].removeprefix("Value error, ")
    text = re.sub("^(Input should be|String should have)", "expected", text)
    text = text.replace("an instance of Sequence", "a list")
    return KINDS.get(details["type"].partition("_")[0], text)


def refusal(field: str, value: object, expected: str) -> str:
    """The error message for the value of a field; a password in it is left out."""
    shown = repr(value) if isinstance(value, str) else str(value)
    return without_passwords(f"{field}: got {shown}, {expected}")


def refusals(error: ValidationError) -> str:
    """One line per wrong field of a model: the field, its value and what was expected."""
    return "\n".join(
        refusal(".".join(map(str, each["loc"])), each["input"], expectation(each))
        if each["loc"]
        else expectation(each)
        for each in error.errors(include_url=False)
    )


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Message about an unknown name that proposes the nearest known one.

    Args:
        kind: What was named, for example "preset".
        name: The name as given.
        known: All accepted names.
    """
    names = sorted(known)
    table, dot, own = name.lower().rpartition(".")
    start = f"{table}{dot}"
    # All names of a table have its prefix in common, so it must not count as a likeness.
    siblings = [each.removeprefix(start) for each in names if each.startswith(start)]
    begun = [each for each in siblings if own and each.startswith(own)]
    nearest = begun[:1] or get_close_matches(own, siblings, n=1)
    near = [f"{start}{each}" for each in nearest] if siblings else get_close_matches(name, names, 1)
    proposal = f"Did you mean '{near[0]}'? " if near else ""
    return f"Unknown {kind} '{name}'. {proposal}Known: {', '.join(names)}."

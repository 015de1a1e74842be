"""What a setting says of itself beside its name, type, range, default and docstring."""

from collections.abc import Collection
from dataclasses import dataclass

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

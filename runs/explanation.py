"""What pydantic found wrong, in lines a person understands."""

import re
from collections.abc import Callable, Iterable

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from costada.runs.suggestion import unknown_name

COMPOUND_NAME = re.compile("[a-z]+(?:_[a-z]+)+")


def explain(
    error: ValidationError,
    known_fields: Iterable[str],
    label: Callable[[str], str] = str,
) -> str:
    """Return one line per wrong field: the field, its value and what was expected.

    Args:
        error: What pydantic raised.
        known_fields: Names that the settings have, to propose one for a misspelt name.
        label: Turns a field's name into what the reader calls it, for example an option.
    """
    names = list(known_fields)
    return "\n".join(_line(details, names, label) for details in error.errors(include_url=False))


def as_option(field: str) -> str:
    """Return the command line option of a settings field."""
    return "PROBLEM" if field == "problem" else f"--{field.replace('_', '-')}"


def _line(details: ErrorDetails, known_fields: list[str], label: Callable[[str], str]) -> str:
    field = ".".join(str(part) for part in details["loc"])
    if details["type"] == "extra_forbidden":
        return unknown_name("setting", field, known_fields)
    if details["type"] == "missing":
        return f"{label(field)}: is missing"
    expectation = details["msg"].removeprefix("Value error, ")
    expectation = re.sub("^(Input should be|String should have)", "expected", expectation)
    expectation = COMPOUND_NAME.sub(
        lambda name: label(name[0]) if name[0] in known_fields else name[0], expectation
    )
    if not field:
        return expectation
    return f"{label(field)}: got {_shown(details['input'])}, {expectation}"


def _shown(value: object) -> str:
    return repr(value) if isinstance(value, str) else str(value)

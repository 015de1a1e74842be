"""What was wrong with a value, in the words of all refusals."""

import re

from pydantic_core import ErrorDetails

from costada.values.redaction import without_passwords

NUMBERS = {"int": "expected a whole number", "float": "expected a number"}
"""What is expected where pydantic cannot read a number, by the first part of the error's type."""


def expectation(details: ErrorDetails) -> str:
    """What pydantic expected of a value."""
    text = details["msg"].removeprefix("Value error, ")
    text = re.sub("^(Input should be|String should have)", "expected", text)
    return NUMBERS.get(details["type"].partition("_")[0], text)


def refusal(field: str, value: object, expected: str) -> str:
    """The line that refuses the value of a field; a password in it is left out."""
    shown = repr(value) if isinstance(value, str) else str(value)
    return without_passwords(f"{field}: got {shown}, {expected}")

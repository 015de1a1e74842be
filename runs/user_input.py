"""Names, lists and settings as a user wrote them, and the messages about wrong ones."""

import re
from collections.abc import Callable, Collection, Iterable

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from costada.controller.methods import METHODS
from costada.values.setting import expectation, refusal, unknown_name

ALL = "all"
OWN_VALUE = re.compile(r"([\w.]+: )?got |Unknown ")
"""How an expectation begins that shows the value itself, or the part of it that is wrong."""

COMPOUND_NAME = re.compile(r"(?<![.\w])[a-z]+(?:_[a-z]+)+")


def split_list(option: str, text: str) -> tuple[str, ...]:
    """Split the comma-separated values of an option.

    Raises:
        ValueError: If there is none, or one is empty.
    """
    values = tuple(value.strip() for value in text.split(","))
    if not all(values):
        raise ValueError(f"{option}: got {text!r}, expected one or more, separated by commas")
    return values


def split_list_or_all(option: str, text: str, everything: Iterable[str]) -> tuple[str, ...]:
    """Split the comma-separated values of an option, where "all" stands for `everything`."""
    values = split_list(option, text)
    return tuple(everything) if values == (ALL,) else values


def known_names(option: str, kind: str, text: str, known: Iterable[str]) -> tuple[str, ...]:
    """The names of a list with commas, or all of them.

    Raises:
        ValueError: A name is unknown or occurs twice, or there is none.
    """
    everything = tuple(known)
    names = split_list_or_all(option, text, everything)
    for name in names:
        if name not in everything:
            raise ValueError(f"{option}: {unknown_name(kind, name, everything)}")
    if len(set(names)) < len(names):
        raise ValueError(f"{option}: got {text!r}, expected different {kind}s")
    return names


def known_methods(option: str, text: str) -> tuple[str, ...]:
    """The methods of a list with commas, where `all` and the name of a group stand for several.

    Raises:
        ValueError: A word is unknown, a method occurs twice, or there is none.
    """
    names: list[str] = []
    for word in split_list(option, text):
        if word in METHODS:
            names.append(word)
            continue
        several = {ALL: tuple(METHODS), **METHODS.groups}
        if word not in several:
            raise ValueError(f"{option}: {unknown_name('method', word, (*METHODS, *several))}")
        names += several[word]
    if len(set(names)) < len(names):
        raise ValueError(f"{option}: got {text!r}, expected different methods")
    return tuple(names)


def as_option(field: str) -> str:
    """The command line option of a settings field."""
    if field == "problem":
        return "PROBLEM"
    if field.startswith(("controller", "other_prices")):  # they have no option but --set
        return field
    return f"--{field.replace('_', '-')}"


def with_options(message: str, fields: Collection[str]) -> str:
    """A message whose lines begin with command line options in place of settings fields."""
    lines = []
    for line in message.splitlines():
        field, colon, rest = line.partition(": ")
        lines.append(f"{as_option(field)}{colon}{rest}" if field in fields else line)
    return "\n".join(lines)


def explain(
    error: ValidationError, known_fields: Iterable[str], label: Callable[[str], str] = str
) -> str:
    """One line per wrong field: the field, its value and what was expected.

    Args:
        error: The error that pydantic raised.
        known_fields: Names of all settings; the nearest is proposed for a misspelt one.
        label: Turns a field's name into the name that the user knows, for example an option.
    """
    names = list(known_fields)
    return "\n".join(
        explain_one(details, names, label) for details in error.errors(include_url=False)
    )


def explain_one(
    details: ErrorDetails, known_fields: Collection[str], label: Callable[[str], str] = str
) -> str:
    """The line of one wrong field; see `explain`."""
    field = ".".join(str(part) for part in details["loc"])
    if details["type"] == "extra_forbidden":
        table, _, own = field.rpartition(".")
        if elsewhere := [name for name in known_fields if name.rpartition(".")[2] == own]:
            return f"Unknown setting '{field}'. It is given as '{elsewhere[0]}'."
        siblings = [name for name in known_fields if name.rpartition(".")[0] == table]
        return unknown_name("setting", field, siblings or known_fields)
    if details["type"] == "missing":
        wanted = ", expected a problem's name or its folder" if field == "problem" else ""
        return f"{label(field)}: is missing{wanted}"
    expected = COMPOUND_NAME.sub(
        lambda name: label(name[0]) if name[0] in known_fields else name[0], expectation(details)
    )
    if not field:
        return expected
    if OWN_VALUE.match(expected):
        return f"{label(field)}: {expected}"
    return refusal(label(field), details["input"], expected)

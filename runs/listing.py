"""Options that take several values, separated by commas."""

from collections.abc import Iterable

ALL = "all"


def listed(option: str, text: str) -> tuple[str, ...]:
    """Return the values in the text of an option.

    Raises:
        ValueError: If there is none.
    """
    values = tuple(value.strip() for value in text.split(",") if value.strip())
    if not values:
        raise ValueError(f"{option}: got {text!r}, expected one or more, separated by commas")
    return values


def listed_or_all(option: str, text: str, everything: Iterable[str]) -> tuple[str, ...]:
    """Return the values in the text of an option, or everything where it says "all".

    Raises:
        ValueError: If there is none.
    """
    values = listed(option, text)
    return tuple(everything) if values == (ALL,) else values

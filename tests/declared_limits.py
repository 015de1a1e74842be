"""The limits that the fields of a model declare, and those that no refusal tests."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from math import inf, isfinite, nextafter
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import AfterValidator, BeforeValidator

Limit = tuple[str, Callable[[Any], bool]]
"""A limit in words, and whether a value is just outside of it."""


def untested_limits(
    model: type, names: Iterable[str], rows: Iterable[Mapping[str, Any]]
) -> list[str]:
    """The limits of the named fields that no row passes by the smallest step, one line each.

    A number passes a range at its boundary, a name none of the choices; of a field with a validator
    of its own, any row will do. A row has values by field; what is in a mapping counts for it.
    """
    hints = get_type_hints(model, include_extras=True)
    given: dict[str, list[Any]] = {name: [] for name in names}
    for row in rows:
        for name, value in row.items():
            inner = value.values() if isinstance(value, Mapping) else ()
            given.get(name, []).extend((value, *inner))
    return [
        f"{name}: {words}"
        for name, values in given.items()
        for words, is_outside in _limits(hints[name])
        if not any(map(is_outside, values))
    ]


def _limits(hint: Any) -> Iterator[Limit]:
    if get_origin(hint) is Annotated:
        kind, *notes = get_args(hint)
        yield from _limits(kind)
        flat = [each for note in notes for each in getattr(note, "metadata", (note,))]
        # An outer annotation narrows the inner one.
        for note in {type(note): note for note in flat}.values():
            yield from _limits_of_note(note, is_whole=int in (kind, *get_args(kind)))
    elif get_origin(hint) is Literal:
        yield _choices(get_args(hint))
    elif isinstance(hint, type) and issubclass(hint, Enum):
        yield _choices([each.value for each in hint])
    elif hint is float:
        yield "finite", lambda value: isinstance(value, float) and not isfinite(value)
    elif get_origin(hint) in (Union, UnionType, Mapping):
        for part in get_args(hint):
            yield from _limits(part)


def _limits_of_note(note: object, *, is_whole: bool) -> Iterator[Limit]:
    if isinstance(note, Gt):
        yield _number(f"> {note.gt}", note.gt)
    elif isinstance(note, Lt):
        yield _number(f"< {note.lt}", note.lt)
    elif isinstance(note, Ge):
        bound: Any = note.ge
        yield _number(f">= {bound}", bound - 1 if is_whole else nextafter(bound, -inf))
    elif isinstance(note, Le):
        bound = note.le
        yield _number(f"<= {bound}", bound + 1 if is_whole else nextafter(bound, inf))
    elif isinstance(note, MinLen):
        length = note.min_length - 1
        yield f"of {length + 1} characters or more", lambda value: len(value) == length
    elif isinstance(note, AfterValidator | BeforeValidator):
        yield "what its validator takes", lambda value: True


def _number(words: str, outside: Any) -> Limit:
    return words, lambda value: not isinstance(value, bool) and bool(value == outside)


def _choices(names: Iterable[Any]) -> Limit:
    known = tuple(names)
    return f"one of {known}", lambda value: isinstance(value, str) and value not in known

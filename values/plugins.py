"""Plug-ins by name: what installed packages, this one among them, register as entry points."""

import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from inspect import signature
from types import MappingProxyType
from typing import Any, TypeVar

OURS = "costada.plugins."

Kind = TypeVar("Kind")


def plugins_of(group: str) -> Mapping[str, EntryPoint]:
    """The plug-ins of a group by name, such as `costada.models`, in alphabetical order.

    A plug-in of this package whose folder is missing is not registered. Of several with one name
    the first on the path of modules counts.
    """
    return _entry_points_of(group, tuple(sys.path))


def load_plugin(plugin: EntryPoint, kind: type[Kind]) -> Kind:
    """The object of a plug-in, which is of a kind.

    Raises:
        ValueError: It cannot be imported, itself says that it lacks something, or is of another
            kind.
    """
    found = _load(plugin)
    if not isinstance(found, kind):
        raise ValueError(f"{describe_plugin(plugin)} is {_noun(found)}, expected {_noun_of(kind)}")
    return found


def call_plugin(plugin: EntryPoint, kind: type[Kind], *arguments: object, **named: object) -> Kind:
    """What the object of a plug-in returns when it is called, which is of a kind.

    Raises:
        ValueError: The object cannot be imported or called so, or it returns another kind.
    """
    factory = _load(plugin)
    expected = f"expected a callable that returns {_noun_of(kind)}"
    if not callable(factory):
        raise ValueError(f"{describe_plugin(plugin)} is {_noun(factory)}, {expected}")
    try:
        signature(factory).bind(*arguments, **named)
    except (TypeError, ValueError) as error:
        taken = [*(_noun(each) for each in arguments), *(f"{name}=" for name in named)]
        raise ValueError(
            f"{describe_plugin(plugin)} cannot be called with ({', '.join(taken)}): {error}"
        ) from None
    found = factory(*arguments, **named)
    if not isinstance(found, kind):
        raise ValueError(f"{describe_plugin(plugin)} returned {_noun(found)}, {expected}")
    return found


def describe_plugin(plugin: EntryPoint) -> str:
    """The subject of a sentence about a plug-in: its name, its object and its package."""
    package = plugin.dist.name if plugin.dist else "an unknown package"
    return f"{plugin.name}: the plug-in {plugin.value!r} of {package}"


def _load(plugin: EntryPoint) -> Any:
    try:
        return plugin.load()
    except (ImportError, AttributeError, SyntaxError) as error:
        raise ValueError(f"{describe_plugin(plugin)} cannot be loaded: {error}") from error


def _noun(value: object) -> str:
    return "None" if value is None else _noun_of(type(value))


def _noun_of(kind: type) -> str:
    return f"{'an' if kind.__name__[0] in 'AEIOUaeiou' else 'a'} {kind.__name__}"


@lru_cache
def _entry_points_of(group: str, path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    for each in _registered(group, path):
        if each.name not in found and not (each.module.startswith(OURS) and _is_missing(each)):
            found[each.name] = each
    return MappingProxyType(dict(sorted(found.items())))


@lru_cache(maxsize=2)
def _all_entry_points(path: tuple[str, ...]) -> Any:
    """All entry points on a path of modules; kept, since finding them takes some 20 ms.

    The type that holds them has another name from Python 3.12 on.
    """
    return entry_points()


@lru_cache
def _registered(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """The entry points of a group; kept, since looking through all takes a millisecond."""
    return tuple(_all_entry_points(path).select(group=group))


def is_missing(group: str, name: str) -> bool:
    """Whether a plug-in of this package has an entry point by a name, but its folder is missing."""
    found = (each for each in _registered(group, tuple(sys.path)) if each.name == name)
    return any(each.module.startswith(OURS) and _is_missing(each) for each in found)


def _is_missing(plugin: EntryPoint) -> bool:
    """Whether the folder of a plug-in of this package is not installed; does not import it."""
    folder = plugin.module.removeprefix(OURS).split(".")[0]
    try:
        return find_spec(OURS + folder) is None
    except ModuleNotFoundError:  # there are no plug-ins at all
        return True

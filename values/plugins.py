"""Plug-ins by name: what installed packages, this one among them, register as entry points."""

import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

OURS = "costada.plugins."


def registered(group: str) -> Mapping[str, EntryPoint]:
    """The plug-ins of a group by name, such as `costada.models`, in alphabetical order.

    A plug-in of this package whose folder is missing is not registered. Of several with one name
    the first on the path of modules counts.
    """
    return _registered(group, tuple(sys.path))


def loaded(plugin: EntryPoint) -> Any:
    """The object of a plug-in.

    Raises:
        ValueError: It cannot be imported, or itself says that it lacks something.
    """
    try:
        return plugin.load()
    except (ImportError, AttributeError) as error:
        package = plugin.dist.name if plugin.dist else "an unknown package"
        raise ValueError(
            f"{plugin.name}: the plug-in {plugin.value!r} of {package} cannot be loaded: {error}"
        ) from error


@lru_cache
def _registered(group: str, path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    for each in _installed(path).select(group=group):
        if each.name not in found and not (each.module.startswith(OURS) and _is_missing(each)):
            found[each.name] = each
    return MappingProxyType(dict(sorted(found.items())))


@lru_cache(maxsize=2)
def _installed(path: tuple[str, ...]) -> Any:
    """All entry points on a path of modules; kept, since finding them takes some 20 ms.

    The type that holds them has another name from Python 3.12 on.
    """
    return entry_points()


def is_missing(group: str, name: str) -> bool:
    """Whether a plug-in of this package has an entry point by a name, but its folder is missing."""
    found = _installed(tuple(sys.path)).select(group=group, name=name)
    return any(each.module.startswith(OURS) and _is_missing(each) for each in found)


def _is_missing(plugin: EntryPoint) -> bool:
    """Whether the folder of a plug-in of this package is not installed; imports only packages."""
    try:
        return find_spec(plugin.module) is None
    except ModuleNotFoundError:
        return True

"""Loads what the sandbox itself imports from where it is told, whatever the environment holds."""

import os
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from types import ModuleType

GUARDS = ("landlockpy", "pyseccomp")
"""Packages that the sandbox itself imports: always those of the process that starts it."""


class Guards(MetaPathFinder):
    """Finds these packages in their given files; one without a file counts as not installed."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """How to load one of the packages; None for all other modules.

        Raises:
            ModuleNotFoundError: If the package has no file.
        """
        if name not in GUARDS:
            return None
        if name not in self._files:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        file = self._files[name]
        is_package = os.path.basename(file) == "__init__.py"
        inner = [os.path.dirname(file)] if is_package else None
        return spec_from_file_location(name, file, submodule_search_locations=inner)

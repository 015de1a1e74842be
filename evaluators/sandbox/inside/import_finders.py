"""Finds modules: what the sandbox itself imports, and what code in it may import of ours."""

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

from costada.values import timing

PUBLIC: dict[str, ModuleType] = {timing.__name__: timing}
"""Modules by the name under which they are public."""

PACKAGES = ("costada", "costada.values")
"""The packages around them."""


class Guards(MetaPathFinder):
    """Finds the packages that the sandbox imports where it is told, whatever the environment holds.

    One without a file counts as not installed.
    """

    def __init__(self, files: Mapping[str, str | None]) -> None:
        self._files = files

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """How to load one of the packages; None for all other modules.

        Raises:
            ModuleNotFoundError: If the package has no file.
        """
        if name not in self._files:
            return None
        file = self._files[name]
        if file is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        is_package = os.path.basename(file) == "__init__.py"
        inner = [os.path.dirname(file)] if is_package else None
        return spec_from_file_location(name, file, submodule_search_locations=inner)


class PublicModules(Loader, MetaPathFinder):
    """Finds the public modules, in packages without content where their own cannot be read."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """How to load a module; `None` for all others than the packages and what is public."""
        if name in PUBLIC:
            return ModuleSpec(name, self)
        if name not in PACKAGES:
            return None
        others = (each.find_spec(name, path) for each in sys.meta_path if each is not self)
        installed = next(filter(None, others), None)
        if installed is None:
            return ModuleSpec(name, self, is_package=True)
        try:
            open(str(installed.origin), "rb").close()
        except OSError:
            hidden = ModuleSpec(name, self, is_package=True)
            hidden.submodule_search_locations = installed.submodule_search_locations
            return hidden
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """The public module; an empty one for a package."""
        return PUBLIC.get(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to do."""


def load_file(name: str, file: str) -> ModuleType:
    """Load a module of a given name from a file."""
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name!r} at {file}", name=name)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

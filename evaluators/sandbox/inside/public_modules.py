"""What code inside of the sandbox may import of this package, whose files are hidden from it."""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from costada.evaluators.sandbox.inside import stopwatch

PACKAGE = "costada"
PUBLIC: dict[str, ModuleType] = {f"{PACKAGE}.timing": stopwatch}
"""Modules by the name under which they are public."""


class PublicModules(Loader, MetaPathFinder):
    """Finds the public modules, in a package without content where its own cannot be read."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """How to load a module; `None` for all others than the package and what is public."""
        if name in PUBLIC:
            return ModuleSpec(name, self)
        if name != PACKAGE:
            return None
        others = (each.find_spec(name, None) for each in sys.meta_path if each is not self)
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
        """The public module; an empty one for the package."""
        return PUBLIC.get(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to do."""

"""Loading a trusted file, which can import the files beside it while it loads."""

import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from importlib import invalidate_caches
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from threading import RLock
from traceback import extract_tb
from types import FunctionType, ModuleType, TracebackType

from costada.evaluators.fingerprint import is_own_module
from costada.evaluators.sandboxed import BENCHMARKS_PACKAGE

_LOADING = RLock()


def load_trusted(path: Path) -> ModuleType:
    """Run a file as a module with a name that no other file's module has.

    While it loads it can import its neighbours, which no other folder can see afterwards.
    Nothing is written beside it.

    Raises:
        ValueError: Naming file, line and error, if it cannot be loaded.
    """
    name = f"{path.stem}_{sha256(str(path).encode()).hexdigest()[:12]}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file")
    module = module_from_spec(spec)
    with _LOADING, _neighbours_importable(path.parent), _AnnotateErrors(path):
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return module


def own_imports(module: ModuleType) -> tuple[ModuleType, ...]:
    """Modules that a module and its neighbours use, in neither the folder nor a package.

    Modules are found by their own names and by those of their functions and classes.
    """
    return tuple(each for each in _modules_used(module) if is_own_module(each))


def shared_files(module: ModuleType) -> tuple[Path, ...]:
    """Files beside the benchmarks that a module and its neighbours use, such as `checks.py`."""
    used = _modules_used(module)
    return tuple(Path(str(each.__file__)) for each in used if not is_own_module(each))


def _modules_used(module: ModuleType) -> list[ModuleType]:
    """User modules outside the folder, and modules of the benchmarks, sorted by name."""
    folder = Path(str(module.__file__)).parent
    found, seen = [], {id(module)}
    pending = deque([module])
    while pending:
        for value in list(vars(pending.popleft()).values()):
            if isinstance(value, FunctionType | type):
                value = sys.modules.get(value.__module__)
            if not isinstance(value, ModuleType) or id(value) in seen:
                continue
            is_shared = value.__name__.startswith(BENCHMARKS_PACKAGE)
            if not is_shared and not is_own_module(value):
                continue
            seen.add(id(value))
            if Path(getattr(value, "__file__", None) or "/").is_relative_to(folder):
                pending.append(value)
            else:
                found.append(value)
    return sorted(found, key=lambda each: each.__name__)


class _AnnotateErrors:
    """Turns every error of the code under `with` into a `ValueError` that names the line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not isinstance(error, Exception | SystemExit):
            return
        place = str(self._path)
        if isinstance(error, SyntaxError) and error.filename:
            place = f"{error.filename}, line {error.lineno}"
        else:
            for frame in extract_tb(error.__traceback__):
                if Path(frame.filename).parent == self._path.parent:
                    place = f"{frame.filename}, line {frame.lineno}"
        raise ValueError(f"{place}: {type(error).__name__}: {error}") from error


@contextmanager
def _neighbours_importable(folder: Path) -> Iterator[None]:
    """Let the block import the modules in a folder, hiding loaded ones of the same names."""
    names = {path.stem for path in folder.glob("*.py")}
    names |= {path.parent.name for path in folder.glob("*/__init__.py")}
    hidden = _take_out(names)
    was_writing, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, str(folder))
    invalidate_caches()
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.path.remove(str(folder))
        sys.dont_write_bytecode = was_writing
        _take_out(names)
        sys.modules.update(hidden)


def _take_out(names: set[str]) -> dict[str, ModuleType]:
    """Remove the modules of these names, and below, from those loaded."""
    found = [name for name in list(sys.modules) if name.partition(".")[0] in names]
    return {name: sys.modules.pop(name) for name in found}

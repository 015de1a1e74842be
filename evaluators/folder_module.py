"""Loading a trusted file with the files beside it, and without a trace for the next one."""

import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from importlib import invalidate_caches
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import extract_tb
from types import FunctionType, ModuleType, TracebackType

from costada.evaluators.object_hash import is_own_module


def load_trusted(path: Path) -> ModuleType:
    """Return a file run as a module with a name that no other file's module has.

    While it loads it can import its neighbours, which no other folder gets to see afterwards.
    Nothing is written beside it.

    Raises:
        ValueError: Naming file, line and error, if it cannot be loaded.
    """
    name = f"{path.stem}_{sha256(str(path).encode()).hexdigest()[:12]}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file")
    module = module_from_spec(spec)
    sys.modules[name] = module
    with _neighbours_importable(path.parent), _Loading(path):
        spec.loader.exec_module(module)
    return module


def own_imports(module: ModuleType) -> tuple[ModuleType, ...]:
    """Return the modules that a module and its neighbours use, those of neither folder nor package.

    Modules are found by their own names and by those of their functions and classes.
    """
    folder = Path(str(module.__file__)).parent
    found, seen = [], {id(module)}
    pending = deque([module])
    while pending:
        for each in _used_by(pending.popleft()):
            if id(each) in seen or not is_own_module(each):
                continue
            seen.add(id(each))
            if Path(getattr(each, "__file__", None) or "/").is_relative_to(folder):
                pending.append(each)
            else:
                found.append(each)
    return tuple(sorted(found, key=lambda each: each.__name__))


def _used_by(module: ModuleType) -> Iterator[ModuleType]:
    for value in list(vars(module).values()):
        if isinstance(value, ModuleType):
            yield value
        elif isinstance(value, FunctionType | type) and value.__module__ in sys.modules:
            yield sys.modules[value.__module__]


class _Loading:
    """Turns whatever the code under `with` raises into one `ValueError` that names the line."""

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
        if isinstance(error, Exception | SystemExit):
            what = f"{type(error).__name__}: {error}"
            raise ValueError(f"{self._place(error)}: {what}") from error

    def _place(self, error: BaseException) -> str:
        if isinstance(error, SyntaxError) and error.filename:
            return f"{error.filename}, line {error.lineno}"
        frames = extract_tb(error.__traceback__)
        inside = [each for each in frames if Path(each.filename).parent == self._path.parent]
        return f"{inside[-1].filename}, line {inside[-1].lineno}" if inside else str(self._path)


@contextmanager
def _neighbours_importable(folder: Path) -> Iterator[None]:
    """Let the block import the modules in a folder, whatever of the same name is loaded."""
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
    """Return the loaded modules of these names and below, no longer loaded."""
    found = [name for name in sys.modules if name.partition(".")[0] in names]
    return {name: sys.modules.pop(name) for name in found}

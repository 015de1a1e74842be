"""Hashes of functions and values that are the same in every process, whatever its hash seed.

A function is its code with constants, defaults, closure and the globals that it refers to; an
object of one's own class is that class and its attributes; what comes with an installed package is
its name and version. What has no such hash (a lock, an iterator, a file that is opened by name)
counts as unknown.
"""

import copyreg
import dis
import functools
import os
import sys
import sysconfig
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from pickle import PickleError
from typing import Any, Protocol, runtime_checkable

from costada.evaluators.folder_files import content_hash

PACKAGE = "costada"

MAX_OBJECTS = 20_000
MAX_DEPTH = 50
MAX_BYTES = 64 * 2**20
"""Most objects, levels of nested tuples and bytes that are looked at; the rest is unknown."""

OUTSIDE = frozenset(
    (
        *("environ", "getenv", "urlopen", "getcwd", "cwd", "home", "expanduser"),
        *("Popen", "run", "call", "check_call", "check_output", "system", "popen"),
    )
)
"""Names by which code gets at the environment, the network, other programs or other folders."""

READING = frozenset(
    (
        *("open", "read_text", "read_bytes", "load", "loadtxt", "genfromtxt", "fromfile", "memmap"),
        *("read_csv", "read_json", "read_parquet", "read_excel", "imread", "connect"),
        *("glob", "rglob", "iterdir", "listdir", "scandir"),
        *("exec", "eval", "__import__", "import_module", "run_path", "run_module"),
        *("globals", "modules"),
        *OUTSIDE,
    )
)
"""Names by which code reads what its own text does not show. A wrong guess costs an evaluation."""

GLOBAL_NAMES = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
CODE_FACTS = (
    *("co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_flags", "co_code"),
    *("co_names", "co_varnames", "co_freevars", "co_cellvars", "co_exceptiontable", "co_consts"),
)
"""What decides how code behaves; file and lines do not."""

NOT_DECIDING = frozenset(
    (
        *("__dict__", "__weakref__", "__doc__", "__module__", "__slots__", "_abc_impl"),
        *("__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__"),
        *("__static_attributes__", "__firstlineno__"),
    )
)
"""Attributes of a class that do not decide how it behaves."""

PLAIN: dict[type, Callable[[Any], object]] = {
    each: each for each in (tuple, list, dict, set, frozenset, str, bytes, int, float, complex)
}
STATELESS = (object, *PLAIN)
FAULTS = (TypeError, AttributeError, ValueError, RuntimeError, OSError, PickleError)
"""What an object may raise when it is asked to take itself apart."""


@runtime_checkable
class Decided(Protocol):
    """An object that says what its behaviour depends on."""

    def decided_by(self) -> tuple[object, ...]:
        """Return values that are equal only for objects that behave alike."""
        ...


@dataclass(frozen=True, slots=True)
class Unknown:
    """Stands for what has no hash; `what` says it in words."""

    what: str


class ObjectHash:
    """The hash of one object and of all that it refers to.

    Objects are numbered as they are found and hashed one after the other, so that they may refer
    to each other in circles.

    Attributes:
        unknown: What has no hash, in words; empty if the hash tells everything.
        value: The hash.
    """

    def __init__(self, root: object, depth: int = 0) -> None:
        """Hash an object; `depth` counts the tuples and sets around it."""
        self.unknown: list[str] = []
        self._depth = depth
        self._numbers: dict[int, int] = {}
        self._found: deque[object] = deque()
        self._kept: list[object] = []
        self._num_bytes = 0
        whole = sha256(self.of(root))
        while self._found:
            each = self._found.popleft()
            whole.update(_joined(_name(type(each)), *self._parts(each)))
        self.value = whole.digest()

    def of(self, value: object) -> bytes:
        """Return the hash of a plain value, or the number of any other object."""
        kind = type(value)
        if kind in _ATOMS:
            return self._atom(value)
        if kind in _INLINE or isinstance(value, Enum):
            return self._inline(value)
        if id(value) not in self._numbers:
            if len(self._numbers) >= MAX_OBJECTS:
                return self._give_up("more objects than are looked at")
            self._numbers[id(value)] = len(self._numbers)
            self._found.append(value)
            self._kept.append(value)
        return _joined("object", str(self._numbers[id(value)]).encode())

    def _atom(self, value: object) -> bytes:
        if isinstance(value, bytes | bytearray):
            text = bytes(value)
        else:
            exact = value.hex() if isinstance(value, float) else repr(value)
            text = exact.encode("utf-8", "surrogatepass")
        self._num_bytes += len(text)
        if self._num_bytes > MAX_BYTES:
            return self._give_up("more bytes than are looked at")
        return _joined(type(value).__name__, text)

    def _inline(self, value: object) -> bytes:
        if self._depth >= MAX_DEPTH:
            return self._give_up("values nested deeper than is looked at")
        self._depth += 1
        hashed = _joined(_name(type(value)), *self._parts(value))
        self._depth -= 1
        return hashed

    def _give_up(self, what: str) -> bytes:
        self.unknown.append(what)
        return _joined("unknown")

    def _parts(self, value: Any) -> Iterable[bytes]:
        take_apart = _INLINE.get(type(value)) or _OBJECTS.get(type(value))
        if take_apart is not None:
            return take_apart(self, value)
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, Unknown):
            return [self._give_up(value.what)]
        if isinstance(value, Decided):
            return self._values(value.decided_by())
        if isinstance(value, Enum):
            return [self.of(type(value)), self.of(value.name)]
        if isinstance(value, Path):
            return self._path(value)
        if isinstance(value, Iterator):
            return [self._give_up(f"where a {_name(type(value))} stands")]
        return self._instance(value) if _is_own(type(value)) else self._reduced(value)

    def _values(self, values: Iterable[object]) -> list[bytes]:
        return [self.of(each) for each in values]

    def _unordered(self, values: Iterable[object]) -> list[bytes]:
        """Return the hashes of the members of a set, each by itself, in an order of their own."""
        hashed = [ObjectHash(each, self._depth) for each in values]
        self.unknown += [what for each in hashed for what in each.unknown]
        return sorted(each.value for each in hashed)

    def _mapping(self, values: Mapping[object, object]) -> list[bytes]:
        return [self.of(each) for pair in list(values.items()) for each in pair]

    def _named(self, values: Mapping[str, object]) -> list[bytes]:
        """Return the hashes of attributes, whose order does not matter."""
        return [_joined(name, self.of(values[name])) for name in sorted(values)]

    def _code(self, code: types.CodeType) -> list[bytes]:
        if reading := READING.intersection(code.co_names):
            self._give_up(f"what {code.co_name} gets by {', '.join(sorted(reading))}")
        return [self.of(getattr(code, name)) for name in CODE_FACTS]

    def _function(self, function: types.FunctionType) -> list[bytes]:
        if not _is_own(function):
            return [_installed(function)]
        known = function.__globals__
        used, imported = _outside(function.__code__)
        referred = {name: known[name] for name in used if name in known and name[:2] != "__"}
        package = str(known.get("__package__") or "")
        carried = (function.__code__, function.__defaults__, function.__kwdefaults__)
        return [
            *self._values(carried),
            *self._values(function.__closure__ or ()),
            *self._named(vars(function)),
            *self._named(referred),
            *(self._imported(_absolute(name, level, package)) for name, level in imported),
        ]

    def _imported(self, name: str) -> bytes:
        """Return the hash of a module that a function imports when it runs."""
        if name in sys.modules:
            return self.of(sys.modules[name])
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names:
            return _joined("installed", name.encode(), _version(top).encode())
        spec = PathFinder.find_spec(top)
        if spec is None:
            return _joined("absent", name.encode())
        if spec.origin and _is_installed(spec.origin):
            return _joined("installed", name.encode(), _version(top).encode())
        return self._give_up(f"module {name}, which is not loaded yet")

    def _cell(self, cell: types.CellType) -> list[bytes]:
        try:
            return [self.of(cell.cell_contents)]
        except ValueError:
            return []

    def _method(self, method: types.MethodType) -> list[bytes]:
        return self._values((method.__func__, method.__self__))

    def _builtin(self, function: types.BuiltinFunctionType) -> list[bytes]:
        owner = function.__self__
        is_bound = owner is not None and not isinstance(owner, types.ModuleType)
        return [_installed(function), *self._values([owner] if is_bound else [])]

    def _cached(self, function: Any) -> list[bytes]:
        """Return the hash of what a cache of the standard library keeps the results of."""
        return [self.of(function.func if hasattr(function, "func") else function.__wrapped__)]

    def _property(self, found: property) -> list[bytes]:
        return self._values((found.fget, found.fset, found.fdel))

    def _union(self, union: types.UnionType) -> list[bytes]:
        return self._values(union.__args__)

    def _module(self, module: types.ModuleType) -> list[bytes]:
        if not is_own_module(module):
            return [_installed(module)]
        return self._named({k: v for k, v in vars(module).items() if k[:2] != "__"})

    def _class(self, kind: type) -> list[bytes]:
        if not _is_own(kind):
            return [_installed(kind)]
        slots = (types.MemberDescriptorType, types.GetSetDescriptorType)
        members = {
            name: member
            for name, member in vars(kind).items()
            if name not in NOT_DECIDING and not isinstance(member, slots)
        }
        return [*self._values((kind.__qualname__, kind.__bases__)), *self._named(members)]

    def _instance(self, value: Any) -> list[bytes]:
        """Return the hashes of class, attributes and content of an object of one's own class."""
        attributes = dict(getattr(value, "__dict__", {}))
        for kind in type(value).__mro__:
            for name, member in vars(kind).items():
                if isinstance(member, types.MemberDescriptorType) and hasattr(value, name):
                    attributes[name] = getattr(value, name)
        content = [take(value) for kind, take in PLAIN.items() if isinstance(value, kind)]
        hashed = [self.of(type(value)), *self._named(attributes), *self._values(content)]
        is_foreign = any(not _is_own(kind) and _has_state(kind) for kind in type(value).__mro__)
        return [*hashed, *self._reduced(value)] if is_foreign else hashed

    def _reduced(self, value: object) -> list[bytes]:
        """Return the hashes of what an object of an installed class takes itself apart into."""
        try:
            registered = copyreg.dispatch_table.get(type(value))
            reduced = registered(value) if registered else value.__reduce_ex__(4)
            if isinstance(reduced, str):
                return [_installed(type(value)), _joined(reduced)]
            parts = [tuple(part) if isinstance(part, Iterator) else part for part in reduced]
        except FAULTS:
            return [self._give_up(f"a {_name(type(value))}")]
        return self._values(parts)

    def _path(self, path: Path) -> list[bytes]:
        """Return the hash of what lies at a path; where it lies does not matter then."""
        if not path.exists():
            return [_joined("absent", os.fsencode(path))]
        content = content_hash(path)
        return [self._give_up(f"the content of {path}") if content is None else content]


_ATOMS = {
    *(type(None), bool, int, float, complex, str, bytes, bytearray, range, slice),
    *(type(...), type(NotImplemented)),
}

Parts = Callable[[ObjectHash, Any], Iterable[bytes]]

_INLINE: dict[type, Parts] = {
    tuple: ObjectHash._values,
    set: ObjectHash._unordered,
    frozenset: ObjectHash._unordered,
    types.MappingProxyType: ObjectHash._mapping,
    types.UnionType: ObjectHash._union,
    types.CodeType: ObjectHash._code,
    types.CellType: ObjectHash._cell,
    types.MethodType: ObjectHash._method,
    types.BuiltinFunctionType: ObjectHash._builtin,
    property: ObjectHash._property,
    staticmethod: ObjectHash._cached,
    classmethod: ObjectHash._cached,
    functools.cached_property: ObjectHash._cached,
    functools._lru_cache_wrapper: ObjectHash._cached,
}
"""Types whose values have no identity that matters, or cannot refer to themselves."""

_OBJECTS: dict[type, Parts] = {
    list: ObjectHash._values,
    dict: ObjectHash._mapping,
    types.FunctionType: ObjectHash._function,
    types.ModuleType: ObjectHash._module,
}


def _joined(kind: str, *parts: bytes) -> bytes:
    whole = sha256()
    for part in (kind.encode("utf-8", "surrogatepass"), *parts):
        whole.update(len(part).to_bytes(8, "big") + part)
    return whole.digest()


def _name(kind: type) -> str:
    """Return the name of a type; of one's own without its module, whose name may vary."""
    return kind.__qualname__ if _is_own(kind) else f"{kind.__module__}.{kind.__qualname__}"


def _installed(thing: Any) -> bytes:
    """Return the hash of what an installed package defines: its name and the package's version."""
    name = getattr(thing, "__qualname__", None) or thing.__name__
    module = name if isinstance(thing, types.ModuleType) else str(thing.__module__)
    return _joined("installed", module.encode(), name.encode(), _version(module).encode())


def _is_own(thing: Any) -> bool:
    """Return whether a function or class comes with no installed package."""
    module = sys.modules.get(thing.__module__ or "")
    return module is None or is_own_module(module)


def is_own_module(module: types.ModuleType) -> bool:
    """Return whether a module comes with no installed package, nor with Python."""
    top = module.__name__.partition(".")[0]
    if top == PACKAGE or top in sys.stdlib_module_names:
        return False
    file = getattr(module, "__file__", None)
    return file is None or not _is_installed(file)


@functools.cache
def _is_installed(file: str) -> bool:
    parts = Path(file).parts
    if "site-packages" in parts or "dist-packages" in parts:
        return True
    return any(
        Path(file).is_relative_to(sysconfig.get_path(key)) for key in ("stdlib", "platstdlib")
    )


def _has_state(kind: type) -> bool:
    """Return whether objects of an installed class may hold more than attributes."""
    return kind not in STATELESS and kind.__module__ not in ("abc", "typing", "typing_extensions")


@functools.cache
def _version(module: str) -> str:
    """Return the version of the package that a module belongs to.

    Of the standard library it is Python's, of this package the hash of all that judges programs.
    """
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return f"{sys.version_info.major}.{sys.version_info.minor}"
    if top == PACKAGE:
        root = Path(__file__).parents[1]
        return "".join(
            (content_hash(root / room) or b"").hex() for room in ("evaluators", "values")
        )
    try:
        return metadata.version(top)
    except metadata.PackageNotFoundError:
        return str(vars(sys.modules[top]).get("__version__", "")) if top in sys.modules else ""


def _absolute(name: str, level: int, package: str) -> str:
    """Return the full name of a module that is imported relative to a package."""
    if not level:
        return name
    parents = package.split(".")
    return ".".join([*parents[: len(parents) - level + 1], *([name] if name else [])])


@functools.lru_cache(maxsize=1024)
def _outside(code: types.CodeType) -> tuple[frozenset[str], tuple[tuple[str, int], ...]]:
    """Return the globals that code refers to, and the modules it imports with their levels."""
    names: set[str] = set()
    imported: list[tuple[str, int]] = []
    steps = list(dis.get_instructions(code))
    for number, step in enumerate(steps):
        if step.opname in GLOBAL_NAMES:
            names.add(step.argval)
        elif step.opname == "IMPORT_NAME":
            imported.append((step.argval, steps[number - 2].argval))
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            more_names, more_imported = _outside(inner)
            names |= more_names
            imported += more_imported
    return frozenset(names), tuple(imported)

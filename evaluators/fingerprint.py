"""What the evaluations of a problem depend on: as a hash that is the same in every process.

A function is its code with constants, defaults, closure and the globals that it refers to; an
object of a user's class is that class and its attributes; what an installed package defines is its
name and version. What has no such hash (a lock, an iterator, a file opened by name) counts as
unknown.
"""

from __future__ import annotations

import copyreg
import dis
import functools
import os
import sys
import sysconfig
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from enum import Enum
from hashlib import sha256
from importlib import metadata
from importlib.machinery import PathFinder
from importlib.util import resolve_name
from itertools import chain
from operator import methodcaller
from pathlib import Path
from pickle import PickleError
from typing import Any
from uuid import uuid4

from costada.evaluators.folder_files import READING, content_hash
from costada.evaluators.granted_models import model_descriptions
from costada.evaluators.problem_fields import ProblemFields
from costada.evaluators.sandbox.interpreter import interpreter_at
from costada.evaluators.sandbox.launch import compat_files

PACKAGE = "costada"
IN_PART = "~"
"""Follows the hash of what is known of an evaluator; after it comes what no other problem has."""

DATA_SET = ("score_example", "examples", "validation", "racing_error", "batch")
"""Fields that decide nothing without examples."""

EVALUATOR = (
    *("evaluate", "score", "arguments", "calls", "holdout", "evaluator_source"),
    *DATA_SET,
)
FOR_MODELS = (
    *("task", "initial_program", "editable", "reserved", "timing_metrics"),
    *("focus", "prompt_tokens", "shown"),
)
"""Fields that decide what a model sees or starts from, not how programs are evaluated."""

MODELS = ("models", "candidate_models")
"""Fields whose values may be objects that have no hash."""

FOR_REPORTS = ("human", "seed_objective", "seed_evaluation", "source", "notes", "fingerprint")
FOR_SPEED = ("evaluations_at_once", "turns", "cpus", "gpus", "backend")
NOT_DECIDING = (*FOR_REPORTS, *FOR_SPEED, "allow_invalid_start")
"""Fields that no evaluation depends on; the last one decides whether a run may begin."""

DECIDING_SCORE = (
    *("evaluator", "entry_point", "build", "run", "direction", "reference"),
    *("repeats", "aggregate", "objectives", "weights", "models", "candidate_models"),
)
"""Facts of a problem of which each change may give a program another score."""

MAX_OBJECTS = 20_000
MAX_DEPTH = 50
MAX_BYTES = 64 * 2**20
"""Most objects, levels of nested tuples and bytes that are hashed; the rest is unknown."""

CODE_FACTS = (
    *("co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_flags", "co_code"),
    *("co_names", "co_varnames", "co_freevars", "co_cellvars", "co_exceptiontable", "co_consts"),
)
"""What decides how code behaves; file and lines do not."""

GLOBAL_NAMES = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
INERT_MEMBERS = {
    *("__dict__", "__weakref__", "__doc__", "__module__", "__slots__", "_abc_impl"),
    *("__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__"),
    *("__static_attributes__", "__firstlineno__"),
}
"""Attributes of a class that do not decide how it behaves."""

SLOTS = (types.MemberDescriptorType, types.GetSetDescriptorType)
BUILTINS: tuple[Any, ...] = (tuple, list, dict, set, frozenset, str, bytes, int, float, complex)
"""Types whose content an object of a user's class may have."""

FAULTS = (TypeError, AttributeError, ValueError, RuntimeError, OSError, PickleError)
"""What an object may raise when it is reduced to its parts."""


def fingerprint(problem: ProblemFields) -> str:
    """A string that two problems share only if they evaluate every program alike.

    It covers the evaluator (its code with all that it carries and refers to, every file of its
    folder), what candidates are called with, their limits, what confines them, and every other
    field that an evaluation may depend on. An evaluator that can be hashed only in part
    shares its fingerprint with no other problem, in no other process either.
    """
    hashed = _hashed(problem, without=(*NOT_DECIDING, *FOR_MODELS))
    known = hashed.value.hex()
    return f"{known}{IN_PART}{uuid4().hex}" if hashed.unknown else known


def known_part(fingerprint: str) -> str:
    """The part of a fingerprint that is the same in every process."""
    return fingerprint.partition(IN_PART)[0]


def problem_facts(problem: ProblemFields) -> dict[str, object]:
    """What a problem contributes to the result of a run, in plain values by name.

    The evaluator is represented by its hash; if it can be hashed only in part, by that part.
    """
    names = [field.name for field in fields(problem)]
    plain = {n: getattr(problem, n) for n in names if n not in (*NOT_DECIDING, *EVALUATOR)}
    plain |= {name: model_descriptions(plain[name]) for name in MODELS}
    if problem.interpreter is not None:
        plain["interpreter"] = interpreter_at(problem.interpreter).packages
    hashed = _hashed(problem, without=[name for name in names if name not in EVALUATOR])
    return {**plain, "limits": asdict(problem.limits), "evaluator": hashed.value.hex()[:16]}


def _hashed(problem: ProblemFields, without: Iterable[str]) -> ObjectHash:
    """Hash of the other fields of a problem; of `evaluate` only if it is not made from `score`."""
    left_out = {*without, *(("evaluate",) if problem.scorer is not None else ())}
    left_out |= {*(() if problem.examples else DATA_SET)}
    names = [field.name for field in fields(problem) if field.name not in left_out]
    known = {name: getattr(problem, name) for name in names}
    known |= {name: model_descriptions(known[name]) for name in MODELS if name in known}
    if problem.interpreter is not None and "interpreter" in known:
        python = interpreter_at(problem.interpreter)
        known["interpreter"] = (python.version, python.packages)
    return ObjectHash({**known, "python": sys.version_info[:2]})


@dataclass(frozen=True, slots=True)
class Unknown:
    """Stands for what has no hash; `what` says it in words."""

    what: str


class ObjectHash:
    """The hash of one object and of all that it refers to.

    Objects are numbered as they are found and hashed one after the other, so that they may refer
    to each other in circles.

    Attributes:
        unknown: What has no hash, in words; empty if the hash covers everything.
        value: The hash.
    """

    def __init__(self, root: object, depth: int = 0) -> None:
        """Hash an object; `depth` counts the tuples and sets around it."""
        self.unknown: list[str] = []
        self._depth = depth
        self._numbers: dict[int, tuple[int, object]] = {}
        self._found: deque[object] = deque()
        self._num_bytes = 0
        whole = sha256(self._of(root))
        while self._found:
            whole.update(self._hash_of_parts(self._found.popleft()))
        self.value = whole.digest()

    def _of(self, value: Any) -> bytes:
        """Hash of a value without identity, or the number of any other object."""
        kind = type(value)
        if kind in ATOMS:
            is_text = kind not in (bytes, bytearray)
            text = repr(value).encode("utf-8", "surrogatepass") if is_text else value
            self._num_bytes += len(text)
            if self._num_bytes > MAX_BYTES:
                return self._of(Unknown("more bytes than are hashed"))
            return _joined(kind.__name__, text)
        if kind in INLINE or isinstance(value, Enum | Unknown):
            if self._depth >= MAX_DEPTH:
                value = Unknown("values nested deeper than is hashed")
            self._depth += 1
            hashed = self._hash_of_parts(value)
            self._depth -= 1
            return hashed
        if id(value) not in self._numbers:
            if len(self._numbers) >= MAX_OBJECTS:
                return self._of(Unknown("more objects than are hashed"))
            self._numbers[id(value)] = (len(self._numbers), value)
            self._found.append(value)
        return _joined("object", str(self._numbers[id(value)][0]).encode())

    def _hash_of_parts(self, value: Any) -> bytes:
        if isinstance(value, Unknown):
            self.unknown.append(value.what)
            return _joined("unknown")
        if type(value) in (set, frozenset):
            # a copy, as other threads may change it
            members = [ObjectHash(each, self._depth) for each in tuple(value)]
            self.unknown += [what for each in members for what in each.unknown]
            return _joined(type(value).__name__, *sorted(each.value for each in members))
        try:
            parts = list(_parts(value))
        except FAULTS:
            parts = [Unknown(f"a {_name(type(value))}")]
        return _joined(_name(type(value)), *map(self._of, parts))


def _parts(value: Any) -> Iterable[object]:
    """What an object consists of, as far as it decides how the object behaves."""
    if type(value) in PARTS:
        return PARTS[type(value)](value)
    if isinstance(value, type):
        return _class_parts(value)
    if hasattr(value, "decided_by"):
        return tuple(value.decided_by())
    if isinstance(value, Enum):
        return type(value), value.name
    if isinstance(value, Path):
        if not value.exists():
            return "absent", os.fsencode(value)
        return [content_hash(value) or Unknown(f"the content of {value}")]
    if isinstance(value, Iterator):
        return [Unknown(f"the position of a {_name(type(value))}")]
    return _instance_parts(value) if _is_own(type(value)) else _reduced(value)


def _code_parts(code: types.CodeType) -> Iterator[object]:
    if reading := READING.intersection(code.co_names):
        yield Unknown(f"what {code.co_name} gets by {', '.join(sorted(reading))}")
    for name in CODE_FACTS:
        yield getattr(code, name)


def _function_parts(function: types.FunctionType) -> Iterable[object]:
    if not _is_own(function):
        return _installed(function)
    known = function.__globals__
    used, imported = _globals_and_imports(function.__code__)
    referred = {name: known[name] for name in used if name in known and name[:2] != "__"}
    carried = (function.__code__, function.__defaults__, function.__kwdefaults__)
    modules = [_imported(name, str(known.get("__package__") or "")) for name in imported]
    return *carried, function.__closure__, *_sorted(vars(function)), *_sorted(referred), *modules


@functools.lru_cache(maxsize=1024)
def _globals_and_imports(code: types.CodeType) -> tuple[frozenset[str], tuple[str, ...]]:
    """The globals that code refers to, and the modules it imports, with dots if relative."""
    names: set[str] = set()
    imported: list[str] = []
    steps = list(dis.get_instructions(code))
    for number, step in enumerate(steps):
        if step.opname in GLOBAL_NAMES:
            names.add(step.argval)
        elif step.opname == "IMPORT_NAME":
            imported.append("." * steps[number - 2].argval + step.argval)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            more_names, more_imported = _globals_and_imports(inner)
            names |= more_names
            imported += more_imported
    return frozenset(names), tuple(imported)


def _imported(name: str, package: str) -> object:
    """A module that a function imports when it runs, or what is known of it before."""
    try:
        name = resolve_name(name, package)
    except ImportError:
        return Unknown(f"module {name}, which is in no package")
    if name in sys.modules:
        return sys.modules[name]
    spec = PathFinder.find_spec(name.partition(".")[0])
    if spec is None:
        return "absent", name
    if spec.origin and _is_installed(spec.origin):
        return "installed", name, _version(name)
    return Unknown(f"module {name}, which is not loaded yet")


def _builtin_parts(function: types.BuiltinFunctionType) -> Iterable[object]:
    owner = function.__self__
    return *_installed(function), None if isinstance(owner, types.ModuleType) else owner


def _module_parts(module: types.ModuleType) -> Iterable[object]:
    if not is_own_module(module):
        return _installed(module)
    return _sorted({name: value for name, value in vars(module).items() if name[:2] != "__"})


def _class_parts(kind: type) -> Iterable[object]:
    if not _is_own(kind):
        return _installed(kind)
    members = {
        name: member
        for name, member in vars(kind).items()
        if name not in INERT_MEMBERS and not isinstance(member, SLOTS)
    }
    return kind.__qualname__, kind.__bases__, *_sorted(members)


def _instance_parts(value: Any) -> Iterator[object]:
    """Class, attributes and content of an object of a user's class."""
    bases = type(value).__mro__
    own = [vars(base) for base in bases if _is_own(base)]
    slots = [name for members in own for name, m in members.items() if isinstance(m, SLOTS[0])]
    attributes = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    yield type(value)
    yield from _sorted({**getattr(value, "__dict__", {}), **attributes})
    yield from (kind(value) for kind in BUILTINS if isinstance(value, kind))
    neutral = ("abc", "typing", "typing_extensions")
    foreign = [base for base in bases if not _is_own(base) and base.__module__ not in neutral]
    if not {*foreign} <= {object, *BUILTINS}:
        yield from _reduced(value)


def _reduced(value: object) -> Iterable[object]:
    """What an object of an installed class is reduced to by pickle."""
    reduce = copyreg.dispatch_table.get(type(value)) or methodcaller("__reduce_ex__", 4)
    if isinstance(value, BaseException):
        # Dask registers a function that adds where the exception was raised. Attributes exist once
        # somebody looks at them, and the reduction has them from then on, also if there are none.
        vars(value)
        reduce = methodcaller("__reduce_ex__", 4)
    reduced = reduce(value)
    if isinstance(reduced, str):
        return *_installed(type(value)), reduced
    return [tuple(part) if isinstance(part, Iterator) else part for part in reduced]


ATOMS = {
    *(type(None), bool, int, float, complex, str, bytes, bytearray, range, slice),
    *(type(...), type(NotImplemented)),
}
OBJECTS: dict[type, Callable[[Any], Iterable[object]]] = {
    list: tuple,
    dict: lambda found: chain.from_iterable(list(found.items())),
    types.FunctionType: _function_parts,
    types.ModuleType: _module_parts,
}
PARTS: dict[type, Callable[[Any], Iterable[object]]] = {
    **OBJECTS,
    tuple: tuple,
    types.MappingProxyType: lambda found: chain.from_iterable(list(found.items())),
    types.UnionType: lambda union: union.__args__,
    types.CodeType: _code_parts,
    types.CellType: lambda cell: [] if cell == types.CellType() else [cell.cell_contents],
    types.MethodType: lambda method: (method.__func__, method.__self__),
    types.BuiltinFunctionType: _builtin_parts,
    property: lambda found: (found.fget, found.fset, found.fdel),
    staticmethod: lambda method: [method.__wrapped__],
    classmethod: lambda method: [method.__wrapped__],
    functools.cached_property: lambda cached: [cached.func],
    functools._lru_cache_wrapper: lambda cached: [cached.__wrapped__],
}
INLINE = {set, frozenset, *PARTS} - OBJECTS.keys()
"""Types whose values have no identity that matters, or cannot refer to themselves."""


def _sorted(values: dict[str, object]) -> list[tuple[str, object]]:
    """Attributes, whose order does not matter."""
    return sorted(values.items(), key=lambda item: item[0])


def _joined(kind: str, *parts: bytes) -> bytes:
    whole = sha256()
    for part in (kind.encode("utf-8", "surrogatepass"), *parts):
        whole.update(len(part).to_bytes(8, "big") + part)
    return whole.digest()


def _name(kind: type) -> str:
    """Name of a type; of a user's own without its module, whose name may vary."""
    return kind.__qualname__ if _is_own(kind) else f"{kind.__module__}.{kind.__qualname__}"


def _installed(thing: Any) -> tuple[str, str, str, str]:
    """What an installed package defines: its name and the package's version."""
    name = getattr(thing, "__qualname__", None) or thing.__name__
    module = name if isinstance(thing, types.ModuleType) else str(thing.__module__)
    return "installed", module, name, _version(module)


def _is_own(thing: Any) -> bool:
    """Whether a function or class comes with no installed package."""
    module = sys.modules.get(thing.__module__ or "")
    return module is None or is_own_module(module)


def is_own_module(module: types.ModuleType) -> bool:
    """Whether a module comes with no installed package, nor with Python."""
    top = module.__name__.partition(".")[0]
    if top == PACKAGE or top in sys.stdlib_module_names:
        return False
    file = getattr(module, "__file__", None)
    return file is None or not _is_installed(file)


@functools.cache
def _is_installed(file: str) -> bool:
    if {"site-packages", "dist-packages"} & {*Path(file).parts}:
        return True
    return any(
        Path(file).is_relative_to(sysconfig.get_path(key)) for key in ("stdlib", "platstdlib")
    )


@functools.cache
def evaluation_code() -> str:
    """Hash of all code of this package that evaluates programs, and of what evaluators import."""
    rooms = (Path(__file__).parents[1] / room for room in ("evaluators", "values"))
    places = (*rooms, *map(Path, compat_files().values()))
    return "".join((content_hash(each) or b"").hex() for each in places)


@functools.cache
def _version(module: str) -> str:
    """Version of the package that a module belongs to.

    Of the standard library it is Python's, of this package the hash of all that evaluates programs.
    """
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return f"{sys.version_info.major}.{sys.version_info.minor}"
    if top == PACKAGE:
        return evaluation_code()
    try:
        return metadata.version(top)
    except metadata.PackageNotFoundError:
        return str(vars(sys.modules[top]).get("__version__", "")) if top in sys.modules else ""

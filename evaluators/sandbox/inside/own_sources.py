"""The code of an evaluator that this process runs: which expressions a name stands for.

Names are followed by their text alone, through assignments, loops, arguments and returned values.
"""

import ast
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice, pairwise, product
from types import FrameType, ModuleType
from typing import NamedTuple

from costada.evaluators.sandbox.inside.evaluator_scripts import text_of
from costada.evaluators.sandbox.inside.own_files import OwnFiles

SUFFIX = ".py"
CONSTRUCTOR = "__init__"
STARTING = frozenset(
    ("run", "Popen", "call", "check_call", "check_output", "getoutput", "getstatusoutput")
) | {"communicate", "popen", "system", "create_subprocess_exec", "create_subprocess_shell"}
"""Functions that start a command, and return what it prints."""

LISTING = frozenset(("listdir", "scandir", "iterdir", "walk"))
"""Functions that name all files of a folder."""

SEARCHING = frozenset(("glob", "rglob", "iglob"))
JOINING = frozenset(("join", "joinpath", "Path", "PurePath"))
END_OF_NAME = frozenset(" \t\n'\",;:|&<>()")
PARTS = (ast.expr, ast.comprehension, ast.keyword)
ADDING = frozenset(("append", "extend", "insert", "add", "update"))
"""Methods by which a container gets what they are given."""

Scope = tuple[str, ...]
"""A file, and the names of the classes and functions around an expression."""

Value = tuple[Scope, ast.AST]
"""An expression, and where its names are looked up."""

PlacedCall = tuple[Scope, ast.Call]


class Part(NamedTuple):
    """A part of what a command is given, where its names are looked up, and if a path goes on."""

    scope: Scope
    node: ast.AST
    is_beginning: bool = False

    def inner(self) -> "list[Part]":
        """The parts of which it consists; of what a command has printed, there are none."""
        beginnings: list[ast.AST] = []
        inner = [*ast.iter_child_nodes(self.node)]
        match self.node:
            case ast.Call(func=function) if called_name(function) in STARTING:
                inner = [function]
            case ast.Call(func=function, args=given):
                name = called_name(function)
                beginnings = [*given[:-1]] if name in JOINING else []
                beginnings += given if name in LISTING else []
                is_of_folder = name in JOINING | LISTING | SEARCHING
                beginnings += [function] if is_of_folder else []
            case ast.BinOp(left=left, op=ast.Add() | ast.Div(), right=right):
                beginnings = [] if _ends_name(right) else [left]
            case ast.JoinedStr(values=given):
                beginnings = [one for one, next_one in pairwise(given) if not _ends_name(next_one)]
        return [
            Part(self.scope, each, self.is_beginning or each in beginnings)
            for each in inner
            if isinstance(each, PARTS)
        ]


class OwnSources:
    """What the modules of an evaluator that are loaded say."""

    def __init__(self, files: OwnFiles) -> None:
        """Take the evaluator's files."""
        self._files = files
        self._trees: dict[str, ast.Module] = {}
        self._values: dict[tuple[Scope, str], list[Value]] = defaultdict(list)
        self._functions: dict[Scope, ast.arguments] = {}
        self._calls: list[PlacedCall] = []

    def _read(self) -> None:
        """Read the modules that were loaded meanwhile."""
        for module in [*sys.modules.values()]:
            file = module.__dict__.get("__file__") if isinstance(module, ModuleType) else None
            path = os.path.normpath(file) if isinstance(file, str) else ""
            if path.endswith(SUFFIX) and path not in self._trees and path in self._files:
                try:
                    self._trees[path] = ast.parse(text_of(path) or "")
                except (SyntaxError, ValueError, RecursionError):
                    self._trees[path] = ast.Module([], [])
                self._collect(self._trees[path], path)

    def values(
        self, scope: Scope, name: str, callers: Mapping[Scope, list[PlacedCall]]
    ) -> list[Value]:
        """The expressions that a name stands for, or an attribute, whose name begins with a dot.

        `callers` are the calls of those functions that are being carried out; what others are given
        can come from any call that names them.
        """
        if name.startswith("."):
            places = [((), name), *(((path,), name[1:]) for path in self._trees)]
            return [value for key in places for value in self._values.get(key, ())]
        for depth in range(len(scope), 0, -1):
            place = scope[:depth]
            if (place, name) in self._values:
                given = self._given(place, name, callers) if place in self._functions else []
                return [*self._values[place, name], *given]
        return [each for path in self._trees for each in self._values.get(((path,), name), ())]

    def _given(
        self, place: Scope, name: str, callers: Mapping[Scope, list[PlacedCall]]
    ) -> list[Value]:
        """What a parameter of a function is given."""
        parameters = self._functions[place]
        named = [each.arg for each in (*parameters.posonlyargs, *parameters.args)]
        others = (parameters.vararg, parameters.kwarg, *parameters.kwonlyargs)
        if name not in named and name not in [each.arg for each in others if each]:
            return []
        called = place[-2] if place[-1] == CONSTRUCTOR else place[-1]
        found: list[Value] = []
        for scope, call in callers.get(place) or self._naming(called):
            options = {option.arg: option.value for option in call.keywords}
            number = named.index(name) - (named[:1] == ["self"]) if name in named else 0
            is_clear = called_name(call.func) == called and name in named and None not in options
            if name in options:
                found.append((scope, options[name]))
            elif is_clear and not any(isinstance(each, ast.Starred) for each in call.args):
                found += [(scope, each) for each in call.args[number : number + 1]]
            else:
                found += [(scope, each) for each in arguments(call)]
        return found

    def _naming(self, function: str) -> list[PlacedCall]:
        """The calls of a function or class of this name, or that are given it."""
        return [
            (scope, call)
            for scope, call in self._calls
            if function in map(called_name, (call.func, *arguments(call)))
        ]

    def carried_out(
        self, frame: FrameType | None
    ) -> tuple[list[Value], dict[Scope, list[PlacedCall]]]:
        """What the call is given that a frame, or one around it, carries out in the code.

        And the calls around that one, by the function that each carries out.
        """
        self._read()
        given: list[Value] = []
        callers: dict[Scope, list[PlacedCall]] = {}
        inner: Scope = ()
        while frame is not None:
            # A comprehension has a frame in that of its function.
            if (scope := self._scope_of(frame)) and scope != inner:
                calls = self._calls_of(frame)
                if inner:
                    callers.setdefault(inner, calls)
                else:
                    given = [(place, each) for place, call in calls for each in arguments(call)]
                inner = scope
            frame = frame.f_back
        return given, callers

    def _scope_of(self, frame: FrameType) -> Scope:
        """Where the code of a frame is; nothing if it is not the evaluator's."""
        path = os.path.normpath(frame.f_code.co_filename)
        names = (each for each in frame.f_code.co_qualname.split(".") if each[0] != "<")
        return (path, *names) if path in self._trees else ()

    def _calls_of(self, frame: FrameType) -> list[PlacedCall]:
        """The call that a frame carries out; where that cannot be told, all in the same line."""
        path = os.path.normpath(frame.f_code.co_filename)
        place = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
        calls = [each for each in self._calls if each[0][0] == path]
        exact = [each for each in calls if _place_of(each[1]) == place]
        line = frame.f_lineno
        return exact or [
            each for each in calls if each[1].lineno <= line <= (each[1].end_lineno or line)
        ]

    def _collect(self, tree: ast.Module, file: str) -> None:
        """Note what names stand for in a module, and its calls."""
        waiting: list[tuple[ast.AST, Scope]] = [(tree, (file,))]
        while waiting:
            node, scope = waiting.pop()
            inner = scope
            match node:
                case ast.Call():
                    self._calls.append((scope, node))
                case ast.Return(value=ast.expr() as value) | ast.Yield(value=ast.expr() as value):
                    # The name of a function stands for what it returns.
                    self._values[scope[:-1], scope[-1]].append((scope, value))
                    self._values[(), f".{scope[-1]}"].append((scope, value))
                case ast.ClassDef(name=name):
                    inner = (*scope, name)
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    inner = (*scope, name)
                    self._functions[inner] = node.args
                    for parameter, default in _defaults(node.args):
                        self._values[inner, parameter.arg].append((scope, default))
                case ast.arg(arg=name):
                    self._values[scope, name] += []
            for name, bound in _bindings(node):
                self._values[() if name.startswith(".") else scope, name].append((scope, bound))
            waiting += [(child, inner) for child in ast.iter_child_nodes(node)]


class Reached:
    """What a command is made of: the arguments of the call that starts it, and all behind these."""

    def __init__(self, sources: OwnSources, frame: FrameType | None) -> None:
        """Take the frame in which the command is started; it is read while that lives."""
        self._sources, self._frame = sources, frame

    @cached_property
    def _carried_out(self) -> tuple[list[Value], dict[Scope, list[PlacedCall]]]:
        return self._sources.carried_out(self._frame)

    def values(self, scope: Scope, name: str) -> list[Value]:
        """The expressions that a name stands for there."""
        return self._sources.values(scope, name, self._carried_out[1])

    def parts(self) -> Iterator[Part]:
        """The arguments, all that they consist of, and what the names in them stand for."""
        waiting = [Part(*given) for given in self._carried_out[0]]
        seen: set[tuple[Scope, str, bool]] = set()
        while waiting:
            part = waiting.pop()
            yield part
            waiting += part.inner()
            match part.node:
                case ast.Name(id=name):
                    key = name
                case ast.Attribute(attr=name):
                    key = f".{name}"
                case _:
                    continue
            if (part.scope, key, part.is_beginning) not in seen:
                seen.add((part.scope, key, part.is_beginning))
                values = self.values(part.scope, key)
                waiting += [Part(*value, part.is_beginning) for value in values]


def called_name(node: ast.expr) -> str:
    """The last name of an expression such as `subprocess.run`; empty if it is another one."""
    return getattr(node, "attr", getattr(node, "id", ""))


def arguments(call: ast.Call) -> list[ast.expr]:
    """What a call is given, with or without a name."""
    return [*call.args, *(option.value for option in call.keywords)]


def _defaults(given: ast.arguments) -> Iterator[tuple[ast.arg, ast.expr]]:
    """The parameters of a function that have a value by default."""
    named = [*given.posonlyargs, *given.args]
    yield from zip(reversed(named), reversed(given.defaults), strict=False)
    for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        if default is not None:
            yield each, default


def _ends_name(node: ast.expr) -> bool:
    """Whether what is in front of a text is no part of a name that goes on in it."""
    text = node.value if isinstance(node, ast.Constant) else None
    return isinstance(text, str) and text[:1] in END_OF_NAME


def _place_of(node: ast.Call) -> tuple[int | None, ...]:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


def _bindings(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The names to which a statement or an expression gives a value."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _bound(target, value)
        case (
            ast.AnnAssign(target=target, value=ast.expr() as value)
            | ast.AugAssign(target=target, value=value)
            | ast.NamedExpr(target=target, value=value)
            | ast.For(target=target, iter=value)
            | ast.AsyncFor(target=target, iter=value)
            | ast.comprehension(target=target, iter=value)
            | ast.withitem(optional_vars=ast.expr() as target, context_expr=value)
        ):
            yield from _bound(target, value)
        case ast.Call(func=function, keywords=options):
            if isinstance(function, ast.Attribute) and function.attr in ADDING:
                for value in arguments(node):
                    yield from _bound(function.value, value)
            for option in options:  # of a data class
                yield f".{option.arg}", option.value
            for given in arguments(node):
                if isinstance(given, ast.Lambda):  # called with the other arguments, or their parts
                    for parameter, value in product(given.args.args, arguments(node)):
                        yield parameter.arg, value


def _bound(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    match target:
        case ast.Name(id=name):
            yield name, value
        case ast.Attribute(attr=name):
            yield f".{name}", value
        case ast.Subscript(value=inner) | ast.Starred(value=inner):
            yield from _bound(inner, value)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            for each in parts:
                yield from _bound(each, value)

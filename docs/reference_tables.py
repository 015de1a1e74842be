"""Rewrite what reference pages and `runs/keywords.py` take from the code.

A file holds each such part between `<!-- generated: NAME -->` and `<!-- end of NAME -->`. `--check`
only names stale files.
"""

import ast
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from enum import Enum
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import to_json
from typer.testing import CliRunner

import costada
from costada.cli.main import app
from costada.controller.constants import Constants
from costada.evaluators.folder_settings import KEYS, FolderSettings
from costada.nodes.settings import Settings
from costada.nodes.trace_row import (
    EVENTS,
    DerivedColumns,
    ModelRow,
    TraceRow,
    columns_of,
    is_nullable,
    kind_of,
)
from costada.reports.export import COLUMNS, GROUPS, STEP_GROUPS
from costada.reports.trace import TABLE_COLUMNS
from costada.runs.config import (
    FOLDER_SETTINGS,
    GRAPH_SETTINGS,
    SETTINGS,
    RunConfig,
    constant_names,
    setting_of,
)
from costada.values.setting import Setting
from costada.values.usage import Price

ROOT = Path(__file__).parents[1]
KEYWORDS = ROOT / "runs" / "keywords.py"
PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(\n *#? *<!-- end of \2 -->)", re.DOTALL)
MAX_SHOWN_LIMIT = 10**9
"""Limits from here on only say that the number fits into the file."""


def commands() -> str:
    """The commands with their arguments and options, as `--help` shows them."""
    group = typer.main.get_command(app)
    return "\n\n".join(
        "\n\n".join(_command(name, group.get_command(None, name)))
        for name in group.list_commands(None)
    )


def _command(name: str, command: typer.core.TyperCommand) -> Iterator[str]:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    yield f"## costada {name}"
    yield _plain(command.help)
    places = [f"{each.metavar}..." if each.nargs == -1 else each.metavar for each in arguments]
    usage = " ".join([name, *(["[OPTIONS]"] if options else []), *places])
    yield f"```sh\ncostada {usage}\n```"
    if arguments:
        yield _table(("Argument", "Meaning"), ((each.metavar, each.help) for each in arguments))
    panels: dict[str, list[typer.core.TyperOption]] = {}
    for option in options:
        panels.setdefault(option.rich_help_panel or "Options", []).append(option)
    for panel, shown in panels.items():
        yield f"**{panel}**"
        yield _table(("Option", "Meaning", "Default"), map(_option, shown))
    if command.epilog:
        yield _plain(command.epilog)


def _option(option: typer.core.TyperOption) -> tuple[str, str, str]:
    value = "" if option.is_flag else f" {option.metavar}"
    names = ", ".join(f"`{name}{value}`" for name in (*option.opts, *option.secondary_opts))
    default = option.show_default if isinstance(option.show_default, str) else ""
    return names, option.help, "required" if option.required else default


def settings() -> str:
    """The settings of a run with meaning, values and default."""
    return _fields(RunConfig, "Setting", SETTINGS)


def graph_settings() -> str:
    """The settings that only a graph has."""
    return _fields(Settings, "Setting", GRAPH_SETTINGS)


def search_keywords() -> str:
    """The settings of any search, with their types for Python callers."""
    own = {*FOLDER_SETTINGS, *inspect.signature(costada.discover).parameters}
    return _typed(name for name in SETTINGS if name not in own)


def discover_keywords() -> str:
    """The further settings of `discover`."""
    return _typed(FOLDER_SETTINGS)


def graph_keywords() -> str:
    """The further settings of a graph or tool."""
    return _typed(GRAPH_SETTINGS)


def _typed(names: Iterable[str]) -> str:
    fields = {**Settings.model_fields, **RunConfig.model_fields}
    types = {name: setting_of(fields[name]).given for name in names}
    return "\n".join(
        f"    {name}: {given or _source(fields[name].annotation)}" for name, given in types.items()
    )


def _source(kind: Any) -> str:
    """A type in source text, as wide as what its field reads."""
    parts = get_args(kind)
    match get_origin(kind):
        case None if kind is NoneType:
            return "None"
        case None if kind is Price:
            return "Price | Mapping[str, Any] | str"
        case None:
            return "str" if issubclass(kind, Enum) else kind.__name__
        case origin if origin is Annotated:
            return _source(parts[0])
        case origin if origin is Literal:
            return f"Literal[{', '.join(map(json.dumps, parts))}]"
        case origin if origin in (Union, UnionType):
            return " | ".join(map(_source, parts))
        case origin:
            return f"{origin.__name__}[{', '.join(map(_source, parts))}]"


def constants() -> str:
    """The constants of the controller."""
    return _fields(Constants, "Constant", constant_names())


def problem_keys() -> str:
    """The keys of `problem.toml` with meaning, values and default."""
    return _fields(FolderSettings, "Key", KEYS)


def _fields(model: type[BaseModel], kind: str, names: Iterable[str]) -> str:
    schema, rows, header = model.model_json_schema(), [], [kind, "Meaning", "Values", "Default"]
    inherited = _attribute_docstrings(model)
    for name in names:
        field, known = model.model_fields[name], schema["properties"][name]
        meaning = field.description or inherited.get(name, "")
        row = [f"`{name}`", meaning, _values(known, schema), _default(field)]
        effects = [f"`{each.effect}`" for each in field.metadata if isinstance(each, Setting)]
        header[4:] = ["Takes effect in"] * len(effects)
        rows.append([*row, *effects])
    return _table(header, rows)


def _attribute_docstrings(kind: type) -> dict[str, str]:
    """The docstrings of the fields that a class has from dataclasses."""
    found = {}
    for base in filter(is_dataclass, kind.__mro__):
        body = ast.parse(inspect.getsource(base)).body[0].body
        for declared, text in pairwise(body):
            match declared, text:
                case ast.AnnAssign(), ast.Expr(ast.Constant(str(words))):
                    found[declared.target.id] = inspect.cleandoc(words)
    return found


def _values(known: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    if "$ref" in known:
        return _values(schema["$defs"][known["$ref"].split("/")[-1]], schema)
    if "anyOf" in known:
        return _values(known["anyOf"][0], schema)
    if "enum" in known:
        return ", ".join(f"`{value}`" for value in known["enum"])
    words = {"boolean": "`true`, `false`", "array": "list", "object": "table"}
    kind = known.get("type", "string")
    bounds = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most"}
    limits = [
        f"{word} {known[key]:,.10g}"
        for key, word in bounds.items()
        if known.get(key, MAX_SHOWN_LIMIT) < MAX_SHOWN_LIMIT
    ]
    return ", ".join([words.get(kind, kind), *limits])


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    return (
        "" if default in (None, "", (), {}) else f"`{to_json(default).decode()}`".replace('"', "")
    )


def benchmarks() -> str:
    """The benchmarks with their objectives, as `costada list` knows them."""
    listed = CliRunner().invoke(app, ["list", "--json"]).stdout
    columns = ("name", "direction", "seed", "reference", "human")
    return _table(columns, ([known[key] for key in columns] for known in json.loads(listed)))


def examples() -> str:
    """The text of each example."""
    files = sorted((ROOT / "examples").glob("*.py"))
    return "\n\n".join(f"## {path.name}\n\n```py\n{path.read_text()}```" for path in files)


def export_columns() -> str:
    """The columns of the tables that `costada export` writes."""
    words = {int: "integer", float: "number", str: "string", bool: "true or false"}
    groups = {"steps": STEP_GROUPS, "candidates": ("metrics",)}
    parts = []
    for table, columns in COLUMNS.items():
        rows = [(f"`{each.name}`", words[each.kind], each.meaning) for each in columns]
        rows += [(f"`{name}.NAME`", "number", GROUPS[name]) for name in groups.get(table, ())]
        parts += [f"## {table}", _table(("Column", "Values", "Meaning"), rows)]
    return "\n\n".join(parts)


def trace_table() -> str:
    """The columns that `costada trace` prints."""
    rows = ((f"`{each.symbol}`", each.text) for each in TABLE_COLUMNS.values())
    return _table(("Column", "Meaning"), rows)


def trace_keys() -> str:
    """The keys of a step as JSON."""
    return _columns(TraceRow, "Key")


def router_keys() -> str:
    """The keys of a model of a menu as JSON."""
    return _columns(ModelRow, "Key")


def derived_columns() -> str:
    """The columns that readers of a step add."""
    return _columns(DerivedColumns, "Column")


def _columns(row: type, kind: str) -> str:
    words = {int: "integer", float: "number", str: "string", bool: "true or false"}
    rows = []
    for name, each in columns_of(row).items():
        own = kind_of(row, name)
        values = words.get(own) or ("list" if get_origin(own) is list else "table")
        if is_nullable(row, name):
            values = f"{values} or `null`"
        rows.append((f"`{name}`", values, each.unit, each.text, f"`{each.source}`"))
    return _table((kind, "Values", "Unit", "Meaning", "Computed by"), rows)


def events() -> str:
    """The events of a step."""
    rows = ((f"`{name}`", each.text, f"`{each.source}`") for name, each in EVENTS.items())
    return _table(("Event", "Meaning", "Decided by"), rows)


def public_names() -> str:
    """What `costada` exports, with the first line of each docstring."""
    names = sorted(costada.__all__, key=str.lower)
    rows = ((f"`{name}`", _docstring(name).splitlines()[0]) for name in names)
    return _table(("Name", "Meaning"), rows)


def _docstring(name: str) -> str:
    """The docstring of a public name; that of an alias is the string below it."""
    exported = getattr(costada, name)
    home = import_module(costada._HOMES[name])
    if exported.__module__.startswith("costada"):
        return inspect.getdoc(exported) or ""
    lines = ast.parse(inspect.getsource(home)).body
    return next(
        str(ast.literal_eval(text.value))
        for line, text in pairwise(lines)
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == name
        if isinstance(text, ast.Expr)
    )


def _table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    lines = [[*header], ["---" for _ in header], *([_cell(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return _plain(text).replace("|", " or ").replace("\n", " ")


def _plain(text: str) -> str:
    return re.sub(r"\[/?b\]", "`", text).strip()


PARTS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "settings": settings,
    "graph_settings": graph_settings,
    "search_keywords": search_keywords,
    "discover_keywords": discover_keywords,
    "graph_keywords": graph_keywords,
    "constants": constants,
    "problem_keys": problem_keys,
    "benchmarks": benchmarks,
    "examples": examples,
    "export_columns": export_columns,
    "public_names": public_names,
    "trace_table": trace_table,
    "trace_keys": trace_keys,
    "router_keys": router_keys,
    "derived_columns": derived_columns,
    "events": events,
}


def generated_files() -> list[Path]:
    """The files that may hold generated parts."""
    return [*sorted((ROOT / "docs").rglob("*.md")), KEYWORDS]


def stale_files() -> dict[Path, str]:
    """Files whose generated parts differ from the code, with what they should hold."""
    files = {path: path.read_text() for path in generated_files()}
    current = {
        path: PART.sub(lambda part: f"{part[1]}\n{PARTS[part[2]]()}\n{part[3]}", text)
        for path, text in files.items()
    }
    return {path: text for path, text in current.items() if text != files[path]}


if __name__ == "__main__":
    stale = stale_files()
    if "--check" in sys.argv:
        names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
        sys.exit(f"stale: {names}; expected what `make reference` writes" if stale else 0)
    for path, text in stale.items():
        path.write_text(text)

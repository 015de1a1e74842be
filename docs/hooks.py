"""What the site generates from the code when it is built: commands, settings, methods, examples."""

import json
import logging
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import to_json
from typer.testing import CliRunner

from costada.cli.main import app
from costada.evaluators.folder_settings import FolderSettings
from costada.reports.export.tables import COLUMNS, GROUPS
from costada.runs.config import RunConfig

ROOT = Path(__file__).parents[1]
MARKER = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)
NAMED_BLOCK = re.compile(r"^```(\w+) (\S+)$", re.MULTILINE)
SOURCE_NOTE = re.compile(r"^`make docs` fills in .+\n\n", re.MULTILINE)
"""What the source of a page says where the site has the generated text."""

SHORT_CODE = re.compile(r"<code>([^<\n]{1,28})</code>")
REMOTE_ASSET = re.compile(
    r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"?(?:https?:)?//[^>]*>"
)
LINKS = TemporaryDirectory()
LARGE = 10**9
"""Limits from here on only say that the number fits into the file."""

LOG = logging.getLogger("mkdocs.hooks.costada")


@event_priority(100)
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Show mkdocstrings the packages by their import path.

    The repository root is the package `costada`. Following a link to the root would read the
    environment, too, so each package is linked for itself.
    """
    package = Path(LINKS.name, "costada")
    package.mkdir(exist_ok=True)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    rooms = {name.split(".")[1] for name in settings["packages"] if "." in name}
    for name in ("__init__.py", "py.typed", *rooms):
        if not (package / name).exists():
            (package / name).symlink_to(ROOT / name)
    config.plugins["mkdocstrings"].config.handlers["python"]["paths"] = [LINKS.name]
    return config


def on_page_markdown(markdown: str, **_: object) -> str:
    """Fill in what is generated, and show the file names of code blocks."""
    filled = MARKER.sub(lambda found: GENERATED[found[1]](), SOURCE_NOTE.sub("", markdown))
    return NAMED_BLOCK.sub(r'```\1 title="\2"', filled)


def on_page_content(html: str, **_: object) -> str:
    """Mark short code in a line of text, which the style sheet keeps on one line."""
    return SHORT_CODE.sub(r'<code class="short">\1</code>', html)


def on_post_page(output: str, page: object, **_: object) -> str:
    """Warn about what a page would fetch from another host; a strict build then fails."""
    for asset in REMOTE_ASSET.findall(output):
        LOG.warning("%s fetches %s", page, asset)
    return output


def on_shutdown() -> None:
    """Remove the links."""
    LINKS.cleanup()


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
    usage = " ".join([name, "[OPTIONS]" if options else "", *(each.metavar for each in arguments)])
    yield f"```text\ncostada {usage}\n```"
    if arguments:
        yield _table(("Argument", "Meaning"), ((each.metavar, each.help) for each in arguments))
    panels: dict[str, list[typer.core.TyperOption]] = {}
    for option in options:
        panels.setdefault(option.rich_help_panel or "Options", []).append(option)
    for panel, shown in panels.items():
        yield f"**{panel}**"
        yield _table(("Option", "Meaning", "Default"), map(_option, shown))
    yield _plain(command.epilog)


def _option(option: typer.core.TyperOption) -> tuple[str, str, str]:
    value = "" if option.is_flag else f" {option.metavar or 'VALUE'}"
    names = ", ".join(f"`{name}{value}`" for name in (*option.opts, *option.secondary_opts))
    default = option.show_default if isinstance(option.show_default, str) else ""
    return names, option.help, "required" if option.required else default


def settings() -> str:
    """The settings of a run with meaning, values and default."""
    return _fields(RunConfig, "Setting")


def problem_keys() -> str:
    """The keys of `problem.toml` with meaning, values and default."""
    return _fields(FolderSettings, "Key")


def _fields(model: type[BaseModel], kind: str) -> str:
    schema = model.model_json_schema()
    rows = (
        (f"`{name}`", field.description or "", _values(known, schema), _default(field))
        for (name, field), known in zip(
            model.model_fields.items(), schema["properties"].values(), strict=True
        )
    )
    return _table((kind, "Meaning", "Values", "Default"), rows)


def _values(known: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    if "$ref" in known:
        return _values(schema["$defs"][known["$ref"].split("/")[-1]], schema)
    if "anyOf" in known:
        return _values(known["anyOf"][0], schema)
    if "enum" in known:
        return ", ".join(f"`{value}`" for value in known["enum"])
    words = {
        "integer": "whole number",
        "number": "number",
        "boolean": "`true`, `false`",
        "array": "list",
        "object": "table",
    }
    bounds = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most"}
    limits = [
        f"{word} {known[key]:,.10g}"
        for key, word in bounds.items()
        if known.get(key, 10**9) < 10**9
    ]
    return ", ".join([words.get(known.get("type", ""), "text"), *limits])


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
    return "\n\n".join(f"## {path.name}\n\n```python\n{path.read_text()}```" for path in files)


def _table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    lines = [[*header], ["---" for _ in header], *([_cell(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return _plain(text).replace("|", " or ").replace("\n", " ")


def _plain(text: str) -> str:
    return re.sub(r"\[/?b\]", "`", text).strip()


def export_columns() -> str:
    """The columns of the tables that `costada export` writes."""
    words = {int: "whole number", float: "number", str: "text", bool: "true or false"}
    groups = {"steps": ("objectives", "dollars"), "calls": (), "candidates": ("metrics",)}
    parts = []
    for table, columns in COLUMNS.items():
        rows = [(f"`{each.name}`", words[each.kind], each.meaning) for each in columns]
        rows += [(f"`{name}.NAME`", "number", GROUPS[name]) for name in groups[table]]
        parts += [f"## {table}", _table(("Column", "Values", "Meaning"), rows)]
    return "\n\n".join(parts)


GENERATED: dict[str, Callable[[], str]] = {
    "commands": commands,
    "settings": settings,
    "problem_keys": problem_keys,
    "benchmarks": benchmarks,
    "examples": examples,
    "export_columns": export_columns,
}

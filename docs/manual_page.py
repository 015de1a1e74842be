"""Rewrite `share/man/man1/costada.1`, which the wheel installs, so that `man costada` works.

One page for all commands: the wheel would be larger with a page for each.
"""

import re
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import typer

from costada.cli.main import app

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "share" / "man" / "man1" / "costada.1"
EXIT_CODES = "Exit codes: "
"""How the end of a help text begins."""

MAX_REPEATED = 8
"""Options of `costada run` above which another command refers to those of `run`."""

Item = tuple[str, str, str]
"""A term and what it means, in three lines of roff."""


def page() -> str:
    """The manual page."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    group: Any = typer.main.get_command(app)
    lines = [
        f'.TH COSTADA 1 "" "costada {version}" "CostAda manual"',
        ".nh",  # no hyphens in options and file names
        ".ad l",
        ".SH NAME",
        f"costada \\- {_text(group.help.removesuffix('.'))}",
        ".SH SYNOPSIS",
        f"{_bold('costada')} {_usage(group)}",
        ".SH OPTIONS",
        *_options(group, ()),
    ]
    commands = {name: group.get_command(None, name) for name in group.list_commands(None)}
    of_run = {_option(each) for each in _options_of(commands["run"])}
    heading = ""
    for name, command in commands.items():
        if command.rich_help_panel != heading:
            heading = command.rich_help_panel
            lines.append(f".SH COMMANDS: {_text(heading.upper())}")
        lines += [f".SS costada {_text(name)}", *_command(name, command, of_run)]
    lines += [".SH SEE ALSO", _text("costada COMMAND --help, costada --help-all")]
    return "\n".join(lines) + "\n"


def _command(name: str, command: Any, of_run: Collection[Item]) -> Iterator[str]:
    yield f"{_bold(f'costada {name}')} {_usage(command)}"
    for paragraph in command.help.split("\n\n"):
        yield ".PP"
        yield _text(paragraph)
    for each in command.params:
        if each.param_type_name == "argument":
            yield from _item(f"\\fI{_text(each.metavar)}\\fR", each.help)
    yield from _options(command, () if name == "run" else of_run)
    yield ".PP"
    yield f"{_bold(EXIT_CODES.strip())} {_text(command.epilog.removeprefix(EXIT_CODES))}"


def _options(command: Any, of_run: Collection[Item]) -> Iterator[str]:
    """The options by their groups, but for many that are those of `costada run`."""
    options = _options_of(command)
    repeated = [each for each in options if _option(each) in of_run]
    if len(repeated) <= MAX_REPEATED:
        repeated = []
    panels: dict[str, list[Item]] = {"": []}
    for each in options:
        if each not in repeated:
            panels.setdefault(each.rich_help_panel or "", []).append(_option(each))
    for panel, items in panels.items():
        if panel:
            yield ".PP"
            yield _text(f"{panel}:")
        for item in items:
            yield from item
    if repeated:
        yield ".PP"
        yield f"As for costada run: {', '.join(map(_names, repeated))}."


def _options_of(command: Any) -> list[Any]:
    return [each for each in command.params if each.param_type_name == "option"]


def _option(option: Any) -> Item:
    value = "" if option.is_flag else f" \\fI{_text(option.metavar)}\\fR"
    return _item(_names(option) + value, f"{option.help}{_default(option)}")


def _names(option: Any) -> str:
    return ", ".join(map(_bold, (*option.opts, *option.secondary_opts)))


def _default(option: Any) -> str:
    if option.required:
        return " [required]"
    shown = option.show_default if isinstance(option.show_default, str) else option.default
    if not option.show_default or shown is None or isinstance(shown, bool):
        return ""
    return f" [default: {shown}]"


def _usage(command: Any) -> str:
    return _text(" ".join(command.collect_usage_pieces(typer.Context(command))))


def _item(term: str, text: str) -> Item:
    return ".TP", term, _text(text)


def _bold(text: str) -> str:
    return f"\\fB{_text(text)}\\fR"


def _text(text: str) -> str:
    """A string in one line of roff: no markup of rich, and nothing that roff would read."""
    plain = " ".join(re.sub(r"\[/?b\]", "", text).split())
    escaped = plain.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page())

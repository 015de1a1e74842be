"""Arguments that several commands share; a help text needs no more than this."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costada.store.address import is_database
from costada.values.redaction import has_password
from costada.values.setting import OUTPUT

if TYPE_CHECKING:
    from costada.runs.folder import RunFolder
else:  # Typer evaluates annotations, and what reads a run loads the whole method
    RunFolder = object

MAX_PORT = 65_535


def named_path(text: str) -> Path:
    """Read a path; refuses an empty one, as of an unset variable, and one that is not UTF-8."""
    if not str(text):
        raise typer.BadParameter("got '', expected a path")
    try:
        str(text).encode()
    except UnicodeEncodeError:
        raise typer.BadParameter(f"got {str(text)!r}, expected a path in UTF-8") from None
    if is_database(str(text)) or has_password(str(text)):
        raise typer.BadParameter("got the address of a database, expected a path")
    return Path(text)


def named_place(text: str) -> str:
    """Read a path or the address of a Postgres database; raises as `named_path` does."""
    return text if is_database(text) else str(named_path(text))


def option(
    text: str,
    *names: str,
    metavar: str | None = None,
    show_default: bool | str = False,
    panel: str | None = None,
    parser: Callable[[str], object] | None = None,
    envvar: str | None = None,
) -> Any:
    """An option with its help; `names` replace the name of the parameter."""
    return typer.Option(
        *names,
        parser=parser,
        envvar=envvar,
        metavar=metavar,
        help=text,
        show_default=show_default,
        rich_help_panel=panel,
    )


def path_option(
    text: str,
    *names: str,
    metavar: str = "DIR",
    show_default: bool | str = True,
    panel: str | None = None,
) -> Any:
    """An option with a path."""
    return option(
        text,
        *names,
        metavar=metavar,
        show_default=show_default,
        panel=panel,
        parser=named_path,
    )


def store_option(text: str) -> Any:
    """The option `--store` of a command that starts runs."""
    shown = "files in the folder"
    return option(text, "--store", metavar="DSN", show_default=shown, panel=OUTPUT)


Folder = Annotated[
    Path, typer.Argument(parser=named_path, metavar="DIR", help="The folder of a run.")
]


def named_run(text: str) -> RunFolder:
    """Read where a run is kept."""
    from costada.runs.stored_run import run_at

    try:
        return run_at(text if is_database(text) else named_path(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


Run = Annotated[
    RunFolder,
    typer.Argument(
        parser=named_run,
        metavar="RUN",
        help="The folder of a run, or its address postgresql://USER@HOST/DATABASE#NAME.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JsonResult = Annotated[
    bool,
    typer.Option("--json", help="Print the result as one JSON object.", rich_help_panel=OUTPUT),
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", help="Print nothing but the result.", rich_help_panel=OUTPUT),
]
Jobs = Annotated[
    int | None,
    typer.Option(min=1, help="Maximum number of parallel runs.", show_default="number of cores"),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Load a problem that came with the run folder, keep a weak sandbox it asks for, and"
        " run the command of its generator.",
    ),
]

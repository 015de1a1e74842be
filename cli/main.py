"""The commands. Each is loaded when it is called: its libraries take longer than a help text."""

import gc
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from costada.values.plugins import load_plugin, plugins_of
from costada.values.python_syntax import docstring
from costada.values.redaction import without_passwords


def _epilog(
    finished: str,
    *,
    failed: str = "",
    refused: str = "refused",
    unpaid: str = "",
    stopped: str = "",
) -> str:
    meanings = {0: finished, 1: failed, 2: refused, 3: unpaid, 130: stopped}
    lines = [f"{code} {meaning}" for code, meaning in meanings.items() if meaning]
    return f"Exit codes: {'; '.join(lines)}."


SPENDING = {
    "failed": "the run failed; finished iterations are saved",
    "refused": "refused before any money was spent",
    "stopped": "interrupted and saved",
}
RUNS = _epilog("done", **SPENDING, unpaid="too little is left in the purse")
SWEEPS = _epilog("done", **SPENDING)
CALCULATIONS = _epilog("done", failed="failed", stopped="stopped")
EVALUATION = _epilog(
    "done, also if the program failed",
    failed="the evaluator or the sandbox failed",
    stopped="stopped",
)
WATCHING = _epilog("stopped with Ctrl-C")
OTHERS = _epilog("done", stopped="stopped")


@dataclass(frozen=True, slots=True)
class PluginCommand:
    """A command of a plug-in, registered under its name as an entry point of `costada.commands`.

    Attributes:
        function: The command; its parameters and docstring are read by Typer.
        exit_codes: The end of its help text.
    """

    function: Callable[..., None]
    exit_codes: str


UsageError: Any = typer.BadParameter.__base__
"""Typer has no public name for it."""


COMMANDS: Mapping[str, tuple[str, str]] = {
    "run": ("run:run", RUNS),
    "resume": ("run:resume", RUNS),
    "fork": ("steer_command:fork", OTHERS),
    "steer": ("steer_command:steer", OTHERS),
    "submit": ("steer_command:submit", OTHERS),
    "forecast": ("forecast:forecast", CALCULATIONS),
    "sweep": ("sweep_command:sweep", SWEEPS),
    "compare": ("sweep_command:compare", OTHERS),
    "experiment": ("experiment_command:experiment", OTHERS),
    "trace": ("show_runs:trace", OTHERS),
    "diff": ("show_runs:diff", OTHERS),
    "report": ("show_runs:report", OTHERS),
    "export": ("show_runs:export", OTHERS),
    "watch": ("show_runs:watch", WATCHING),
    "runs": ("show_runs:runs", OTHERS),
    "evaluate": ("problems:evaluate", EVALUATION),
    "init": ("init:init", OTHERS),
    "check": ("problems:check", OTHERS),
    "graph": ("show_runs:graph", OTHERS),
    "mcp": ("mcp_command:mcp", OTHERS),
    "list": ("problems:list_problems", OTHERS),
}
"""Where the function of each command is, in this room, and the end of its help text."""

ENTRY_POINTS = "costada.commands"
"""Group of entry points; each is a `PluginCommand`."""


REFUSED = 2
"""The exit code of a command line that is refused."""


class Command(TyperCommand):
    """A command that refuses values it cannot read in one line, as it refuses all others."""

    def get_params(self, ctx: Any) -> Any:
        """The parameters, see `_without_types`."""
        return _without_types(super().get_params(ctx))

    def make_context(self, info_name: Any, args: list[str], *rest: Any, **settings: Any) -> Any:
        """Read the arguments; a wrong value is named with its option and what was expected."""
        try:
            context = super().make_context(
                # Extra words are refused below; Typer's own message would print a password.
                info_name,
                args,
                *rest,
                allow_extra_args=True,
                **settings,
            )
        except typer.BadParameter as error:
            if type(error) is not typer.BadParameter or error.param is None:  # one is missing
                raise
            from costada.cli.command_errors import say

            say(_refusal(error.param, error))
            raise typer.Exit(REFUSED) from None
        if context.args and not context.resilient_parsing:
            from costada.cli.command_errors import say

            words = " ".join(context.args)
            say(f"{info_name}: got {words!r} after its arguments, expected nothing more")
            raise typer.Exit(REFUSED)
        return context


def _without_types(parameters: Any) -> Any:
    """Parameters whose help leaves out the Python types of arguments and switches."""
    for each in parameters:
        if each.param_type_name == "argument" or each.is_flag:
            each.display_type_rich = lambda ctx: None
    return parameters


def _refusal(parameter: Any, error: typer.BadParameter) -> str:
    from pydantic import ValidationError

    from costada.runs.user_input import explain

    options = (name for name in parameter.opts if name.startswith("--"))
    name = next(options, parameter.metavar or parameter.name)
    if not isinstance(cause := error.__cause__, ValidationError):
        return f"{name}: {error.message}"
    expected = explain(cause, ())
    if cause.errors()[0]["type"] == "value_error":  # it names the value, or keeps a password
        return f"{name}: {expected}"
    return f"{name}: got {cause.errors()[0]['input']!r}, {expected}"


class Commands(TyperGroup):
    """The group of all commands, which hold no more than their help until they are called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        names = (*COMMANDS, *(name for name in plugins_of(ENTRY_POINTS) if name not in COMMANDS))
        self.commands = {name: TyperCommand(name) for name in names}

    def get_params(self, ctx: Any) -> Any:
        """The parameters, see `_without_types`."""
        return _without_types(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load a command, except to list it; `None` if there is none of that name.

        Raises:
            ValueError: It is that of a plug-in, as `loaded` does.
        """
        if cmd_name not in self.commands or self.commands[cmd_name].help:
            return super().get_command(ctx, cmd_name)
        if cmd_name in COMMANDS:
            place, epilog = COMMANDS[cmd_name]
            module, _, function = place.partition(":")
            found = getattr(import_module(f"costada.cli.{module}"), function)
        else:
            plugin = load_plugin(plugins_of(ENTRY_POINTS)[cmd_name], PluginCommand)
            found, epilog = plugin.function, plugin.exit_codes
        # Typer keeps the line ends of a docstring, which are not those of the terminal.
        text = "\n\n".join(" ".join(part.split()) for part in docstring(found).split("\n\n"))
        alone = typer.Typer(add_completion=False)
        alone.command(cmd_name, cls=Command, help=text, epilog=epilog)(found)
        return typer.main.get_command(alone)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command of the arguments; one that is not known is named without a password."""
        try:
            return super().resolve_command(ctx, args)
        except UsageError as error:
            error.message = without_passwords(error.message)
            raise
        except ValueError as error:
            from costada.cli.command_errors import say

            say(str(error))
            raise typer.Exit(REFUSED) from None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help text, in which the help of commands comes from the stored table."""
        from costada.cli.completion import table

        known = table()["commands"]
        for name, command in self.commands.items():
            if name in known:
                command.help = known[name]["help"]
                continue
            try:
                self.get_command(ctx, name)
            except ValueError as error:
                command.help = str(error)
        super().format_help(ctx, formatter)


app = typer.Typer(
    name="costada",
    cls=Commands,
    epilog=RUNS,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def say_version(is_asked: bool) -> None:
    """Print the version and exit, if requested."""
    if is_asked:
        typer.echo(f"costada {version('costada')}")
        raise typer.Exit


@app.callback(help="Let language models improve a program within a budget of dollars.")
def costada(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=say_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """The options of the group."""


def main() -> None:
    """Run the command of this process.

    Characters that the terminal's encoding lacks are shown as question marks. A run collects no
    garbage until everything is loaded, see `collect_garbage`.
    """
    if sys.argv[1:2] in (["run"], ["resume"]):
        gc.disable()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    app()

"""The commands. Each is loaded when it is called: its libraries take longer than a help text."""

import gc
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
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
    "failed": "the run failed, its finished iterations are saved",
    "refused": "refused before any money was spent",
    "stopped": "interrupted and saved",
}
RUNS = _epilog("done", **SPENDING, unpaid="too little is left in the purse")
SWEEPS = _epilog("done", **SPENDING)
CALCULATIONS = _epilog("done", failed="failed", stopped="stopped")
DIAGNOSIS = _epilog("done", failed="no layer of the sandbox works", stopped="stopped")
EVALUATION = _epilog(
    "done, also if the program failed",
    failed="the evaluator or the sandbox failed",
    stopped="stopped",
)
WATCHING = _epilog("stopped with Ctrl-C")
OTHERS = _epilog("done", stopped="stopped")


RUN, LOOK, COMPARE = "Run", "Look at runs", "Compare"
PROBLEMS, SERVE = "Problems", "Serve"
"""Headings of the groups of commands."""


@dataclass(frozen=True, slots=True)
class PluginCommand:
    """A command of a plug-in, registered under its name as an entry point of `costada.commands`.

    Attributes:
        function: The command; its parameters and docstring are read by Typer.
        group: The heading that it is listed under.
        exit_codes: The end of its help text.
    """

    function: Callable[..., None]
    group: str
    exit_codes: str


UsageError: Any = typer.BadParameter.__base__
"""Typer has no public name for it."""


COMMANDS: Mapping[str, tuple[str, str, str]] = {
    "demo": ("run:demo", RUN, RUNS),
    "run": ("run:run", RUN, RUNS),
    "resume": ("run:resume", RUN, RUNS),
    "fork": ("steer_command:fork", RUN, OTHERS),
    "steer": ("steer_command:steer", RUN, OTHERS),
    "submit": ("steer_command:submit", RUN, OTHERS),
    "upgrade": ("upgrade_command:upgrade", RUN, OTHERS),
    "reconcile": ("reconcile_command:reconcile", RUN, OTHERS),
    "forecast": ("forecast:forecast", RUN, CALCULATIONS),
    "watch": ("show_runs:watch", LOOK, WATCHING),
    "report": ("show_runs:report", LOOK, OTHERS),
    "trace": ("show_runs:trace", LOOK, OTHERS),
    "diff": ("show_runs:diff", LOOK, OTHERS),
    "export": ("show_runs:export", LOOK, OTHERS),
    "graph": ("show_runs:graph", LOOK, OTHERS),
    "runs": ("show_runs:runs", LOOK, OTHERS),
    "sweep": ("sweep_command:sweep", COMPARE, SWEEPS),
    "compare": ("sweep_command:compare", COMPARE, OTHERS),
    "experiment": ("experiment_command:experiment", COMPARE, OTHERS),
    "init": ("init:init", PROBLEMS, OTHERS),
    "check": ("problems:check", PROBLEMS, OTHERS),
    "evaluate": ("problems:evaluate", PROBLEMS, EVALUATION),
    "list": ("problems:list_problems", PROBLEMS, OTHERS),
    "doctor": ("doctor_command:doctor", PROBLEMS, DIAGNOSIS),
    "mcp": ("mcp_command:mcp", SERVE, OTHERS),
    "serve": ("serve_command:serve", SERVE, OTHERS),
    "enqueue": ("serve_command:enqueue", SERVE, OTHERS),
    "queue": ("serve_command:queue", SERVE, OTHERS),
}
"""Where the function of each command is, in this room, its group and the end of its help text."""

MAX_LISTED = 16
"""Options above which a help text lists only those of `FIRST_OPTIONS`."""

HELP_ALL = "--help-all"

FIRST_OPTIONS = (
    *("problems", "methods", "method", "model", "models", "budget", "budget_policy", "preset"),
    *("price", "parallel", "seed", "seeds", "max_iterations", "jobs", "on", "purse", "out"),
)
"""Parameters of commands with many options that `--help` lists; `--help-all` lists all."""

ENTRY_POINTS = "costada.commands"
"""Group of entry points; each is a `PluginCommand`."""


REFUSED = 2
"""The exit code of a command line that is refused."""


class Command(TyperCommand):
    """A command that refuses values it cannot read in one line, as it refuses all others.

    The help of one with more than `MAX_LISTED` options lists `FIRST_OPTIONS`; `HELP_ALL`, all.
    """

    lists_all = False

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        _with_usual_types(self.params)

    def get_params(self, ctx: Any) -> Any:
        """The parameters with `--help`, see `_with_usual_types`."""
        return _with_usual_types(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The pieces of the usage line; a required argument has no braces."""
        pieces: list[str] = super().collect_usage_pieces(ctx)
        return [re.sub("[{}]", "", each) for each in pieces]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help text; the process ends after it, so parameters may be changed for it."""
        options: list[Any] = [each for each in self.params if each.param_type_name == "option"]
        for each in options:
            if not self.lists_all and len(options) > MAX_LISTED:
                each.hidden = each.name not in FIRST_OPTIONS and not each.required
            if isinstance(each.show_default, str) and " " not in each.show_default:
                each.default, each.show_default = each.show_default, True
        if hidden := sum(each.hidden for each in options):
            others = f"{ctx.command_path} {HELP_ALL} lists {hidden} more options."
            self.epilog = f"{others}\n\n{self.epilog}"
        super().format_help(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; a list given in parts is refused, as the last alone would count."""
        _, _, given = self.make_parser(ctx).parse_args(args=[*args])
        for each in given:
            is_list = str(each.metavar).endswith(",...")
            if is_list and given.count(each) > 1 and not ctx.resilient_parsing:
                ctx.fail(f"{each.opts[0]}: given repeatedly, expected once as {each.metavar}")
        read: list[str] = super().parse_args(ctx, args)
        return read

    def make_context(self, info_name: Any, args: list[str], *rest: Any, **settings: Any) -> Any:
        """Read the arguments; a wrong value is named with its option and what was expected."""
        if HELP_ALL in args:
            self.lists_all, args = True, ["--help"]
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

            say(_refusal(error.param, error), level="error")
            raise typer.Exit(REFUSED) from None
        if context.args and not context.resilient_parsing:
            from costada.cli.command_errors import say

            words = " ".join(context.args)
            message = f"{info_name}: got {words!r} after its arguments, expected nothing more"
            say(message, level="error")
            raise typer.Exit(REFUSED)
        return context


def _with_usual_types(parameters: Any) -> Any:
    """Parameters whose help shows FLOAT for a number, and no type of arguments and switches."""
    for each in parameters:
        if each.param_type_name == "argument" or each.is_flag:
            each.display_type_rich = lambda ctx: None
        elif each.metavar is None and (shown := each.display_type_rich(None)):
            name = shown.strip("<>")
            kind = name.upper().replace("INT", "INTEGER").replace("STR", "TEXT")
            each.metavar = name if "|" in name else kind  # choices are typed as they are
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
        """The parameters, see `_with_usual_types`."""
        return _with_usual_types(super().get_params(ctx))

    def main(self, *arguments: Any, **settings: Any) -> Any:
        """Run a command line and exit; one that cannot be read is refused in one line."""
        exits = settings.get("standalone_mode", True)
        settings["standalone_mode"] = False
        try:
            code = super().main(*arguments, **settings)
        except UsageError as error:
            if not exits:
                raise
            from costada.cli.command_errors import say

            code = error.exit_code
            if message := error.format_message():  # none without arguments: the help is printed
                say(message, f"See {error.ctx.command_path} --help.", level="error")
        if exits:
            sys.exit(code)
        return code

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load a command, except to list it; `None` if there is none of that name.

        Raises:
            ValueError: It is that of a plug-in, as `loaded` does.
        """
        if cmd_name not in self.commands or self.commands[cmd_name].help:
            return super().get_command(ctx, cmd_name)
        if cmd_name in COMMANDS:
            place, group, epilog = COMMANDS[cmd_name]
            module, _, function = place.partition(":")
            found = getattr(import_module(f"costada.cli.{module}"), function)
        else:
            plugin = load_plugin(plugins_of(ENTRY_POINTS)[cmd_name], PluginCommand)
            found, group, epilog = plugin.function, plugin.group, plugin.exit_codes
        # Typer keeps the line ends of a docstring, which are not those of the terminal.
        text = "\n\n".join(" ".join(part.split()) for part in docstring(found).split("\n\n"))
        alone = typer.Typer(add_completion=False)
        alone.command(cmd_name, cls=Command, help=text, epilog=epilog, rich_help_panel=group)(found)
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

            say(str(error), level="error")
            raise typer.Exit(REFUSED) from None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help text, in which the help of commands comes from the stored table."""
        from costada.cli.completion import table

        known = table()["commands"]
        for name, command in self.commands.items():
            if name in known:
                command.help = known[name]["help"]
                setattr(command, "rich_help_panel", known[name]["group"])  # noqa: B010
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


def show_all_help(context: typer.Context, is_asked: bool) -> None:
    """Print the help of all commands with all options and exit, if requested."""
    if not is_asked:
        return
    group: Any = context.command
    commands = {}
    for name in group.list_commands(context):
        with suppress(ValueError):  # of a plug-in that cannot be loaded: the list says why
            commands[name] = group.get_command(context, name)
    typer.echo(context.get_help())
    for name, command in commands.items():
        command.main([HELP_ALL], f"{context.command_path} {name}", standalone_mode=False)
    raise typer.Exit


@app.callback(help="Let language models improve a program within a budget in dollars.")
def costada(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=say_version, is_eager=True, help="Show the version."),
    ] = False,
    _help_all: Annotated[
        bool,
        typer.Option(
            HELP_ALL,
            callback=show_all_help,
            is_eager=True,
            help="Show the help of all commands with all options and exit.",
        ),
    ] = False,
) -> None:
    """The options of the group."""


def main() -> None:
    """Run the command of this process.

    Characters that the terminal's encoding lacks are shown as question marks. A run collects no
    garbage until everything is loaded, see `collect_garbage`.
    """
    if sys.argv[1:2] in (["demo"], ["run"], ["resume"]):
        gc.disable()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    app()

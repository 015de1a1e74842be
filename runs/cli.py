"""The command line: which commands there are. LangChain is loaded only by those that need it."""

from importlib.metadata import version
from typing import Annotated

import typer

from costada.runs.cli_compare import compare
from costada.runs.cli_fork import fork
from costada.runs.cli_gateway import gateway
from costada.runs.cli_init import init
from costada.runs.cli_mcp import mcp
from costada.runs.cli_problems import evaluate, list_problems
from costada.runs.cli_report import report
from costada.runs.cli_run import resume, run
from costada.runs.cli_show import graph, trace
from costada.runs.cli_simulate import simulate
from costada.runs.cli_sweep import sweep
from costada.runs.cli_theory import theory
from costada.runs.cli_watch import watch
from costada.runs.exit_codes import EPILOG

app = typer.Typer(
    name="costada",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def say_version(is_asked: bool) -> None:
    """Print the version and end, if asked to."""
    if is_asked:
        typer.echo(f"costada {version('costada')}")
        raise typer.Exit


@app.callback()
def costada(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=say_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Let language models improve a program within a budget of dollars."""


for command in (
    run,
    resume,
    fork,
    sweep,
    compare,
    simulate,
    theory,
    trace,
    report,
    watch,
    evaluate,
    init,
    graph,
    gateway,
    mcp,
):
    app.command(epilog=EPILOG)(command)
app.command("list", epilog=EPILOG)(list_problems)


def main() -> None:
    """Run the command that the process was started with."""
    app()

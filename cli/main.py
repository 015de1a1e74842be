"""The command line: which commands there are. LangChain is loaded only by those that need it."""

import sys
from collections.abc import Callable
from importlib.metadata import version
from io import TextIOWrapper
from typing import Annotated

import typer

from costada.cli.compare import compare
from costada.cli.fork import fork
from costada.cli.gateway import gateway
from costada.cli.init import init
from costada.cli.mcp import mcp
from costada.cli.problems import evaluate, list_problems
from costada.cli.report import report
from costada.cli.run import resume, run
from costada.cli.show import graph, trace
from costada.cli.simulate import simulate
from costada.cli.sweep import sweep
from costada.cli.theory import theory
from costada.cli.watch import watch
from costada.evaluators.sandbox.inside.confinement import PR_SET_DUMPABLE, set_process_option
from costada.runs.exit_codes import (
    EPILOG_OF_CALCULATIONS,
    EPILOG_OF_EVALUATE,
    EPILOG_OF_OTHERS,
    EPILOG_OF_RUNS,
)

app = typer.Typer(
    name="costada",
    epilog=EPILOG_OF_RUNS,
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


EPILOGS: dict[Callable[..., None], str] = {
    run: EPILOG_OF_RUNS,
    resume: EPILOG_OF_RUNS,
    fork: EPILOG_OF_OTHERS,
    sweep: EPILOG_OF_RUNS,
    compare: EPILOG_OF_OTHERS,
    simulate: EPILOG_OF_CALCULATIONS,
    theory: EPILOG_OF_CALCULATIONS,
    trace: EPILOG_OF_OTHERS,
    report: EPILOG_OF_OTHERS,
    watch: EPILOG_OF_OTHERS,
    evaluate: EPILOG_OF_EVALUATE,
    init: EPILOG_OF_OTHERS,
    graph: EPILOG_OF_OTHERS,
    gateway: EPILOG_OF_OTHERS,
    mcp: EPILOG_OF_OTHERS,
}
for command, epilog in EPILOGS.items():
    app.command(epilog=epilog)(command)
app.command("list", epilog=EPILOG_OF_OTHERS)(list_problems)


def main() -> None:
    """Run the command that the process was started with.

    What a terminal's encoding cannot show is shown as a question mark. Programs of the same user,
    such as candidates that no wall holds, cannot read the memory and environment of this process.
    """
    set_process_option(PR_SET_DUMPABLE, 0)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    app()

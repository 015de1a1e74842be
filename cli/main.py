"""The commands. LangChain is loaded only by those that need it."""

import gc
import sys
from collections.abc import Callable
from importlib.metadata import version
from io import TextIOWrapper
from typing import Annotated

import typer

from costada.cli.adopt import adopt
from costada.cli.check import check
from costada.cli.compare import compare
from costada.cli.diff import diff
from costada.cli.export import export
from costada.cli.forecast import forecast
from costada.cli.fork import fork
from costada.cli.gateway import gateway
from costada.cli.init import init
from costada.cli.mcp import mcp
from costada.cli.prepare import prepare
from costada.cli.problems import evaluate, list_problems
from costada.cli.report import report
from costada.cli.run import resume, run
from costada.cli.simulate import simulate
from costada.cli.steer import steer, submit
from costada.cli.sweep import sweep
from costada.cli.theory import theory
from costada.cli.trace import graph, trace
from costada.cli.watch import watch
from costada.evaluators.sandbox.inside.confinement import PR_SET_DUMPABLE, set_process_option


def _epilog(finished: str, *, failed: str = "", refused: str = "refused", stopped: str) -> str:
    meanings = {0: finished, 1: failed, 2: refused, 130: stopped}
    lines = [f"{code} {meaning}" for code, meaning in meanings.items() if meaning]
    return f"Exit codes: {'; '.join(lines)}."


RUNS = _epilog(
    "done",
    failed="the run failed; finished iterations are saved",
    refused="refused before any money was spent",
    stopped="interrupted and saved",
)
CALCULATIONS = _epilog("done", failed="failed", stopped="stopped")
EVALUATION = _epilog(
    "done, also if the program failed",
    failed="the evaluator or the sandbox failed",
    stopped="stopped",
)
OTHERS = _epilog("done", stopped="stopped")

app = typer.Typer(
    name="costada",
    epilog=RUNS,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def say_version(is_asked: bool) -> None:
    """Print the version and exit, if requested."""
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
    run: RUNS,
    resume: RUNS,
    fork: OTHERS,
    steer: OTHERS,
    submit: OTHERS,
    forecast: CALCULATIONS,
    sweep: RUNS,
    compare: OTHERS,
    simulate: CALCULATIONS,
    theory: CALCULATIONS,
    trace: OTHERS,
    diff: OTHERS,
    report: OTHERS,
    export: OTHERS,
    watch: OTHERS,
    evaluate: EVALUATION,
    init: OTHERS,
    check: OTHERS,
    prepare: OTHERS,
    adopt: OTHERS,
    graph: OTHERS,
    gateway: OTHERS,
    mcp: OTHERS,
}
for command, epilog in EPILOGS.items():
    app.command(epilog=epilog)(command)
app.command("list", epilog=OTHERS)(list_problems)


def main() -> None:
    """Run the command of this process.

    Characters that the terminal's encoding lacks are shown as question marks. Programs of the same
    user, such as candidates without a sandbox, cannot read this process's memory and environment.
    A run collects no garbage until everything is loaded, see `collect_garbage`.
    """
    if sys.argv[1:2] in (["run"], ["resume"]):
        gc.disable()
    set_process_option(PR_SET_DUMPABLE, 0)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    app()

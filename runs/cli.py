"""The command line: which commands there are. LangChain is loaded only by those that need it."""

import typer

from costada.runs.cli_run import resume, run
from costada.runs.cli_show import evaluate, graph, list_problems, trace
from costada.runs.exit_codes import EPILOG

app = typer.Typer(
    name="costada",
    help="Let language models improve a program within a budget of dollars.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (run, resume, trace, evaluate, graph):
    app.command(epilog=EPILOG)(command)
app.command("list", epilog=EPILOG)(list_problems)


def main() -> None:
    """Run the command that the process was started with."""
    app()

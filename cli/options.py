"""The options of `costada run`, in words for its help page."""

from pathlib import Path
from typing import Annotated

import typer

from costada.controller.methods import METHODS
from costada.evaluators.sandbox.layers import Layer
from costada.runs.config import PRESETS, RunConfig


def named_path(text: str) -> Path:
    """Return the path in an argument; an empty one, as of an unset variable, is refused."""
    if not str(text):
        raise typer.BadParameter("got '', expected a path")
    return Path(text)


def check_tools(tool_evaluations: int | None, generator: str | None) -> None:
    """Raise `ValueError` for a number of tool evaluations given to a model without tools."""
    if tool_evaluations is not None and generator != "agent":
        raise ValueError("--tool-evaluations: got one without --generator agent, expected none")


def _default(field: str) -> str:
    return str(RunConfig.model_fields[field].default)


LARGEST_PORT = 65_535
MODELS, MONEY, SEARCH = "Models", "Money", "Search"
EVALUATION, OUTPUT = "Evaluation", "Output"

ProblemName = Annotated[
    str,
    typer.Argument(
        metavar="PROBLEM", help="A benchmark (see [b]costada list[/b]) or a problem folder."
    ),
]
Folder = Annotated[
    Path, typer.Argument(parser=named_path, metavar="DIR", help="The folder of a run.")
]

Model = Annotated[
    str | None,
    typer.Option(
        help="offline (needs no key and no network), openai:NAME or PROVIDER:NAME.",
        show_default=_default("model"),
        rich_help_panel=MODELS,
    ),
]
GuideModel = Annotated[
    str | None,
    typer.Option(help="Model asked for tactics.", show_default="the same", rich_help_panel=MODELS),
]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        help="Address of an OpenAI-compatible server, for openai: models.", rich_help_panel=MODELS
    ),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        help="Most tokens of an answer, and of what a lost call can cost.",
        show_default="32000; of the offline model any",
        rich_help_panel=MODELS,
    ),
]
Budget = Annotated[
    float | None,
    typer.Option(
        help="Dollars to spend.",
        show_default=f"the preset's or {_default('budget')}",
        rich_help_panel=MONEY,
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        help=f"Prices, budget and reference cost of the paper: {' or '.join(PRESETS)}.",
        rich_help_panel=MONEY,
    ),
]
PriceIn = Annotated[
    str | None,
    typer.Option(
        metavar="DOLLARS",
        help="Price of a million input tokens of the model.",
        show_default="the preset's or the list price",
        rich_help_panel=MONEY,
    ),
]
PriceOut = Annotated[
    str | None,
    typer.Option(
        metavar="DOLLARS",
        help="Price of a million output tokens of the model.",
        show_default="the preset's or the list price",
        rich_help_panel=MONEY,
    ),
]
GuidePriceIn = Annotated[
    str | None,
    typer.Option(
        metavar="DOLLARS",
        help="Price of a million input tokens of the guide model.",
        show_default="the list price",
        rich_help_panel=MONEY,
    ),
]
GuidePriceOut = Annotated[
    str | None,
    typer.Option(
        metavar="DOLLARS",
        help="Price of a million output tokens of the guide model.",
        show_default="the list price",
        rich_help_panel=MONEY,
    ),
]
ReferenceCost = Annotated[
    float | None,
    typer.Option(
        help="Dollars of an ordinary iteration.",
        show_default=f"the preset's or {_default('reference_cost')}",
        rich_help_panel=MONEY,
    ),
]
OnMissingUsage = Annotated[
    str | None,
    typer.Option(
        metavar="raise|estimate",
        help="An answer without token counts ends the run, or is estimated and marked.",
        show_default=_default("on_missing_usage"),
        rich_help_panel=MONEY,
    ),
]
MethodName = Annotated[
    str | None,
    typer.Option(
        "--method",
        metavar="METHOD",
        help=f"Who decides where the money goes: {', '.join(METHODS)}.",
        show_default=_default("method"),
        rich_help_panel=SEARCH,
    ),
]
LostCalls = Annotated[
    str | None,
    typer.Option(
        metavar="count|ignore",
        help="Whether calls whose outcome is unknown count against the budget, at their upper"
        " bound; under a hard budget they must.",
        show_default=_default("lost_calls"),
        rich_help_panel=MONEY,
    ),
]
BudgetPolicy = Annotated[
    str | None,
    typer.Option(
        metavar="crossing|hard",
        help="The last iteration may cross the budget, or no call may.",
        show_default=_default("budget_policy"),
        rich_help_panel=MONEY,
    ),
]
MaxFailures = Annotated[
    int | None,
    typer.Option(
        help="Attempts in a row without a usable program that stop the run.",
        show_default=_default("max_failures"),
        rich_help_panel=SEARCH,
    ),
]
CallTimeout = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="Total time of one model call, its retries included.",
        show_default=_default("call_timeout"),
        rich_help_panel=MODELS,
    ),
]
RetryWait = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="First wait after a failed request; it doubles each time.",
        show_default=_default("retry_wait"),
        rich_help_panel=MODELS,
    ),
]
LongestWait = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="Longest wait between two requests; a provider that asks for more stops the run.",
        show_default=_default("longest_wait"),
        rich_help_panel=MODELS,
    ),
]
LongestPause = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="How long a run waits for a provider that does not answer, before it stops.",
        show_default=_default("longest_pause"),
        rich_help_panel=MODELS,
    ),
]
GeneratorKind = Annotated[
    str | None,
    typer.Option(
        "--generator",
        metavar="model|agent",
        help="A program is one answer of the model, or the model may use tools before it submits.",
        show_default=_default("generator"),
        rich_help_panel=SEARCH,
    ),
]
ToolEvaluations = Annotated[
    int | None,
    typer.Option(
        help="Programs that a model with tools may try before it submits.",
        show_default=_default("tool_evaluations"),
        rich_help_panel=SEARCH,
    ),
]
StepCap = Annotated[
    float | None,
    typer.Option(
        help="Dollars after which a step of a model with tools asks no more.",
        show_default="no cap",
        rich_help_panel=MONEY,
    ),
]
MaxIterations = Annotated[
    int | None,
    typer.Option(
        help="Most iterations.", show_default=_default("max_iterations"), rich_help_panel=SEARCH
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        help="Start of the run's randomness.",
        show_default=_default("seed"),
        rich_help_panel=SEARCH,
    ),
]
Sandbox = Annotated[
    str | None,
    typer.Option(
        metavar="LAYER",
        help=f"What holds candidates: {', '.join(Layer)}.",
        show_default=f"the problem's or {Layer.AUTO}",
        rich_help_panel=EVALUATION,
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="Wall-clock limit of one evaluation.",
        show_default="the problem's",
        rich_help_panel=EVALUATION,
    ),
]
MemoryMb = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Memory limit of one evaluation in MiB.",
        show_default="the problem's",
        rich_help_panel=EVALUATION,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        parser=named_path,
        metavar="DIR",
        help="Folder for the run; it must not hold another one.",
        show_default="runs-out/PROBLEM-1, -2, ...",
        rich_help_panel=OUTPUT,
    ),
]
Gateway = Annotated[
    bool,
    typer.Option(
        "--gateway",
        help="Send calls of openai: models through a process that survives a kill of this one.",
        rich_help_panel=MODELS,
    ),
]
KeepHistory = Annotated[
    bool,
    typer.Option(
        "--keep-history",
        help="Keep all checkpoints, for going back to them; a resume needs only the latest.",
        rich_help_panel=OUTPUT,
    ),
]
RaisedBudget = Annotated[
    float | None,
    typer.Option(
        "--budget",
        help="Dollars the run may spend from now on, at least as many as before.",
        show_default="as before",
    ),
]
RaisedIterations = Annotated[
    int | None,
    typer.Option(
        "--max-iterations",
        help="Most iterations from now on, at least as many as before.",
        show_default="as before",
    ),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Load a problem that came with the run folder, and keep a weak sandbox it asks for.",
    ),
]
AcceptLoss = Annotated[
    bool,
    typer.Option(
        "--accept-loss",
        help="Resume although the run file has lost steps; their dollars count as spent.",
    ),
]
Preflight = Annotated[
    bool | None,
    typer.Option(
        "--preflight/--no-preflight",
        help="Try evaluator and initial program before the folder is made, or when the run opens.",
        show_default="preflight",
        rich_help_panel=EVALUATION,
    ),
]
AllowInvalidStart = Annotated[
    bool,
    typer.Option(
        "--allow-invalid-start",
        help="Begin even if the evaluator rejects the initial program, which then scores 0.",
        rich_help_panel=EVALUATION,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Print what the run would send and cost; send nothing, write nothing.",
        rich_help_panel=OUTPUT,
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print the result as one JSON object.", rich_help_panel=OUTPUT),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", help="Print nothing but the result.", rich_help_panel=OUTPUT)
]

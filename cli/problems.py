"""`costada list` and `costada evaluate`: which problems there are, and what a program is worth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costada.cli import options
from costada.cli.errors import keeping_output_clean, refusing, telling_warnings
from costada.reports.terminal import show
from costada.runs.config import RunConfig
from costada.runs.exit_codes import ExitCode
from costada.runs.interruption import ending_on_signal

if TYPE_CHECKING:
    from costada.evaluators.folders import FolderSettings
    from costada.evaluators.problem import Problem
    from costada.values.evaluation import Evaluation


Program = Annotated[
    Path,
    typer.Argument(parser=options.named_path, metavar="FILE", help="A Python program."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
COLUMNS = ("name", "direction", "seed", "reference", "human")
WORD_COLUMNS = ("name", "direction")
SPARE_COLUMNS = ("direction", "seed", "human")
"""What a narrow terminal does without, the first of them first."""

LEGEND = (
    "Objectives: of the seed program, counted as score 1, best known from people."
    "\nA problem folder is a problem too: costada init DIR writes one."
)


def list_problems(as_json: AsJson = False) -> None:
    """List the benchmarks that come with the package."""
    from costada.evaluators.registry import benchmark_settings, problem_names

    facts = [_facts(name, benchmark_settings(name)) for name in problem_names()]
    if as_json:
        show(json.dumps(facts, indent=2))
    else:
        _print_table(facts)


def evaluate(
    problem: options.ProblemName,
    file: Program,
    as_json: AsJson = False,
    sandbox: options.Sandbox = None,
    timeout: options.Timeout = None,
    memory_mb: options.MemoryMb = None,
) -> None:
    """Score a program as a run would; a program that fails is an answer, not an error."""
    from costada.evaluators.problem import confine, layer_of
    from costada.evaluators.registry import problem as problem_named
    from costada.reports.summary import evaluation_json, evaluation_text
    from costada.store.files import read_bytes
    from costada.values.evaluation import EVALUATOR_FAULT, SANDBOX_FAULT

    given = {"sandbox": sandbox, "timeout": timeout, "memory_mb": memory_mb}
    with (
        refusing(ExitCode.BAD_INPUT),
        ending_on_signal(),
        telling_warnings(),
        keeping_output_clean(),
    ):
        wanted = RunConfig.model_validate({"problem": problem, **given})
        limits = {name: getattr(wanted, name) for name in given}
        found = confine(problem_named(problem), **limits)
        program = read_bytes(file)
    with refusing(ExitCode.FAILED), ending_on_signal(), keeping_output_clean():
        evaluation = _verdict(found, program)
    show((evaluation_json if as_json else evaluation_text)(evaluation, layer_of(found)))
    if {EVALUATOR_FAULT, SANDBOX_FAULT} & evaluation.artifacts.keys():
        raise typer.Exit(ExitCode.FAILED)


def _verdict(problem: Problem, program: bytes) -> Evaluation:
    from costada.values.evaluation import failed

    try:
        code = program.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return failed(f"the program is not UTF-8 text: {error}")
    return problem.evaluate(code)


def _facts(name: str, settings: FolderSettings) -> dict[str, str | float | None]:
    return {
        "name": name,
        "direction": settings.direction.value,
        "seed": settings.seed_objective,
        "reference": settings.reference,
        "human": settings.human,
        "entry_point": settings.entry_point,
        "timeout": settings.timeout,
        "source": settings.source,
    }


def _print_table(facts: list[dict[str, str | float | None]]) -> None:
    from costada.reports.terminal import TerminalTable, table_console

    rows = [[_cell(each[heading]) for heading in COLUMNS] for each in facts]
    console = table_console()
    table = TerminalTable(
        COLUMNS, rows, WORD_COLUMNS, SPARE_COLUMNS, alternatives="--json or a wider terminal"
    )
    table.print(console)
    console.print(LEGEND)


def _cell(value: str | float | None) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:.10g}"

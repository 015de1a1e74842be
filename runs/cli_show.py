"""`costada trace`, `evaluate`, `list` and `graph`: they spend nothing."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costada.runs import cli_options as options
from costada.runs.exit_codes import ExitCode
from costada.runs.folder import RunFolder
from costada.runs.refusal import refusing

if TYPE_CHECKING:
    from costada.evaluators.contract import Evaluation
    from costada.evaluators.problem import Problem

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class GraphFormat(StrEnum):
    """In which form the graph is shown."""

    MERMAID = "mermaid"
    PNG = "png"
    SVG = "svg"


Format = Annotated[GraphFormat, typer.Option(help="Form of the picture.")]
PictureFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Where to write it.",
        show_default="standard output for mermaid, else costada-graph.png or .svg",
    ),
]
DEFAULT_FILES = {
    GraphFormat.MERMAID: None,
    GraphFormat.PNG: Path("costada-graph.png"),
    GraphFormat.SVG: Path("costada-graph.svg"),
}
ANY_PROBLEM = "circle_packing"
"""The graph is the same for every problem."""


def trace(folder: options.Folder, as_json: AsJson = False) -> None:
    """Print what the controller did in each iteration of a run."""
    from costada.runs.rows import rows_of_file
    from costada.runs.trace import table_console, trace_json, trace_table

    with refusing(ExitCode.BAD_INPUT):
        rows = rows_of_file(RunFolder(folder).database)
    if as_json:
        print(trace_json(rows))
    else:
        table_console().print(trace_table(rows))


def evaluate(
    problem: options.ProblemName,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A Python program.")],
    as_json: AsJson = False,
) -> None:
    """Score a program as a run would; a program that fails is an answer, not an error."""
    from costada.evaluators.contract import EVALUATOR_FAULT
    from costada.evaluators.registry import problem as problem_named

    with refusing(ExitCode.BAD_INPUT):
        found = problem_named(problem)
        code = file.read_text(encoding="utf-8")
    with refusing(ExitCode.FAILED):
        evaluation = found.evaluate(code)
    print(_evaluation_json(evaluation) if as_json else _evaluation_text(evaluation))
    if EVALUATOR_FAULT in evaluation.artifacts:
        raise typer.Exit(ExitCode.FAILED)


def list_problems() -> None:
    """List the benchmarks that come with the package."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from costada.evaluators.registry import problem as problem_named
    from costada.evaluators.registry import problem_names

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("name", "direction", "score 1 is", "best by people"):
        table.add_column(heading)
    for name in problem_names():
        table.add_row(*_problem_cells(problem_named(name)))
    console = Console(highlight=False)
    console.print(table)
    console.print("A folder with problem.md, initial_program.py and evaluator.py is a problem too.")


def graph(format: Format = GraphFormat.MERMAID, out: PictureFile = None) -> None:
    """Show the graph that every run goes through; needs no network."""
    with refusing(ExitCode.BAD_INPUT):
        picture = _picture(format)
        target = out or DEFAULT_FILES[format]
        if target:
            target.write_bytes(picture)
    print(target or picture.decode())


def _picture(format: GraphFormat) -> bytes:
    from costada.evaluators.registry import problem as problem_named
    from costada.graph.build import create_discovery_graph
    from costada.models.offline import OfflineModel
    from costada.runs.drawing import draw_graph

    any_problem = problem_named(ANY_PROBLEM)
    drawable = create_discovery_graph(any_problem, OfflineModel(), budget=1.0).get_graph()
    if format is GraphFormat.MERMAID:
        return drawable.draw_mermaid().encode()
    return draw_graph(drawable, "png" if format is GraphFormat.PNG else "svg")


def _problem_cells(problem: Problem) -> tuple[str, ...]:
    numbers = (problem.reference, problem.human)
    return (
        problem.name,
        problem.direction,
        *("-" if number is None else f"{number:.10g}" for number in numbers),
    )


def _evaluation_json(evaluation: Evaluation) -> str:
    return json.dumps(asdict(evaluation), indent=2, default=dict)


def _evaluation_text(evaluation: Evaluation) -> str:
    objective = "none" if evaluation.objective is None else f"{evaluation.objective:.10g}"
    lines = [
        f"valid      {'yes' if evaluation.is_valid else 'no'}",
        f"objective  {objective}",
        f"score      {evaluation.score:.10g}",
        f"seconds    {evaluation.seconds:.2f}",
        *(f"  {name} = {value:.10g}" for name, value in evaluation.metrics.items()),
    ]
    if evaluation.error:
        lines.append(f"error      {evaluation.error}")
    return "\n".join(lines)

"""`costada trace` and `costada graph`: they spend nothing."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from costada.cli import options
from costada.cli.errors import refusing
from costada.reports.terminal import show
from costada.runs.exit_codes import ExitCode
from costada.runs.folder import RunFolder
from costada.store.files import replacing

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
        parser=options.named_path,
        metavar="FILE",
        help="Where to write it.",
        show_default="standard output for mermaid, else costada-graph.png or .svg",
    ),
]
SUFFIXES = {".png": GraphFormat.PNG, ".svg": GraphFormat.SVG, ".mmd": GraphFormat.MERMAID}
DEFAULT_FILES = {
    GraphFormat.MERMAID: None,
    GraphFormat.PNG: Path("costada-graph.png"),
    GraphFormat.SVG: Path("costada-graph.svg"),
}
ANY_PROBLEM = "circle_packing"
"""The graph is the same for every problem."""

RunToColour = Annotated[
    Path | None,
    typer.Option(
        "--run",
        parser=options.named_path,
        metavar="DIR",
        help="Colour the nodes by what the run in this folder has spent: dollars and seconds.",
        show_default="no run",
    ),
]


def trace(folder: options.Folder, as_json: AsJson = False) -> None:
    """Print what the controller did in each iteration of a run."""
    from costada.reports.terminal import table_console
    from costada.reports.trace import (
        origin_of_file,
        origin_words,
        rows_of_file,
        trace_json,
        trace_table,
    )

    with refusing(ExitCode.BAD_INPUT):
        database = RunFolder(folder).database
        rows, origin = rows_of_file(database), origin_of_file(database)
    if as_json:
        show(trace_json(rows))
    else:
        if origin:
            show(origin_words(origin))
        trace_table(rows).print(table_console())


def graph(
    format: Format = GraphFormat.MERMAID, out: PictureFile = None, run: RunToColour = None
) -> None:
    """Show the graph that every run goes through, or what one run spent in it; needs no network."""
    with refusing(ExitCode.BAD_INPUT):
        if out and SUFFIXES.get(out.suffix, format) is not format:
            raise ValueError(f"--out: got {out.name} for --format {format}, expected them to agree")
        picture = _picture(format, RunFolder(run) if run else None)
        target = out or DEFAULT_FILES[format]
        if target:
            with replacing(target) as file:
                file.write(picture)
    show(target or picture.decode())


def _picture(format: GraphFormat, folder: RunFolder | None) -> bytes:
    from costada.evaluators.registry import problem as problem_named
    from costada.graph.build import create_discovery_graph
    from costada.models.offline import OfflineModel
    from costada.reports.graph_drawing import draw_graph, spending_of_run

    spending = spending_of_run(folder) if folder else None
    any_problem = problem_named(ANY_PROBLEM)
    drawable = create_discovery_graph(any_problem, OfflineModel(), budget=1.0).get_graph()
    if format is GraphFormat.MERMAID:
        title = {"title": spending.headline()} if spending else None
        return drawable.draw_mermaid(frontmatter_config=title).encode()
    return draw_graph(drawable, "png" if format is GraphFormat.PNG else "svg", spending)

"""`costada trace` and `costada graph`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from costada.cli import options
from costada.cli.command_errors import refusing
from costada.reports.terminal import show
from costada.runs.folder import RunFolder
from costada.runs.interruption import ExitCode
from costada.store.files import replacing


class GraphFormat(StrEnum):
    """File formats of the graph."""

    MERMAID = "mermaid"
    PNG = "png"
    SVG = "svg"


Format = Annotated[GraphFormat, typer.Option(help="Format of the picture.")]
PictureFile = Annotated[
    Path | None,
    options.path_option(
        "File of the picture.",
        metavar="FILE",
        show_default="standard output for mermaid, else costada-graph.png or .svg",
    ),
]
RunToColour = Annotated[
    RunFolder | None,
    typer.Option(
        "--run",
        parser=options.named_run,
        metavar="RUN",
        help="Colour the nodes by the dollars and seconds that this run has spent.",
        show_default="no run",
    ),
]
SUFFIXES = {".png": GraphFormat.PNG, ".svg": GraphFormat.SVG, ".mmd": GraphFormat.MERMAID}
DEFAULT_FILES = {
    GraphFormat.MERMAID: None,
    GraphFormat.PNG: Path("costada-graph.png"),
    GraphFormat.SVG: Path("costada-graph.svg"),
}
ANY_PROBLEM = "circle_packing"
"""The graph is the same for every problem of a method."""


def trace(run: options.Run, as_json: options.AsJson = False) -> None:
    """Print what the controller did in each iteration of a run."""
    from costada.reports import trace as rows_of
    from costada.reports.terminal import table_console

    with refusing(ExitCode.BAD_INPUT):
        run.load()
        database = run.database
        rows, origin = rows_of.rows_of_file(database), rows_of.origin_of_file(database)
    if as_json:
        show(rows_of.trace_json(rows))
        return
    if origin:
        show(rows_of.origin_words(origin))
    rows_of.trace_table(rows).print(table_console())


def graph(
    format: Format = GraphFormat.MERMAID, out: PictureFile = None, run: RunToColour = None
) -> None:
    """Draw the graph of the default method, or a run's own with what it spent in its nodes.

    Needs no network.
    """
    with refusing(ExitCode.BAD_INPUT):
        if out and SUFFIXES.get(out.suffix, format) is not format:
            raise ValueError(f"--out: got {out.name} for --format {format}, expected them to agree")
        picture = _picture(format, run)
        target = out or DEFAULT_FILES[format]
        if target:
            with replacing(target) as file:
                file.write(picture)
    show(target or picture.decode())


def _picture(format: GraphFormat, folder: RunFolder | None) -> bytes:
    from costada.evaluators.registry import problem
    from costada.graph.build import compile_search
    from costada.models.chat_models import chat_model
    from costada.nodes.settings import Settings
    from costada.reports.graph_drawing import draw_graph, spending_of_run

    spending = spending_of_run(folder) if folder else None
    settings = Settings(method=folder.load().method) if folder else Settings()
    search = compile_search(
        problem(ANY_PROBLEM), chat_model("offline"), budget=1.0, settings=settings
    )
    graph = search.get_graph()
    if format is GraphFormat.MERMAID:
        title = {"title": spending.headline()} if spending else None
        return graph.draw_mermaid(frontmatter_config=title).encode()
    return draw_graph(graph, "png" if format is GraphFormat.PNG else "svg", spending)

"""The commands that show runs: trace, graph, diff, report, export, watch and runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import closing, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote

import typer

from costada.cli import options
from costada.cli.command_errors import announce, outlasting, refusing, say
from costada.reports.export import (
    FileFormat,
    TableName,
    check_format,
    lines_of,
    table_of,
    write_table,
)
from costada.reports.formats import counted, objective_text
from costada.reports.json_log import is_on, log_event
from costada.reports.terminal import show
from costada.runs.folder import RunFolder
from costada.runs.interruption import ExitCode
from costada.runs.stored_run import StoredRun
from costada.store.address import is_database, is_there
from costada.store.files import replacing
from costada.store.outage import LONGEST_PAUSE
from costada.values.program_form import invalid_path_reason

if TYPE_CHECKING:
    from costada.reports.alerts import AlertLimits
    from costada.reports.run_index import RunIndex


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

TOKEN_VARIABLE = "COSTADA_WATCH_TOKEN"  # noqa: S105


def trace(run: options.Run, as_json: options.AsJson = False) -> None:
    """Print what the controller did in each iteration of a run."""
    from costada.reports import trace as rows_of
    from costada.reports.terminal import table_console

    with refusing(ExitCode.BAD_INPUT):
        counts_lost = run.load().lost_calls == "count"
        database = run.database
        rows, origin = rows_of.rows_of_file(database), rows_of.origin_of_file(database)
        charged = rows_of.charged_of_file(database, counts_lost=counts_lost)
    if as_json:
        show(rows_of.trace_json(rows))
        return
    if origin:
        show(rows_of.origin_words(origin))
    rows_of.trace_table(rows).print(table_console())
    if words := rows_of.charged_words(charged, rows):
        show(words)


def graph(
    format: Format = GraphFormat.MERMAID, out: PictureFile = None, run: RunToColour = None
) -> None:
    """Draw the graph of the default method, or of a run with what each node spent.

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


Since = Annotated[
    str,
    typer.Option(
        "--from", metavar="CANDIDATE", help="Id of the candidate to compare with, or start."
    ),
]


def diff(run: options.Run, since: Since = "start") -> None:
    """Print a patch for `git apply`, from the initial program to the best one."""
    from costada.reports.patch import START, run_patch

    with refusing(ExitCode.BAD_INPUT):
        run.load()
        text = run_patch(run.database, since, _place(run) if is_there(run.database) else "")
    if not text:
        same = "the initial program" if since == START else f"candidate {since}"
        say(f"the best program equals {same}: nothing to apply")
    elif sys.stdout.isatty():
        show(text.removesuffix("\n"))
    else:
        sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass"))
        sys.stdout.flush()


def _place(run: RunFolder) -> str:
    """Where the program is in the run's problem folder; empty if that is not known."""
    from costada.evaluators.initial_program import program_place

    folder = Path(run.load().problem)
    try:
        place = program_place(folder) if folder.is_dir() else ""
    except (ValueError, OSError):
        return ""
    return "" if invalid_path_reason(place) else place


PageFile = Annotated[
    Path | None,
    options.path_option(
        "File of the page or picture.",
        metavar="FILE",
        show_default="report.html or report.png in the folder of the run",
    ),
]
Png = Annotated[
    bool, typer.Option("--png", help="Draw a picture of objective and dollars, not the page.")
]


def report(run: options.Run, out: PageFile = None, png: Png = False) -> None:
    """Write a run as one self-contained HTML page. Works while the run is running."""
    with refusing(ExitCode.BAD_INPUT):
        if out and (out.suffix == ".png") is not png:
            expected = "a name that ends in .png with --png, and another one without it"
            raise ValueError(f"--out: got {out}, expected {expected}")
        run.load()  # before a folder is made where no run is
        if out and out.resolve() != run.report.resolve():
            run.check_output(out)
            if out.is_file() and out.suffix not in (".html", ".htm", ".png"):
                raise ValueError(f"--out: {out} is not a page, expected a name that ends in .html")
        if out is None and isinstance(run, StoredRun):
            run.take_folder()
        if png:
            from costada.reports.picture import report_of, write_report

            path = out or run.path / "report.png"
            write_report(report_of(run), path)
            show(path)
            return
        from costada.reports.page.page import write_page

        show(write_page(run, out))


To = Annotated[
    FileFormat, typer.Option("--to", metavar="|".join(FileFormat), help="Format of the table.")
]
Which = Annotated[
    TableName,
    typer.Option(
        "--table",
        metavar="|".join(TableName),
        help="One row per iteration, model request or candidate; or per raw answer, for --model"
        " replay:FILE.",
    ),
]
Programs = Annotated[
    bool, typer.Option("--programs", help="Add the program of each candidate as a column.")
]
TableFile = Annotated[
    Path | None,
    options.path_option(
        "File of the table, replaced if it exists.",
        metavar="FILE",
        show_default="standard output; parquet needs a file",
    ),
]


def export(
    run: options.Run,
    to: To,
    table: Which = TableName.STEPS,
    programs: Programs = False,
    out: TableFile = None,
) -> None:
    """Write a run as a table, also while it is running.

    Prompts are left out; responses are in the table `answers` only.
    """
    from costada.runs.loaded_run import open_history

    with refusing(ExitCode.BAD_INPUT):
        check_format(to)
        if programs and table is not TableName.CANDIDATES:
            raise ValueError(f"--programs: got --table {table}, expected --table candidates")
        if to is FileFormat.PARQUET and out is None:
            raise ValueError("--out: expected a file for --to parquet")
        if out:
            run.check_output(out)
        with open_history(run) as (history, run_id):
            found = table_of(history, table, run_id, has_programs=programs)
            if out:
                if not out.parent.is_dir():
                    raise ValueError(f"--out: got {out}, expected a file in a folder that exists")
                write_table(found, to, out)
                show(out)
                return
            for line in lines_of(found, to):
                if sys.stdout.isatty():
                    show(line.removesuffix("\n"))
                else:
                    sys.stdout.buffer.write(line.encode())
            sys.stdout.flush()


Watched = Annotated[
    str,
    typer.Argument(
        parser=options.named_place,
        metavar="DIR",
        help="The folder of a run, or a folder with runs below it, which need not exist yet; or a"
        " Postgres database: DSN, DSN#RUN or DSN#SWEEP.",
    ),
]
Port = Annotated[
    int,
    typer.Option(
        min=0, max=options.MAX_PORT, help="Port on 127.0.0.1.", show_default="any free one"
    ),
]


PurseFiles = Annotated[
    list[Path] | None,
    options.path_option(
        "File of purses to show in the metrics. Repeatable.",
        "--purse",
        metavar="FILE",
        show_default="none",
    ),
]
AlertWebhook = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="COSTADA_ALERT_WEBHOOK",
        help="Address that gets a JSON POST for each alert: a run that failed, or one beyond the"
        " limits below. Once, and again if it comes back.",
        show_default="none",
    ),
]
AlertNoGain = Annotated[
    float | None,
    typer.Option(
        min=0,
        metavar="DOLLARS",
        help="Alert if a run gains nothing for this much.",
        show_default="no alert",
    ),
]
AlertHourly = Annotated[
    float | None,
    typer.Option(
        min=0,
        metavar="DOLLARS",
        help="Alert if a run spends more than this an hour.",
        show_default="no alert",
    ),
]


def watch(
    place: Watched,
    port: Port = 0,
    purse: PurseFiles = None,
    alert_webhook: AlertWebhook = None,
    alert_no_gain: AlertNoGain = None,
    alert_hourly: AlertHourly = None,
) -> None:
    """Serve a run as a live page, or several runs as an index, until Ctrl-C.

    Only this machine can connect. Where no run has begun, the page waits for it. The token in its
    address is that of COSTADA_WATCH_TOKEN, if it is set.
    """
    from costada.reports.alerts import AlertLimits
    from costada.reports.page_server import PageServer, token_in
    from costada.runs.alert_webhook import AlertSender, Webhook

    def on_begin(kind: str) -> None:
        announce(f"{shown}: {'the run has' if kind == 'run' else 'a run has'} begun")

    with refusing(ExitCode.BAD_INPUT):
        webhook = Webhook(alert_webhook) if alert_webhook is not None else None
        token = token_in(TOKEN_VARIABLE)
        _check_purses(purse or ())
    with refusing(ExitCode.BAD_INPUT), outlasting(LONGEST_PAUSE, starting_only=True):
        limits = AlertLimits(alert_no_gain, alert_hourly)
        index = _index(place, limits)
        if index.is_one_run and webhook is None and limits != AlertLimits():
            option = "--alert-hourly" if alert_no_gain is None else "--alert-no-gain"
            expected = "--alert-webhook with it, or a folder with runs below it"
            raise ValueError(
                f"{option}: the page of a single run has no alerts, expected {expected}"
            )
        shown = index.title if is_database(place) else place
        server = PageServer(index, port, on_begin, token, purse or ())
    with server, AlertSender(index, webhook, say) if webhook else nullcontext():
        kind, what = index.kind, shown
        if kind == "runs":
            what = f"{counted(len(index.names), 'run')} below {shown}"
        address = server.address
        if is_on():
            if not token:
                show(address)  # nobody else knows the token that it ends with
            address = address.partition("?")[0]
        announce(f"{address} shows {what}; stop with Ctrl-C", address=address)
        if kind == "waiting":
            announce(f"{shown}: no run yet; the page shows it as soon as one begins")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            if is_on():
                log_event("end")
            else:
                show()


def _check_purses(files: Sequence[Path]) -> None:
    """Raise `ValueError` where a file has no purse, or two files have purses of one name."""
    from costada.store.accounts import purses_in

    known: dict[str, Path] = {}
    for file in files:
        try:
            found = purses_in(file)
        except ValueError as error:
            raise ValueError(f"--purse: {error}") from None
        if not found:
            raise ValueError(f"--purse: got {file}, expected the file of a purse")
        for each in found:
            if (other := known.setdefault(each.name, file)) != file:
                raise ValueError(
                    f"--purse: both {other} and {file} have a purse {each.name!r}, expected"
                    " purses of different names"
                )


def _index(place: str, limits: AlertLimits) -> RunIndex:
    """The runs at a place; those of a sweep in Postgres are where its folder says."""
    from costada.experiments.sweep.place import SweepPlace
    from costada.reports.run_index import RunIndex
    from costada.runs.stored_index import StoredIndex

    if is_database(place):
        return StoredIndex(place, limits=limits)
    folder = options.named_path(place)
    if folder.is_dir() and (store := SweepPlace.load(folder).followed):
        return StoredIndex(store, folder.absolute(), limits)
    return RunIndex(folder, RunFolder, limits)


RUN_COLUMNS = ("run", "problem", "method", "best", "spent", "budget", "state", "holder")
NUM_RUN_NAMES = 3
OPTIONAL_RUN_COLUMNS = ("budget", "method", "holder")
"""Columns that a narrow terminal omits, in this order."""

Database = Annotated[
    str,
    typer.Argument(metavar="DSN", help="Address of the database, postgresql://USER@HOST/DATABASE."),
]


def runs(database: Database, as_json: options.AsJson = False) -> None:
    """List the runs in a Postgres database: results, dollars and the processes that hold them."""
    from costada.reports.terminal import TerminalTable, table_console
    from costada.runs.stored_index import StoredIndex
    from costada.store.address import check_database

    with refusing(ExitCode.BAD_INPUT):
        check_database(database)
        with closing(StoredIndex(database)) as index:
            answer: Any = index.rows()
            while answer["unread"]:
                answer = index.rows()
            found: list[dict[str, Any]] = answer["rows"]
            rows = [_row(each, index.holder(unquote(each["id"]))) for each in found]
    if as_json:
        show(json.dumps(rows, indent=2, allow_nan=False))
        return
    table = [
        [
            *(str(row[name] or "") for name in ("run", "problem", "method")),
            objective_text(row["best"]),
            *(f"${row[name]:.4f}" if row[name] is not None else "" for name in ("spent", "budget")),
            str(row["state"]),
            str(row["holder"]),
        ]
        for row in rows
    ]
    TerminalTable(
        RUN_COLUMNS, table, RUN_COLUMNS[:NUM_RUN_NAMES], optional=OPTIONAL_RUN_COLUMNS
    ).print(table_console())


def _row(row: dict[str, Any], holder: str) -> dict[str, Any]:
    known = {name: row.get(name) for name in RUN_COLUMNS}
    return {**known, "run": unquote(row["id"]), "holder": holder, "words": row.get("words")}

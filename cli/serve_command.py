"""`costada serve`, `costada enqueue` and `costada queue`: many runs from a queue in Postgres."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costada.cli import options
from costada.cli.command_errors import (
    announce,
    keeping_output_clean,
    naming_options,
    refusing,
    say,
    showing_pauses,
)
from costada.cli.mcp_command import DEFAULT_PORT, Parent, Problems, is_loopback
from costada.cli.setting_options import ALL_SETTINGS, with_settings
from costada.cli.span_export import send_spans
from costada.cli.sweep_command import Seeds, seed_numbers
from costada.evaluators.registry import problem_names
from costada.models.errors import AccountRefused, ModelRefused
from costada.reports.formats import counted
from costada.reports.terminal import show
from costada.runs.config import CHOSEN_BY_JOBS
from costada.runs.folder import DEFAULT_PARENT
from costada.runs.interruption import ExitCode, ending_on_signal
from costada.runs.user_input import split_list
from costada.store.address import check_database, is_database

if TYPE_CHECKING:
    from costada.agents.run_server import RunServer
    from costada.store.job_queue import Job

SAVE_SECONDS = 60.0
"""Time that runs have to save when the server ends: calls in flight can end."""

MAX_JOBS, MAX_ENDED = 1_000, 100
"""Most runs at once in a server, and most ended jobs in the table of a queue."""

COLUMNS = ("run", "team", "problem", "budget", "priority", "state", "error")

STORE = "COSTADA_STORE"
Database = Annotated[
    str,
    typer.Argument(
        metavar="DSN",
        envvar=STORE,
        help="Address of the queue's database, postgresql://USER@HOST/DATABASE.",
    ),
]
Teams = Annotated[
    Path,
    options.path_option(
        "TOML file with a table for each team: budget, and optionally at_once and priority.",
        "--teams",
        metavar="FILE",
        show_default=False,
    ),
]
AtOnce = Annotated[
    int, typer.Option("--jobs", min=1, max=MAX_JOBS, help="Maximum number of parallel runs.")
]
Host = Annotated[
    str | None,
    options.option(
        "Address at which /live and /ready answer, without a token; nothing listens without --host"
        " and --port.",
        metavar="IP",
        show_default="127.0.0.1",
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=options.MAX_PORT,
        help="Port for /live and /ready.",
        show_default=str(DEFAULT_PORT),
    ),
]
TeamName = Annotated[str, options.option("The team that pays for it.", "--team", metavar="NAME")]
Budget = Annotated[float, typer.Option(help="Dollars of each run (B).")]
Target = Annotated[float | None, options.option("Score at which the run ends.", metavar="SCORE")]
Priority = Annotated[int, typer.Option(help="Runs of the team with a higher priority start first.")]
Name = Annotated[
    str | None,
    options.option(
        "Run name, or a prefix for several runs.",
        metavar="NAME",
        show_default="PROBLEM-1, -2, ...",
    ),
]
Problem = Annotated[
    str | None,
    typer.Argument(
        metavar="PROBLEM",
        help=f"A problem that the servers offer, by its name; alone where {STORE} is set.",
        show_default=False,
    ),
]
Cancel = Annotated[str | None, options.option("Cancel the job of this run.", metavar="RUN")]
Retry = Annotated[
    str | None,
    options.option(
        "Try the job of this run again, or all that are failed, unpaid or cancelled.",
        metavar="RUN|STATE",
    ),
]
Forget = Annotated[
    str | None,
    options.option(
        "Remove the job of this run, or all that are finished, failed, unpaid or cancelled."
        " Their runs stay.",
        metavar="RUN|STATE",
    ),
]


@with_settings(*(name for name in ALL_SETTINGS if name not in CHOSEN_BY_JOBS))
def serve(
    database: Database,
    settings: Callable[[], dict[str, Any]],
    teams: Teams,
    problems: Problems = None,
    jobs: AtOnce = 100,
    out: Parent = DEFAULT_PARENT,
    host: Host = None,
    port: Port = None,
) -> None:
    """Execute the runs of a queue in Postgres, many in one process, until Ctrl-C.

    Start as many servers as you have cores, on one machine or on several. Clients add jobs by
    costada enqueue. Each team has a purse, named after it, in the same database. The runs of a
    server that dies are resumed by the others.
    """
    with refusing(ExitCode.BAD_INPUT), keeping_output_clean():
        check_database(database)
        if out.exists() and not out.is_dir():
            raise ValueError(f"--out: got {out}, expected a folder")
        is_listening = _is_listening(host, port)
        server, layer = _server(database, settings(), teams, problems, jobs, out)
        if is_listening:
            from costada.agents.health_paths import ADDRESS, serve_health

            serve_health(server.unready_reason, host or ADDRESS, port or DEFAULT_PORT)
    send_spans()
    announce(f"{server.name}: at most {jobs} runs at once, sandbox {layer}", sandbox=layer)
    code = ExitCode.INTERRUPTED
    with showing_pauses(say), ending_on_signal():
        try:
            server.serve()
        except (AccountRefused, ModelRefused) as error:
            code = ExitCode.BAD_INPUT
            say(f"the server ends, and its jobs are free for others: {error}", level="error")
        except KeyboardInterrupt as stop:
            if stop.args == (signal.SIGTERM,):
                code = ExitCode.FINISHED
        finally:
            server.end(SAVE_SECONDS)
            if server.num_running:  # an evaluation that does not end would keep the process alive
                os._exit(code or ExitCode.INTERRUPTED)
    raise typer.Exit(code)


def _is_listening(host: str | None, port: int | None) -> bool:
    """Whether the server answers /live and /ready.

    Raises:
        ValueError: The host is not an IP address, or a package is missing.
    """
    if host is None and port is None:
        return False
    if find_spec("uvicorn") is None:
        given = f"--port: got {port}" if host is None else f"--host: got {host}"
        raise ValueError(f'{given}, which needs uvicorn, run `pip install "costada[mcp]"`')
    if host is not None:
        is_loopback(host)
    return True


def _server(
    database: str,
    settings: dict[str, Any],
    teams: Path,
    problems: str | None,
    jobs: int,
    out: Path,
) -> tuple[RunServer, str]:
    """The server, and what confines candidates of its first problem; raises as these do."""
    from costada.agents.run_server import RunServer
    from costada.agents.search_service import named_problems
    from costada.agents.teams import read_teams
    from costada.evaluators.sandbox.layer_choice import described_layer
    from costada.runs.config import checked_config
    from costada.runs.plan import plan_run
    from costada.runs.search_request import SearchRequest

    known = named_problems(split_list("--problems", problems) if problems else problem_names())
    first, problem = next(iter(known.items()))
    request = SearchRequest(checked_config({**settings, "problem": problem}))
    plan = plan_run(request)
    planned = {first: plan.problem}
    server = RunServer(database, known, request, read_teams(teams), out, jobs, planned)
    return server, described_layer(plan.sandbox) if plan.sandbox else "up to the problem"


def enqueue(
    database: Database,
    team: TeamName,
    budget: Budget,
    problem: Problem = None,
    seeds: Seeds = "1",
    target: Target = None,
    priority: Priority = 0,
    name: Name = None,
) -> None:
    """Add runs to the queue of costada serve, and print their addresses."""
    with refusing(ExitCode.BAD_INPUT):
        from costada.agents import job_clients

        if problem is None:  # the address is in the environment
            database, problem = os.environ.get(STORE, ""), database
            if not database or is_database(problem):
                raise ValueError(
                    f"PROBLEM: is missing, expected DSN and PROBLEM, or {STORE} and PROBLEM"
                )
        with naming_options("team", "name", "seeds", "priority"):
            runs = job_clients.enqueue(
                database,
                problem,
                team=team,
                budget=budget,
                seeds=seed_numbers(seeds),
                target=target,
                priority=priority,
                name=name,
            )
        for run in runs:
            show(run)


def queue(
    database: Database,
    cancel: Cancel = None,
    retry: Retry = None,
    forget: Forget = None,
    as_json: options.AsJson = False,
) -> None:
    """List the jobs of a queue, cancel one, try some again, or remove ended ones.

    A cancelled run saves and ends.
    """
    from costada.reports.terminal import TerminalTable, table_console
    from costada.store.job_queue import JobQueue

    with refusing(ExitCode.BAD_INPUT):
        check_database(database)
        if (cancel, retry, forget) != (None, None, None):
            _change(database, cancel, retry, forget)
            return
        with JobQueue(database, is_read_only=True) as jobs:
            live = jobs.live_servers()
            found = jobs.jobs() if as_json else jobs.latest(MAX_ENDED)
            total = jobs.counts().values()
    rows = [_row(job, live) for job in found]
    if as_json:
        show(json.dumps(rows, indent=2))
        return
    table = [
        [f"${row['budget']:g}" if each == "budget" else str(row[each]) for each in COLUMNS]
        for row in rows
    ]
    TerminalTable(COLUMNS, table, COLUMNS, optional=("priority",)).print(table_console())
    if (hidden := sum(total) - len(rows)) > 0:
        show(f"{hidden} more jobs ended before these; --json lists all, --forget removes some")


def _change(database: str, cancel: str | None, retry: str | None, forget: str | None) -> None:
    """Cancel a job, try jobs again, or remove some; a run may be given by its address."""
    from costada.store.job_queue import FINISHED, STATES, JobQueue

    with JobQueue(database) as jobs:
        if cancel is not None:
            run = cancel.rpartition("#")[2]
            if not jobs.cancel(run):
                raise ValueError(f"--cancel: got {cancel!r}, expected a job that has not ended")
            show(f"{run} is cancelled; if it has begun, a server saves and ends it")
        if retry is not None:
            number = jobs.retry(retry.rpartition("#")[2])
            if not number and (retry not in STATES or retry == FINISHED):
                raise ValueError(
                    f"--retry: got {retry!r}, expected a job that is failed, unpaid or cancelled,"
                    " or one of these words"
                )
            show(f"Tried again: {counted(number, 'job')}" if number else f"No job is {retry}")
        if forget is not None:
            number = jobs.forget(forget.rpartition("#")[2])
            if not number and forget not in STATES:
                raise ValueError(
                    f"--forget: got {forget!r}, expected a job that has ended, or finished, failed,"
                    " unpaid or cancelled"
                )
            gone = f"Removed: {counted(number, 'job')}; runs stay"
            show(gone if number else f"No job is {forget}")


def _row(job: Job, live: Sequence[str]) -> dict[str, Any]:
    own = {"run": job.run, "team": job.team, **job.settings, "priority": job.priority}
    return {**own, "state": job.state(live), "stop_reason": job.ended, "error": job.error}

"""Servers that execute the runs of a queue, each in its own process."""

import logging
import os
from collections import Counter
from decimal import Decimal
from math import inf
from pathlib import Path
from resource import RLIMIT_AS, getrlimit, setrlimit
from threading import Thread, stack_size

import psycopg
from crash_runs import CAP, PRICE_IN, PRICE_OUT, slow_evaluation
from fakes import toy_problem
from waiting import within
from warm import PROCESSES

from costada.agents import run_server
from costada.agents.run_server import RunServer
from costada.agents.teams import Team
from costada.runs.config import RunConfig, checked_config
from costada.runs.folder import config_text
from costada.runs.interruption import ending_on_signal
from costada.runs.search_request import SearchRequest
from costada.runs.shared_purse import PurseAddress
from costada.store.job_queue import JobQueue
from costada.store.run_store import RunStore
from costada.values.usage import Price

TEAMS = {"red": Team(budget=100), "blue": Team(budget=100)}


def request(url, **settings):
    """What every run gets: a model that bills at a URL, and no other setting than those given."""
    own = {"model": "openai:stand-in", "base_url": url, "retry_wait": 0.01, "max_tokens": CAP}
    price = Price(PRICE_IN, PRICE_OUT)
    config = checked_config({"problem": "object:toy", "price": price, **own, **settings})
    return SearchRequest(config)


def serve(
    database,
    url,
    folder,
    teams=None,
    at_once=4,
    environment=None,
    retry_seconds=None,
    folders=None,
    log=None,
    threadless=None,
    **settings,
):
    """Serve in this process until a signal arrives; problem folders by the names of problems.

    While the file `threadless` exists, no thread can be started.
    """
    os.environ.update(environment or {})
    if threadless:
        Thread(target=refuse_threads, args=(Path(threadless),), daemon=True).start()
    if log:
        logging.basicConfig(filename=log)
    run_server.RETRY_SECONDS = retry_seconds or run_server.RETRY_SECONDS
    problems = {"toy": toy_problem(evaluate=slow_evaluation), **(folders or {})}
    server = RunServer(
        database, problems, request(url, **settings), teams or TEAMS, Path(folder), at_once
    )
    with ending_on_signal():
        try:
            server.serve()
        except KeyboardInterrupt:
            pass
        finally:
            server.end(60)


def refuse_threads(file):
    """Let no thread be started whenever a file exists: no stack fits into the memory left."""
    before = getrlimit(RLIMIT_AS)
    while True:
        within(inf, file.exists)
        setrlimit(RLIMIT_AS, (2**42, before[1]))
        stack_size(2**43)
        within(inf, lambda: not file.exists())
        stack_size(0)
        setrlimit(RLIMIT_AS, before)


def begun_server(*words, **settings):
    """A process that serves."""
    process = PROCESSES.Process(
        target=serve, args=words, kwargs={"environment": dict(os.environ), **settings}
    )
    process.start()
    return process


def states(database):
    """The state of each job by the name of its run."""
    with JobQueue(database) as queue:
        live = queue.live_servers()
        return {job.run: job.state(live) for job in queue.jobs()}


def have_ended(database):
    """Whether no job waits or runs."""
    return not {"waiting", "running"} & {*states(database).values()}


def ledger_of(database, team):
    """Dollars of all requests of a team's runs."""
    with psycopg.connect(database) as connection:
        rows = connection.execute(
            "SELECT cost, bound FROM costada.costada_call WHERE run_id IN (SELECT run_id FROM"
            " costada.costada_named JOIN costada.costada_job ON run = name WHERE team = %s)",
            (team,),
        ).fetchall()
    return sum((Decimal(cost) + Decimal(bound) for cost, bound in rows), Decimal(0))


def statuses_of_calls(database):
    """How many requests of all runs have each status."""
    with psycopg.connect(database) as connection:
        found = connection.execute("SELECT status FROM costada.costada_call").fetchall()
    return Counter(status for (status,) in found)


def order_of_starts(database):
    """The runs in the order in which they began."""
    with psycopg.connect(database) as connection:
        found = connection.execute("SELECT name FROM costada.costada_named ORDER BY claimed_at")
        return [name for (name,) in found.fetchall()]


def purse_of(database, team):
    """What a team's purse has spent, and what it has left."""
    with PurseAddress(database, team).open() as purse:
        return purse.spent, purse.remaining


def num_connections(database):
    """How many connections to the database there have been, of which the last may be missing."""
    with psycopg.connect(database) as connection:
        query = "SELECT sessions FROM pg_stat_database WHERE datname = current_database()"
        [(number,)] = connection.execute(query).fetchall()
        return number


def claim_all(database):
    """Let the run of each job begin, as far as its settings are saved."""
    config = RunConfig(problem="near")
    with JobQueue(database) as queue, RunStore.postgres(database) as store:
        for job in queue.jobs():
            assert store.named.claim(job.run, config_text(config))

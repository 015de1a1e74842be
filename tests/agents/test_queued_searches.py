"""`costada mcp --team`: clients whose searches the servers of a queue execute."""

import asyncio
import os
import shutil
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from begun_commands import BegunCommand
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from queue_servers import claim_all, num_connections, purse_of, states

from costada.agents.job_clients import enqueue
from costada.runs.shared_purse import PurseAddress
from costada.store.address import shown_address
from costada.store.job_queue import JobQueue

pytestmark = [
    pytest.mark.process,
    pytest.mark.filterwarnings("ignore:Field 'lifespan' has an incomplete definition"),
]

COSTADA = str(Path(sys.executable).with_name("costada"))
PROBLEM = "near"
NAME = f"red/{PROBLEM}/seed-3"


@pytest.fixture
def database(postgres_address):
    address = shown_address(postgres_address)
    PurseAddress(address, "red").create(1, "crossing").close()
    return address


@pytest.fixture
def serve(database, near, tmp_path):
    """Begins a server with its own copy of the problem, which ends with the test."""
    begun = []
    copy = shutil.copytree(near, tmp_path / "servers" / PROBLEM)

    def begin():
        teams = tmp_path / "teams.toml"
        teams.write_text("[red]\nbudget = 1\n")
        place = "--teams", teams, "--out", tmp_path / "runs", "--problems", copy
        begun.append(BegunCommand(tmp_path / "server.txt", "serve", database, *place))

    yield begin
    for each in begun:
        each.send_signal(signal.SIGKILL)
        each.exit_code()


@asynccontextmanager
async def session(database, near, tmp_path):
    """The tools of a server, each called by its name."""
    words = ["mcp", "--store", database, "--team", "red", "--problems", str(near)]
    place = ["--out", str(tmp_path / "mcp")]
    server = StdioServerParameters(command=COSTADA, args=[*words, *place], env=dict(os.environ))
    async with stdio_client(server) as streams, ClientSession(*streams) as client:
        await client.initialize()

        async def call(tool, **given):
            result = await client.call_tool(tool, given)
            return result.content[0].text if result.isError else result.structuredContent

        yield call


async def ended(call, run):
    while True:
        state = await call("wait_for_run", run=run, seconds=10)
        if state["phase"] != "running":
            return state


def test_searches_of_clients_are_jobs_that_servers_execute(database, serve, near, tmp_path):
    order = {"problem": PROBLEM, "budget": 0.02, "seed": 3}

    async def talk():
        async with session(database, near, tmp_path) as call:
            begun = await call("discover", **order)
            assert (await call("best_program", run=NAME))["program"].startswith("# EVOLVE")
            assert (begun["run"], begun["phase"], begun["iterations"]) == (NAME, "running", 0)
            assert (begun["budget"], begun["spent"], begun["purse_left"]) == (0.02, 0, 1)
            assert states(database) == {NAME: "waiting"}
            assert await call("discover", **order) == begun
            waiting = await call("wait_for_run", run=NAME, seconds=0.1)
            assert waiting == begun
            assert "is running" in await call("run_result", run=NAME)
            assert "waits for a server" in await call("submit_program", run=NAME, program="x")
        # a client that has left finds its search again
        serve()
        async with session(database, near, tmp_path) as call:
            state = await ended(call, NAME)
            assert (state["phase"], state["stop_reason"]) == ("finished", "budget")
            spent, left = purse_of(database, "red")
            assert (state["spent"], state["purse_left"]) == (float(spent), float(left))
            result = await call("run_result", run=NAME)
            assert result["program"]
            assert result["best_score"] == state["best_score"]
            assert (await call("list_runs"))["runs"] == [state]
            (tmp_path / "servers" / PROBLEM).rename(tmp_path / "gone")  # as on another machine
            assert await call("run_status", run=NAME) == state
            assert await call("run_result", run=NAME) == result
            assert "is finished" in await call("discover", **order)
            assert "is finished" in await call("continue_run", run=NAME, dollars=0)
            assert "a job keeps its own" in await call("continue_run", run=NAME, dollars=1)
            with JobQueue(database) as queue:
                assert queue.forget(NAME) == 1
            assert "whose job was removed" in await call("discover", **order)
            assert (await call("run_status", run=NAME))["run"] == NAME

    asyncio.run(talk())


def test_a_job_is_stopped_and_continued_and_those_of_other_teams_are_unknown(
    database, serve, near, tmp_path
):
    PurseAddress(database, "blue").create(1, "crossing").close()
    enqueue(database, PROBLEM, team="blue", budget=0.02, name="other")

    async def talk():
        async with session(database, near, tmp_path) as call:
            await call("discover", problem=PROBLEM, budget=0.02, seed=3)
            stopped = await call("stop_run", run=NAME)
            assert stopped["phase"] == "interrupted"
            assert "is interrupted" in await call("discover", problem=PROBLEM, budget=0.02, seed=3)
            assert (await call("continue_run", run=NAME, dollars=0))["phase"] == "running"
            refusal = await call("stop_run", run="other")
            assert refusal.endswith("run: got 'other', expected one of team 'red', as in list_runs")
            assert [run["run"] for run in (await call("list_runs"))["runs"]] == [NAME]
            assert "budget: got -1" in await call("discover", problem=PROBLEM, budget=-1, seed=4)
            serve()
            assert (await ended(call, NAME))["phase"] == "finished"

    asyncio.run(talk())
    assert states(database) == {NAME: "finished", "other": "waiting"}


def test_many_jobs_are_listed_over_few_connections(database, near, tmp_path):
    enqueue(database, PROBLEM, team="red", budget=0.02, seeds=range(40))
    claim_all(database)

    async def talk():
        async with session(database, near, tmp_path) as call:
            before = num_connections(database)
            assert len((await call("list_runs"))["runs"]) == 40
            assert num_connections(database) - before < 20

    asyncio.run(talk())


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        (["--team", "green"], "--team: got 'green', expected a team of its servers"),
        (["--team", "red", "--max-budget", 1], "--team: got one with --max-budget or --purse"),
        (["--team", "red", "--model", "openai:x"], "--model: not with --team"),
        (["--team", "red", "--target", "1.0", "--problems", "toi"], "problem is 'toi'"),
    ],
)
def test_wrong_options_are_refused(database, invoke, more, fault):
    refused = invoke("mcp", "--store", database, *more)
    assert refused.exit_code == 2
    assert fault in refused.stderr


def test_a_team_needs_its_database(invoke):
    refused = invoke("mcp", "--team", "red")
    assert refused.exit_code == 2
    assert "--store: is missing" in refused.stderr

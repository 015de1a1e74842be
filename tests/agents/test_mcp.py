"""`costada mcp` as its clients see it: tools, answers, refusals, money."""

import asyncio
import json
import os
import socket
import sys
from contextlib import asynccontextmanager
from decimal import Decimal
from http.client import HTTPConnection
from importlib.metadata import version
from pathlib import Path

import pytest
from billing_server import Refusal
from fakes import program, toy_folder
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.fastmcp.exceptions import ToolError
from ports import free_port
from served_searches import CALL_COST, better_programs, service_of, taking_time

from costada.agents.mcp import mcp_server
from costada.agents.search_service import SearchService
from costada.reports.trace import rows_of_file
from costada.runs.config import RunConfig
from costada.runs.folder import RunFolder
from costada.runs.folder_lease import hold_lease
from costada.runs.runner import is_finished
from costada.runs.search_request import SearchRequest
from costada.store.address import shown_address
from costada.store.purse import Purse

# What pydantic-settings says of the lowest version of mcp, at the first server of a process.
pytestmark = [
    pytest.mark.process,
    pytest.mark.filterwarnings("ignore:Field 'lifespan' has an incomplete definition"),
]


def test_a_purse_in_postgres_pays_for_the_runs_of_a_server(tmp_path, postgres_address):
    offered = ["mcp", "--problems", "circle_packing", "--out", str(tmp_path)]

    async def talk():
        money = ["--max-budget", "0.05", "--purse", shown_address(postgres_address)]
        async with session_with([*offered, *money]) as (session, _):
            order = {"problem": "circle_packing", "budget": 0.005, "seed": 2}
            begun = (await session.call_tool("discover", order)).structuredContent
            return await ended(session, begun["run"])

    end = asyncio.run(talk())
    with Purse(0.05, dsn=postgres_address, name="the server's purse") as purse:
        _, account, *_ = purse.accounts()
        assert account.name == f"{socket.gethostname()}:{end['folder']}"
        assert (account.is_closed, float(account.spent)) == (True, end["spent"])


def test_without_its_package_the_command_says_what_to_install(invoke, monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    result = invoke("mcp", "--max-budget", 1)
    assert result.exit_code == 2
    assert 'run `pip install "costada[mcp]"`' in result.output


COSTADA = str(Path(sys.executable).with_name("costada"))
PURSE = Decimal("0.04")
PING = '{"jsonrpc": "2.0", "id": 1, "method": "ping"}'


def words(provider, parent, *more):
    priced = ["--price", "1,2"]
    model = ["--model", "openai:stand-in", "--base-url", provider.url, *priced]
    offered = ["--problems", str(parent / "toy"), "--out", str(parent / "runs")]
    money = ["--max-budget", str(PURSE), "--purse", str(parent / "purse.sqlite")]
    return ["mcp", *offered, *money, *model, *map(str, more)]


async def listening(port):
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            await writer.wait_closed()
            return


@asynccontextmanager
async def session_with(arguments):
    server = StdioServerParameters(command=COSTADA, args=arguments, env=dict(os.environ))

    async def check(message):
        assert not isinstance(message, Exception), "standard output held something else"

    async with (
        stdio_client(server) as streams,
        ClientSession(*streams, message_handler=check) as session,
    ):
        yield session, (await session.initialize()).serverInfo


@asynccontextmanager
async def session_over_http(arguments, port):
    """Yield a session with a server that listens, and the address that it printed."""
    pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
    options = ("--http", "--port", str(port))
    process = await asyncio.create_subprocess_exec(COSTADA, *arguments, *options, **pipes)
    address = (await process.stdout.readline()).decode().strip()
    assert (await process.stdout.readline()).startswith(b"sandbox: ")
    await listening(port)
    async with (
        streamable_http_client(address) as (reading, writing, _),
        ClientSession(reading, writing) as session,
    ):
        await session.initialize()
        yield session, address
    process.terminate()
    await process.communicate()


async def call(session, tool, **arguments):
    """Return what a tool answers, or its error text."""
    result = await session.call_tool(tool, arguments)
    if result.isError:
        return result.content[0].text
    assert json.loads(result.content[0].text) == result.structuredContent
    return result.structuredContent


async def discover(session, budget, problem="toy", **more):
    return await call(session, "discover", problem=problem, budget=budget, **more)


async def ended(session, run):
    while True:
        status = await call(session, "wait_for_run", run=run, seconds=20)
        if status["phase"] != "running":
            return status


async def mistakes(session):
    return {
        "misspelt": await discover(session, 0.01, "toi"),
        "path": await discover(session, 0.01, "/etc"),
        "negative": await discover(session, -1),
        "unknown": await call(session, "run_status", run="toy-7"),
        "above": await call(session, "best_program", run="../toy"),
        "endless": await call(session, "wait_for_run", run="toy-7", seconds=3600),
    }


async def conversation(session, provider):
    """Return the answers to the first client, which leaves while a run is running."""
    heard = {
        "tools": {tool.name: tool for tool in (await session.list_tools()).tools},
        **await mistakes(session),
        "requests": len(provider.requests),
    }
    provider.script(Refusal(401, "no such key"))
    heard["failed"] = await ended(session, (await discover(session, float(PURSE)))["run"])
    heard["begun"] = begun = await discover(session, 0.006)
    heard["progress"], order = [], {"run": begun["run"]}

    async def note(*progress):
        heard["progress"].append(progress)

    await session.call_tool("wait_for_run", order, progress_callback=note)
    heard["end"] = await ended(session, begun["run"])
    heard["result"] = await call(session, "run_result", **order)
    heard["best"] = await call(session, "best_program", run=begun["run"])
    heard["again"] = await discover(session, 0.006)
    heard["left"] = left = await discover(session, 100, seed=1)
    heard["twice"] = await discover(session, 100, seed=1)
    while not (await call(session, "run_status", run=left["run"]))["iterations"]:
        await asyncio.sleep(0.01)
    return heard


def statuses(port, token):
    """Return the statuses of requests with and without the token, or with a foreign header."""
    shown, other = {"Authorization": f"Bearer {token}"}, {"Authorization": f"Bearer {token[1:]}"}
    asked = {
        "health": ("/health", {}),
        "live": ("/live", {}),
        "ready": ("/ready", {}),
        "metrics without a token": ("/metrics", {}),
        "metrics": ("/metrics", shown),
        "nothing": ("/mcp", {}),
        "another token": ("/mcp", other),
        "another token in the address": (f"/mcp?token={token[1:]}", {}),
        "another path": ("/", {}),
        "token in the address": (f"/mcp?token={token}", {}),
        "token in a header": ("/mcp", shown),
        "another host": ("/mcp", {**shown, "Host": "evil.example"}),
        "another origin": ("/mcp", {**shown, "Origin": "http://evil.example"}),
    }
    found = {}
    for name, (path, headers) in asked.items():
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        ready = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        connection.request("POST", path, body=PING, headers={**ready, **headers})
        found[name] = connection.getresponse().status
        connection.close()
    return found


@pytest.fixture(scope="module")
def heard(tmp_path_factory):
    """What two servers with one purse tell, the second over HTTP, and what the provider billed."""
    parent = tmp_path_factory.mktemp("mcp")
    evaluator = toy_folder(parent) / "evaluator.py"
    noisy = evaluator.read_text().replace("    return", "    print('judged')\n    return")
    evaluator.write_text(noisy)

    async def talk(provider):
        arguments = words(provider, parent)
        with taking_time(provider):
            async with session_with(arguments) as (session, server):
                heard = await conversation(session, provider)
        heard["version"] = server.version
        heard["billed_first"] = CALL_COST * len(provider.bill)
        heard["port"] = port = free_port()
        async with session_over_http(arguments, port) as (session, heard["address"]):
            token = heard["address"].rpartition("=")[2]
            heard["statuses"] = await asyncio.to_thread(statuses, port, token)
            heard["lowered"] = lowered = await discover(session, 100, seed=2)
            heard["last"] = await ended(session, lowered["run"])
            heard["empty"] = await discover(session, 0.002, seed=3)
            heard["listed"] = await call(session, "list_runs")
        return {**heard, "billed": CALL_COST * len(provider.bill)}

    with better_programs() as provider:
        return asyncio.run(talk(provider))


def test_a_run_ends_at_the_target_of_the_client_or_else_of_the_server(tmp_path):
    toy_folder(tmp_path)

    async def talk(provider):
        async with session_with(words(provider, tmp_path, "--target", 0.24)) as (session, _):
            own = await ended(session, (await discover(session, 0.02, target=0.22))["run"])
            servers = await ended(session, (await discover(session, 0.02, seed=1))["run"])
            reached = await call(session, "continue_run", run=own["run"], dollars=0)
            await call(session, "continue_run", run=own["run"], dollars=0, target=0.9)
            return own, servers, reached, await ended(session, own["run"])

    with better_programs() as provider:
        own, servers, reached, beyond = asyncio.run(talk(provider))
    assert "which has ended (target) and has nothing left to do" in reached
    assert (beyond["stop_reason"], beyond["iterations"] > 1) == ("budget", True)
    assert (own["stop_reason"], servers["stop_reason"]) == ("target", "target")
    targets = [RunFolder(Path(each["folder"])).load().target for each in (own, servers)]
    assert targets == [0.9, 0.24]  # the first was continued to another one
    # The n-th answer scores 0.2 + n / 50: the first reaches 0.22.
    assert own["iterations"] == 1


def test_the_server_says_which_tools_read_and_its_own_version(heard):
    reading = {name for name, tool in heard["tools"].items() if tool.annotations.readOnlyHint}
    assert reading == {"run_status", "wait_for_run", "list_runs", "best_program", "run_result"}
    changing = {"discover", "stop_run", "continue_run", "submit_program"}
    assert set(heard["tools"]) - reading == changing
    assert heard["version"] == version("costada")
    assert set(heard["tools"]["discover"].inputSchema["required"]) == {"problem", "budget"}


def test_a_client_starts_a_run_follows_it_and_fetches_the_program(heard):
    begun, end, best = heard["begun"], heard["end"], dict(heard["best"])
    assert (begun["run"], begun["phase"], begun["budget"]) == ("toy-2", "running", 0.006)
    assert (end["phase"], end["stop_reason"], end["iterations"]) == ("finished", "budget", 3)
    assert (end["spent"], end["error"]) == (0.006, "")
    assert (best.pop("program"), best.pop("files")) == (program(end["best_score"]), {})
    assert best == end
    folder = RunFolder(Path(end["folder"]))
    assert folder.load().budget == 0.006
    assert folder.best_program.read_text() == program(end["best_score"])


def test_a_client_that_waits_hears_of_progress(heard):
    iterations = [number for number, _, _ in heard["progress"]]
    assert iterations == sorted({*iterations})
    assert (iterations[-1], heard["progress"][-1][1]) == (3, None)
    said = f"3 iterations, $0.0060 of $0.0060 spent, best score {heard['end']['best_score']:.4f}"
    assert heard["progress"][-1][2] == said


def test_the_result_of_a_run_has_its_program_and_what_else_it_found(heard):
    found = dict(heard["result"])
    assert found.pop("metrics")["combined_score"] == heard["best"]["best_score"]
    more = {"validation_score": None, "pareto_front": [], "in_doubt": 0, "last_failure": ""}
    assert found == {**heard["best"], **more}


def test_answers_have_schemas_that_say_what_their_fields_mean(heard):
    for name, tool in heard["tools"].items():
        schema = tool.outputSchema
        assert schema["required"] == [*schema["properties"]]
        unexplained = {
            field for field, its in schema["properties"].items() if "description" not in its
        }
        assert unexplained <= {"phase", "runs"}, name


def test_the_same_search_is_the_run_that_is_running_or_can_be_continued(heard):
    assert heard["twice"]["run"] == heard["left"]["run"] == "toy-3"
    assert "problem 'toy' with seed 0 is run 'toy-2', which is finished" in heard["again"]


def test_a_later_server_lists_the_runs_of_its_purse(heard):
    runs = {each["run"]: each for each in heard["listed"]["runs"]}
    assert [*runs] == ["toy-1", "toy-2", "toy-3", "toy-4"]
    assert (runs["toy-2"]["phase"], runs["toy-2"]["spent"]) == ("finished", 0.006)
    assert runs["toy-3"]["phase"] == "interrupted"
    assert runs["toy-4"] == heard["last"]
    assert heard["listed"]["purse_budget"] == float(PURSE)
    assert heard["listed"]["purse_left"] == 0


def test_all_runs_together_spend_no_more_than_the_host_allows(heard):
    budget = heard["lowered"]["budget"]
    assert (heard["last"]["budget"], heard["last"]["spent"]) == (budget, budget)
    assert RunFolder(Path(heard["last"]["folder"])).load().budget == budget
    assert "the server's purse\" has $0.000000 left of $0.04" in heard["empty"]
    assert heard["billed"] == PURSE


def test_mistakes_of_a_client_are_explained_and_cost_nothing(heard):
    assert "Unknown problem 'toi'. Did you mean 'toy'? Known: toy." in heard["misspelt"]
    assert "Unknown problem '/etc'. Known: toy." in heard["path"]
    assert "budget: got -1.0, expected" in heard["negative"]
    assert "got 'toy-7', expected one that was started here: none yet" in heard["unknown"]
    assert "got '../toy', expected one that was started here: none yet" in heard["above"]
    assert "less than or equal to 45" in heard["endless"]
    assert heard["requests"] == 0


@pytest.mark.parametrize(
    ("tool", "argument", "value", "complaint"),
    [
        ("discover", "budget", True, "valid number"),
        ("discover", "budget", "1", "valid number"),
        ("discover", "seed", True, "valid integer"),
        ("discover", "seed", 1.0, "valid integer"),
        ("discover", "target", "1", "valid number"),
        ("discover", "buget", 0.01, "not permitted"),
        ("discover", "problem", 3, "valid string"),
        ("wait_for_run", "seconds", True, "valid number"),
        ("run_status", "seconds", 3, "not permitted"),
        ("best_program", "runs", "toy-1", "not permitted"),
    ],
)
def test_unknown_arguments_and_those_of_another_type_are_refused_by_name(
    tmp_path, tool, argument, value, complaint
):
    with Purse(1) as purse:
        server = mcp_server(service_of(purse, tmp_path))
        given = {"problem": "toy", "budget": 1} if tool == "discover" else {"run": "toy-1"}
        with pytest.raises(ToolError, match=f"(?s){tool}.*\\n{argument}\\n.*{complaint}"):
            asyncio.run(server.call_tool(tool, {**given, argument: value}))
        assert len(purse.accounts()) == 1
        schemas = {each.name: each.inputSchema for each in asyncio.run(server.list_tools())}
        assert schemas[tool]["additionalProperties"] is False


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        ("hard", "All runs together spend at most $0.05."),
        ("crossing", "a run, and all runs together, can spend more"),
    ],
)
def test_the_instructions_say_what_holds_under_the_budget_policy(tmp_path, policy, sentence):
    with Purse(0.05, policy=policy) as purse:
        settings = RunConfig(problem="circle_packing", budget_policy=policy)
        service = SearchService({}, SearchRequest(settings), purse, tmp_path)
        assert sentence in mcp_server(service).instructions


def test_a_failing_run_says_why_and_gives_its_money_back(heard):
    assert heard["failed"]["phase"] == "failed"
    assert "no such key" in heard["failed"]["error"]
    assert heard["begun"]["budget"] == 0.006


def test_a_running_search_is_saved_when_the_client_leaves_and_its_money_reclaimed(heard):
    folder = RunFolder(Path(heard["left"]["folder"]))
    with hold_lease(folder.path):
        assert rows_of_file(folder.database)
    assert not is_finished(folder)
    assert heard["left"]["budget"] == float(PURSE - Decimal("0.006"))
    assert heard["lowered"]["run"] == "toy-4"
    assert Decimal(str(heard["lowered"]["budget"])) == PURSE - heard["billed_first"]


def test_it_can_be_reached_over_http_on_loopback(heard):
    assert heard["address"].startswith(f"http://127.0.0.1:{heard['port']}/mcp?token=")
    assert heard["last"]["phase"] == "finished"


def test_http_requests_without_the_token_or_from_another_host_are_refused(heard):
    unheard = {name: status for name, status in heard["statuses"].items() if status != 400}
    assert unheard == {
        **dict.fromkeys(["live", "ready", "health", "metrics"], 200),
        "metrics without a token": 401,
        **dict.fromkeys(["nothing", "another token", "another token in the address"], 401),
        "another path": 401,
        "another host": 421,
        "another origin": 403,
    }


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ([], "--max-budget: is missing, expected dollars"),
        (["--max-budget", -1], "--max-budget: got -1, expected finite dollars above 0"),
        (["--max-budget", 1, "--problems", "toi"], "problem is 'toi'"),
        (["--max-budget", 1, "--problems", "circle_packing,circle_packing"], "got two named"),
        (["--max-budget", 1, "--model", "openai:unheard-of"], "OPENAI_API_KEY"),
    ],
)
def test_wrong_options_are_refused_before_the_server_starts(invoke, monkeypatch, more, text):
    for name in ("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    result = invoke("mcp", *more)
    assert result.exit_code == 2
    assert text in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("more", "token", "text"),
    [
        (["--host", "0.0.0.0"], "", "--host: got 0.0.0.0 without --http, expected both or none"),
        (["--http", "--host", "0.0.0.0"], "", "without a token in COSTADA_MCP_TOKEN"),
        (["--http", "--host", "::"], "", "without a token in COSTADA_MCP_TOKEN"),
        (
            ["--http", "--host", "everywhere"],
            "",
            "got 'everywhere', expected an IP address",
        ),
        (["--http"], "short", "COSTADA_MCP_TOKEN: expected at least 32 letters"),
        (["--http"], "with spaces " * 4, "COSTADA_MCP_TOKEN: expected at least 32 letters"),
        (["--store", "mysql://h/d"], "", "store: got 'mysql://h/d', expected postgresql://"),
        (["--store", "postgresql://h/d", "--purse", "p"], "", "--purse: got p with --store"),
    ],
)
def test_a_server_for_other_machines_needs_a_token_and_a_place(
    invoke, monkeypatch, more, token, text
):
    monkeypatch.setenv("COSTADA_MCP_TOKEN", token)
    result = invoke("mcp", "--max-budget", 1, *more)
    assert result.exit_code == 2
    said = " ".join(result.output.split())
    assert text in said
    assert not token or token not in said

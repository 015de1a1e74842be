"""Searches that an agent starts, follows, stops and continues with tools."""

import asyncio
import json
from decimal import Decimal

import pytest
from fakes import program, toy_problem
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from served_searches import taking_time
from two_models import SEARCHER

from costada.agents.mcp import mcp_server
from costada.agents.toolkit import create_discovery_toolkit
from costada.models.chat_models import chat_model
from costada.store.address import shown_address
from costada.store.purse import Purse
from costada.values.usage import Price

pytestmark = [
    pytest.mark.process,
    # what pydantic-settings says of the lowest version of mcp
    pytest.mark.filterwarnings("ignore:Field 'lifespan' has an incomplete definition"),
]


def toolkit_of(provider, purse, out, problems="toy", **options):
    model = chat_model(f"openai:{SEARCHER}", base_url=provider.url, retry_wait=0)
    given = toy_problem() if problems == "toy" else problems
    price = Price("1", "2")
    return create_discovery_toolkit(given, model, purse=purse, out=out, price=price, **options)


class Agent:
    """A graph whose one node has the tools; `streamed` is what its last call streamed."""

    def __init__(self, toolkit):
        graph = StateGraph(MessagesState)
        graph.add_node("tools", ToolNode(toolkit.get_tools()))
        graph.add_edge(START, "tools")
        self.graph, self.streamed = graph.compile(), []

    async def _answer(self, given):
        self.streamed = []
        async for mode, chunk in self.graph.astream(given, stream_mode=["custom", "values"]):
            if mode == "custom":
                self.streamed.append(chunk)
        return chunk["messages"][-1]

    def said(self, tool, **arguments):
        """The message with which a tool answers."""
        call = {"name": tool, "args": arguments, "id": "1"}
        return asyncio.run(self._answer({"messages": [AIMessage("", tool_calls=[call])]}))

    def __call__(self, tool, **arguments):
        """What a tool answers."""
        message = self.said(tool, **arguments)
        assert message.status == "success", message.content
        assert json.loads(message.content) == message.artifact
        return message.artifact


def test_an_agent_starts_a_search_waits_for_it_and_continues_it(provider, tmp_path):
    provider.orders()
    with Purse(0.1) as purse, toolkit_of(provider, purse, tmp_path) as toolkit:
        agent = Agent(toolkit)
        begun = agent("discover", problem="toy", budget=0.006)
        assert (begun["run"], begun["budget"], begun["purse_budget"]) == ("toy-1", 0.006, 0.1)
        end = agent("wait_for_run", run="toy-1")
        assert (end["phase"], end["stop_reason"], end["spent"]) == ("finished", "budget", 0.006)
        assert all(0 < each["iterations"] <= 3 for each in agent.streamed)
        assert agent.streamed
        assert agent("run_status", run="toy-1") == end
        again = agent.said("discover", problem="toy", budget=0.006)
        assert (again.status, "continue_run with more dollars" in again.content) == ("error", True)
        agent("continue_run", run="toy-1", dollars=0.004)
        while agent("wait_for_run", run="toy-1")["phase"] == "running":
            pass
        found = agent("run_result", run="toy-1")
        assert (found["spent"], found["purse_left"]) == (0.01, 0.09)
        assert found["program"] == program(found["best_score"])
        assert (found["in_doubt"], found["pareto_front"]) == (0, [])
        assert agent("best_program", run="toy-1").items() <= found.items()
        assert [each["run"] for each in agent("list_runs")["runs"]] == ["toy-1"]
        assert purse.spent == provider.billed == Decimal("0.01")


@pytest.mark.parametrize(
    ("file", "reason"), [("settings.json", "Invalid JSON"), ("run.sqlite", "not a run file")]
)
def test_a_run_whose_files_are_damaged_is_listed_beside_the_others(
    provider, tmp_path, file, reason
):
    provider.orders()
    with Purse(0.1, path=tmp_path / "purse") as purse:
        with toolkit_of(provider, purse, tmp_path / "runs") as toolkit:
            agent = Agent(toolkit)
            for seed in (0, 1):
                run = agent("discover", problem="toy", budget=0.006, seed=seed)["run"]
                while agent("wait_for_run", run=run)["phase"] == "running":
                    pass
        (tmp_path / "runs" / "toy-1" / file).write_bytes(b"{ damaged" * 100)
        with toolkit_of(provider, purse, tmp_path / "runs") as toolkit:
            agent = Agent(toolkit)
            damaged, sound = agent("list_runs")["runs"]
            assert (damaged["run"], damaged["phase"]) == ("toy-1", "unreadable")
            assert reason in damaged["error"]
            assert damaged["spent"] == 0.006
            assert (sound["run"], sound["phase"], sound["error"]) == ("toy-2", "finished", "")
            assert agent("discover", problem="toy", budget=0.006, seed=2)["phase"] == "running"


def test_a_later_toolkit_continues_what_an_earlier_one_stopped_and_leaves_other_accounts(
    provider, tmp_path
):
    provider.orders()
    with Purse(1, path=tmp_path / "purse") as purse:
        spender = purse.child("agent", 0.25)
        with toolkit_of(provider, purse, tmp_path / "runs") as toolkit:
            agent = Agent(toolkit)
            agent("discover", problem="toy", budget=0.5)
            running = agent.said("run_result", run="toy-1")
            assert "'toy-1', which is running; expected one that is not" in running.content
            agent("stop_run", run="toy-1")
        with toolkit_of(provider, purse, tmp_path / "runs") as toolkit:
            agent = Agent(toolkit)
            stopped = agent("wait_for_run", run="toy-1")
            assert (stopped["phase"], stopped["stop_reason"]) == ("interrupted", "")
            assert stopped["purse_left"] == 0.75 - stopped["spent"]
            assert float(spender.remaining) == 0.25
            begun = agent("continue_run", run="toy-1", dollars=0, target=0.25)
            assert begun["phase"] == "running"
            while (end := agent("wait_for_run", run="toy-1"))["phase"] == "running":
                pass
            assert end["stop_reason"] == "target"
        assert float(purse.spent) == end["spent"]


def test_the_next_step_evaluates_a_program_of_the_agent_and_the_search_builds_on_it(
    provider, tmp_path
):
    provider.orders()
    with Purse(1) as purse, toolkit_of(provider, purse, tmp_path) as toolkit:
        agent = Agent(toolkit)
        agent("discover", problem="toy", budget=0.002)
        agent("wait_for_run", run="toy-1")
        wrong = agent.said("submit_program", run="toy-1", program="def value(:")
        assert (wrong.status, "without syntax errors" in wrong.content) == ("error", True)
        files = agent.said("submit_program", run="toy-1", program={"a.py": "x = 1"})
        assert "expected one text, as the programs of the run are" in files.content
        agent("submit_program", run="toy-1", program=program(0.95))
        agent("continue_run", run="toy-1", dollars=0.002)
        while agent("wait_for_run", run="toy-1")["phase"] == "running":
            pass
        found = agent("run_result", run="toy-1")
        assert (found["program"], found["spent"]) == (program(0.95), 0.004)
        assert purse.spent == provider.billed == Decimal("0.004")
        assert any(program(0.95) in each["content"] for each in provider.requests[-1]["messages"])


def test_a_program_can_be_submitted_while_its_run_starts(provider, tmp_path):
    provider.orders()
    with Purse(1) as purse, toolkit_of(provider, purse, tmp_path) as toolkit:
        agent = Agent(toolkit)
        agent("discover", problem="toy", budget=1)
        agent("submit_program", run="toy-1", program=program(0.95))
        while (found := agent("best_program", run="toy-1"))["best_score"] != 0.95:
            assert found["phase"] == "running"


def test_toolkits_of_one_database_list_and_resume_the_runs_of_each_other(
    provider, postgres_address, tmp_path
):
    provider.orders()
    address = shown_address(postgres_address)
    with taking_time(provider), Purse(1, dsn=address) as purse:
        with toolkit_of(provider, purse, tmp_path / "one", store=address) as toolkit:
            agent = Agent(toolkit)
            begun = agent("discover", problem="toy", budget=0.02)
            while not agent("run_status", run=begun["run"])["iterations"]:
                pass
        assert provider.billed < Decimal("0.02")
        with toolkit_of(provider, purse, tmp_path / "other", store=address) as toolkit:
            agent = Agent(toolkit)
            while (end := agent("wait_for_run", run=begun["run"]))["phase"] != "finished":
                assert end["phase"] in ("interrupted", "running")
        assert end["spent"] == float(purse.spent) == float(provider.billed) == 0.02


@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        ("discover", {"problem": "toi", "budget": 1}, "Unknown problem 'toi'. Did you mean 'toy'?"),
        ("discover", {"problem": "toy", "budget": -1}, "budget: got -1.0, expected"),
        ("discover", {"problem": "toy", "budget": True}, "budget: got True. Input should be a"),
        ("discover", {"problem": "toy"}, "wrong arguments: budget: Field required"),
        ("discover", {"problem": "toy", "budget": 1, "model": "x"}, "model: got 'x'. Extra inputs"),
        ("run_status", {"run": "toy-7"}, "run: got 'toy-7', expected one that was started here"),
        ("wait_for_run", {"run": "toy-7", "seconds": 99}, "seconds: got 99. Input should be less"),
    ],
)
def test_what_an_agent_gets_wrong_is_explained_and_costs_nothing(
    provider, tmp_path, tool, arguments, text
):
    with Purse(1) as purse, toolkit_of(provider, purse, tmp_path) as toolkit:
        message = Agent(toolkit).said(tool, **arguments)
        assert message.status == "error"
        assert text in message.content
        assert len(purse.accounts()) == 1
    assert provider.requests == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"problems": []}, "problems: got none, expected at least one"),
        ({"problems": [toy_problem(), toy_problem()]}, "problems: got two named 'toy'"),
        ({"seed": 3}, "seed: got 3, expected none: the agent chooses it"),
        ({"budget_policy": "crossing"}, "budget_policy: got 'crossing' with a hard purse"),
        ({"max_failures": 0}, "max_failures: got 0"),
        ({"store": "postgresql://me@there/runs"}, "store: got an address with a purse of this"),
        ({"store": "runs.sqlite"}, "store: got 'runs.sqlite', expected postgresql://"),
    ],
)
def test_what_a_host_gets_wrong_is_refused_at_once(provider, tmp_path, options, text):
    with Purse(1, policy="hard") as purse, pytest.raises(ValueError, match=text):
        toolkit_of(provider, purse, tmp_path, **options)


def test_agents_and_mcp_clients_have_the_same_tools(provider, tmp_path):
    with Purse(1) as purse, toolkit_of(provider, purse, tmp_path) as toolkit:
        tools = {each.name: each for each in toolkit.get_tools()}
        served = {each.name: each for each in asyncio.run(mcp_server(toolkit.service).list_tools())}
    assert tools.keys() == served.keys()
    for name, tool in tools.items():
        assert tool.args == served[name].inputSchema["properties"]
        assert tool.description == served[name].description
    assert "Problems: toy. All runs together share $1." in tools["discover"].description

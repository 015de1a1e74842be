"""A search as a tool of a real agent, over loopback HTTP: both models are served by one server."""

import asyncio
from dataclasses import replace
from decimal import Decimal

import pytest
from fakes import evaluate_value, program, toy_problem
from file_programs import START as START_FILES
from file_programs import files_problem
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command
from two_models import AGENT, SEARCHER

from costada.agents.tool import create_discovery_tool
from costada.models.chat_models import chat_model
from costada.store.purse import Purse
from costada.store.run_store import RunStore
from costada.values.usage import Price

THREAD = {"configurable": {"thread_id": "1"}}
TASK = {"messages": [("user", "Find me a large number for at most a cent.")]}


def tool_of(provider, problems="toy", **options):
    model = chat_model(f"openai:{SEARCHER}", base_url=provider.url, retry_wait=0)
    given = toy_problem() if problems == "toy" else problems
    return create_discovery_tool(
        given, model, **{"max_budget": 0.01, "price": Price("1", "2"), **options}
    )


def agent_of(provider, tool, saver=None):
    model = chat_model(f"openai:{AGENT}", base_url=provider.url, max_attempts=1).bound
    return create_agent(model, [tool], checkpointer=saver)


def tool_messages(state):
    return [message for message in state["messages"] if isinstance(message, ToolMessage)]


def run(agent, given=TASK, config=None, is_async=False):
    config = {**(config or {}), "recursion_limit": 25}
    return asyncio.run(agent.ainvoke(given, config)) if is_async else agent.invoke(given, config)


@pytest.mark.parametrize("is_async", [False, True])
def test_an_agent_gets_the_best_program_its_score_its_price_and_why_it_stopped(provider, is_async):
    provider.orders({"problem": "toy", "budget": 0.01})
    state = run(agent_of(provider, tool_of(provider)), is_async=is_async)
    (message,) = tool_messages(state)
    found = message.artifact
    assert state["messages"][-1].content == "There it is."
    assert message.status == "success"
    assert found["stop_reason"] == "budget"
    assert Decimal(str(found["spent"])) == provider.billed == Decimal("0.01")
    assert found["best_program"] == program(found["best_score"])
    assert message.content == (
        f"toy: score {found['best_score']:g}, objective {10 * found['best_score']:g},"
        " score 0.1, objective 1 before (objective to maximize).\n"
        f"Spent $0.010000 in {found['iterations']} iterations, $0.000000 left of its budget;"
        " stopped because the budget is used up.\n"
        f"Best program:\n```python\n{program(found['best_score'])}```"
    )
    assert message.content in str(provider.requests[-1]["messages"][-1]["content"])


def test_a_higher_budget_is_lowered_to_the_hosts(provider):
    provider.orders({"problem": "toy", "budget": 100})
    (message,) = tool_messages(run(agent_of(provider, tool_of(provider, max_budget=0.006))))
    assert Decimal(str(message.artifact["spent"])) == provider.billed == Decimal("0.006")


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("of_host", "of_agent"),
    [({"target": 0.25}, {}), ({}, {"target": 0.25}), ({"target": 0.9}, {"target": 0.25})],
)
def test_a_search_ends_at_the_target_of_the_agent_or_else_of_the_host(
    provider, of_host, of_agent, is_async
):
    provider.orders({"problem": "toy", "budget": 1, **of_agent})
    agent = agent_of(provider, tool_of(provider, max_budget=1, **of_host))
    (message,) = tool_messages(run(agent, is_async=is_async))
    found = message.artifact
    # The n-th answer scores 0.2 + n / 50, and a toy problem has scores of its own.
    assert (found["stop_reason"], found["iterations"]) == ("target", 3)
    assert found["best_score"] == pytest.approx(0.26)
    assert "stopped because the target is reached" in message.content
    assert Decimal(str(found["spent"])) == provider.billed


def test_a_target_that_no_objective_reaches_is_explained_and_costs_nothing(provider):
    provider.orders({"problem": "toy", "budget": 1, "target": -1})
    lower = toy_problem(direction="minimize", evaluate=minimising)
    (message,) = tool_messages(run(agent_of(provider, tool_of(provider, lower))))
    assert message.status == "error"
    assert "target: got -1 for problem 'toy', which minimises" in message.content
    assert provider.billed == 0


def minimising(source):
    found = evaluate_value(source)
    return replace(found, objective=1 / found.score) if found.is_valid else found


def test_a_lower_budget_is_kept(provider):
    provider.orders({"budget": 0.004})
    (message,) = tool_messages(run(agent_of(provider, tool_of(provider))))
    assert Decimal(str(message.artifact["spent"])) == provider.billed == Decimal("0.004")


def test_a_program_of_the_agents_is_judged_by_the_hosts_evaluator(provider):
    provider.orders({"program": program(0.8), "evaluator": "value", "budget": 0.004})
    tool = tool_of(provider, None, evaluators={"value": toy_problem()})
    (message,) = tool_messages(run(agent_of(provider, tool)))
    assert message.artifact["best_program"] == program(0.8)
    assert "score 0.8, objective 8, score 0.8, objective 8 before" in message.content


def broken(code):
    raise ValueError("cannot judge this")


PROBLEMS = "problem: got 'nowhere'. Input should be 'toy' or 'other'"
WAYS = "expected a problem, or a program together with an evaluator"


@pytest.mark.parametrize(
    ("order", "text"),
    [
        ({"problem": "nowhere", "budget": 0.01}, PROBLEMS),
        ({"problem": "toy"}, "budget: Field required"),
        ({"problem": "toy", "budget": 0}, "budget: got 0. Input should be greater than 0"),
        ({"problem": "toy", "budget": -1}, "budget: got -1. Input should be greater than 0"),
        ({"problem": "toy", "budget": True}, "budget: got True. Input should be a valid number"),
        ({"problem": "toy", "budget": "NaN"}, "budget: got 'NaN'. Input should be"),
        ({"problem": "toy", "budget": "much"}, "budget: got 'much'. Input should be a valid"),
        ({"budget": 0.01}, f"got neither, {WAYS}"),
        ({"program": "x", "budget": 0.01}, f"got program, {WAYS}"),
        ({"problem": "toy", "program": "x", "evaluator": "value", "budget": 1}, f"program, {WAYS}"),
        (
            {"program": "x", "evaluator": "def evaluate(code): return 1" * 9, "budget": 1},
            "evaluator: got 'def evaluate(code): return 1",
        ),
        ({"problem": "toy", "budget": 1, "evaluate": "lambda code: 1"}, "Extra inputs are not"),
        ({"problem": "toy", "budget": 1, "target": "9"}, "target: got '9'. Input should be a"),
        (
            {"program": program(7), "evaluator": "value", "budget": 1},
            "program: the evaluator rejects it: value is 7.0; expected at most 1",
        ),
        (
            {"program": "x", "evaluator": "broken", "budget": 1},
            "program: it cannot be evaluated: cannot judge this",
        ),
    ],
)
def test_wrong_arguments_are_explained_to_the_agent_and_cost_nothing(provider, order, text):
    provider.orders(order)
    problems = [toy_problem(), toy_problem(name="other")]
    evaluators = {"value": toy_problem(), "broken": toy_problem(evaluate=broken)}
    state = run(agent_of(provider, tool_of(provider, problems, evaluators=evaluators)))
    (message,) = tool_messages(state)
    assert message.status == "error"
    assert text in message.content
    assert len(message.content) < 400
    assert provider.billed == 0
    assert state["messages"][-1].content == "There it is."


def test_the_schema_names_what_the_host_allows(provider):
    tool = tool_of(provider, [toy_problem()], evaluators={"value": toy_problem()})
    fields = tool.tool_call_schema.model_json_schema()["properties"]
    assert set(fields) == {"problem", "program", "evaluator", "budget", "target"}
    assert fields["evaluator"]["anyOf"][0] == {"const": "value", "type": "string"}
    assert "at most 0.01" in fields["budget"]["description"]
    only = tool_of(provider).tool_call_schema.model_json_schema()
    assert set(only["properties"]) == {"problem", "budget", "target"}
    assert only["required"] == ["budget"]


def test_the_trace_rows_come_out_of_the_agents_stream(provider):
    provider.orders({"budget": 0.006})
    agent = agent_of(provider, tool_of(provider))
    rows = list(agent.stream(TASK, stream_mode="custom"))
    assert [row["iteration"] for row in rows] == list(range(1, len(rows) + 1))
    assert rows[-1]["spent"] == 0.006


@pytest.mark.parametrize("is_async", [False, True])
def test_under_a_saver_the_agents_caller_is_asked_for_more_budget(provider, is_async):
    provider.orders({"budget": 0.004}, {"budget": 0.002})
    tool = tool_of(provider, on_exhausted="interrupt")
    agent = agent_of(provider, tool, InMemorySaver())

    def answer(given):
        return run(agent, given, THREAD, is_async)

    (question,) = answer(TASK)["__interrupt__"]
    assert (question.value["spent"], question.value["budget"]) == (0.004, 0.004)
    (question,) = answer(Command(resume={"budget": 0.008}))["__interrupt__"]
    assert (question.value["spent"], question.value["budget"]) == (0.008, 0.008)
    (question,) = answer(Command(resume="stop"))["__interrupt__"]
    assert (question.value["spent"], question.value["budget"]) == (0.002, 0.002)
    first, second = tool_messages(answer(Command(resume={"stop": True})))
    assert (first.artifact["spent"], second.artifact["spent"]) == (0.008, 0.002)
    assert provider.billed == Decimal("0.010")


def test_under_a_saver_a_stopped_search_is_resumed_without_paying_again(provider, tmp_path):
    judged = []

    def evaluate(code):
        judged.append(code)
        if len(judged) == 4:
            raise InterruptedError("asked to stop")
        return evaluate_value(code)

    provider.orders({"budget": 0.01})
    saved = str(tmp_path / "agent.sqlite")
    with SqliteSaver.from_conn_string(saved) as saver, RunStore(tmp_path / "programs") as store:
        tool = tool_of(provider, toy_problem(evaluate=evaluate), store=store)
        with pytest.raises(InterruptedError):
            run(agent_of(provider, tool, saver), config=THREAD)
    paid = provider.billed
    assert 0 < paid < Decimal("0.01")
    with SqliteSaver.from_conn_string(saved) as saver, RunStore(tmp_path / "programs") as store:
        tool = tool_of(provider, store=store)
        state = run(agent_of(provider, tool, saver), None, THREAD)
    (message,) = tool_messages(state)
    assert Decimal(str(message.artifact["spent"])) == provider.billed == Decimal("0.01")


def test_two_searches_at_once_do_not_mix(provider):
    provider.orders()
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode([tool_of(provider)]))
    graph.add_edge(START, "tools")
    calls = [
        {"name": "discover", "args": {"budget": budget}, "id": name}
        for name, budget in (("a", 0.004), ("b", 0.008))
    ]
    asked = {"messages": [AIMessage("", tool_calls=calls)]}
    found = tool_messages(graph.compile(checkpointer=InMemorySaver()).invoke(asked, THREAD))
    assert [message.artifact["spent"] for message in found] == [0.004, 0.008]


def test_a_hard_purse_lends_no_more_than_it_has(provider):
    provider.orders({"budget": 0.02}, {"budget": 0.01}, {"budget": 0.01})
    purse = Purse(0.01, policy="hard")
    tool = tool_of(provider, purse=purse, budget_policy="hard", max_budget=1)
    first, second, third = tool_messages(run(agent_of(provider, tool)))
    assert first.status == "error"
    assert "budget: got 0.02, but 'purse' has $0.01 left of $0.01" in first.content
    assert second.status == "success"
    assert third.status == "error"
    assert f"but 'purse' has ${purse.remaining:f} left of $0.01" in third.content
    assert purse.spent == provider.billed <= Decimal("0.01")


def test_the_agent_learns_of_an_empty_purse(provider):
    provider.orders({"budget": 0.006}, {"budget": 0.006}, {"budget": 0.006})
    purse = Purse(0.01)
    first, second, third = tool_messages(run(agent_of(provider, tool_of(provider, purse=purse))))
    assert first.artifact["spent"] == 0.006
    assert second.artifact["spent"] == 0.004
    assert "\npurse: $0.004000 left of $0.01.\n" in first.content
    assert "\npurse: $0.000000 left of $0.01.\n" in second.content
    assert third.status == "error"
    assert "has $0.000000 left of $0.01" in third.content
    assert purse.spent == provider.billed == Decimal("0.01")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"problems": None}, "problems: got none and no evaluators, expected at least one"),
        ({"problems": []}, "problems: got none and no evaluators, expected at least one"),
        ({"problems": [toy_problem(), toy_problem()]}, "problems: got two named 'toy', expected"),
        ({"problems": "circle_paking"}, "did you mean 'circle_packing'"),
        ({"purse": Purse(1, policy="hard")}, "budget_policy: got 'crossing' with a hard purse"),
        ({"max_budget": 0}, "budget: got 0, expected greater than 0"),
    ],
)
def test_wrong_arguments_of_a_host_are_refused_at_once(provider, options, text):
    with pytest.raises(ValueError, match=text):
        tool_of(provider, **options)


def test_a_rejected_start_is_searched_from_only_where_its_problem_allows_that(provider):
    invalid = {"initial_program": program(7)}
    refused = tool_of(provider, problems=toy_problem(**invalid))
    with pytest.raises(ValueError, match=r"rejects the initial program: value is 7\.0"):
        refused.invoke({"problem": "toy", "budget": 0.01})
    assert provider.requests == []
    allowing = toy_problem(allow_invalid_start=True)
    tool = tool_of(
        provider,
        problems=None,
        evaluators={"value": allowing},
        max_iterations=1,
        max_failures=1,
    )
    found = tool.invoke({"program": program(7), "evaluator": "value", "budget": 0.01})
    assert "score 0" in found
    assert provider.requests


FILES = {**START_FILES, "pkg/part.py": "PART = 0.65\n"}


def test_an_agent_starts_from_several_files_of_its_own_and_gets_the_files_back(provider):
    provider.orders({"program": FILES, "evaluator": "files", "budget": 0.004})
    tool = tool_of(provider, None, evaluators={"files": files_problem(), "value": toy_problem()})
    (message,) = tool_messages(run(agent_of(provider, tool)))
    assert message.artifact["best_files"] == FILES
    assert "score 0.7, objective 7 before" in message.content
    assert "pkg/part.py\n```python\nPART = 0.65\n```\n" in message.content
    assert message.content.endswith("words/task.md\n```markdown\nAdd up parts.\n```")


@pytest.mark.parametrize(
    ("order", "text"),
    [
        ({"program": "x", "evaluator": "files"}, "takes the text of each file by its path"),
        ({"program": {"a.py": "x"}, "evaluator": "value"}, "this evaluator takes one text"),
        ({"program": {"../a.py": ""}, "evaluator": "files"}, "has a file '../a.py', expected a re"),
        ({"program": {"a.py": 3}, "evaluator": "files"}, "Input should be a valid string"),
        (
            {"program": {"pkg/value.py": "PART = 7"}, "evaluator": "files"},
            "rejects it: the parts come to 7",
        ),
    ],
)
def test_files_that_do_not_fit_the_evaluator_are_explained(provider, order, text):
    provider.orders({**order, "budget": 0.01})
    tool = tool_of(provider, None, evaluators={"files": files_problem(), "value": toy_problem()})
    (message,) = tool_messages(run(agent_of(provider, tool)))
    assert (message.status, text in message.content) == ("error", True), message.content
    assert provider.billed == 0

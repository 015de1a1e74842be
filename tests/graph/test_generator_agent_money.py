"""What the generating model with tools may spend: the step's cap, the budget, a hard budget."""

from decimal import Decimal

import pytest
from agent_answers import agent_answer, calling, tool_results, trying
from billing_server import Reply
from fakes import rewrite
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import ValidationError
from tool_graph import billed, graph_on, spent, steps

from costada.nodes.settings import Settings
from costada.store.run_store import RunStore


def test_a_step_that_has_cost_its_cap_asks_no_more_and_keeps_what_it_has(server):
    """Two answers cost 0.0004, so the third would begin above a cap of 0.0003."""
    store = RunStore()
    server.default = lambda body: trying(0.3 + 0.1 * len(tool_results(body)))
    graph_on(server, store, step_cap=0.0003).invoke({})
    (row,) = steps(store)
    assert (len(server.requests), row["score"], row["step_cost"]) == (2, 0.4, 0.0004)
    assert "cut_short" in row["events"]


def test_when_the_budget_is_used_up_the_attempt_ends_with_what_it_has(server):
    store = RunStore()
    server.default = lambda body: trying(0.3 + 0.1 * len(tool_results(body)))
    result = graph_on(server, store, budget=0.0003, iterations=9).invoke({})
    assert (result["stop_reason"], result["iterations"]) == ("budget", 1)
    assert (result["best_score"], len(server.requests)) == (0.4, 2)


def test_a_capped_step_is_not_tried_again(server):
    store = RunStore()
    result = graph_on(server, store, step_cap=0.00001, iterations=2).invoke({})
    assert [row["attempts"] for row in steps(store)] == [1, 1]
    assert (result["stop_reason"], len(server.requests)) == ("iterations", 2)


def test_under_a_hard_budget_no_answer_can_cross_the_cap_of_the_step(server):
    store = RunStore()
    server.default = lambda body: calling(
        "evaluate_candidate",
        tokens=(1500, body["max_completion_tokens"]),
        changes=rewrite(0.3 + 0.01 * len(server.requests)),
    )
    graph_on(server, store, budget_policy="hard", step_cap=0.01, iterations=3).invoke({})
    rows = steps(store)
    assert len(rows) == 3
    assert all(0 < row["step_cost"] <= 0.01 for row in rows)
    assert all(row["score"] is not None for row in rows)
    assert spent(store) == billed(server)


@pytest.mark.parametrize("budget", [0.01, 0.02, 0.05])
def test_a_hard_budget_holds_and_the_ledger_is_the_bill(server, budget):
    def honest(body) -> Reply:
        reply = agent_answer(body)
        size = sum(len(str(message).encode()) for message in body["messages"])
        tokens = min(reply.output_tokens, body["max_completion_tokens"])
        facts = {**vars(reply), "input_tokens": size // 3, "output_tokens": tokens}
        return Reply(**facts)

    store = RunStore()
    server.default = honest
    result = graph_on(server, store, budget=budget, budget_policy="hard", iterations=50).invoke({})
    assert result["stop_reason"] == "budget"
    assert spent(store) == billed(server) <= Decimal(str(budget))


def test_a_cap_that_nothing_would_heed_is_refused():
    with pytest.raises(ValidationError, match=r"step_cap: got 0\.1 with generator 'model'"):
        Settings(step_cap=0.1)


def test_asking_for_budget_and_tools_go_together(server):
    thread = {"configurable": {"thread_id": "run"}}
    server.default = agent_answer
    graph = graph_on(
        server, budget=0.003, saver=InMemorySaver(), on_exhausted="interrupt", iterations=9
    )
    asked = graph.invoke({}, thread)["__interrupt__"][0].value
    result = graph.invoke(Command(resume={"budget": asked["spent"] + 0.02}), thread)
    assert result["spent"] > asked["spent"]

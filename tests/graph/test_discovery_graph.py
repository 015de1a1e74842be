"""What happens within the steps of a run."""

from itertools import count

import pytest
from fakes import IDEAS, ScriptedModel, hashed_answer, is_guide_prompt, rewrite, toy_problem
from langgraph.checkpoint.sqlite import SqliteSaver
from toy_graph import CALL_COST, graph_of, trace

from costada.controller.constants import Constants
from costada.graph.build import create_discovery_graph
from costada.store.run_store import RunStore


def test_the_nodes_are_the_eight_steps_of_the_method():
    graph, _ = graph_of()
    assert set(graph.get_graph().nodes) - {"__start__", "__end__"} == {
        "allocate_frontier",
        "build_context",
        "generate",
        "evaluate",
        "charge_ledger",
        "update_utility",
        "gate_intervention",
        "guide",
    }


def test_every_conditional_edge_is_labelled():
    graph, _ = graph_of()
    labels = {
        (edge.source, edge.target): edge.data
        for edge in graph.get_graph().edges
        if edge.conditional
    }
    after_gate = {"allocate_frontier": "next step", "guide": "intervention", "__end__": "stop"}
    assert labels == {
        ("allocate_frontier", "build_context"): "attempt",
        ("allocate_frontier", "guide"): "preparation",
        ("guide", "allocate_frontier"): "next step",
        ("guide", "charge_ledger"): "settle",
        ("evaluate", "build_context"): "retry",
        ("evaluate", "charge_ledger"): "charge",
        **{("gate_intervention", target): label for target, label in after_gate.items()},
    }


def test_a_run_returns_the_best_program_and_its_account():
    graph, model = graph_of()
    result = graph.invoke({})
    assert result["stop_reason"] == "budget"
    assert result["spent"] == pytest.approx(len(model.prompts) * 0.002)
    assert result["remaining"] == 0.0
    assert f"{result['best_score']:.4f}" in result["best_program"]
    assert result["best_objective"] == pytest.approx(10 * result["best_score"])
    assert result["best_metrics"] == {"value": result["best_score"]}
    assert set(result) == {
        "best_program",
        "best_score",
        "best_objective",
        "best_metrics",
        "spent",
        "remaining",
        "iterations",
        "stop_reason",
    }


def test_the_step_that_crosses_the_budget_completes_and_no_further_one_starts():
    graph, _ = graph_of(lambda prompt: "no program", budget=0.007)
    rows = trace(graph)
    assert [row["attempts"] for row in rows] == [3, 3]
    assert [row["spent"] for row in rows] == [pytest.approx(0.006), pytest.approx(0.012)]


def test_a_run_ends_after_the_last_iteration_even_with_money_left():
    graph, _ = graph_of(budget=10.0, constants=Constants(max_iterations=4))
    result = graph.invoke({})
    assert (result["iterations"], result["stop_reason"]) == (4, "iterations")
    assert result["remaining"] == pytest.approx(10.0 - result["spent"])


def test_a_failed_attempt_is_retried_with_its_error_and_charged_as_retry():
    replies = iter(["nothing", rewrite(1.5), rewrite(0.5)])
    store = RunStore()
    graph, model = graph_of(
        lambda prompt: next(replies), constants=Constants(max_iterations=1), store=store
    )
    (row,) = trace(graph)
    assert (row["attempts"], row["score"], row["failure"]) == (3, 0.5, None)
    assert row["step_cost"] == pytest.approx(0.006)
    assert "## Failed attempt" not in model.prompts[0]
    assert "expected at most 1" in model.prompts[2]
    calls = list(store.call_log.calls(store.run_ids()[0]))
    assert [(call.role, call.attempt, call.cost) for call in calls] == [
        ("generation", 1, CALL_COST),
        ("retry", 2, CALL_COST),
        ("retry", 3, CALL_COST),
    ]


def test_a_step_whose_last_attempt_was_invalid_scores_zero_and_earns_nothing():
    graph, _ = graph_of(lambda prompt: rewrite(1.5), constants=Constants(max_iterations=1))
    (row,) = trace(graph)
    assert (row["score"], row["utility"], row["stagnation"]) == (0.0, 0.0, 1)
    assert "expected at most 1" in row["failure"]


def test_a_guide_is_charged_to_the_step_after_the_one_that_scheduled_it():
    values = count(1)
    graph, model = graph_of(
        lambda prompt: IDEAS if is_guide_prompt(prompt) else rewrite(0.05 / next(values)),
        constants=Constants(max_iterations=12),
        budget=1.0,
    )
    rows = trace(graph)
    scheduled = [
        row["iteration"] for row in rows if "guide_scheduled:breakthrough" in row["events"]
    ]
    charged = [row["iteration"] for row in rows if "guide_charged" in row["events"]]
    assert scheduled[0] == 4
    assert charged[0] == 5
    assert rows[4]["step_cost"] == pytest.approx(0.004)
    guided = [prompt for prompt in model.prompts if "## Tactic" in prompt]
    assert [prompt.split("Idea: ")[1][:3] for prompt in guided[:6]] == ["one", "two", "thr"] * 2


def test_a_guided_attempt_starts_from_the_incumbent():
    def answer(prompt: str) -> str:
        if is_guide_prompt(prompt):
            return hashed_answer(prompt)
        return rewrite(0.9 if "## Tactic" not in prompt and "0.9000" not in prompt else 0.2)

    graph, model = graph_of(answer, constants=Constants(max_iterations=10), budget=1.0)
    graph.invoke({})
    guided = [prompt for prompt in model.prompts if "## Tactic" in prompt]
    assert guided
    assert all("0.9000" in prompt.split("# Current program\n")[1] for prompt in guided)


def test_a_guide_without_a_usable_tactic_is_charged_and_backs_off():
    values = iter([0.05, 0.04, 0.03, 0.02, 0.01])
    graph, model = graph_of(
        lambda prompt: "No idea." if is_guide_prompt(prompt) else rewrite(next(values)),
        constants=Constants(max_iterations=5),
        budget=1.0,
    )
    last = trace(graph)[-1]
    assert last["events"] == ["guide_charged", "backoff"]
    assert last["step_cost"] == pytest.approx(0.006)
    assert (last["stagnation"], last["low_yield_cost"]) == (0, 0.0)
    assert sum(map(is_guide_prompt, model.prompts)) == 2


@pytest.mark.parametrize("budget", [0.0, -1.0, float("nan"), float("inf")])
def test_a_budget_that_is_no_amount_is_refused(budget):
    with pytest.raises(ValueError, match=r"budget: got .*, expected finite dollars above 0"):
        graph_of(budget=budget)


def test_a_model_without_a_price_is_refused_before_the_first_call():
    model = ScriptedModel(answer=hashed_answer, prompts=[])
    with pytest.raises(ValueError, match="model 'scripted' has no known price; give one"):
        create_discovery_graph(toy_problem(), model, budget=1.0)
    assert model.prompts == []


def test_a_saver_that_outlives_the_process_needs_a_store():
    class ForeignSaver(SqliteSaver.__base__):
        pass

    with pytest.raises(ValueError, match=r"store: got None with a ForeignSaver.*RunStore\(path\)"):
        graph_of(checkpointer=ForeignSaver())

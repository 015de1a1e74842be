"""What happens within the steps of a run, and the ways to run the graph."""

import asyncio
import json
from functools import cache
from itertools import count

import pytest
from fakes import IDEAS, hashed_answer, is_guide_prompt, program, rewrite
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command
from needed_plugins import needs_plugin
from toy_graph import CALL_COST, THREAD, calls_of, discovery, graph_of, run_until, scripted, trace
from typing_extensions import TypedDict

from costada.controller.constants import Constants
from costada.evaluators.problem import Problem
from costada.evaluators.problem_fields import Holdout
from costada.evaluators.sandboxed import holdout_seed
from costada.graph.compiled import superstep_limit
from costada.store.run_store import RunStore
from costada.values.evaluation import Evaluation


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
        "choose_model",
        "ask_for_budget",
        "approve_guide",
    }


def test_every_conditional_edge_is_labelled():
    graph, _ = graph_of()
    labels = {
        (edge.source, edge.target): edge.data
        for edge in graph.get_graph().edges
        if edge.conditional
    }
    after_gate = {
        "allocate_frontier": "next step",
        "evaluate": "landing",
        "guide": "intervention",
        "__end__": "stop",
        "approve_guide": "approval",
        "ask_for_budget": "question",
    }
    assert labels == {
        ("allocate_frontier", "build_context"): "attempt",
        ("allocate_frontier", "guide"): "preparation",
        ("allocate_frontier", "approve_guide"): "approval",
        ("allocate_frontier", "evaluate"): "landing",
        ("allocate_frontier", "__end__"): "stop",
        ("build_context", "generate"): "proposal",
        ("build_context", "choose_model"): "choice",
        ("build_context", "evaluate"): "submission",
        ("choose_model", "generate"): "proposal",
        ("choose_model", "charge_ledger"): "unaffordable",
        ("evaluate", "choose_model"): "other model",
        ("evaluate", "gate_intervention"): "no step",
        ("approve_guide", "guide"): "buy",
        ("approve_guide", "approve_guide"): "question",
        ("approve_guide", "allocate_frontier"): "next step",
        ("approve_guide", "evaluate"): "landing",
        ("guide", "allocate_frontier"): "next step",
        ("guide", "evaluate"): "landing",
        ("generate", "allocate_frontier"): "another",
        ("generate", "evaluate"): "landing",
        ("evaluate", "build_context"): "retry",
        ("evaluate", "charge_ledger"): "charge",
        ("evaluate", "allocate_frontier"): "prepared",
        **{
            (source, target): label
            for source in ("gate_intervention", "ask_for_budget")
            for target, label in after_gate.items()
        },
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
        "in_doubt",
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
    calls = calls_of(store)
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
    model = scripted()
    with pytest.raises(ValueError, match="model 'scripted' has no known price; give one"):
        discovery(model, price=None)
    assert model.prompts == []


def test_a_saver_that_outlives_the_process_needs_a_store():
    class ForeignSaver(SqliteSaver.__base__):
        pass

    with pytest.raises(ValueError, match=r"store: got None with a ForeignSaver.*RunStore\(path\)"):
        graph_of(checkpointer=ForeignSaver())


CONSTANTS = Constants(max_iterations=10)


def search(**options):
    graph, _ = graph_of(constants=CONSTANTS, **options)
    return graph


@cache
def undisturbed():
    graph = search(checkpointer=InMemorySaver())
    rows = trace(graph, config=THREAD)
    assert any("guide_charged" in row["events"] for row in rows)
    return rows, graph.invoke(None, THREAD)


def test_the_same_seed_gives_the_same_run_and_another_seed_another_one():
    graph = search()
    assert trace(graph) == undisturbed()[0]
    assert trace(graph, {"seed": 8}) != undisturbed()[0]


@pytest.mark.parametrize(
    "mode", ["values", "updates", "custom", "messages", "debug", "checkpoints", "tasks"]
)
def test_every_stream_mode_works_and_is_metered_alike(mode):
    graph = search(checkpointer=InMemorySaver())
    chunks = list(graph.stream({}, THREAD, stream_mode=mode))
    assert chunks
    assert graph.get_state(THREAD).values["spent"] == undisturbed()[1]["spent"]


def test_ainvoke_gives_the_same_result_as_invoke():
    assert asyncio.run(search().ainvoke({})) == undisturbed()[1]


def test_as_a_node_of_a_parent_graph_only_shared_keys_flow():
    class ParentState(TypedDict, total=False):
        seed: int
        best_program: str
        note: str

    child = search()
    parent = StateGraph(ParentState)
    parent.add_node("discover", child)
    parent.add_node("write", lambda state: {"note": state["best_program"][:5]})
    parent.add_edge(START, "discover")
    parent.add_edge("discover", "write")
    parent.add_edge("write", END)
    compiled = parent.compile(checkpointer=InMemorySaver())
    result = compiled.invoke({"seed": 7}, THREAD)
    assert set(result) == {"seed", "best_program", "note"}
    assert result["best_program"] == child.invoke({"seed": 7})["best_program"]


def test_resuming_a_finished_run_returns_its_result_and_spends_nothing():
    graph, model = graph_of(checkpointer=InMemorySaver(), constants=CONSTANTS)
    first = graph.invoke({}, THREAD)
    num_calls = len(model.prompts)
    assert graph.invoke(None, THREAD) == first
    assert len(model.prompts) == num_calls


def test_a_new_input_on_a_finished_thread_starts_a_new_run_with_its_own_account():
    graph = search(checkpointer=InMemorySaver())
    first = graph.invoke({"seed": 7}, THREAD)
    assert graph.invoke({"seed": 8}, THREAD) != first
    assert graph.invoke({"seed": 7}, THREAD) == first


@pytest.mark.process
@needs_plugin("evox")
def test_a_new_run_on_a_thread_begins_with_nothing_of_the_last():
    """The first run fails at every attempt; the second is asked about its labels before a step."""
    answers = []
    options = {"method": "evox", "seed": 3, "max_failures": 2, "approve_guides": True}
    model = scripted(lambda prompt: answers.pop() if answers else "no")
    graph = discovery(model, budget=0.5, iterations=2, saver=InMemorySaver(), **options)
    graph.invoke({"seed": 8}, THREAD)
    first = graph.invoke(Command(resume=False), THREAD)
    assert (first["stop_reason"], first["spent"] > 0) == ("failures", True)
    old = graph.get_state(THREAD).values
    answers.extend(map(rewrite, (0.6, 0.5)))
    (question,) = graph.invoke({}, THREAD)["__interrupt__"]
    assert (question.value["spent"], question.value["remaining"]) == (0.0, 0.5)
    begun = graph.get_state(THREAD).values
    kept = {name for name, value in old.items() if value and begun.get(name) == value}
    assert kept <= {"best", "best_score", "best_objective", "best_metrics", "controller"} | {
        "best_program",
        "archives",
        "account",
    }
    assert (begun["run"].seed, begun["best_score"]) == (3, 0.1)
    second = graph.invoke(Command(resume=False), THREAD)
    assert (second["stop_reason"], second["last_failure"]) == ("iterations", "")


def test_the_state_is_plain_small_and_passes_a_strict_serializer():
    strict = InMemorySaver(serde=JsonPlusSerializer(allowed_msgpack_modules=None))
    graph, _ = graph_of(checkpointer=strict, constants=Constants(max_iterations=25), budget=0.2)
    graph.invoke({}, THREAD)
    values = graph.get_state(THREAD).values
    saved = strict.get_tuple(THREAD).checkpoint["channel_values"]
    assert json.loads(json.dumps(saved)) == saved
    assert len(json.dumps({**saved, "best_program": ""})) < 3000
    typed = {name for name, value in values.items() if saved.get(name) != value}
    assert typed == {
        "controller",
        "best_program",
        "run",
        "step",
        "flight",
        "archives",
        "account",
        "observed",
    }


def test_a_resumed_run_without_its_programs_names_the_remedy():
    saver = InMemorySaver()
    run_until(search(checkpointer=saver), THREAD, 2)
    with pytest.raises(ValueError, match="give create_discovery_graph the store"):
        search(checkpointer=saver).invoke(None, THREAD)


def test_a_run_needs_no_recursion_limit_from_the_user():
    graph, _ = graph_of()
    assert graph.config["recursion_limit"] == superstep_limit(Constants())
    worst = Constants(max_iterations=4)
    failing, _ = graph_of(lambda prompt: "no", constants=worst, budget=10.0)
    assert failing.invoke({})["iterations"] == 4


@pytest.mark.process
def test_every_program_is_judged_with_the_key_of_its_run_also_after_a_resume():
    looked = []

    def calls(seed):
        looked.append(seed)
        return [{}]

    def score(results, seed=0, published=None):
        return Evaluation(score=results[0].output, objective=None, is_valid=True)

    watched = Problem(
        name="watched",
        task="Return a large number.",
        initial_program=program(0.1),
        entry_point="value",
        score=score,
        calls=[{}],
        holdout=Holdout(calls=calls, score=score, margin=0.5),
    )
    graph, _ = graph_of(problem=watched, budget=0.02, checkpointer=InMemorySaver())
    run_until(graph, THREAD, 2)
    key = graph.get_state(THREAD).values["run"].holdout_key
    first, looked[:] = set(looked), []
    graph.invoke(None, THREAD)
    assert graph.get_state(THREAD).values["run"].holdout_key == key
    codes = [program(round(number / 10_000, 4)) for number in range(10_001)]
    possible = {holdout_seed(key, code) for code in codes}
    assert len(first & possible) == 2  # the initial program was judged before the run had a key
    assert looked
    assert set(looked) <= possible

    graph.invoke({}, {"configurable": {"thread_id": "2"}})
    assert graph.get_state({"configurable": {"thread_id": "2"}}).values["run"].holdout_key != key

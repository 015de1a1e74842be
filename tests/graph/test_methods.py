"""The contract of all methods, each carried out by the graph."""

from dataclasses import dataclass
from decimal import Decimal
from functools import cache

import pytest
from fakes import IDEAS, ScriptedModel, hashed_answer, is_guide_prompt, rewrite, toy_problem
from langgraph.checkpoint.memory import InMemorySaver
from toy_graph import run_until, trace

from costada.controller.constants import Constants
from costada.controller.methods import METHODS
from costada.graph.build import create_discovery_graph
from costada.models.offline.answers import STRATEGIES, strategy_text
from costada.nodes.settings import Settings
from costada.store.run_store import RunStore
from costada.values.prices import Price

ALL = sorted(METHODS)
COST_BLIND = ["adaevolve", "best-of-n", "evox", "uniform"]
BUDGET = 0.1
CONSTANTS = Constants(max_iterations=20)
THREAD = {"configurable": {"thread_id": "1"}}
OTHER_TOKENS = (7, 9000, 1, 4000, 10, 2, 33333)
MONEY_COLUMNS = {
    "step_cost",
    "spent",
    "remaining_ratio",
    "cost_divisor",
    "utility",
    "allocation_reward",
    "low_yield_cost",
}


def answer(prompt: str) -> str:
    """Answer like a model with little to say; strategies are real programs."""
    if "class Strategy" in prompt:
        return f"```python\n{strategy_text(STRATEGIES[len(prompt) % len(STRATEGIES)])}```"
    return IDEAS if is_guide_prompt(prompt) else hashed_answer(prompt)


class UnevenModel(ScriptedModel):
    """Charges each call another number of tokens, by a table that a test can turn around."""

    tokens: tuple[int, ...] = (1000, 100, 4000, 300, 9000, 50, 700)
    calls: int = 0

    def _usage(self):
        self.calls += 1
        self.output_tokens = self.tokens[self.calls % len(self.tokens)]
        return super()._usage()


def graph_with(method, *, budget=BUDGET, tokens=None, **options):
    model = UnevenModel(answer=answer, prompts=[])
    if tokens:
        model.tokens = tokens
    settings = Settings(method=method, price=Price("1", "2"), constants=CONSTANTS)
    graph = create_discovery_graph(
        toy_problem(), model, budget=budget, settings=settings, **options
    )
    return graph, model


@dataclass(frozen=True)
class Finished:
    """A run that its budget ended: its rows, its state, its model and what it stored."""

    rows: list
    values: dict
    model: UnevenModel
    store: RunStore


@cache
def finished(method):
    store = RunStore()
    graph, model = graph_with(method, store=store, checkpointer=InMemorySaver())
    rows = trace(graph, config=THREAD)
    return Finished(rows, graph.get_state(THREAD).values, model, store)


@pytest.mark.parametrize("method", ALL)
def test_the_step_that_crosses_the_budget_is_the_last_one(method):
    rows = finished(method).rows
    assert rows[-1]["spent"] >= BUDGET
    assert rows[-1]["spent"] - rows[-1]["step_cost"] < BUDGET
    assert all(row["spent"] < BUDGET for row in rows[:-1])


@pytest.mark.parametrize("method", ALL)
def test_every_call_is_on_the_ledger(method):
    run = finished(method)
    (run_id,) = run.store.run_ids()
    calls = list(run.store.call_log.calls(run_id))
    assert len(calls) == run.model.calls == len(run.model.prompts)
    billed = sum(
        Decimal(1000) + 2 * run.model.tokens[number % len(run.model.tokens)]
        for number in range(1, run.model.calls + 1)
    ) / Decimal(1_000_000)
    assert run.store.call_log.spent(run_id, 10**9) == billed
    assert run.values["spent"] == float(billed)


@pytest.mark.parametrize("method", ALL)
def test_a_drained_run_goes_on_as_if_nothing_had_been(method):
    graph, _ = graph_with(method, checkpointer=InMemorySaver())
    first = run_until(graph, THREAD, 4)
    assert first + trace_on(graph) == finished(method).rows


def trace_on(graph):
    return list(graph.stream(None, THREAD, stream_mode="custom"))


@pytest.mark.parametrize("method", COST_BLIND)
def test_a_cost_blind_method_decides_the_same_whatever_calls_cost(method):
    *decisions, last = [_decisions(row) for row in finished(method).rows]
    graph, _ = graph_with(method, budget=100.0, tokens=OTHER_TOKENS)
    found = [_decisions(row) for row in trace(graph)]
    assert found[: len(decisions)] == decisions
    # the step that crosses the budget buys no guide or strategy for a next one
    of_next = {"events", "stagnation"}
    same = found[len(decisions)]
    assert {name: same[name] for name in same.keys() - of_next} == {
        name: last[name] for name in last.keys() - of_next
    }


def test_costada_does_decide_by_cost():
    decisions = []
    for tokens in (None, OTHER_TOKENS):
        graph, _ = graph_with("costada", budget=0.5, tokens=tokens)
        decisions.append([_decisions(row) for row in trace(graph)])
    assert decisions[0] != decisions[1]


@pytest.mark.parametrize("method", ALL)
def test_the_state_holds_the_controller_itself(method):
    controller = finished(method).values["controller"]
    assert type(controller) is METHODS[method].kind
    assert controller.iteration == len(finished(method).rows)


@pytest.mark.parametrize("method", ["uniform", "best-of-n"])
def test_the_floor_buys_no_guide(method):
    assert not any(is_guide_prompt(prompt) for prompt in finished(method).model.prompts)


def test_best_of_n_always_starts_from_the_initial_program_alone():
    run = finished("best-of-n")
    prompts = run.model.prompts
    assert {row["frontier"] for row in run.rows} == {1}
    assert all("There are none to show." in prompt for prompt in prompts)
    assert all("return 0.10" in prompt.split("# Current program\n")[1] for prompt in prompts)


def test_uniform_takes_the_frontiers_in_turn():
    rows = finished("uniform").rows
    assert [row["frontier"] for row in rows[:6]] == [1, 2, 1, 2, 1, 2]


def test_an_unknown_method_is_refused():
    with pytest.raises(ValueError, match="expected one of costada, adaevolve"):
        Settings(method="greedy")


def _decisions(row):
    return {name: value for name, value in row.items() if name not in MONEY_COLUMNS}


def test_adaevolve_searches_a_frontier_that_spawned_on_the_way():
    constants = Constants(max_iterations=70, archive_size=100)
    values = iter(range(1, 1000))
    model = ScriptedModel(
        answer=lambda prompt: IDEAS if is_guide_prompt(prompt) else rewrite(next(values) / 10000),
        prompts=[],
    )
    settings = Settings(method="adaevolve", price=Price("1", "2"), constants=constants)
    graph = create_discovery_graph(toy_problem(), model, budget=100.0, settings=settings)
    rows = trace(graph)
    spawned = [row["iteration"] for row in rows if "spawned_frontier" in row["events"]]
    assert spawned == [66]
    assert {row["frontier"] for row in rows[:66]} == {1, 2}
    assert 3 in {row["frontier"] for row in rows[66:]}

"""Every method, carried out by the graph; EvoX with its labels and strategies."""

from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from itertools import count

import pytest
from fakes import IDEAS, ScriptedModel, hashed_answer, is_guide_prompt, rewrite
from langgraph.checkpoint.memory import InMemorySaver
from needed_plugins import EVOX, needs_plugin, of_every_method, strategy_reply
from toy_graph import THREAD, calls_of, discovery, scripted, trace

from costada.controller.constants import Constants
from costada.controller.methods import METHODS
from costada.store.run_store import RunStore

ALL = of_every_method()
PEERS = [
    pytest.param(name, marks=needs_plugin("peers"))
    for name in ("gepa", "openevolve", "shinkaevolve")
]
COST_BLIND = ["adaevolve", "best-of-n", EVOX, *PEERS, "uniform"]
BUDGET = 0.1
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
        return strategy_reply(len(prompt))
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
    return discovery(model, budget=budget, iterations=20, method=method, **options), model


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
    graph, model = graph_with(method, store=store, saver=InMemorySaver())
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
    assert run.store.ledger.spent(run_id, 10**9) == billed
    assert run.values["spent"] == float(billed)


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


def _decisions(row):
    return {name: value for name, value in row.items() if name not in MONEY_COLUMNS}


def test_adaevolve_searches_a_frontier_that_spawned_on_the_way():
    values = iter(range(1, 1000))
    model = scripted(
        lambda prompt: IDEAS if is_guide_prompt(prompt) else rewrite(next(values) / 10000)
    )
    constants = Constants(max_iterations=70, archive_size=100)
    rows = trace(discovery(model, budget=100.0, method="adaevolve", constants=constants))
    spawned = [row["iteration"] for row in rows if "spawned_frontier" in row["events"]]
    assert spawned == [66]
    assert {row["frontier"] for row in rows[:66]} == {1, 2}
    assert 3 in {row["frontier"] for row in rows[66:]}


LABELS = "## DIVERGE\n\n- use a table\n\n## REFINE\n\n- raise the number\n"

LATEST_WITH_LABEL = '''
class Strategy:
    """The latest record, with a label."""

    def __init__(self):
        self.ids = []

    def add(self, record):
        if len(self.ids) >= LIMIT:
            raise RuntimeError("too many for me")
        self.ids.append(record["id"])

    def select(self, n_context, rng):
        return self.ids[-1], "diverge", self.ids[:-1][-n_context:] if n_context else []
'''


def strategy(limit: int = 1000) -> str:
    return f"```python\n{LATEST_WITH_LABEL.replace('LIMIT', str(limit))}```"


def evox(new_strategy, *, iterations, propose=None, store=None):
    values = count(1)

    def answer_evox(prompt):
        if "class Strategy" in prompt:
            return new_strategy() if callable(new_strategy) else new_strategy
        if "DIVERGE" in prompt and "## Program" not in prompt and "# Current" not in prompt:
            return LABELS
        if "# Current program" in prompt:
            return propose(prompt) if propose else rewrite(0.1 + next(values) / 10_000)
        return "The search stands still."

    model = scripted(answer_evox)
    options = {"method": "evox", "budget": 100.0, "store": store}
    return trace(discovery(model, iterations=iterations, **options)), model


@cache
def standing_still():
    store = RunStore()
    return *evox(strategy(), iterations=20, store=store), store


@pytest.mark.process
@needs_plugin("evox", "offline")
def test_labels_are_bought_once_and_charged_to_the_first_iteration():
    rows, model, _ = standing_still()
    asked = [prompt for prompt in model.prompts if "# Current program" not in prompt]
    assert "DIVERGE" in asked[0]
    assert "guide_charged" in rows[0]["events"]
    assert rows[0]["step_cost"] == 2 * rows[1]["step_cost"]


@pytest.mark.process
@needs_plugin("evox", "offline")
def test_a_new_strategy_is_charged_to_the_iteration_that_stagnated():
    rows, _, store = standing_still()
    adopted = [row["iteration"] for row in rows if "strategy_adopted" in row["events"]]
    assert adopted[:2] == [3, 5]
    calls = [call for call in calls_of(store) if call.ticket == 3]
    assert [(call.role, call.attempt) for call in calls] == [
        ("generation", 1),
        ("guide", 1),
        ("guide", 2),
    ]
    assert rows[2]["step_cost"] == 3 * rows[1]["step_cost"]


@pytest.mark.process
@needs_plugin("evox", "offline")
def test_an_adopted_strategy_chooses_parent_context_and_label():
    rows, model, _ = standing_still()
    assert [row["action"] for row in rows[:3]] == ["balanced"] * 3
    assert rows[3]["action"] == "diverge"
    late = [prompt for prompt in model.prompts if "# Current program\n" in prompt][10]
    assert "- use a table" in late.split("# Current program\n")[1]
    assert "return 0.1010" in late.split("# Current program\n")[1]


@pytest.mark.process
@needs_plugin("evox", "offline")
def test_invalid_strategies_are_asked_for_again_and_the_old_one_is_kept():
    replies = count()
    rows, model = evox(lambda: f"no program, {next(replies)}", iterations=5)
    kept = [row for row in rows if "strategy_kept" in row["events"]]
    assert kept
    assert next(replies) == 3 * len(kept)
    assert all(row["action"] == "balanced" for row in rows)
    second = [prompt for prompt in model.prompts if "class Strategy" in prompt][1]
    assert "no fenced program with `class Strategy`" in second


@pytest.mark.process
@needs_plugin("evox", "offline")
def test_a_strategy_that_fails_at_work_is_given_up_for_the_one_before():
    rows, _ = evox(strategy(limit=25), iterations=30)
    failed = [row["iteration"] for row in rows if "strategy_failed" in row["events"]]
    assert failed
    assert rows[failed[0] - 2]["action"] == "diverge"
    assert rows[failed[0] - 1]["action"] == "balanced"
    assert len(rows) == 30
    assert all(row["failure"] is None for row in rows)


@pytest.mark.process
@needs_plugin("evox", "offline")
def test_a_retry_keeps_parent_and_context_and_shows_every_failed_attempt():
    values = iter([0.2, 1.5, 1.6, 0.3])
    _, model = evox(strategy(), iterations=2, propose=lambda prompt: rewrite(next(values)))
    first, second, third = [prompt for prompt in model.prompts if "# Current program\n" in prompt][
        1:4
    ]
    assert "value is 1.5" in second
    assert "value is 1.6" not in second
    assert "value is 1.5" in third
    assert "value is 1.6" in third
    assert second.startswith(first)
    assert third.startswith(first)


@pytest.mark.process
@needs_plugin("evox", "offline")
def test_previous_attempts_are_shown_the_best_first():
    _, model, _ = standing_still()
    sixth = [prompt for prompt in model.prompts if "# Current program\n" in prompt][5]
    section = sixth.split("# Previous attempts")[1].split("# Other programs")[0]
    assert (
        section.index("iteration 5") < section.index("iteration 4") < section.index("iteration 3")
    )
    assert "iteration 2" not in section


def roles_of(model, budget, **more):
    options = {"method": "evox", "store": RunStore(), **more}
    found = discovery(model, budget=budget, iterations=20, **options).invoke({})
    roles = {}
    for call in calls_of(options["store"]):
        roles.setdefault(call.ticket, []).append(call.role)
    return roles, found


@pytest.mark.process
@needs_plugin("evox", "offline")
def test_no_strategy_is_bought_in_the_step_that_crosses_the_budget():
    """The labels and three programs cost 0.008 dollars; after the third a strategy is due."""
    roles, found = roles_of(standing_still()[1], 0.008)
    assert (found["stop_reason"], found["iterations"]) == ("budget", 3)
    assert roles[3] == ["generation"]
    assert found["spent"] == pytest.approx(0.008)


@pytest.mark.process
@needs_plugin("evox", "offline")
def test_no_strategy_is_bought_when_failures_end_the_run():
    values = iter([0.11, 0.1101])
    failing = evox(strategy(), iterations=1, propose=lambda _: rewrite(next(values, 2.0)))[1]
    values = iter([0.11, 0.1101])
    roles, found = roles_of(failing, 1.0, max_failures=3)
    assert (found["stop_reason"], found["iterations"]) == ("failures", 3)
    assert roles[3] == ["generation", "retry", "retry"]


@pytest.mark.process
@needs_plugin("evox", "offline")
def test_an_evolution_that_crosses_the_budget_asks_no_further():
    """Labels, three programs and the summary make 0.010 dollars: no strategy is asked for."""
    roles, found = roles_of(standing_still()[1], 0.0095)
    assert roles[3] == ["generation", "guide"]
    assert (found["iterations"], found["stop_reason"]) == (3, "budget")
    assert found["spent"] == pytest.approx(0.010)

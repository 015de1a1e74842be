"""EvoX carried out by the graph: labels, strategies, their cost, and what a failing one does."""

from functools import cache
from itertools import count

import pytest
from fakes import ScriptedModel, rewrite, toy_problem
from toy_graph import PRICE, trace

from costada.controller.constants import Constants
from costada.graph.build import create_discovery_graph
from costada.nodes.settings import Settings
from costada.store.run_store import RunStore

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
    """Return a run's rows and the model; candidates hardly improve, so that strategies change."""
    values = count(1)

    def answer(prompt):
        if "class Strategy" in prompt:
            return new_strategy() if callable(new_strategy) else new_strategy
        if "DIVERGE" in prompt and "## Program" not in prompt and "# Current" not in prompt:
            return LABELS
        if "# Current program" in prompt:
            return propose(prompt) if propose else rewrite(0.1 + next(values) / 10_000)
        return "The search stands still."

    model = ScriptedModel(answer=answer, prompts=[])
    settings = Settings(method="evox", price=PRICE, constants=Constants(max_iterations=iterations))
    graph = create_discovery_graph(
        toy_problem(), model, budget=100.0, settings=settings, store=store
    )
    return trace(graph), model


@cache
def standing_still():
    """Return rows, model and store of a run that evolves its strategy every other iteration."""
    store = RunStore()
    return *evox(strategy(), iterations=20, store=store), store


def test_labels_are_bought_once_and_charged_to_the_first_iteration():
    rows, model, _ = standing_still()
    asked = [prompt for prompt in model.prompts if "# Current program" not in prompt]
    assert "DIVERGE" in asked[0]
    assert "guide_charged" in rows[0]["events"]
    assert rows[0]["step_cost"] == 2 * rows[1]["step_cost"]


def test_a_new_strategy_is_charged_to_the_iteration_that_stagnated():
    rows, _, store = standing_still()
    adopted = [row["iteration"] for row in rows if "strategy_adopted" in row["events"]]
    assert adopted[:2] == [3, 5]
    (run_id,) = store.run_ids()
    calls = [call for call in store.call_log.calls(run_id) if call.iteration == 3]
    assert [(call.role, call.attempt) for call in calls] == [
        ("generation", 1),
        ("guide", 1),
        ("guide", 2),
    ]
    assert rows[2]["step_cost"] == 3 * rows[1]["step_cost"]


def test_an_adopted_strategy_chooses_parent_context_and_label():
    rows, model, _ = standing_still()
    assert [row["action"] for row in rows[:3]] == ["balanced"] * 3
    assert rows[3]["action"] == "diverge"
    late = [prompt for prompt in model.prompts if "# Current program\n" in prompt][10]
    assert "- use a table" in late.split("# Current program\n")[1]
    assert "return 0.1010" in late.split("# Current program\n")[1]


def test_invalid_strategies_are_asked_for_again_and_the_old_one_is_kept():
    replies = count()
    rows, model = evox(lambda: f"no program, {next(replies)}", iterations=5)
    kept = [row for row in rows if "strategy_kept" in row["events"]]
    assert kept
    assert next(replies) == 3 * len(kept)
    assert all(row["action"] == "balanced" for row in rows)
    second = [prompt for prompt in model.prompts if "class Strategy" in prompt][1]
    assert "no fenced program with `class Strategy`" in second


def test_a_strategy_that_fails_at_work_is_given_up_for_the_one_before():
    rows, _ = evox(strategy(limit=25), iterations=30)
    failed = [row["iteration"] for row in rows if "strategy_failed" in row["events"]]
    assert failed
    assert rows[failed[0] - 2]["action"] == "diverge"
    assert rows[failed[0] - 1]["action"] == "balanced"
    assert len(rows) == 30
    assert all(row["failure"] is None for row in rows)


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
    current = [prompt.split("# Current program\n")[1][:300] for prompt in (first, second, third)]
    assert current[0] == current[1] == current[2]


def test_previous_attempts_are_shown_the_best_first():
    _, model, _ = standing_still()
    sixth = [prompt for prompt in model.prompts if "# Current program\n" in prompt][5]
    section = sixth.split("# Previous attempts")[1].split("# Other programs")[0]
    assert (
        section.index("iteration 5") < section.index("iteration 4") < section.index("iteration 3")
    )
    assert "iteration 2" not in section


def calls_of(model, budget, **more):
    """Return the roles of the calls in each iteration, and what the run came to."""
    store = RunStore()
    constants = Constants(max_iterations=20)
    settings = Settings(method="evox", price=PRICE, constants=constants, **more)
    graph = create_discovery_graph(
        toy_problem(), model, budget=budget, settings=settings, store=store
    )
    found = graph.invoke({})
    roles = {}
    for call in store.call_log.calls(store.run_ids()[0], with_texts=False):
        roles.setdefault(call.iteration, []).append(call.role)
    return roles, found


def test_no_strategy_is_bought_in_the_step_that_crosses_the_budget():
    """The labels and three programs cost 0.008 dollars; after the third a strategy is due."""
    roles, found = calls_of(standing_still()[1], 0.008)
    assert (found["stop_reason"], found["iterations"]) == ("budget", 3)
    assert roles[3] == ["generation"]
    assert found["spent"] == pytest.approx(0.008)


def test_no_strategy_is_bought_when_failures_end_the_run():
    values = iter([0.11, 0.1101])
    failing = evox(strategy(), iterations=1, propose=lambda _: rewrite(next(values, 2.0)))[1]
    values = iter([0.11, 0.1101])
    roles, found = calls_of(failing, 1.0, max_failures=3)
    assert (found["stop_reason"], found["iterations"]) == ("failures", 3)
    assert roles[3] == ["generation", "retry", "retry"]


def test_an_evolution_that_crosses_the_budget_asks_no_further():
    """Labels, three programs and the summary make 0.010 dollars: no strategy is asked for."""
    roles, found = calls_of(standing_still()[1], 0.0095)
    assert roles[3] == ["generation", "guide"]
    assert (found["iterations"], found["stop_reason"]) == (3, "budget")
    assert found["spent"] == pytest.approx(0.010)

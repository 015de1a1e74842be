"""The peers, carried out by the graph."""

from itertools import count

import pytest
from fakes import rewrite
from langgraph.checkpoint.memory import InMemorySaver
from toy_graph import THREAD, discovery, resumed, run_until, scripted, trace

from costada.controller.methods import METHODS
from costada.plugins.peers import PEERS
from costada.store.run_store import RunStore

NAMES = [each.name for each in PEERS]


def made_in(store: RunStore) -> list[tuple[str | None, tuple[str, ...], str]]:
    (run_id,) = store.run_ids()
    return [
        (each.parent_id, each.inspirations, each.label)
        for each in store.candidates.originals(run_id)
    ]


@pytest.mark.parametrize("method", PEERS, ids=NAMES)
def test_each_is_found_by_its_entry_point(method) -> None:
    assert METHODS[method.name] is method


@pytest.mark.parametrize("method", NAMES)
def test_a_run_that_is_interrupted_after_every_step_ends_as_one_that_is_not(method) -> None:
    options = {"method": method, "budget": 9.0, "iterations": 14}
    whole, parts, saver = RunStore(), RunStore(), InMemorySaver()
    rows = trace(discovery(scripted(), store=whole, **options))
    found: list[dict[str, object]] = []
    for iteration in range(1, 14):
        graph = discovery(scripted(), store=parts, saver=saver, **options)
        found += run_until(graph, THREAD, iteration, {} if iteration == 1 else None)
    found += resumed(discovery(scripted(), store=parts, saver=saver, **options))
    assert made_in(parts) == made_in(whole)
    assert [row["score"] for row in found] == [row["score"] for row in rows]


@pytest.mark.parametrize("method", NAMES)
def test_a_failed_answer_is_not_asked_for_again(method) -> None:
    values = count(1)

    def fail_at_times(prompt: str) -> str:
        value = next(values)
        return "no program" if value % 3 == 0 else rewrite(0.2 + value / 1000)

    rows = trace(discovery(scripted(fail_at_times), method=method, budget=9.0, iterations=9))
    assert [row["attempts"] for row in rows] == [1] * 9
    assert sum(row["failure"] is not None for row in rows) == 3


@pytest.mark.parametrize("method", NAMES)
def test_eight_steps_in_flight_all_land(method) -> None:
    store = RunStore()
    graph = discovery(scripted(), method=method, budget=9.0, iterations=30, parallel=8, store=store)
    assert len(trace(graph)) == 30
    made = made_in(store)
    known = {"0.1", *(f"{number}.1" for number in range(1, 31))}
    assert {parent for parent, _, _ in made[1:]} <= known


def test_the_islands_of_openevolve_take_turns_and_begin_with_the_initial_program() -> None:
    values, store = count(1), RunStore()
    model = scripted(lambda prompt: rewrite(0.2 + next(values) / 1000))
    rows = trace(discovery(model, budget=9.0, method="openevolve", iterations=12, store=store))
    assert [row["frontier"] for row in rows] == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2]
    assert [parent for parent, _, _ in made_in(store)[1:6]] == ["0.1"] * 5


def test_a_prompt_of_openevolve_shows_the_best_of_the_island_and_how_they_came_about() -> None:
    values = count(1)
    model = scripted(lambda prompt: rewrite(0.2 + next(values) / 1000))
    trace(discovery(model, budget=9.0, method="openevolve", iterations=6))
    # the first island has the initial program and its child of the first step
    sixth = model.prompts[5]
    assert "## Attempt 1, from iteration 1" in sixth
    assert "return 0.2010" in sixth.split("# Other programs")[1]


def test_gepa_shows_the_parent_alone_and_keeps_what_beats_it() -> None:
    scores, store = iter([0.3, 0.2, 0.5, 0.4, 0.6]), RunStore()
    model = scripted(lambda prompt: rewrite(next(scores)))
    trace(discovery(model, budget=9.0, method="gepa", iterations=5, store=store))
    # without a data set the only front is the score, so the parent is the best so far
    assert [parent for parent, _, _ in made_in(store)[1:]] == ["0.1", "1.1", "1.1", "3.1", "3.1"]
    assert all("There are none to show." in prompt for prompt in model.prompts)

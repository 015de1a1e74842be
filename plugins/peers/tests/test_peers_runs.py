"""The peers, carried out by the graph."""

from itertools import count
from typing import Any

import pytest
from fakes import ScriptedModel, rewrite
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from toy_graph import (
    CALL_COST,
    PRICE,
    THREAD,
    calls_of,
    discovery,
    resumed,
    run_until,
    scripted,
    trace,
)

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


def note(prompt: str) -> str:
    """What a guide answers to the meta-calls of ShinkaEvolve."""
    if "# Recommendations" in prompt:
        return "1. Take a larger step.\n2. Take a smaller step."
    return "What worked: steps." if "# Notes" in prompt else "A summary."


def rising() -> ScriptedModel:
    values = count(1)
    return scripted(lambda prompt: rewrite(0.2 + next(values) / 1000))


def noting(guide: Any = None, **options: Any) -> Any:
    chosen = {"method": "shinkaevolve", "budget": 9.0, "guide_price": PRICE, **options}
    return discovery(rising(), guide_model=guide or scripted(note), **chosen)


def test_the_step_of_every_tenth_program_is_charged_for_notes() -> None:
    guide = scripted(note)
    rows = trace(noting(guide, iterations=20))
    # ten summaries, insights and recommendations beside the call for the program; the initial
    # program is the first of the ten
    costs = [round(row["step_cost"] / float(CALL_COST)) for row in rows]
    assert costs == [13 if iteration in (9, 19) else 1 for iteration in range(1, 21)]
    assert len(guide.prompts) == 24
    assert sum("# Summary" in prompt for prompt in guide.prompts) == 20
    assert guide.prompts[22].count("A summary.") == 10
    assert "What worked: steps." in guide.prompts[22]


def test_a_prompt_shows_one_recommendation_unless_it_asks_for_a_cross() -> None:
    model = rising()
    options = {"method": "shinkaevolve", "budget": 9.0, "guide_price": PRICE, "iterations": 60}
    rows = trace(discovery(model, guide_model=scripted(note), **options))
    for row, prompt in zip(rows[9:], model.prompts[9:], strict=True):
        shown = [word for word in ("larger", "smaller") if f"Take a {word} step." in prompt]
        assert len(shown) == (0 if row["action"] == "cross" else 1)
        assert ("Cross this program" in prompt) == (row["action"] == "cross")
    assert {row["action"] for row in rows} == {"diff", "full", "cross"}


def test_without_a_guide_model_and_in_the_last_step_no_notes_are_taken() -> None:
    store = RunStore()
    trace(discovery(rising(), method="shinkaevolve", budget=9.0, iterations=25, store=store))
    assert {each.role for each in calls_of(store)} == {"generation"}
    guide = scripted(note)
    trace(noting(guide, iterations=9))
    assert guide.prompts == []


def test_notes_that_fail_are_due_again_with_the_next_program() -> None:
    failing = iter([" "])

    def note_at_second_try(prompt: str) -> str:
        text = note(prompt)
        return next(failing, text) if "# Programs since" in prompt else text

    guide = scripted(note_at_second_try)
    rows = trace(noting(guide, iterations=11))
    # the insights of the ninth step are empty; the tenth asks for eleven summaries and both others
    costs = [round(row["step_cost"] / float(CALL_COST)) for row in rows]
    assert costs[8:] == [12, 14, 1]


def test_a_run_with_notes_that_is_interrupted_after_every_step_ends_alike() -> None:
    whole, parts, saver = RunStore(), RunStore(), InMemorySaver()
    rows = trace(noting(iterations=24, store=whole))
    values = count(1)
    model = scripted(lambda prompt: rewrite(0.2 + next(values) / 1000))
    options = {"method": "shinkaevolve", "budget": 9.0, "guide_price": PRICE, "iterations": 24}
    options |= {"guide_model": scripted(note), "store": parts, "saver": saver}
    found: list[dict[str, object]] = []
    for iteration in range(1, 24):
        graph = discovery(model, **options)
        found += run_until(graph, THREAD, iteration, {} if iteration == 1 else None)
    found += resumed(discovery(model, **options))
    assert made_in(parts) == made_in(whole)
    assert [row["spent"] for row in found] == [row["spent"] for row in rows]


def test_notes_that_are_interrupted_ask_only_for_what_is_missing() -> None:
    calls, store, saver = count(1), RunStore(), InMemorySaver()

    def interrupted_at_the_sixth(prompt: str) -> str:
        if next(calls) == 6:
            raise KeyboardInterrupt
        return note(prompt)

    guide = scripted(interrupted_at_the_sixth)
    options = {"iterations": 11, "store": store, "saver": saver}
    with pytest.raises(KeyboardInterrupt):
        noting(guide, **options).invoke({}, THREAD)
    noting(guide, **options).invoke(None, THREAD)
    # the sixth of the twelve calls is asked for twice, and all others once
    assert [each.role for each in calls_of(store)].count("guide") == 13
    assert len(guide.prompts) == 13


def test_notes_with_eight_steps_in_flight() -> None:
    guide = scripted(note)
    assert len(trace(noting(guide, iterations=30, parallel=8))) == 30
    # after the 9th and the 19th child; the 29th would be used by the 30th, which is in flight
    assert len(guide.prompts) >= 24


def test_a_caller_who_wants_no_notes_is_asked_again_after_ten_programs() -> None:
    guide, saver = scripted(note), InMemorySaver()
    graph = noting(guide, iterations=22, saver=saver, approve_guides=True)
    result = graph.invoke({}, THREAD)
    asked = []
    while "__interrupt__" in result:
        (question,) = result["__interrupt__"]
        asked.append((question.value["guide"], question.value["iteration"]))
        assert question.value["best_score"] == pytest.approx(0.2 + asked[-1][1] / 1000)
        result = graph.invoke(Command(resume=len(asked) > 1), THREAD)
    assert asked == [("notes", 9), ("notes", 19)]
    assert len(guide.prompts) == 12

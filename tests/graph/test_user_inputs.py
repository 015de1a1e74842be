"""Ideas and programs that users put into a run while it runs or is stopped."""

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import pytest
from billing_server import Reply
from fakes import (
    IDEAS,
    SEED_PROGRAM,
    evaluate_value,
    hashed_answer,
    is_guide_prompt,
    program,
    rewrite,
    toy_problem,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from needed_plugins import EVOX
from toy_graph import (
    CALL_COST,
    PRICE,
    THREAD,
    billed,
    calls_of,
    client,
    discovery,
    resumed,
    rows_of,
    run_until,
    scripted,
    spent_by,
)

from costada.models.menu import MenuModel
from costada.store.purse import Purse
from costada.store.run_store import RunStore

IDEA = "try hexagonal rows"


def never_better(prompt: str) -> str:
    return IDEAS if is_guide_prompt(prompt) else rewrite(0.05)


def always_better() -> Callable[[str], str]:
    """Return a model's answers, each a little better than the one before, from 0.2 on."""
    made = count()
    return lambda prompt: rewrite(0.2 + 0.01 * next(made))


class Steered:
    """A run that has made some iterations, and stops there until it is resumed."""

    def __init__(self, answer=hashed_answer, iterations=6, begun=2, **options):
        self.model, self.store = scripted(answer), RunStore()
        self.graph = discovery(
            self.model,
            store=self.store,
            saver=InMemorySaver(),
            iterations=iterations,
            **options,
        )
        run_until(self.graph, THREAD, begun)
        (self.run_id,) = self.store.run_ids()

    def rows(self):
        resumed(self.graph)
        return rows_of(self.store)


def asked_with(idea: str, prompts: list[str]) -> list[str]:
    return [each for each in prompts if f"Idea: {idea}\n" in each]


def test_an_idea_is_the_tactic_of_the_next_step_from_the_best_program_and_costs_one_call():
    run = Steered(always_better())
    assert run.store.inputs.put_idea(run.run_id, f"  {IDEA.replace(' ', chr(10))} ") == 1
    rows = run.rows()
    assert [row.get("steered") for row in rows] == [
        *(None, None),
        {"number": 1, "kind": "tactic", "idea": IDEA},
        *(None, None, None),
    ]
    assert [("steered" in row["events"]) for row in rows].count(True) == 1
    (prompt,) = asked_with(IDEA, run.model.prompts)
    assert "The idea below comes from the user of this search." in prompt
    assert program(0.21) in prompt
    assert spent_by(run.store) == 6 * CALL_COST
    assert rows[2]["step_cost"] == float(CALL_COST)


def test_an_idea_leaves_the_cycle_of_a_guide_as_it_is():
    plain = Steered(never_better, iterations=14, begun=9)
    left = [row["tactic_uses_left"] for row in plain.rows()]
    first = next(number for number, uses in enumerate(left) if uses)
    run = Steered(never_better, iterations=14, begun=first + 2)
    run.store.inputs.put_idea(run.run_id, IDEA)
    rows = run.rows()
    number = next(number for number, row in enumerate(rows) if "steered" in row)
    assert rows[number]["tactic_uses_left"] == rows[number - 1]["tactic_uses_left"] > 0
    assert rows[number + 1]["tactic_uses_left"] == rows[number]["tactic_uses_left"] - 1
    calls = calls_of(run.store)
    assert sum(call.role == "guide" for call in calls) == sum(
        call.role == "guide" for call in calls_of(plain.store)
    )


def test_a_guide_is_told_how_an_idea_went():
    run = Steered(never_better, iterations=14)
    run.store.inputs.put_idea(run.run_id, IDEA)
    run.rows()
    guides = [each for each in run.model.prompts if is_guide_prompt(each)]
    assert guides
    assert all(f"FAILED: user - {IDEA} (improvement -0.0500)" in each for each in guides)


def test_an_idea_is_repaired_until_the_attempts_of_its_step_are_used_up():
    others = always_better()
    run = Steered(lambda prompt: "no" if IDEA in prompt else others(prompt))
    run.store.inputs.put_idea(run.run_id, IDEA)
    rows = run.rows()
    assert len(asked_with(IDEA, run.model.prompts)) == rows[2]["attempts"] == 3
    assert rows[2]["failure"]
    assert rows[3]["attempts"] == 1


def test_inputs_are_taken_one_by_one_in_the_order_in_which_they_came():
    run = Steered()
    for idea in ("one way", "another way"):
        run.store.inputs.put_idea(run.run_id, idea)
    run.store.inputs.put_program(run.run_id, program(0.9))
    rows = run.rows()
    assert [row["steered"]["number"] for row in rows if "steered" in row] == [1, 2, 3]
    assert run.store.inputs.waiting(run.run_id) == []


@pytest.mark.parametrize("parallel", [1, 3])
@pytest.mark.parametrize("method", ["costada", "adaevolve", EVOX, "best-of-n"])
def test_a_program_is_evaluated_and_kept_without_a_call(method, parallel):
    run = Steered(method=method, parallel=parallel)
    run.store.inputs.put_program(run.run_id, program(0.95))
    rows = run.rows()
    (row,) = [row for row in rows if "steered" in row]
    assert row["steered"] == {"number": 1, "kind": "program"}
    assert (row["score"], row["attempts"]) == (0.95, 0)
    assert "submitted" in row["events"]
    found = run.store.candidates.get(run.run_id, row["candidate_id"])
    assert found.program.text == program(0.95)
    assert not [call for call in calls_of(run.store) if call.ticket == row["ticket"]]
    if method != "evox":
        assert row["step_cost"] == 0.0
    assert rows[-1]["best_score"] >= 0.95
    assert sum(call.cost for call in calls_of(run.store)) == spent_by(run.store)


def test_a_program_without_cost_is_credited_with_its_whole_gain():
    run = Steered(lambda prompt: rewrite(0.2))
    run.store.inputs.put_program(run.run_id, program(0.7))
    row = run.rows()[2]
    assert row["cost_divisor"] == 1.0
    weight = 1 - row["remaining_ratio"]
    assert row["local_gain"] >= row["global_gain"] == pytest.approx(0.5)
    expected = weight * row["global_gain"] + (1 - weight) * row["local_gain"]
    assert row["utility"] == pytest.approx(expected)
    assert row["allocation_reward"] == pytest.approx(0.5)


def test_an_invalid_program_is_data_and_no_failed_attempt_of_the_model():
    run = Steered(always_better(), max_failures=1)
    run.store.inputs.put_program(run.run_id, program(7.0))
    rows = run.rows()
    assert "expected at most 1" in rows[2]["failure"]
    assert rows[2]["steered"]["kind"] == "program"
    assert len(rows) == 6
    assert len(run.model.prompts) == 5


@pytest.mark.parametrize("parallel", [2, 4])
def test_of_steps_in_flight_each_input_goes_to_one(parallel):
    run = Steered(parallel=parallel, iterations=16, begun=3)
    ideas = [f"idea {number}" for number in range(5)]
    for idea in ideas:
        run.store.inputs.put_idea(run.run_id, idea)
    rows = run.rows()
    assert sorted(row["steered"]["idea"] for row in rows if "steered" in row) == ideas
    for idea in ideas:
        tickets = {call.ticket for call in calls_of(run.store) if f"Idea: {idea}\n" in call.prompt}
        assert len(tickets) == 1


def test_a_program_needs_no_model_of_a_menu_and_an_idea_goes_to_the_chosen_one():
    models = [MenuModel(name, scripted(), price=None) for name in ("a", "b")]
    run = Steered.__new__(Steered)
    run.store, run.model = RunStore(), models[0].model
    priced = [MenuModel(each.name, each.model, PRICE) for each in models]
    run.graph = discovery(
        priced, store=run.store, saver=InMemorySaver(), iterations=8, parallel=2, price=None
    )
    run_until(run.graph, THREAD, 2)
    (run.run_id,) = run.store.run_ids()
    run.store.inputs.put_program(run.run_id, program(0.9))
    run.store.inputs.put_idea(run.run_id, IDEA)
    rows = run.rows()
    by_kind = {row["steered"]["kind"]: row for row in rows if "steered" in row}
    assert by_kind["program"]["models"] == []
    assert len(by_kind["tactic"]["models"]) == by_kind["tactic"]["attempts"]
    tries = sum(model["tries"] for model in rows[-1]["router"])
    assert tries == sum(row["attempts"] for row in rows)


def test_an_idea_that_a_hard_budget_cannot_pay_for_waits_again():
    run = Steered(iterations=30, budget_policy="hard", budget=0.0065, begun=1)
    for number in range(4):
        run.store.inputs.put_idea(run.run_id, f"idea {number}")
    rows = run.rows()
    tried = [row["steered"]["idea"] for row in rows if "steered" in row]
    waiting = [each.text for each in run.store.inputs.waiting(run.run_id)]
    assert "out_of_money" in rows[-1]["events"]
    assert tried + waiting == [f"idea {number}" for number in range(4)]
    assert waiting


def paused(**options: Any) -> Any:
    store = RunStore()
    graph = discovery(store=store, saver=InMemorySaver(), iterations=3, **options)
    graph.invoke({}, THREAD, interrupt_before=["build_context"])
    return graph, store


@pytest.mark.parametrize(
    ("value", "event"), [({"tactic": IDEA}, "steered"), ({"program": program(0.9)}, "submitted")]
)
def test_a_paused_graph_is_resumed_with_an_idea_or_a_program(value, event):
    graph, store = paused()
    graph.invoke(Command(resume=value), THREAD, interrupt_before=["build_context"])
    assert graph.get_state(THREAD).next == ("build_context",)
    assert graph.invoke(None, THREAD)["iterations"] == 3
    assert event in rows_of(store)[0]["events"]
    assert sum(event in row["events"] for row in rows_of(store)) == 1


def test_an_idea_reaches_a_graph_that_is_awaited():
    async def run():
        store = RunStore()
        graph = discovery(store=store, saver=InMemorySaver(), iterations=2)
        await graph.ainvoke({}, THREAD, interrupt_before=["build_context"])
        await graph.ainvoke(Command(resume={"tactic": IDEA}), THREAD)
        return rows_of(store)

    assert asyncio.run(run())[0]["steered"]["idea"] == IDEA


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ({"tactic": " "}, "idea: got 0 characters, expected 1 to 2,000"),
        ({"tactic": 7}, "idea: got 7, expected a string"),
        ({"tactic": IDEA, "program": ""}, "resume: got tactic, program, expected one of them"),
        ({"program": {"a.py": "x = 1"}}, "program: got several files, expected one text"),
        ({"program": "a\0"}, "program: got a NUL character"),
    ],
)
def test_a_wrong_input_is_refused_by_name_before_the_run_goes_on(value, match):
    graph, store = paused()
    with pytest.raises(ValueError, match=match):
        graph.invoke(Command(resume=value), THREAD)
    assert rows_of(store) == []


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("value", [{"tactic": "another way"}, {"program": program(0.9)}])
def test_an_input_for_an_earlier_checkpoint_is_refused(value, is_async):
    graph, store = paused()
    earlier = graph.get_state(THREAD).config
    graph.invoke(Command(resume={"tactic": IDEA}), earlier, interrupt_before=["build_context"])
    again = partial(graph.invoke, Command(resume=value), earlier)
    if is_async:
        again = partial(asyncio.run, graph.ainvoke(Command(resume=value), earlier))
    with pytest.raises(ValueError, match=r"resume: got a .* for an earlier checkpoint"):
        again()
    assert store.inputs.waiting(store.run_ids()[-1]) == []
    graph.invoke(Command(resume=value), graph.get_state(THREAD).config)
    assert [row["steered"]["number"] for row in rows_of(store) if "steered" in row] == [1, 2]


@pytest.mark.parametrize("value", [{"foo": 1}, "better", ["tactic"], {}])
def test_a_value_that_a_paused_run_cannot_use_is_refused_before_it_spends(value):
    graph, store = paused()
    before = graph.get_state(THREAD).values["spent"]
    with pytest.raises(ValueError, match=r'resume: got .* asks nothing, expected {"tactic": TEXT}'):
        graph.invoke(Command(resume=value), THREAD)
    assert rows_of(store) == []
    assert graph.get_state(THREAD).values["spent"] == before


@pytest.mark.parametrize("command", [Command(resume=None), Command(), Command(update={})])
def test_an_empty_command_is_refused_by_name(command):
    graph, store = paused()
    with pytest.raises(ValueError, match="resume: got None in a command, expected"):
        graph.invoke(command, THREAD)
    with pytest.raises(ValueError, match="resume: got None"):
        asyncio.run(graph.ainvoke(command, THREAD))
    assert rows_of(store) == []


def test_an_input_for_a_run_that_is_over_is_refused():
    graph, _ = paused()
    graph.invoke(None, THREAD)
    with pytest.raises(ValueError, match="resume: got a tactic for a run that is over"):
        graph.invoke(Command(resume={"tactic": IDEA}), THREAD)


FILES = {"main.py": SEED_PROGRAM, "notes.py": "x = 1\n"}


@pytest.mark.parametrize(
    ("files", "failure"),
    [
        ({**FILES, "main.py": program(0.8)}, None),
        ({**FILES, "other.py": ""}, "There is no file `other.py`"),
    ],
)
def test_a_program_of_several_files_may_have_those_that_the_problem_allows(files, failure):
    problem = toy_problem(
        initial_program=FILES,
        entry_point="main:value",
        evaluate=lambda files: evaluate_value(files["main.py"]),
    )
    run = Steered(lambda prompt: f"main.py\n{rewrite(0.3)}", problem=problem)
    run.store.inputs.put_program(run.run_id, files)
    row = run.rows()[2]
    if failure:
        assert failure in row["failure"]
    else:
        assert row["score"] == 0.8


def test_a_run_without_inputs_has_no_trace_of_them():
    graph, store = paused()
    graph.invoke(None, THREAD)
    assert all("steered" not in row for row in rows_of(store))
    other = RunStore()
    discovery(iterations=3, store=other).invoke({})
    assert rows_of(other) == rows_of(store)


def test_a_model_with_tools_carries_an_idea_out_and_no_tool_touches_a_users_program(server):
    server.script(Reply(rewrite(0.6)), Reply(rewrite(0.9)))
    store = RunStore()
    graph = discovery(
        client(server), store=store, saver=InMemorySaver(), iterations=3, generator="agent"
    )
    run_until(graph, THREAD, 1)
    store.inputs.put_program(store.run_ids()[0], program(0.7))
    store.inputs.put_idea(store.run_ids()[0], IDEA)
    resumed(graph)
    rows = rows_of(store)
    assert [row["score"] for row in rows] == [0.6, 0.7, 0.9]
    assert rows[1]["step_cost"] == 0.0
    assert f"Idea: {IDEA}\n" in calls_of(store)[-1].prompt
    assert spent_by(store) == billed(server)


def test_a_program_that_is_better_is_measured_as_often_as_any_other():
    run = Steered(always_better(), problem=toy_problem(repeats=3))
    run.store.inputs.put_program(run.run_id, program(0.8))
    row = run.rows()[2]
    assert (row["measurements"], row["confirmation"]) == ([8.0] * 3, [8.0] * 3)
    assert "confirmed" in row["events"]


def test_a_purse_pays_nothing_for_a_program():
    purse = Purse(0.1)
    run = Steered(always_better(), purse=purse, budget=0.05)
    run.store.inputs.put_program(run.run_id, program(0.8))
    run.rows()
    assert purse.spent == spent_by(run.store) == 5 * CALL_COST


def test_an_invalid_program_between_failures_neither_ends_a_run_nor_starts_their_count_anew():
    run = Steered(lambda prompt: "no", attempts=1, max_failures=4, iterations=9)
    run.store.inputs.put_program(run.run_id, program(7.0))
    rows = run.rows()
    assert [row["attempts"] for row in rows] == [1, 1, 0, 1, 1]

"""A run that draws its budget from a purse: what it takes, reports and gives back."""

import asyncio
import os
import signal
import time
from contextlib import suppress
from decimal import Decimal

import pytest
from billing_server import Silence
from fakes import ScriptedModel, hashed_answer, toy_problem
from impatience import impatient
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from toy_graph import CALL_COST, THREAD, discovery, run_until, scripted, spent_by
from warm import PROCESSES

from costada.models.chat_models import chat_model
from costada.runs.discovery import discover
from costada.store.accounts import OverBudget
from costada.store.purse import Purse
from costada.store.run_store import RunStore


def purse_graph(purse, *, budget=0.06, iterations=4, **changes):
    options = {"budget": budget, "iterations": iterations, **changes}
    return discovery(purse=purse, **options)


def test_a_run_draws_its_budget_reports_each_call_and_gives_back_the_rest():
    purse, store = Purse(0.1), RunStore()
    graph = purse_graph(purse, store=store, saver=InMemorySaver())
    run_until(graph, THREAD, 2)
    assert purse.spent == spent_by(store) > 0
    assert purse.remaining == Decimal("0.04")
    graph.invoke(None, THREAD)
    account = purse.accounts()[1]
    assert (account.name, account.budget) == (store.run_ids()[0], Decimal("0.06"))
    assert (account.spent, account.is_closed) == (spent_by(store), True)
    assert purse.remaining == Decimal("0.1") - spent_by(store)
    assert sum(entry.cost for entry in purse.calls()) == purse.spent
    assert [entry.key for entry in purse.calls()] == [f"ticket {n}" for n in range(1, 5)]


def test_a_run_is_lent_what_is_left_and_its_decisions_go_by_that():
    purse = Purse(0.1)
    purse.put("before", cost=0.09)
    graph = purse_graph(purse, iterations=50)
    rows = list(graph.stream({}, stream_mode="custom"))
    first = rows[0]
    assert first["remaining_ratio"] == pytest.approx(1 - first["step_cost"] / 0.01)
    assert 0.01 <= rows[-1]["spent"] <= 0.01 + 4 * float(CALL_COST)
    assert purse.spent == Decimal("0.09") + Decimal(str(rows[-1]["spent"]))


@pytest.mark.parametrize("policy", ["crossing", "hard"])
def test_a_run_that_finds_too_little_in_the_purse_asks_nobody(policy):
    purse = Purse(0.1, policy=policy)
    purse.put("before", cost=0.1 if policy == "crossing" else 0.05)
    model = scripted()
    graph = purse_graph(purse, model=model, budget_policy=policy)
    with pytest.raises(OverBudget, match=r"budget: got 0.06, but 'purse' has \$0"):
        graph.invoke({})
    assert model.prompts == []
    assert len(purse.accounts()) == 1


def test_a_hard_purse_needs_a_hard_budget_and_a_purse_is_a_ledger():
    with pytest.raises(ValueError, match="budget_policy: got 'crossing' with a hard purse"):
        purse_graph(Purse(1, policy="hard"))
    with pytest.raises(ValueError, match=r"purse: got 1, expected Purse\(BUDGET\) or None"):
        purse_graph(1)


def test_several_runs_of_one_graph_share_the_purse():
    purse, store = Purse(0.02, policy="hard"), RunStore()
    graph = purse_graph(purse, budget=0.01, store=store, budget_policy="hard", iterations=50)
    found = [graph.invoke({"seed": seed}) for seed in range(2)]
    assert all(each["spent"] <= 0.01 for each in found)
    assert purse.spent == sum(Decimal(str(each["spent"])) for each in found)
    assert len(purse.accounts()) == 3


def test_steps_that_are_executed_again_report_the_same():
    purse, saver = Purse(0.1), InMemorySaver()
    graph = purse_graph(purse, saver=saver)
    graph.invoke({}, THREAD)
    before = (purse.spent, purse.remaining, len(purse.calls()))
    early = [each for each in graph.get_state_history(THREAD) if each.next == ("generate",)][-1]
    graph.invoke(None, early.config)
    assert (purse.spent, purse.remaining, len(purse.calls())) == before


def test_a_run_can_not_go_on_without_the_purse_it_began_with():
    purse, saver, store = Purse(0.1), InMemorySaver(), RunStore()
    run_until(purse_graph(purse, saver=saver, store=store), THREAD, 1)
    with pytest.raises(ValueError, match="purse: got None for a run that draws from a purse"):
        purse_graph(None, saver=saver, store=store).invoke(None, THREAD)


def test_a_run_that_continues_after_its_end_draws_what_it_had_given_back_and_more():
    purse, saver, store = Purse(0.1), InMemorySaver(), RunStore()
    graph = purse_graph(purse, iterations=2, saver=saver, store=store)
    graph.invoke({}, THREAD)
    longer = purse_graph(purse, budget=0.08, iterations=4, saver=saver, store=store)
    assert [row["iteration"] for row in run_until(longer, THREAD, 3, given=None)] == [3]
    assert purse.remaining == Decimal("0.02")
    assert longer.get_state(THREAD).values["account"].granted == 0.08
    assert longer.invoke(None, THREAD)["iterations"] == 4
    assert purse.remaining == Decimal("0.1") - spent_by(store)


def test_a_granted_budget_must_fit_the_purse():
    purse = Purse(0.02)
    graph = purse_graph(
        purse, budget=0.01, iterations=50, saver=InMemorySaver(), on_exhausted="interrupt"
    )
    graph.invoke({}, THREAD)
    left = purse.remaining
    again = graph.invoke(Command(resume={"budget": 0.5}), THREAD)
    (asked,) = again["__interrupt__"]
    assert asked.value["refused"] == (f"budget: got 0.5, but 'purse' has ${left:f} left of $0.02")
    more = graph.invoke(Command(resume={"budget": 0.015}), THREAD)
    assert 0.015 <= more["spent"] <= 0.015 + 4 * float(CALL_COST)
    assert purse.spent == Decimal(str(more["spent"]))
    ended = graph.invoke(Command(resume="stop"), THREAD)
    assert ended["stop_reason"] == "budget"
    assert all(account.is_closed for account in purse.accounts()[1:])


@pytest.mark.parametrize(("lost_calls", "is_counted"), [("count", True), ("ignore", False)])
def test_a_request_whose_bill_is_unknown_counts_in_the_purse_as_it_does_in_the_run(
    server, lost_calls, is_counted
):
    purse = Purse(1)
    server.default = Silence(is_billed=True)
    options = {"base_url": server.url, "max_attempts": 1, "max_tokens": 100}
    model = impatient(chat_model("openai:stand-in", **options), server)
    found = purse_graph(
        purse, iterations=1, model=model, lost_calls=lost_calls, max_failures=1
    ).invoke({})
    assert purse.spent == Decimal(str(found["spent"]))
    assert (purse.spent > 0) is is_counted


def failing(prompt: str) -> str:
    raise RuntimeError("the machine is on fire")


def leave(graph, purse):
    next(graph.stream({}, stream_mode="custom"))


async def leave_async(graph, purse):
    async for _ in graph.astream({}, stream_mode="custom"):
        break


async def lose_patience(graph, purse):
    run = asyncio.create_task(graph.ainvoke({}))
    while purse.spent < CALL_COST:
        await asyncio.sleep(0.01)
    run.cancel()
    with suppress(asyncio.CancelledError):
        await run


@pytest.mark.parametrize("way", [leave, leave_async, lose_patience])
def test_a_run_that_is_left_gives_back_what_it_did_not_spend(way):
    purse = Purse(0.1)

    def slow_after_three(prompt: str) -> str:
        time.sleep(0 if len(model.prompts) < 4 else 0.3)
        return hashed_answer(prompt)

    model = scripted(slow_after_three)
    left = way(purse_graph(purse, model=model, iterations=50), purse)
    if left is not None:
        asyncio.run(left)
    assert purse.accounts()[1].is_closed
    assert purse.remaining == Decimal("0.1") - purse.spent
    assert purse.spent >= CALL_COST


def test_a_run_that_failed_gives_back_and_draws_again_when_it_resumes():
    purse, saver = Purse(0.1), InMemorySaver()
    answers = [hashed_answer, failing, hashed_answer, hashed_answer]
    model = ScriptedModel(answer=lambda prompt: answers.pop(0)(prompt))
    graph = purse_graph(purse, saver=saver, model=model, iterations=3, lost_calls="ignore")
    with pytest.raises(RuntimeError, match="on fire"):
        graph.invoke({}, THREAD)
    assert purse.accounts()[1].is_closed
    assert purse.remaining == Decimal("0.1") - purse.spent
    found = graph.invoke(None, THREAD)
    assert (found["iterations"], len(purse.accounts())) == (3, 2)
    assert purse.spent == Decimal(str(found["spent"]))


def test_discover_draws_from_a_purse_and_gives_back_even_when_it_fails():
    purse = Purse(0.1)
    options = {"budget": 0.06, "price": "1,2", "max_iterations": 2, "purse": purse}
    found = discover(toy_problem(), scripted(), **options)
    assert purse.spent == Decimal(str(found.spent)) > 0
    with pytest.raises(RuntimeError, match="on fire"):
        discover(toy_problem(), scripted(failing), **options)
    assert all(account.is_closed for account in purse.accounts()[1:])


def test_a_run_in_a_folder_continues_with_its_purse(tmp_path):
    purse = Purse(0.02, path=tmp_path / "purse.sqlite")
    options = {"budget": 0.06, "price": "1,2", "out": tmp_path / "run"}
    given = (toy_problem(), scripted())
    first = discover(*given, **options, max_iterations=2, purse=purse)
    assert first.remaining == pytest.approx(0.02 - first.spent)
    purse.close()
    with Purse(0.02, path=tmp_path / "purse.sqlite") as again:
        found = discover(*given, **options, max_iterations=3, resume=True, purse=again)
        assert found.iterations == 3
        assert again.spent == Decimal(str(found.spent))
        with pytest.raises(ValueError, match="expected the purse it began with"):
            discover(*given, **options, max_iterations=4, resume=True)


class DeadlyPurse(Purse):
    """Kills the process when the budget of a run has been drawn."""

    def child(self, name, budget=None):
        super().child(name, budget)
        os.kill(os.getpid(), signal.SIGKILL)


def draw_and_die(folder):
    purse = DeadlyPurse(0.06, path=folder / "purse.sqlite")
    discover(toy_problem(), scripted(), budget=0.06, price="1,2", out=folder / "run", purse=purse)


@pytest.mark.process
def test_a_run_that_is_killed_as_it_draws_its_budget_has_that_budget_when_it_resumes(tmp_path):
    process = PROCESSES.Process(target=draw_and_die, args=(tmp_path,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    with Purse(0.06, path=tmp_path / "purse.sqlite") as purse:
        assert purse.remaining == 0
        options = {"budget": 0.06, "price": "1,2"}
        options |= {"out": tmp_path / "run", "resume": True, "purse": purse}
        found = discover(toy_problem(), scripted(), **options)
        assert purse.spent == Decimal(str(found.spent)) > 0
        assert purse.remaining == Decimal("0.06") - purse.spent
        assert len(purse.accounts()) == 2


def test_a_run_that_used_up_all_there_was_is_over_until_there_is_more(tmp_path):
    purse, model = Purse(0.004), scripted()
    options = {"budget": 0.06, "price": "1,2", "out": tmp_path / "run"}
    first = discover(toy_problem(), model, **options, purse=purse)
    num_calls = len(model.prompts)
    again = discover(toy_problem(), model, **options, resume=True, purse=purse)
    assert (again.stop_reason, again.spent, len(model.prompts)) == (
        "budget",
        first.spent,
        num_calls,
    )
    purse.raise_to(0.01)
    more = discover(toy_problem(), model, **options, resume=True, purse=purse)
    assert more.spent >= 0.01
    assert purse.spent == Decimal(str(more.spent))

"""One paid call: what it leaves on the ledger, its bounds, and when it is not made again."""

import asyncio
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from billing_server import BillingServer, Refusal, Reply, Silence
from fakes import ScriptedModel, hashed_answer, rewrite, toy_problem
from genai_prices.types import ModelPrice
from impatience import impatient
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from toy_graph import PRICE, THREAD, calls_of, client, discovery, scripted

from costada.evaluators.folder_evaluators import folder_evaluation, sort_values
from costada.evaluators.folder_settings import FolderSettings
from costada.graph.build import DiscoveryGraph
from costada.models.asking import ModelFailure
from costada.models.chat_models import chat_model
from costada.models.errors import UnmeteredCall
from costada.models.menu import ModelEntry
from costada.models.prices import GivenPrice, PackagedPrice, PriceBook, Quote, price_book
from costada.models.runnable_tree import OutgoingRequest
from costada.nodes.calls.bounds import MESSAGE_TOKENS, call_bound, input_bound, sent_bound
from costada.nodes.calls.budget import affordable_answer
from costada.nodes.calls.paid_calls import ask_model
from costada.nodes.context import PricedModel, RunContext
from costada.nodes.settings import Settings
from costada.prompts.render import Prompt
from costada.store.call_log import CallKey
from costada.store.purse import Purse
from costada.store.rows import CallStatus
from costada.store.run_store import RunStore
from costada.values.evaluation import EVALUATOR_FAULT, Evaluation, failed
from costada.values.usage import Price


def asked(model: Any) -> PricedModel:
    entry = ModelEntry(name="model", model="stand-in")
    return PricedModel(entry, model, price_book([(model, PRICE)], {}))


def context_of(model: Any, store: RunStore | None = None) -> RunContext:
    return RunContext(
        name="test",
        problem=toy_problem(),
        menu=(asked(model),),
        budget=1.0,
        settings=Settings(price=PRICE),
        store=store or RunStore(),
    )


class Renamed(ScriptedModel):
    """A model whose name can change after it was priced."""

    name_now: str = "scripted"

    def _get_ls_params(self, stop=None, **kwargs):
        return {"ls_provider": "scripted", "ls_model_name": self.name_now, "ls_model_type": "chat"}


def graph_with(model, store, *, iterations=3, problem=None):
    return discovery(model, problem=problem, iterations=iterations, store=store)


def test_a_request_to_a_model_without_a_price_never_leaves():
    store = RunStore()
    model = Renamed(answer=hashed_answer)
    graph = graph_with(model, store)
    model.name_now = "other"
    with pytest.raises(ValueError, match="model 'other' has no known price"):
        graph.invoke({})
    assert (model.prompts, calls_of(store)) == ([], [])


def test_a_call_carries_its_price_and_where_it_came_from(server):
    store = RunStore()
    graph_with(client(server), store, iterations=1).invoke({})
    (call,) = calls_of(store)
    assert (call.price_in, call.price_out, call.price_source) == ("1", "2", "given")
    assert (call.provider, call.provider_id, call.finish_reason) == ("openai", "answer-1", "stop")
    assert call.ended_at > 1.7e9


def test_a_model_that_refuses_the_very_first_request_ends_the_run(server):
    server.default = Refusal(400, "unknown parameter")
    with pytest.raises(ValueError, match=r"refused the request with status 400.*unknown parameter"):
        graph_with(client(server), RunStore()).invoke({})
    assert len(server.requests) == 1


def test_cached_tokens_that_a_server_counts_apart_are_charged(server):
    server.default = Reply(rewrite(0.3), input_tokens=100, cached_tokens=400, output_tokens=10)
    store = RunStore()
    graph_with(client(server), store, iterations=1).invoke({})
    (call,) = calls_of(store)
    assert (call.usage.input_tokens, call.usage.cached_tokens) == (500, 400)


def fault_after(count):
    """An evaluator that judges `count` programs and is broken from then on."""
    judged = []

    def evaluate(code: str) -> Evaluation:
        judged.append(code)
        if len(judged) > count:
            return failed("disk gone", artifacts={EVALUATOR_FAULT: "disk gone"})
        return Evaluation(score=0.1, objective=0.1, is_valid=True)

    return evaluate


@pytest.mark.parametrize(("max_tokens", "is_logged"), [(32_000, True), (1_000, False)])
def test_a_lost_request_that_takes_much_of_the_budget_is_logged_with_advice(
    server, caplog, max_tokens, is_logged
):
    """At 2 dollars per million, 32,000 tokens are 6.4 % of the budget; the prompt adds."""
    options = {"base_url": server.url, "max_attempts": 1, "max_tokens": max_tokens}
    model = impatient(chat_model("openai:stand-in", **options), server)
    server.script(Reply(rewrite(0.2)), Silence(), Reply(rewrite(0.4)))
    store = RunStore()
    graph_with(model, store, iterations=2).invoke({})
    (lost,) = [call for call in calls_of(store) if call.bound]
    records = [record for record in caplog.records if record.name == "costada.money"]
    assert [record.ticket for record in records] == [2] * is_logged
    for line in (record.getMessage() for record in records):
        assert line.startswith(f"A request of iteration 2 was lost and counts as ${lost.bound:.6f}")
        assert "(7% of the budget)" in line
        assert "--max-tokens" in line
        assert "--gateway" in line


def test_an_answer_without_token_counts_is_announced_as_nothing_else(server, caplog):
    """Its bound is 7 % of the budget, as that of a lost request would be."""
    model = chat_model("openai:stand-in", base_url=server.url, max_attempts=1, max_tokens=32_000)
    server.script(Reply(rewrite(0.2), reports_usage=False))
    store = RunStore()
    with pytest.raises(UnmeteredCall, match="answered without token counts"):
        graph_with(model, store).invoke({})
    (call,) = calls_of(store)
    assert call.status is CallStatus.UNCOUNTED
    assert float(call.bound) > 0.06
    assert [record for record in caplog.records if record.name == "costada.money"] == []


NAN = float("nan")


@pytest.mark.process
@pytest.mark.parametrize("form", ["dict", "Evaluation"])
@pytest.mark.parametrize("is_broken_for_all", [True, False])
def test_a_later_score_that_is_no_number_is_rechecked_on_the_best_program(
    server, form, is_broken_for_all
):
    """Either from the third evaluation on, or for the one program that returns 0.2."""
    judged = []

    def score(value):
        judged.append(value)
        is_broken = len(judged) > 2 if is_broken_for_all else value == 0.2
        found = NAN if is_broken else value
        if form == "dict":
            return folder_evaluation(*sort_values({"combined_score": found}), FolderSettings())
        return Evaluation(score=found, objective=found, is_valid=True)

    problem = toy_problem(evaluate=None, score=score)
    server.script(*(Reply(rewrite(value)) for value in (0.3, 0.2, 0.4)))
    graph = graph_with(client(server), RunStore(), problem=problem, iterations=2)
    if is_broken_for_all:
        with pytest.raises(ValueError, match=r"fails on the best program, .*expected a finite"):
            graph.invoke({})
        assert (judged, len(server.requests)) == ([0.1, 0.3, 0.2, 0.3], 2)
    else:
        assert graph.invoke({})["best_score"] == 0.4
        assert judged == [0.1, 0.3, 0.2, 0.3, 0.4]


def test_an_evaluator_that_breaks_during_a_run_ends_it(server):
    graph = graph_with(client(server), RunStore(), problem=toy_problem(evaluate=fault_after(1)))
    with pytest.raises(ValueError, match=r"evaluator of 'toy': fails on the best program.*disk"):
        graph.invoke({})
    assert len(server.requests) == 1


CAP = 1000


def run_once(server, store, *, lost_calls="count"):
    model = impatient(client(server, max_tokens=CAP, max_attempts=1), server)
    limits = {"iterations": 1, "attempts": 1}
    return discovery(model, store=store, lost_calls=lost_calls, **limits).invoke({})


def bound_of(call):
    task = toy_problem().task
    taken = len(task.encode()) + len(call.prompt.encode()) + 64
    return (Decimal(taken) + 2 * Decimal(CAP)) / 1_000_000


def test_an_answered_call_is_done_and_has_no_bound(server):
    store = RunStore()
    run_once(server, store)
    (call,) = calls_of(store)
    assert (call.status, call.bound, call.is_in_doubt) == (CallStatus.DONE, 0, False)


@pytest.mark.parametrize("lost_calls", ["count", "ignore"])
def test_a_call_that_timed_out_counts_at_its_bound_unless_that_is_ignored(server, lost_calls):
    server.default = Silence()
    store = RunStore()
    result = run_once(server, store, lost_calls=lost_calls)
    (call,) = calls_of(store)
    assert (call.status, call.cost, call.is_in_doubt) == (CallStatus.ERROR, 0, True)
    assert call.bound == bound_of(call)
    assert result["spent"] == (float(call.bound) if lost_calls == "count" else 0)


def test_a_request_is_on_record_before_it_leaves(server):
    store = RunStore()
    seen = []

    def look(body):
        seen.extend(calls_of(store))
        return Reply(rewrite(0.3))

    server.default = look
    run_once(server, store)
    (call,) = seen
    assert (call.status, call.answer) == (CallStatus.STARTED, "")
    assert call.bound == bound_of(call)


def test_a_request_that_a_dead_process_left_is_lost_and_asked_again(server):
    store = RunStore()
    run_once(server, store)
    (done,) = calls_of(store)
    key = CallKey("another run", 1, "generation", 1)
    begun = replace(done, status=CallStatus.STARTED, cost=Decimal(0), bound=Decimal("0.5"))
    store.call_log.put_call(key.run_id, begun)
    store.call_log.mark_lost(key)
    store.call_log.put_call(key.run_id, done)
    assert [call.status for call in store.call_log.calls(key.run_id)] == [
        CallStatus.LOST,
        CallStatus.DONE,
    ]
    counted = store.ledger.charge(key.run_id, 1, [1], counts_lost=True)
    ignored = store.ledger.charge(key.run_id, 1, [1], counts_lost=False)
    assert (counted.cost, counted.in_doubt) == (done.cost + Decimal("0.5"), Decimal("0.5"))
    assert (ignored.cost, ignored.in_doubt) == (done.cost, 0)


THIRD_KEY = CallKey("run", 3, "generation", 1)
PROMPT = Prompt("be brief", "improve it")


def test_a_call_is_made_once_however_often_its_step_is_executed():
    model = ScriptedModel(answer=lambda prompt: rewrite(0.4), prompts=[])
    context = context_of(model)
    first = ask_model(asked(model), PROMPT, THIRD_KEY, {}, context)
    again = ask_model(asked(model), PROMPT, THIRD_KEY, {}, context)
    assert first.text == again.text
    assert len(model.prompts) == 1
    assert len(list(context.store.call_log.calls("run"))) == 1


def test_a_failure_is_not_asked_for_again_either():
    model = ScriptedModel(answer=lambda prompt: " ", prompts=[])
    context = context_of(model)
    outcomes = [ask_model(asked(model), PROMPT, THIRD_KEY, {}, context) for _ in range(2)]
    assert isinstance(outcomes[0], ModelFailure)
    assert outcomes[0] == outcomes[1]
    assert len(model.prompts) == 1


def test_an_answer_that_was_stored_just_before_the_end_is_used():
    model = scripted()
    context = context_of(model)
    first = ask_model(asked(model), PROMPT, THIRD_KEY, {}, context)
    context.store._db.write("DELETE FROM costada_outcome", ())
    assert ask_model(asked(model), PROMPT, THIRD_KEY, {}, context).text == first.text
    assert context.store.call_log.has_answer("run")
    assert len(model.prompts) == 1


def test_an_answer_that_something_else_would_have_changed_is_asked_for_again():
    model = ScriptedModel(answer=lambda prompt: rewrite(0.4), prompts=[])
    chain = model | RunnableLambda(lambda message: message)
    context = context_of(chain)
    ask_model(asked(chain), PROMPT, THIRD_KEY, {}, context)
    context.store._db.write("DELETE FROM costada_outcome", ())
    ask_model(asked(chain), PROMPT, THIRD_KEY, {}, context)
    assert len(model.prompts) == 2


def test_another_request_for_the_same_call_is_an_error():
    model = scripted()
    context = context_of(model)
    ask_model(asked(model), PROMPT, THIRD_KEY, {}, context)
    expected = (
        "generation 1 of iteration 3: the journal holds another .* continue with the settings"
    )
    with pytest.raises(ValueError, match=expected):
        ask_model(asked(model), Prompt("be brief", "something else"), THIRD_KEY, {}, context)


def test_another_request_at_an_old_checkpoint_says_how_to_make_a_branch():
    model = scripted()
    context = context_of(model)
    ask_model(asked(model), PROMPT, THIRD_KEY, {}, context)
    context.store.put_step("run", 4, {"ticket": 3})
    expected = (
        r"iteration 3: .* older than the run, which has finished iteration 4: .*`costada fork`"
        r" \(Python: costada\.runs\.fork\.fork_run\)"
    )
    with pytest.raises(ValueError, match=expected):
        ask_model(asked(model), Prompt("be brief", "something else"), THIRD_KEY, {}, context)


@pytest.mark.parametrize("is_counted", [True, False])
def test_what_a_killed_process_may_have_lost_is_logged_when_the_run_resumes(caplog, is_counted):
    """0.064 dollars for 32,000 tokens of answer, and the prompt; the budget is 1 dollar."""
    model = scripted()
    context = context_of(model)
    if not is_counted:
        settings = context.settings.model_copy(update={"lost_calls": "ignore"})
        context = replace(context, settings=settings)
    ask_model(asked(model), PROMPT, THIRD_KEY, {}, context)
    context.store._db.write("DELETE FROM costada_outcome", ())
    context.store._db.write("UPDATE costada_call SET status = 'started', bound = '0.0645'", ())
    ask_model(asked(model), PROMPT, THIRD_KEY, {}, context)
    logged = [record.getMessage() for record in caplog.records if record.name == "costada.money"]
    assert len(logged) == is_counted
    for line in logged:
        assert line.startswith("A request of iteration 3 was lost and counts as $0.064500 (6% of")
    assert len(model.prompts) == 2


KEY = CallKey("run", 1, "generation", 1)
MOMENT = 0.3
"""Seconds that a run has for going on although it should wait."""


class HeldModel:
    """A model whose first answer arrives when it is let go."""

    def __init__(self) -> None:
        self.asked, self.let_go = Event(), Event()
        self.model = ScriptedModel(answer=self._answer, prompts=[])

    def _answer(self, prompt: str) -> str:
        if not self.asked.is_set():
            self.asked.set()
            assert self.let_go.wait(60)
        return hashed_answer(prompt)


def held_graph(held: HeldModel, store: RunStore, purse: Purse, iterations: int) -> DiscoveryGraph:
    options: dict[str, Any] = {"iterations": iterations, "attempts": 1, "saver": InMemorySaver()}
    return discovery(held.model, store=store, purse=purse, **options)


def check_books(found: Any, held: HeldModel, store: RunStore, purse: Purse) -> None:
    """Check that nothing was sent twice, and that rows, run and purse tell the same dollars."""
    calls = list(store.call_log.calls(found["run"].id))
    assert [call.status for call in calls] == [CallStatus.DONE] * found["iterations"]
    assert len(held.model.prompts) == found["iterations"]
    total = sum((call.cost for call in calls), Decimal(0))
    assert (found["spent"], purse.spent) == (float(total), total)


def test_an_async_run_that_is_cancelled_and_resumed_at_once_waits_for_its_request() -> None:
    held, store, purse = HeldModel(), RunStore(), Purse(1.0)
    graph = held_graph(held, store, purse, iterations=3)

    async def cancel_and_resume() -> Any:
        first = asyncio.create_task(graph.ainvoke({}, THREAD))
        await asyncio.to_thread(held.asked.wait, 60)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        second = asyncio.create_task(graph.ainvoke(None, THREAD))
        done, _ = await asyncio.wait({second}, timeout=MOMENT)
        assert not done
        held.let_go.set()
        return await second

    found = asyncio.run(cancel_and_resume())
    state = {**found, "run": graph.get_state(THREAD).values["run"]}
    check_books(state, held, store, purse)


def test_two_threads_that_carry_the_same_run_out_share_a_request() -> None:
    held, store, purse = HeldModel(), RunStore(), Purse(1.0)
    graph = held_graph(held, store, purse, iterations=1)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(graph.invoke, {}, THREAD)
        assert held.asked.wait(60)
        second = pool.submit(graph.invoke, None, THREAD)
        assert not wait({second}, timeout=MOMENT).done
        held.let_go.set()
        found = [first.result(60), second.result(60)]
    assert found[0] == found[1]
    state = {**found[0], "run": graph.get_state(THREAD).values["run"]}
    check_books(state, held, store, purse)


def is_awaited(store: RunStore) -> bool:
    """Return whether someone who asks for the call once more waits."""

    def need_its_end() -> None:
        with store.call_log.in_flight.none_of(KEY):
            pass

    with ThreadPoolExecutor() as pool:
        return not wait({pool.submit(need_its_end)}, timeout=20).done


def test_nobody_waits_for_a_request_that_could_not_be_written_down(tmp_path: Path) -> None:
    RunStore(tmp_path / "run.sqlite").close()
    with RunStore(tmp_path / "run.sqlite", is_read_only=True) as store:
        model = scripted()
        with pytest.raises(PermissionError, match="may not be written"):
            ask_model(asked(model), PROMPT, KEY, {}, context_of(model, store))
        assert not is_awaited(store)
    assert not model.prompts


def test_nobody_waits_for_a_request_whose_end_could_not_be_written_down() -> None:
    store = RunStore()

    def close_and_answer(prompt: str) -> str:
        store.close()
        return hashed_answer(prompt)

    model = scripted(close_and_answer)
    with pytest.raises(ValueError, match="is closed, expected an open one"):
        ask_model(asked(model), PROMPT, KEY, {}, context_of(model, store))
    assert not is_awaited(store)


WRITES = PackagedPrice(
    "test",
    ModelPrice(
        input_mtok=Decimal(4),
        output_mtok=Decimal(10),
        cache_read_mtok=Decimal(1),
        cache_write_mtok=Decimal(5),
    ),
)
READS = GivenPrice(Price(4, 10, 5))


@pytest.mark.parametrize("quote", [WRITES, READS], ids=["writes", "reads"])
def test_bounds_take_the_input_at_its_dearest_price(quote: Quote) -> None:
    prices = PriceBook({"x": quote})
    sent = OutgoingRequest("x", None, output_cap=100, choices=2, input_bound=1000)
    # 1,000 tokens at 5 and 200 at 10 dollars per million.
    assert sent_bound(sent, prices) == Decimal("0.007")
    prompt = Prompt("be brief", "improve it")
    taken = input_bound(prompt)
    assert call_bound(quote, prompt, 100) == Decimal(taken * 5 + 1000) / 1_000_000


@pytest.mark.parametrize("quote", [WRITES, READS], ids=["writes", "reads"])
def test_an_answer_is_as_long_as_the_dearest_input_leaves_money_for(quote: Quote) -> None:
    announced = OutgoingRequest("x", None, output_cap=1000, choices=1, input_bound=1000)
    # 5,000 of 12,000 millionths go to the input, an answer token costs 10.
    left = Decimal("0.012")
    assert affordable_answer(announced, left, PriceBook({"x": quote})) == 700


def all_cached(body) -> Reply:
    """Answer as long as allowed, all of the longest prompt possible read from a cache."""
    taken = sum(len(message["content"].encode()) for message in body["messages"]) + MESSAGE_TOKENS
    return Reply(
        rewrite(0.3),
        input_tokens=taken,
        cached_tokens=taken,
        output_tokens=body["max_completion_tokens"],
    )


@pytest.mark.parametrize("budget", [0.3, 0.7])
def test_a_cache_that_costs_more_than_fresh_input_passes_no_hard_budget(
    server: BillingServer, budget: float
) -> None:
    server.default = all_cached
    model = client(server)
    price = Price("0.1", "1", "100")
    graph = discovery(model, budget=budget, iterations=5, price=price, budget_policy="hard")
    result = graph.invoke({})
    total = server.total()
    bill = Decimal(total.cached_tokens * 100 + total.output_tokens) / 1_000_000
    assert float(bill) == pytest.approx(result["spent"])
    assert bill <= Decimal(str(budget))
    assert server.bill

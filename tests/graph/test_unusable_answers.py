"""Answers that are not usable, a provider that answers nobody, and how a run ends or waits then."""

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from time import monotonic, sleep

import pytest
from billing_server import BillingServer, HangUp, Page, Refusal, Reply, Silence
from fakes import IDEAS, ScriptedModel, hashed_answer, is_guide_prompt, rewrite
from impatience import impatient
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.runtime import RunControl
from toy_graph import PRICE, THREAD, calls_of, client, discovery, rows_of

from costada.evaluators.sandbox.concurrency import CancellationToken, current_token
from costada.models.providers import RetryPolicy
from costada.store.run_store import RunStore

DOUBT = 0.064
"""Dollars that one unanswered request may have cost: 32,000 tokens at $2 a million, and more."""


def doubtful(server, *, tries=3, **options):
    options |= {"budget": DOUBT, "iterations": 9, "saver": InMemorySaver()}
    return discovery(client(server, max_attempts=tries), **options)


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"[1]", b"{}", b'{"choices": null}'])
@pytest.mark.parametrize("mode", ["values", "messages"])
def test_an_answer_that_is_not_of_the_protocol_ends_the_run_after_one_request(
    server: BillingServer, body: bytes, mode: str
) -> None:
    server.default = Page(body)
    with pytest.raises(ValueError, match=r"'stand-in' .* check the model's name and base_url"):
        list(doubtful(server).stream({}, THREAD, stream_mode=mode))
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (HangUp(), r"Connection error\. \(asked http://127\.0\.0\.1:\d+/.*\)"),
        (Refusal(503, "busy"), "busy"),
        (Refusal(429, "slow down"), "slow down"),
        (Reply(""), "the answer holds no text"),
        (Reply(body=b'{"error": {"message": "upstream", "code": 502}}'), "upstream"),
    ],
    ids=str,
)
@pytest.mark.parametrize("attempts", [1, 3])
def test_a_run_without_one_usable_answer_fails_after_three_requests_with_the_reason(
    server: BillingServer, answer: object, reason: str, attempts: int
) -> None:
    server.default = answer
    with pytest.raises(ValueError, match=f"none of the 3 requests .* usable answer.*{reason}"):
        doubtful(server, tries=attempts).invoke({}, THREAD)
    assert len(server.requests) == 3


def test_such_a_run_continues_from_there_once_the_provider_answers(server: BillingServer) -> None:
    server.script(HangUp(), HangUp(), HangUp())
    graph = doubtful(server)
    with pytest.raises(ValueError, match="none of the 3 requests"):
        graph.invoke({}, THREAD)
    server.default = Reply(rewrite(0.5))
    result = graph.invoke(None, THREAD)
    assert (result["best_score"], result["stop_reason"]) == (0.5, "budget")
    assert result["spent"] > 3 * DOUBT


@pytest.mark.parametrize("policy", ["crossing", "hard"])
def test_doubtful_requests_that_reach_the_budget_first_are_a_failure_and_no_success(
    server: BillingServer, policy: str
) -> None:
    """One lost request already reaches the budget; the step allows no second one."""
    server.default = HangUp()
    graph = doubtful(server, tries=1, attempts=1, budget_policy=policy)
    result = graph.invoke({}, THREAD)
    assert result["stop_reason"] == "failures"
    assert "no request got a usable answer" in result["last_failure"]
    assert "Connection error" in result["last_failure"]


def test_a_last_iteration_without_any_answer_is_a_failure_too(server: BillingServer) -> None:
    server.default = Refusal(500, "broken")
    result = discovery(client(server, max_attempts=1), iterations=1, attempts=2).invoke({})
    assert (result["stop_reason"], result["iterations"]) == ("failures", 1)
    assert "broken" in result["last_failure"]


def test_a_hard_budget_that_pays_for_no_first_request_is_refused_with_what_it_takes(
    server: BillingServer,
) -> None:
    with pytest.raises(ValueError, match=r"budget: got \$1e-06 .* expected at least \$") as refused:
        discovery(client(server), budget=1e-6, budget_policy="hard")
    least = float(str(refused.value).split("at least $")[1].split(":")[0])
    discovery(client(server), budget=1.01 * least, budget_policy="hard")
    with pytest.raises(ValueError, match="under a hard budget"):
        discovery(client(server), budget=0.99 * least, budget_policy="hard")
    assert server.requests == []


def test_a_guide_of_its_own_that_never_answers_ends_the_run_as_well(server: BillingServer) -> None:
    """What the generating model answers says nothing about another server."""

    def answer(body):
        is_guide = body["model"] == "guide"
        assert is_guide == is_guide_prompt(body["messages"][-1]["content"])
        return Page() if is_guide else Reply(rewrite(0.3))

    server.default = answer
    guide = client(server, "guide")
    options = {"guide_model": guide, "guide_price": PRICE}
    graph = discovery(client(server), budget=9, iterations=60, **options)
    with pytest.raises(ValueError, match=r"'guide' .* check the model's name and base_url"):
        graph.invoke({})
    assert [body["model"] for body in server.requests].count("guide") == 1
    assert IDEAS not in str(server.requests)


NOTHING = "I would rather not."
INVALID = rewrite(1.5)
"""A program that the evaluator refuses."""


def failing_run(model, max_failures, *, iterations=30, **options):
    graph = discovery(model, iterations=iterations, max_failures=max_failures, **options)
    return graph, graph.invoke({}, THREAD)


def saying(*answers: str) -> ScriptedModel:
    left: Iterator[str] = iter(answers)
    return ScriptedModel(
        answer=lambda prompt: NOTHING if is_guide_prompt(prompt) else next(left, NOTHING),
        prompts=[],
    )


def attempts_of(store: RunStore) -> list[object]:
    return [row["attempts"] for row in rows_of(store)]


@pytest.mark.parametrize("useless", [NOTHING, INVALID], ids=["no program", "refused program"])
def test_attempts_without_a_usable_program_are_counted_across_iterations(useless: str) -> None:
    store = RunStore()
    _, result = failing_run(saying(*[useless] * 30), 7, store=store)
    assert (result["stop_reason"], result["iterations"]) == ("failures", 3)
    assert attempts_of(store) == [3, 3, 1]


def test_refused_requests_count_and_cost_no_more_than_the_limit(server: BillingServer) -> None:
    server.script(Reply(NOTHING))
    server.default = Refusal(400, "broken")
    _, result = failing_run(client(server, max_attempts=1), 5)
    assert len(server.requests) == 5
    assert result["stop_reason"] == "failures"
    assert "broken" in result["last_failure"]


def test_the_result_says_what_was_wrong_with_the_last_attempt() -> None:
    _, result = failing_run(saying(*[NOTHING] * 3, INVALID), 4)
    assert result["last_failure"] == "value is 1.5; expected at most 1"


def test_a_usable_program_starts_the_count_again() -> None:
    store = RunStore()
    good = rewrite(0.05)
    _, result = failing_run(saying(*[NOTHING] * 4, good, *[NOTHING] * 3, good), 5, store=store)
    assert attempts_of(store) == [3, 2, 3, 1, 3, 2]
    assert result["stop_reason"] == "failures"


def test_a_run_that_succeeds_at_the_last_attempt_allowed_continues() -> None:
    good = rewrite(0.05)
    _, result = failing_run(saying(*[NOTHING] * 2, good, *[NOTHING] * 2, good), 3, iterations=2)
    assert result["stop_reason"] == "iterations"
    assert "last_failure" not in result


def test_a_run_gone_on_with_has_all_its_attempts_again() -> None:
    store = RunStore()
    graph, _ = failing_run(saying(), 4, store=store, saver=InMemorySaver())
    result = graph.invoke(None, THREAD)
    assert (attempts_of(store), result["stop_reason"]) == ([3, 1, 3, 1], "failures")


def test_a_guide_without_tactics_is_no_attempt() -> None:
    store = RunStore()
    model = saying(*(rewrite(0.09 - number / 1000) for number in range(30)))
    _, result = failing_run(model, 2, iterations=12, store=store)
    assert "guide" in {call.role for call in calls_of(store)}
    assert result["stop_reason"] == "iterations"


BRIEF = RetryPolicy(retry_wait=0.001, longest_wait=0.02)
GOOD = Reply(rewrite(0.3))


def answer_like_a_model(body) -> Reply:
    prompt = body["messages"][-1]["content"]
    return Reply(IDEAS if is_guide_prompt(prompt) else hashed_answer(prompt), 1000, 500)


def waiting(server, store=None, *, policy=BRIEF, retry_wait=0, **options):
    model = impatient(client(server, max_tokens=1000, retry_wait=retry_wait), server, 0.1)
    given = {"iterations": 3, "retry_policy": policy, "saver": InMemorySaver(), **options}
    return discovery(model, store=store, **given)


def after_requests(server: BillingServer, number: int, act: Callable[[], None]) -> threading.Thread:
    """A thread that acts a moment after the server has got so many requests."""

    def wait_and_act() -> None:
        while len(server.requests) < number:
            sleep(0.01)
        sleep(0.1)
        act()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    return thread


def decisions(store: RunStore) -> list[dict[str, object]]:
    free = ("spent", "step_cost", "remaining_ratio")
    return [{k: v for k, v in row.items() if k not in free} for row in rows_of(store)]


@pytest.mark.parametrize("failure", [Refusal(503, "down"), Refusal(429, "slow")], ids=str)
def test_a_run_ends_after_an_outage_as_it_would_have_without(
    server: BillingServer, failure: Refusal
) -> None:
    calm, hit = RunStore(), RunStore()
    server.default = answer_like_a_model
    expected = waiting(server, calm).invoke({}, THREAD)
    asked = len(server.requests)
    server.reset(answer_like_a_model).script(answer_like_a_model, *[failure] * 9)
    result = waiting(server, hit).invoke({}, THREAD)
    assert len(server.requests) == asked + 9
    assert result == expected
    assert rows_of(hit) == rows_of(calm)


def test_a_pause_says_what_it_waits_for_and_that_it_is_over(
    server: BillingServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.script(GOOD, *[Refusal(503, "down")] * 4, GOOD)
    with caplog.at_level(logging.WARNING, "costada"):
        waiting(server, iterations=2).invoke({}, THREAD)
    *paused, over = [record.getMessage() for record in caplog.records]
    assert len(paused) == 2
    for line in paused:
        assert line.startswith("Paused: the provider does not answer (")
        assert "Error code: 503" in line
        assert "Next try in 0 s; the run stops, saved, at " in line
    assert re.fullmatch(r"The provider answers again after \d+ s; the run continues", over)


def test_one_call_of_several_in_flight_probes_the_provider(
    server: BillingServer, caplog: pytest.LogCaptureFixture
) -> None:
    def words() -> list[str]:
        return [record.getMessage().partition(" ")[0] for record in caplog.records]

    def answer(body):
        is_down = len(server.requests) > 4 and words().count("Paused:") < 3
        return Refusal(503, "down") if is_down else answer_like_a_model(body)

    server.default = answer
    policy = RetryPolicy(retry_wait=0.2, longest_wait=0.4)
    with caplog.at_level(logging.WARNING, "costada"):
        found = waiting(server, iterations=12, parallel=4, policy=policy).invoke({}, THREAD)
    assert words() == ["Paused:"] * 3 + ["The"]
    assert found["iterations"] == 12


def test_one_request_is_enough_to_see_that_an_outage_lasts(server: BillingServer) -> None:
    """The first call has its three requests; each further one asks once, for it may be billed."""
    store = RunStore()
    server.script(GOOD, *[HangUp()] * 7, GOOD)
    result = waiting(server, store, iterations=2).invoke({}, THREAD)
    lost = [call for call in calls_of(store) if call.error]
    assert [call.is_in_doubt for call in lost] == [True] * 7
    assert [call.attempt for call in lost] == [1] * 7
    assert result["spent"] == pytest.approx(
        float(sum((call.bound for call in lost), Decimal(0))) + 2 * 20 / 1e6
    )


def test_a_pause_has_an_end_and_the_run_is_resumed_where_it_was(server: BillingServer) -> None:
    calm, hit = RunStore(), RunStore()
    server.default = answer_like_a_model
    expected = waiting(server, calm).invoke({}, THREAD)
    server.reset(Refusal(503, "down")).script(answer_like_a_model)
    short = RetryPolicy(retry_wait=0.01, longest_wait=0.01, longest_pause=0.1)
    graph = waiting(server, hit, policy=short)
    began = monotonic()
    with pytest.raises(ValueError, match=r"not answered for longest_pause \(0\.1 s\).*resume"):
        graph.invoke({}, THREAD)
    assert 0.1 <= monotonic() - began < 60
    assert graph.get_state(THREAD).values["iterations"] == 1
    server.default = answer_like_a_model
    assert graph.invoke(None, THREAD) == expected
    assert decisions(hit) == decisions(calm)


def test_a_provider_that_asks_for_no_wait_is_not_flooded(server: BillingServer) -> None:
    """Three requests of the first call, then one each 0.1 seconds."""
    server.script(GOOD)
    server.default = Refusal(429, "slow", headers={"Retry-After": "0"})
    policy = RetryPolicy(retry_wait=0.1, longest_wait=0.1, longest_pause=0.5)
    with pytest.raises(ValueError, match="not answered for longest_pause"):
        waiting(server, policy=policy).invoke({}, THREAD)
    assert len(server.requests) <= 1 + 3 + 6


@pytest.mark.parametrize("policy", ["crossing", "hard"])
def test_requests_lost_in_an_outage_do_not_make_a_used_up_budget_a_success(
    server: BillingServer, policy: str
) -> None:
    """A request may cost between $0.003 and $0.004, of which the budget bears three."""
    server.script(GOOD)
    server.default = HangUp()
    with pytest.raises(ValueError, match=r"does not answer, and its lost requests may have been"):
        waiting(server, budget=0.0115, budget_policy=policy).invoke({}, THREAD)
    assert 4 <= len(server.requests) <= 5


def test_a_wait_that_is_too_long_stops_the_run_saved(server: BillingServer) -> None:
    server.script(GOOD, Refusal(429, headers={"Retry-After": "3600"}))
    graph = waiting(server, iterations=2)
    with pytest.raises(ValueError, match=r"asks to wait 3600 s, longer .* resume after 20"):
        graph.invoke({}, THREAD)
    server.default = Reply(rewrite(0.5))
    assert graph.invoke(None, THREAD)["iterations"] == 2
    assert len(server.requests) == 3


def test_one_call_that_timed_out_is_a_failed_attempt_and_two_in_a_row_are_an_outage(
    server: BillingServer,
) -> None:
    """Each call sends three requests; the outage takes one more to be seen as over."""
    store = RunStore()
    server.script(GOOD, *[Silence()] * 3, *[Silence()] * 5, GOOD)
    waiting(server, store, iterations=2).invoke({}, THREAD)
    assert [row["attempts"] for row in rows_of(store)] == [1, 2]


def test_a_request_of_a_pause_that_times_out_is_part_of_the_outage(server: BillingServer) -> None:
    store = RunStore()
    server.script(GOOD, *[Refusal(503, "down")] * 3, Silence(), GOOD)
    waiting(server, store, iterations=2).invoke({}, THREAD)
    assert [row["attempts"] for row in rows_of(store)] == [1, 1]


def test_a_pause_ends_as_soon_as_the_run_is_to_stop(server: BillingServer) -> None:
    server.script(GOOD)
    server.default = Refusal(503, "down")
    graph = waiting(server, policy=RetryPolicy(retry_wait=60))
    interruption = CancellationToken()
    token = current_token.set(interruption)
    ticker = after_requests(server, 4, interruption.cancel)
    try:
        with pytest.raises(InterruptedError, match="asked to stop while it waited"):
            graph.invoke({}, THREAD)
    finally:
        current_token.reset(token)
        ticker.join()
    server.default = GOOD
    assert graph.invoke(None, THREAD)["iterations"] == 3


@pytest.mark.parametrize("num_failures", [1, 9], ids=["between two requests", "paused"])
def test_a_run_that_is_to_drain_waits_no_longer(server: BillingServer, num_failures: int) -> None:
    """Of the nine, three belong to the first call; then the run is paused."""
    server.script(GOOD, *[Refusal(503, "down")] * num_failures)
    server.default = GOOD
    control = RunControl()
    own_wait = 60 if num_failures == 1 else 0
    graph = waiting(server, policy=RetryPolicy(retry_wait=60), retry_wait=own_wait)
    ticker = after_requests(server, 1 + min(num_failures, 3), control.request_drain)
    began = monotonic()
    with pytest.raises(InterruptedError, match="asked to stop while it waited"):
        list(graph.stream({}, THREAD, control=control))
    ticker.join()
    assert monotonic() - began < 50
    server.reset(GOOD)
    assert graph.invoke(None, THREAD)["iterations"] == 3


def test_cancelling_a_task_ends_the_pause_of_its_run(server: BillingServer) -> None:
    server.script(GOOD)
    server.default = Refusal(503, "down")
    graph = waiting(server, policy=RetryPolicy(retry_wait=60))

    async def cancelled() -> None:
        run = asyncio.create_task(graph.ainvoke({}, THREAD))
        while len(server.requests) < 4:
            await asyncio.sleep(0.01)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    began = monotonic()
    asyncio.run(cancelled())  # waits for the threads of the loop
    assert monotonic() - began < 50
    server.default = GOOD
    assert graph.invoke(None, THREAD)["iterations"] == 3

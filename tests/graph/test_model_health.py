"""Each model of a menu is judged by its own requests: disabled, waited for, or throttled alone."""

import logging
from collections import Counter
from dataclasses import replace
from threading import Lock

import pytest
from billing_server import Page, Refusal, Silence
from fakes import is_guide_prompt
from langgraph.checkpoint.memory import InMemorySaver
from menu_provider import CAP, DOLLARS, answer, billed_by_model, ledger_by_model, menu_of, several
from toy_graph import (
    THREAD,
    calls_of,
    client,
    discovery,
    events_of,
    resumed,
    rows_of,
    run_until,
    spent_by,
    trace,
)

from costada.models.errors import UncountedAnswer
from costada.models.providers import RetryPolicy
from costada.models.rate_limits import rate_limit
from costada.nodes.calls.health import MAX_UNANSWERED
from costada.store.rows import CallStatus
from costada.store.run_store import RunStore

BRIEF = RetryPolicy(retry_wait=0.01, longest_wait=0.05, longest_pause=0.3)
ITERATIONS = 12
PATIENT = RetryPolicy(retry_wait=0.01, longest_wait=0.05, longest_pause=60)


def uncounted(body):
    return replace(answer(body), reports_usage=False)


class Failing:
    """Answers for all models, but for one only so many times; `asked` counts the requests."""

    def __init__(self, failure, *, name="small", good=0):
        self.failure, self.name, self.good = failure, name, good
        self.asked, self._lock = Counter[str](), Lock()

    def __call__(self, body):
        with self._lock:
            self.asked[body["model"]] += 1
            number = self.asked[body["model"]]
        if body["model"] != self.name or number <= self.good:
            return answer(body)
        return self.failure(body) if callable(self.failure) else self.failure


FAILURES = {
    "429": Refusal(429),
    "503": Refusal(503),
    "web page": Page(),
    "no usage": uncounted,
    "time-out": Silence(),
}


def failing_run(server, failing, *, store=None, **options):
    server.default, store = failing, store or RunStore()
    menu = menu_of(server)
    if isinstance(failing.failure, Silence):
        menu[0] = replace(menu[0], entry=menu[0].entry.model_copy(update={"timeout": 0.2}))
    given = {"iterations": ITERATIONS, "router": "round-robin", "retry_policy": BRIEF, **options}
    several(menu, store=store, **given).invoke({})
    return store


@pytest.mark.parametrize("parallel", [1, 4])
@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_a_model_that_never_serves_is_disabled_by_its_first_requests(
    server, caplog, failure, parallel
):
    failing = Failing(failure)
    with caplog.at_level(logging.WARNING, "costada"):
        store = failing_run(server, failing, parallel=parallel)
    in_flight = parallel - 1
    assert failing.asked["small"] <= max(MAX_UNANSWERED, parallel) + in_flight
    assert events_of(store).count("disabled:small") == 1
    assert len(rows_of(store)) == ITERATIONS
    assert "Rate limit of middle" not in caplog.text
    assert "Rate limit of large" not in caplog.text


@pytest.mark.parametrize("parallel", [1, 4])
@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_a_model_that_serves_no_more_is_disabled_and_the_run_goes_on(server, failure, parallel):
    failing = Failing(failure, good=2)
    store = failing_run(server, failing, parallel=parallel)
    assert events_of(store).count("disabled:small") == 1
    assert len(rows_of(store)) == ITERATIONS
    assert [each["is_disabled"] for each in rows_of(store)[-1]["router"]] == [True, False, False]
    assert rows_of(store)[-1]["spent"] == float(spent_by(store))


def test_all_calls_that_wait_for_a_model_give_up_with_the_first(server):
    """The others made one more request at most: their first one, and none in a pause of theirs."""
    failing = Failing(Refusal(503), good=3)
    store = failing_run(server, failing, parallel=6)
    of_small = Counter(call.ticket for call in calls_of(store) if call.entry == "small")
    paused = [number for number, requests in of_small.items() if requests > 3]
    assert len(paused) <= 1


def test_models_beside_one_that_is_refused_are_not_throttled(server):
    menu = menu_of(server)
    failing_run(server, Failing(Refusal(429), good=3), parallel=4)
    limits = {
        each.name: rate_limit(client(server, each.name, max_tokens=CAP).bound) for each in menu
    }
    assert limits["small"].allowed is not None or limits["small"].num_answers == 3
    assert limits["middle"].allowed is limits["large"].allowed is None
    assert limits["middle"].num_answers > 3


@pytest.mark.parametrize("parallel", [1, 4])
def test_an_answer_without_token_counts_is_charged_at_its_upper_bound(server, parallel):
    store = failing_run(server, Failing(uncounted, good=2), parallel=parallel)
    calls = [call for call in calls_of(store) if call.status is CallStatus.UNCOUNTED]
    assert 1 <= len(calls) <= parallel
    for call in calls:
        sent = next(
            body for body in server.requests if body["messages"][-1]["content"] == call.prompt
        )
        size = sum(len(each["content"].encode()) + 32 for each in sent["messages"])
        assert call.cost + call.bound == DOLLARS["small"] * (size + 4 * CAP) / 1_000_000
    bill, ledger = billed_by_model(server), ledger_by_model(store)
    assert ledger["small"] > bill["small"]
    assert (ledger["middle"], ledger["large"]) == (bill["middle"], bill["large"])
    assert rows_of(store)[-1]["spent"] == float(sum(ledger.values()))


def test_a_guide_model_without_token_counts_is_paid_once(server):
    def reply(body):
        is_dear = is_guide_prompt(body["messages"][-1]["content"]) and body["model"] == "small"
        return uncounted(body) if is_dear else answer(body)

    server.default, store = reply, RunStore()
    several(menu_of(server), store=store, router="fixed:large", budget=1.0).invoke({})
    guides = Counter(call.entry for call in calls_of(store) if call.role == "guide")
    assert guides["small"] == 1
    assert guides["middle"] > 1


@pytest.mark.parametrize("others", [{}, {"generator": "agent"}])
def test_the_last_model_without_token_counts_ends_the_run(server, others):
    server.default = uncounted
    store, saver = RunStore(), InMemorySaver()
    graph = several(menu_of(server), store=store, saver=saver, **others)
    with pytest.raises(UncountedAnswer, match="answered without token counts"):
        graph.invoke({}, THREAD)
    assert sorted(call.entry for call in calls_of(store)) == sorted(DOLLARS)
    with pytest.raises(UncountedAnswer, match="The answer is stored"):
        graph.invoke(None, THREAD)
    assert len(server.requests) == 3


@pytest.mark.parametrize("kind", ["no usage", "503"])
def test_a_run_that_is_stopped_and_resumed_disables_as_an_uninterrupted_one(server, kind):
    options = {"router": "round-robin", "retry_policy": BRIEF, "iterations": 9}

    def given(**kept):
        return several(menu_of(server), **options, **kept)

    server.default = Failing(FAILURES[kind], good=2)
    whole = trace(given())
    assert "disabled:small" in [event for row in whole for event in row["events"]]
    for iteration in (1, 6):
        server.default, store, saver = Failing(FAILURES[kind], good=2), RunStore(), InMemorySaver()
        begun = run_until(given(store=store, saver=saver), THREAD, iteration)
        assert [*begun, *resumed(given(store=store, saver=saver))] == whole


def test_web_pages_in_a_row_are_an_outage_of_the_only_model_too(server, caplog):
    """One is a failed attempt; with the second the run waits until the provider answers again."""
    store = RunStore()
    server.default = answer
    server.script(answer, *[Page()] * 4)
    with caplog.at_level(logging.WARNING, "costada"):
        discovery(client(server), store=store, iterations=3, retry_policy=PATIENT).invoke({})
    failed = [call for call in calls_of(store) if call.error]
    assert len(failed) == 4
    assert len({(call.ticket, call.attempt) for call in failed}) == 2
    assert caplog.text.count("Paused: the provider does not answer") == 3

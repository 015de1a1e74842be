"""A run waits for the model that its evaluator asks, and blames no program for it."""

import logging
from decimal import Decimal

import openai
import pytest
from billing_server import BillingServer, Refusal, Reply
from fakes import evaluate_value, program, rewrite, toy_problem
from langgraph.checkpoint.memory import InMemorySaver
from toy_graph import THREAD, calls_of, discovery, rows_of, scripted

from costada.models.langchain_openai import http_client
from costada.models.providers import RetryPolicy
from costada.nodes.calls.paid_evaluations import MAX_ALONE
from costada.store.run_store import RunStore
from costada.values.evaluation import EVALUATOR_FAULT

BRIEF = RetryPolicy(retry_wait=0.001, longest_wait=0.02, longest_pause=60)
RETRIES = 2
"""Of the evaluator's own client."""


def problem_judged_by(server: BillingServer, **changes):
    """The toy problem, whose evaluator asks a model about each program first."""

    def evaluate(code: str):
        with openai.OpenAI(
            base_url=server.url, api_key="-", max_retries=0, http_client=http_client()
        ) as client:
            for attempt in range(1 + RETRIES):
                try:
                    client.chat.completions.create(
                        model="judge", messages=[{"role": "user", "content": code}]
                    )
                    break
                except openai.RateLimitError:
                    if attempt == RETRIES:
                        raise
        return evaluate_value(code)

    return toy_problem(evaluate=evaluate, **changes)


def judged_run(server, *, store=None, saver=None, policy=BRIEF, model=None, **options):
    given = {"iterations": 6, "retry_policy": policy, "order": "launch", **options}
    problem = problem_judged_by(server)
    return discovery(model, problem=problem, store=store, saver=saver, **given)


@pytest.mark.parametrize(
    ("failure", "parallel"), [(Refusal(429, "slow"), 1), (Refusal(503, "down"), 3)], ids=str
)
def test_a_run_whose_judge_was_unavailable_ends_as_it_would_have(server, failure, parallel):
    calm, hit = RunStore(), RunStore()
    expected = judged_run(server, store=calm, parallel=parallel).invoke({}, THREAD)
    server.reset(Reply()).script(Reply(), Reply(), *[failure] * (1 + RETRIES) * 4)
    found = judged_run(server, store=hit, parallel=parallel).invoke({}, THREAD)
    assert found == expected
    assert rows_of(hit) == rows_of(calm)
    assert not server._script


def test_a_pause_for_a_judge_says_so(server, caplog):
    server.script(Reply(), *[Refusal(429, "slow")] * (1 + RETRIES))
    with caplog.at_level(logging.WARNING, "costada"):
        judged_run(server, iterations=1).invoke({}, THREAD)
    paused, over = (record.getMessage() for record in caplog.records)
    assert paused.startswith("Paused: the provider of the evaluator's model does not answer (")
    assert "Error code: 429" in paused
    assert over.startswith("The provider of the evaluator's model answers again after")


def test_a_pause_for_a_judge_has_an_end_and_the_run_is_resumed_where_it_was(server):
    calm, hit, saver = RunStore(), RunStore(), InMemorySaver()
    expected = judged_run(server, store=calm).invoke({}, THREAD)
    calls = [(call.ticket, call.attempt) for call in calls_of(calm)]
    policy = RetryPolicy(retry_wait=0.001, longest_wait=0.02, longest_pause=0.1)
    server.reset(Refusal(429, "slow")).script(*[Reply()] * 3)
    graph = judged_run(server, store=hit, saver=saver, policy=policy)
    with pytest.raises(ValueError, match=r"evaluator's model has not answered for longest_pause"):
        graph.invoke({}, THREAD)
    assert EVALUATOR_FAULT not in str([row["failure"] for row in rows_of(hit)])
    server.default = Reply()
    assert graph.invoke(None, THREAD) == expected
    assert rows_of(hit) == rows_of(calm)
    assert [(call.ticket, call.attempt) for call in calls_of(hit)] == calls


def test_a_program_for_which_alone_the_judge_never_answers_fails_by_itself(server):
    """Its request may exceed what the provider allows per minute; the incumbent's does not."""
    refused = program(0.7)

    def reply(body):
        is_refused = body["messages"][-1]["content"] == refused
        return Refusal(429, "too large") if is_refused else Reply()

    answers = iter([rewrite(0.5), rewrite(0.7), rewrite(0.6)])
    server.default, store = reply, RunStore()
    model = scripted(lambda prompt: next(answers))
    options = {"iterations": 2, "attempts": 2, "method": "best-of-n"}
    found = judged_run(server, model=model, store=store, **options).invoke({}, THREAD)
    assert found["best_objective"] == 6.0
    asked = [body["messages"][-1]["content"] for body in server.requests]
    # Before the first wait, and after each of them.
    assert asked.count(refused) == (1 + RETRIES) * (1 + MAX_ALONE)
    (failed,) = (
        each
        for each in store.candidates.originals(store.run_ids()[-1])
        if each.program.text == refused
    )
    assert EVALUATOR_FAULT in failed.artifacts
    assert failed.evaluator == ""  # not used again
    assert sum((call.cost for call in calls_of(store)), Decimal(0)) > 0

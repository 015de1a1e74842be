"""What one evaluation may cost, however often an outage makes it begin again."""

import json
from dataclasses import replace
from decimal import Decimal
from itertools import count

from billing_server import HangUp, Reply
from billing_server import Refusal as Failure
from fakes import toy_problem
from metered_calls import billed, client, context_for
from test_granted_calls import STATE

from costada.evaluators.problem import Problem
from costada.models.endpoint.client_requests import read_request
from costada.models.endpoint.exchange import Dialect, Refusal
from costada.models.event_loop import run
from costada.nodes.calls.paid_evaluations import evaluate_start
from costada.nodes.settings import Settings
from costada.values.evaluation import Evaluation, failed


def answer(body):
    """Costs $0.001807, and might cost $0.002 and a little more: `max_tokens` is 1,000."""
    most = body["max_completion_tokens"]
    return Reply("yes", input_tokens=7, output_tokens=min(900, most))


def ask(models, question):
    """Ask the model of the program under test; returns why it was not answered."""
    body = {"model": "agent", "messages": [{"role": "user", "content": question}]}
    request = read_request(Dialect.CHAT, {}, json.dumps(body).encode())
    try:
        run(models._grants["candidate"].answer(request))
    except Refusal as refusal:
        return refusal.code
    return ""


def evaluate_within(dollars, evaluate, server, monkeypatch):
    """Evaluate a start that may ask its model for so many dollars."""
    monkeypatch.setattr(Problem, "evaluate_program", evaluate)
    context = context_for(client(server))
    context = replace(
        context,
        problem=replace(toy_problem(), evaluation_dollars=dollars, allow_invalid_start=True),
        settings=Settings(retry_wait=0.001, longest_wait=0.001),
        granted={"candidate": {"agent": context.menu[0]}},
    )
    evaluate_start(STATE, context)


def test_an_evaluation_that_an_outage_begins_again_has_one_allowance(server, monkeypatch):
    numbers, outages = count(1), [Failure(503)] * 3

    def fail_at_last(body):
        is_last = body["messages"][-1]["content"] == "last"
        return outages.pop() if is_last and outages else answer(body)

    def evaluate(self, program, key, incumbent, rival, models, on_permit):
        reasons = [ask(models, f"question {next(numbers)}") for _ in range(2)]
        reasons.append(ask(models, "last"))
        return failed(" ".join(reasons))

    server.default = fail_at_last
    evaluate_within(0.006, evaluate, server, monkeypatch)
    assert len(server.requests) < 9
    assert billed(server) <= Decimal("0.006")


def test_a_request_that_an_outage_has_ended_leaves_the_evaluation_its_allowance(
    server, monkeypatch
):
    server.script(HangUp(), HangUp())
    server.default = answer
    reasons = []

    def evaluate(self, program, key, incumbent, rival, models, on_permit):
        reasons.append(ask(models, "question"))
        found = Evaluation(score=0.5, objective=0.5, is_valid=True)
        return failed(reasons[-1]) if reasons[-1] else found

    evaluate_within(0.003, evaluate, server, monkeypatch)
    assert reasons == ["provider_unavailable", "provider_unavailable", ""]

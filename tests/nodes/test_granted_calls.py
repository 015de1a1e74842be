"""Models that are granted to others than the search, asked through the endpoint of the process."""

import gc
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from functools import partial
from http.client import HTTPException
from pathlib import Path
from threading import Event
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from billing_server import Refusal, Reply, Silence
from impatience import PATIENCE
from metered_calls import KEY, billed, charged, client, context_for, first_then_second, rows_of
from pydantic import SecretStr
from rows import call_row
from waiting import within

from costada.evaluators.sandbox.concurrency import CancellationToken, current_token
from costada.models.asking import RequestNotSent
from costada.models.errors import UncountedAnswer
from costada.nodes.calls.allowance import Allowance
from costada.nodes.calls.budget import FUNDS_QUEUES
from costada.nodes.calls.evaluation_calls import EvaluationCalls, are_available
from costada.nodes.calls.granted_calls import METERED_ENDPOINT, UNAFFORDABLE, Grant, GrantedRequest
from costada.nodes.calls.paid_evaluations import measure
from costada.nodes.context import RunContext
from costada.nodes.evaluate import evaluate_program
from costada.nodes.settings import Settings
from costada.nodes.state import Account, Attempt, Flight, Run, SearchState, SteeredBy, Step
from costada.store.call_log import CallKey
from costada.store.rows import CallStatus
from costada.store.user_inputs import UnjudgedProgram
from costada.values.candidate import Candidate, Program
from costada.values.evaluation import Evaluation, failed, failed_evaluator
from costada.values.model_access import ModelAccess, new_token
from costada.values.numbering import START
from costada.values.roles import CANDIDATE, EVALUATION

QUESTION = {"model": "agent", "messages": [{"role": "user", "content": "How large is it?"}]}

pytestmark = pytest.mark.process

STATE: SearchState = {
    "run": Run(KEY.run_id, 0, KEY.run_id),
    "step": Step(),
    "flight": Flight(),
    "account": Account(),
    "iterations": START,
}


@contextmanager
def granted(
    context: RunContext,
    key: CallKey = KEY,
    earlier: Sequence[CallKey] = (),
    limit: float = 1.0,
) -> Iterator[Grant]:
    """The first model of a context, under the name of agent."""
    allowance = Allowance(limit, "the budget", is_strict=False)
    models = {"agent": context.menu[0]}
    grant = Grant(key, "test", models, STATE, context, allowance, earlier)
    try:
        yield grant
    finally:
        grant.close()


def relayed(grant: Grant) -> ModelAccess:
    """What a relay needs to ask, which names attempts."""
    return replace(grant.new_access(), token=grant.admit(new_token(), is_relay=True))


def requested(access: ModelAccess, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """What the endpoint answers; raises `HTTPError` where it refuses."""
    return json.loads(answered(access, path, body))


def answered(
    access: ModelAccess, path: str, body: Mapping[str, Any] | None = None, attempt: str = ""
) -> bytes:
    """The body of a response; raises `HTTPError` where the endpoint refuses."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {access.token}", "X-CostAda-Attempt": attempt}
    request = Request(f"{access.url}/v1/{path}", data, headers)
    with urlopen(request, timeout=PATIENCE) as response:
        return bytes(response.read())


def test_a_forked_process_knows_the_tokens_of_its_own_grants(server):
    with granted(context_for(client(server))) as ours:
        assert requested(ours.new_access(), "models")["data"][0]["id"] == "agent"
    child = os.fork()
    if not child:
        status = 1
        try:
            with granted(context_for(client(server))) as grant:
                requested(grant.new_access(), "models")
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("is_stream", [False, True])
def test_another_attempt_at_the_same_work_is_answered_what_the_first_one_was(server, is_stream):
    may_answer = Event()

    def answer(body):
        may_answer.wait(PATIENCE)
        return Reply("hello", input_tokens=7, output_tokens=2)

    server.default = answer
    context = context_for(client(server))
    question = QUESTION | {"stream": is_stream}
    with granted(context) as grant, ThreadPoolExecutor(2) as threads:
        access = relayed(grant)
        ask = partial(threads.submit, answered, access, "chat/completions", question)
        first = ask("first")
        within(PATIENCE, lambda: server.requests)
        second = ask("second")
        within(PATIENCE, lambda: len(grant._occurrences) == 2)
        may_answer.set()
        said = first.result(PATIENCE)
        assert said == second.result(PATIENCE) == ask("third").result(PATIENCE)
        (row,) = rows_of(context)
        assert grant.allowance.left == 1 - row.cost
        ask("third").result(PATIENCE)
        assert len(server.requests) == len(rows_of(context)) == 2
        ask("first").result(PATIENCE)
        assert len(server.requests) == 2
        assert grant.allowance.left == 1 - 2 * row.cost


def test_an_attempt_gets_the_answers_of_another_one_whatever_is_answered_first(server):
    may_answer = Event()

    def first(body):
        may_answer.wait(PATIENCE)
        return Reply("first")

    server.script(first, Reply("second"))
    context = context_for(client(server))
    with granted(context) as grant, ThreadPoolExecutor(4) as threads:
        access = relayed(grant)
        ask = partial(threads.submit, answered, access, "chat/completions", QUESTION)
        asked = [ask("lost")]
        within(PATIENCE, lambda: server.requests)
        asked.append(ask("lost"))
        assert b"second" in asked[1].result(PATIENCE)
        asked.append(ask("repeated"))
        within(PATIENCE, lambda: len(grant._occurrences) == 2)
        asked.append(ask("repeated"))
        assert asked[3].result(PATIENCE) == asked[1].result(PATIENCE)
        may_answer.set()
        assert asked[2].result(PATIENCE) == asked[0].result(PATIENCE)
        assert len(server.requests) == len(rows_of(context)) == 2


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("limit", [0.0, 1.0], ids=["refused", "answered"])
def test_a_request_that_has_ended_is_not_kept(server, limit, is_stream):
    server.default = Reply("hello")
    context = context_for(client(server))
    allowance = Allowance(limit, "evaluation_dollars", is_strict=True)
    question = QUESTION | {"stream": is_stream}

    def kept() -> int:
        gc.collect()
        return sum(type(each) is GrantedRequest for each in gc.get_objects())

    before = kept()
    grant = Grant(KEY, "test", {"agent": context.menu[0]}, STATE, context, allowance)
    access = grant.new_access()
    for _ in range(3):
        if limit:
            answered(access, "chat/completions", question)
        else:
            with pytest.raises(HTTPError, match="402"):
                answered(access, "chat/completions", question)
    within(PATIENCE, lambda: kept() == before)
    grant.close()


def test_only_a_relay_names_attempts(server):
    context = context_for(client(server))
    with granted(context) as grant:
        access = grant.new_access()
        for number in range(3):
            answered(access, "chat/completions", QUESTION, attempt=f"{number}")
        assert len(server.requests) == len(rows_of(context)) == 3
        assert len(grant._occurrences) == 1
        with pytest.raises(HTTPError, match="400"):
            answered(access, "chat/completions", QUESTION, attempt="x" * 60_000)
        with pytest.raises(HTTPError) as refused:
            answered(relayed(grant), "chat/completions", QUESTION, attempt="x" * 65)
        assert b"expected at most 64 characters" in refused.value.read()


@pytest.mark.parametrize("policy", ["crossing", "hard"])
@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("model", [client, first_then_second], ids=["forwarded", "translated"])
def test_an_answer_without_counts_is_asked_for_once_and_used_when_estimates_are_allowed(
    server, model, is_stream, policy
):
    server.default = Reply("eighteen characters", reports_usage=False)
    context = context_for(model(server))
    question = QUESTION | {"stream": is_stream}
    for _ in range(3):
        with granted(context) as grant:
            with pytest.raises((HTTPException, OSError)):
                answered(grant.new_access(), "chat/completions", question)
            grant.close()
            assert isinstance(grant.fault, UncountedAnswer)
    # A fallback is begun, but nothing is sent after such an answer.
    (row,) = (each for each in rows_of(context) if each.error != "the request was not sent")
    assert row.status is CallStatus.UNCOUNTED
    most = row.cost + row.bound
    estimating = Settings(on_missing_usage="estimate", budget_policy=policy)
    with granted(replace(context, settings=estimating)) as grant:
        said = answered(grant.new_access(), "chat/completions", question).decode()
        (row,) = (each for each in rows_of(context) if each.status is CallStatus.DONE)
        assert grant.allowance.left == 1 - row.cost - row.bound
    assert "eighteen" in said
    assert "characters" in said
    assert (row.status, row.is_estimated, row.error) == (CallStatus.DONE, True, None)
    assert 0 < row.cost < most
    assert row.cost + row.bound == (most if policy == "hard" else row.cost)
    assert charged(context) == row.cost + row.bound
    assert len(server.requests) == 1


def test_an_answer_without_counts_is_charged_where_an_earlier_step_has_bought_it(server):
    server.default = Reply("eighteen characters", reports_usage=False)
    context = context_for(client(server))
    with granted(context) as grant, pytest.raises((HTTPException, OSError)):
        requested(grant.new_access(), "chat/completions", QUESTION)
    later = KEY._replace(ticket=2)
    context.store.call_log.put_call(KEY.run_id, call_row(ticket=2, cost=Decimal("0.0011")))
    estimating = replace(context, settings=Settings(on_missing_usage="estimate"))
    with granted(estimating, later, [KEY]) as grant:
        requested(grant.new_access(), "chat/completions", QUESTION)
    first, second = rows_of(context)
    assert (first.ticket, first.status, first.is_estimated) == (1, CallStatus.DONE, True)
    assert (second.ticket, second.cost, second.prompt) == (2, Decimal("0.0011"), "a secret prompt")
    assert len(server.requests) == 1


def test_the_documented_sum_covers_an_answer_that_nobody_could_read(server):
    server.default = Reply(body=b'{"choices": [')
    context = context_for(client(server))
    with granted(context) as grant, pytest.raises(HTTPError):
        requested(grant.new_access(), "chat/completions", QUESTION)
    page = Path(__file__).parents[2] / "docs" / "understand" / "ledger.md"
    recipe = next(line for line in page.read_text().splitlines() if line.startswith("charged = "))
    summed = eval(recipe.removeprefix("charged = "), {"calls": rows_of(context)})
    assert summed == charged(context)
    assert summed >= billed(server) > 0


@pytest.mark.parametrize("status", [401, 500])
def test_a_refusal_names_no_key_whatever_the_provider_says(server, status):
    key = SecretStr("the-key-of-the-user")  # of a variable with another name, or given in Python
    server.default = Refusal(status, f"wrong with {key.get_secret_value()}")
    context = context_for(client(server, api_key=key))
    with granted(context) as grant, pytest.raises(HTTPError) as refused:
        requested(grant.new_access(), "chat/completions", QUESTION)
    with refused.value as answer:
        said = answer.read().decode()
    assert answer.code == 503
    assert "wrong with <key>" in said


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("model", [client, first_then_second], ids=["forwarded", "translated"])
@pytest.mark.parametrize(
    "reply", [Reply(reports_usage=False), Reply(cost=50.0)], ids=["uncounted", "too dear"]
)
def test_nothing_is_sent_after_an_answer_that_ends_the_run(server, reply, model, is_stream):
    server.default = reply
    context = context_for(model(server), is_listed=True)
    with granted(context, limit=1000.0) as grant:
        for number in range(3):
            messages = [{"role": "user", "content": f"Question {number}"}]
            asked = QUESTION | {"messages": messages, "stream": is_stream}
            with pytest.raises((HTTPException, OSError)):
                answered(grant.new_access(), "chat/completions", asked)
            assert grant.fault is not None
    assert len(server.requests) == 1


class AskingProblem:
    """Evaluates a program by a function of it and its models, whose requests may outlive it."""

    name, fingerprint, evaluation_dollars, examples = "asking", "its evaluator", None, ()

    def __init__(self, evaluate: Callable[[Program, EvaluationCalls], Evaluation]) -> None:
        self._evaluate = evaluate

    def evaluate_program(self, program: Program, *given: Any, on_permit: Any = None) -> Evaluation:
        return self._evaluate(program, given[-1])


def access_by(models: EvaluationCalls) -> ModelAccess:
    """What a client of an evaluation needs to ask."""
    sent = models.for_worker("127.0.0.1", 0)
    return ModelAccess(sent.url, sent.tokens[EVALUATION], ("agent",))


def measured(context: RunContext, evaluate: Callable[[EvaluationCalls], Evaluation]) -> Evaluation:
    """What comes of an evaluation that may ask the first model of a context."""
    problem: Any = AskingProblem(lambda program, models: evaluate(models))
    granting = replace(context, problem=problem, granted={EVALUATION: {"agent": context.menu[0]}})
    allowance = Allowance(1.0, "the budget", is_strict=False)
    return measure("1.1", context.problem.start, STATE, granting, allowance)


@pytest.mark.parametrize("is_stream", [False, True])
def test_an_answer_after_an_evaluation_ends_the_run_if_it_cannot_be_charged(server, is_stream):
    context, tokens = context_for(client(server)), []

    def answer(body):
        within(PATIENCE, lambda: tokens and tokens[0] not in METERED_ENDPOINT.grants)
        return Reply(reports_usage=False)

    server.default = answer
    with ThreadPoolExecutor(1) as thread:

        def evaluate(models):
            access = access_by(models)
            thread.submit(answered, access, "chat/completions", QUESTION | {"stream": is_stream})
            within(PATIENCE, lambda: server.requests)
            tokens.append(access.token)
            return failed("timeout: the program exceeded 1 s")

        with pytest.raises(UncountedAnswer):
            measured(context, evaluate)


def test_an_evaluation_whose_time_was_over_while_it_waited_for_money_is_not_made(server):
    context, evaluated = context_for(client(server)), KEY._replace(ticket=STATE["step"].ticket)

    def evaluate(models):
        FUNDS_QUEUES.of(context.store, KEY.run_id).join(evaluated)
        return failed("timeout: the program exceeded 1 s")

    with pytest.raises(RequestNotSent, match="its time was over while a request waited"):
        measured(context, evaluate)


def test_what_ends_the_run_is_found_before_what_cannot_be_paid(server):
    context = context_for(client(server))
    with granted(context) as poor, granted(context) as faulty:
        poor.refusals[UNAFFORDABLE] = "not asked"
        faulty.fault = UncountedAnswer("answered without counts")
        calls = EvaluationCalls({EVALUATION: poor, CANDIDATE: faulty})
        with pytest.raises(UncountedAnswer):
            calls.final_evaluation(failed("ValueError: no"))


def test_no_answer_about_the_incumbent_is_bought_again(server):
    server.default = Reply("yes")
    context = context_for(client(server))
    store, start = context.store, context.problem.start
    proposed = Program.of(start.text.replace("0.1", "0.2"))
    questions = ["large"]

    def evaluate(program, models):
        access = access_by(models)
        for each in questions:
            asked = f"Is it {each}? {program.text}"
            messages = [{"role": "user", "content": asked}]
            requested(access, "chat/completions", QUESTION | {"messages": messages})
        if program != start:
            return failed_evaluator("broken", None)
        return Evaluation(score=0.5, objective=0.5, is_valid=True)

    problem: Any = AskingProblem(evaluate)
    context = replace(context, problem=problem, granted={EVALUATION: {"agent": context.menu[0]}})
    store.open_run(KEY.run_id, "metered", "toy")
    store.candidates.put(KEY.run_id, Candidate(id="0.1", program=start, score=0.1))
    store.candidates.put(KEY.run_id, Candidate(id="10.1", program=start, score=0.5, ticket=10))

    def begun(program, name, ticket):
        waiting = UnjudgedProgram(
            program=store.put_program(program),
            name=name,
            calls=((ticket, 1),),
            parent="0.1",
            inspirations=(),
            label="",
            changes="",
            log="",
        )
        store.inputs.put_unjudged(KEY.run_id, waiting)
        taken = store.inputs.take(KEY.run_id, ticket + 1)
        return SteeredBy(taken.number, taken.kind, taken.text)

    def state_at(ticket, steered=None):
        attempt = Attempt(number=1, parent="0.1", program=store.put_program(proposed))
        step = Step(ticket=ticket, attempt=attempt, steered=steered)
        return {**STATE, "step": step, "best": "10.1"}

    # Ticket 9 had no money for the evaluation of the incumbent, which ticket 10 made.
    begun(start, "9.1", 9)
    allowance = Allowance(1.0, "the budget", is_strict=False)
    measure("9.1", start, state_at(9), context, allowance)
    assert len(server.requests) == 1
    # Ticket 12 asks more about it than then, and ticket 13 goes on with what ticket 12 began.
    questions.append("round")
    evaluate_program("12.1", proposed, "", state_at(12), context)
    evaluate_program("13.1", proposed, "", state_at(13, begun(proposed, "12.1", 12)), context)
    asked = Counter(each["messages"][-1]["content"] for each in server.requests)
    assert asked == {
        f"Is it {each}? {program.text}": 1
        for each in ("large", "round")
        for program in (start, proposed)
    }


def test_a_probe_whose_answer_cannot_be_charged_ends_the_run(server):
    server.default = Reply(reports_usage=False)
    context = context_for(client(server))
    granting = replace(context, granted={EVALUATION: {"agent": context.menu[0]}})
    with pytest.raises(UncountedAnswer):
        are_available("1.1", STATE, granting)


def test_a_program_whose_time_was_over_while_it_waited_for_money_is_not_judged(server):
    context = context_for(client(server))
    crashed, late = failed("ValueError: no"), failed("timeout: the program exceeded 1 s")
    with granted(context) as grant:
        calls = EvaluationCalls({"candidate": grant})
        assert calls.final_evaluation(late) is late
        FUNDS_QUEUES.of(context.store, KEY.run_id).join(KEY)
        assert calls.final_evaluation(crashed) is crashed
        with pytest.raises(RequestNotSent, match="its time was over while a request waited"):
            calls.final_evaluation(late)


def test_a_request_of_a_cancelled_evaluation_is_lost_if_its_provider_keeps_silent(server):
    server.default = Silence()
    context, token = context_for(client(server)), CancellationToken()
    outer = current_token.set(token)
    try:
        with granted(context) as grant, ThreadPoolExecutor(1) as thread:
            asked = thread.submit(requested, grant.new_access(), "chat/completions", QUESTION)
            within(PATIENCE, lambda: server.requests)
            token.cancel()
            grant.close(0.1)
            (row,) = rows_of(context)
            assert (row.status, row.cost) == (CallStatus.ERROR, 0)
            assert row.is_in_doubt
            assert row.bound > 0
            with pytest.raises((HTTPException, OSError)):
                asked.result(PATIENCE)
    finally:
        current_token.reset(outer)

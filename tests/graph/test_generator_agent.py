"""The generating model with tools: what it can do in a step, what it may spend, how it ends."""

import asyncio
import threading
from decimal import Decimal
from itertools import count
from time import monotonic

import pytest
from agent_answers import agent_answer, calling, submitting, tool_results, trying
from billing_server import BillingServer, Refusal, Reply
from fakes import SEED_PROGRAM, evaluate_value, rewrite, toy_problem
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from needed_plugins import EVOX
from toy_graph import THREAD, billed, calls_of, client, discovery, rows_of, scripted, spent_by

from costada.evaluators.sandbox.candidate_runs import run_candidate
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.models.reply_content import visible_text
from costada.store.run_store import RunStore
from costada.values.evaluation import Evaluation

ANSWER_COST = Decimal("0.0002")
"""100 input tokens at 1 dollar and 50 output tokens at 2 dollars per million."""


def graph_on(server, store=None, *, iterations=1, **options):
    options["generator"] = "agent"
    return discovery(client(server), iterations=iterations, store=store, **options)


def test_what_it_tried_it_can_submit_without_writing_it_again(server):
    store, judged = RunStore(), []

    def evaluate(code: str) -> Evaluation:
        judged.append(code)
        return evaluate_value(code)

    server.script(trying(0.2), trying(0.7), submitting("1.1.2"))
    result = graph_on(server, store, problem=toy_problem(evaluate=evaluate)).invoke({})
    assert (result["best_score"], result["best_program"].count("0.7000")) == (0.7, 1)
    assert len(judged) == 3  # the initial program and two trials
    assert spent_by(store) == billed(server) == 3 * ANSWER_COST
    calls = calls_of(store)
    assert [(call.role, call.attempt) for call in calls] == [
        ("generation", 1),
        ("generation", 2),
        ("generation", 3),
    ]
    assert visible_text(calls[2].answer) == "[tool call] submit\ncandidate: 1.1.2"
    assert calls[0].prompt in calls[1].prompt
    assert "Score: 0.7000" in calls[2].prompt


def test_it_is_given_score_or_error_and_what_is_left(server):
    server.script(trying(0.3), trying(2.5), Reply(rewrite(0.4)))
    graph_on(server, tool_evaluations=2).invoke({})
    first, second = tool_results(server.requests[-1])
    assert first.startswith("Candidate 1.1.1\n\nScore: 0.3000\n- value: 0.3000\n")
    assert first.endswith("Left: 5 answers, 1 evaluation.\n")
    assert "value is 2.5; expected at most 1" in second
    assert second.endswith("Left: 4 answers, 0 evaluations.\n")


def test_it_can_look_at_what_the_search_has_found(server):
    server.script(
        Reply(rewrite(0.6)),
        calling("search_archive", words="RETURN 0.6"),
        calling("read_program", id="1.1"),
        Reply(rewrite(0.9)),
    )
    graph_on(server, iterations=2).invoke({})
    found, text = tool_results(server.requests[-1])
    assert found.startswith("- 1.1: score 0.6000; ")
    assert "0.1:" not in found
    assert "return 0.6000" in text


def test_blocks_may_change_a_program_other_than_the_current_one(server):
    store = RunStore()
    change = "<<<<<<< SEARCH\n    return 0.6000\n=======\n    return 0.8\n>>>>>>> REPLACE"
    server.script(
        trying(0.6),
        calling("submit", changes=change),
        calling("submit", changes=change, base="1.1.1"),
    )
    result = graph_on(server, store).invoke({})
    assert result["best_score"] == 0.8
    assert "the program has no line `    return 0.6000`" in tool_results(server.requests[-1])[1]


@pytest.mark.parametrize(
    ("call", "reply"),
    [
        (calling("run_shell", command="ls"), "There is no tool 'run_shell'"),
        (calling("evaluate_candidate"), "needs the argument 'changes'"),
        (calling("evaluate_candidate", changes=3), "must be a string"),
        (calling("evaluate_candidate", changes="no"), "neither a SEARCH/REPLACE block nor"),
        (calling("evaluate_candidate", changes=rewrite(0.3), base="9.9"), "no program '9.9'"),
        (calling("read_program", id="../etc/passwd"), "There is no program '../etc/passwd'"),
        (calling("read_program", id="0.1", depth="2"), "takes no argument 'depth'"),
        (calling("search_archive", words="quicksort"), "No program holds all of these words."),
        (calling("submit"), "needs either 'candidate' or 'changes'"),
        (submitting("1.1.7"), "You evaluated no candidate '1.1.7'"),
        (Reply("{not json", tool="submit"), "not a JSON object"),
    ],
)
def test_a_wrong_call_is_answered_in_words_and_the_attempt_continues(server, call, reply):
    server.script(call, Reply(rewrite(0.4)))
    result = graph_on(server).invoke({})
    assert reply in tool_results(server.requests[-1])[0]
    assert result["best_score"] == 0.4


def test_no_more_is_evaluated_than_allowed(server):
    server.script(trying(0.2), trying(0.3), trying(0.9), submitting("1.1.1"))
    result = graph_on(server, tool_evaluations=2).invoke({})
    assert "No evaluation is left" in tool_results(server.requests[-1])[2]
    assert result["best_score"] == 0.2


def test_an_attempt_that_never_submits_ends_with_the_best_it_tried(server):
    server.script(trying(0.5), trying(0.2))
    server.default = calling("search_archive")
    result = graph_on(server, tool_evaluations=2).invoke({})
    assert len(server.requests) == 2 + 4
    assert "One answer is left" in tool_results(server.requests[-1])[-1]
    assert result["best_score"] == 0.5


def test_an_answer_that_fails_to_come_ends_the_attempt_with_what_it_has(server):
    server.script(trying(0.5), Refusal(400, "too long"))
    assert graph_on(server).invoke({})["best_score"] == 0.5


def test_without_anything_the_attempt_has_failed_and_is_tried_again(server):
    store = RunStore()
    server.script(calling("read_program", id="0.1"), Reply("no idea"), Reply(rewrite(0.4)))
    graph_on(server, store).invoke({})
    (row,) = rows_of(store)
    calls = [(call.role, call.attempt) for call in calls_of(store)]
    assert (row["attempts"], row["score"]) == (2, 0.4)
    assert calls == [("generation", 1), ("generation", 2), ("retry", 3)]


def test_an_attempt_that_is_executed_again_repeats_no_call_and_no_evaluation(server):
    """The process dies in the evaluation of the second trial, and again after its verdict."""
    store, saver, judged = RunStore(), InMemorySaver(), count(1)

    def evaluate(code: str) -> Evaluation:
        if next(judged) == 3:  # after the initial program and the first trial
            raise InterruptedError
        return evaluate_value(code)

    server.script(trying(0.2), trying(0.7), submitting("1.1.2"))
    graph = graph_on(server, store, problem=toy_problem(evaluate=evaluate), saver=saver)
    with pytest.raises(InterruptedError):
        graph.invoke({}, THREAD)
    result = graph.invoke(None, THREAD)
    assert (result["best_score"], len(server.requests), next(judged)) == (0.7, 3, 5)
    before = next(s for s in graph.get_state_history(THREAD) if s.next == ("generate",))
    again = graph.invoke(None, before.config)
    assert (again["best_score"], again["spent"]) == (0.7, result["spent"])
    assert (len(server.requests), next(judged)) == (3, 6)


def test_it_works_asynchronously(server):
    server.script(trying(0.2), submitting("1.1.1"))
    assert asyncio.run(graph_on(server).ainvoke({}))["best_score"] == 0.2


@pytest.mark.parametrize("method", ["adaevolve", "best-of-n", EVOX])
def test_every_method_can_have_such_a_generator(server, method):
    server.default = agent_answer
    result = graph_on(server, method=method, iterations=4, max_failures=99).invoke({})
    assert result["iterations"] == 4


def test_a_model_that_can_not_call_tools_is_refused_before_anything_is_sent():
    model = scripted()
    with pytest.raises(ValueError, match=r"generator: got 'agent', and model 'scripted'.*tools"):
        discovery(model, generator="agent")


def test_a_step_that_has_cost_its_cap_asks_no_more_and_keeps_what_it_has(server):
    """Two answers cost 0.0004, so the third would begin above a cap of 0.0003."""
    store = RunStore()
    server.default = lambda body: trying(0.3 + 0.1 * len(tool_results(body)))
    graph_on(server, store, step_cap=0.0003).invoke({})
    (row,) = rows_of(store)
    assert (len(server.requests), row["score"], row["step_cost"]) == (2, 0.4, 0.0004)
    assert "cut_short" in row["events"]


def test_when_the_budget_is_used_up_the_attempt_ends_with_what_it_has(server):
    store = RunStore()
    server.default = lambda body: trying(0.3 + 0.1 * len(tool_results(body)))
    result = graph_on(server, store, budget=0.0003, iterations=9).invoke({})
    assert (result["stop_reason"], result["iterations"]) == ("budget", 1)
    assert (result["best_score"], len(server.requests)) == (0.4, 2)


def test_a_capped_step_is_not_tried_again(server):
    store = RunStore()
    result = graph_on(server, store, step_cap=0.00001, iterations=2).invoke({})
    assert [row["attempts"] for row in rows_of(store)] == [1, 1]
    assert (result["stop_reason"], len(server.requests)) == ("iterations", 2)


def test_under_a_hard_budget_no_answer_can_cross_the_cap_of_the_step(server):
    store = RunStore()
    server.default = lambda body: calling(
        "evaluate_candidate",
        tokens=(1500, body["max_completion_tokens"]),
        changes=rewrite(0.3 + 0.01 * len(server.requests)),
    )
    graph_on(server, store, budget_policy="hard", step_cap=0.01, iterations=3).invoke({})
    rows = rows_of(store)
    assert len(rows) == 3
    assert all(0 < row["step_cost"] <= 0.01 for row in rows)
    assert all(row["score"] is not None for row in rows)
    assert spent_by(store) == billed(server)


@pytest.mark.parametrize("budget", [0.01, 0.02, 0.05])
def test_a_hard_budget_holds_and_the_ledger_is_the_bill(server, budget):
    def honest(body) -> Reply:
        reply = agent_answer(body)
        size = sum(len(str(message).encode()) for message in body["messages"])
        tokens = min(reply.output_tokens, body["max_completion_tokens"])
        facts = {**vars(reply), "input_tokens": size // 3, "output_tokens": tokens}
        return Reply(**facts)

    store = RunStore()
    server.default = honest
    result = graph_on(server, store, budget=budget, budget_policy="hard", iterations=50).invoke({})
    assert result["stop_reason"] == "budget"
    assert spent_by(store) == billed(server) <= Decimal(str(budget))


def test_asking_for_budget_and_tools_go_together(server):
    server.default = agent_answer
    graph = graph_on(
        server, budget=0.003, saver=InMemorySaver(), on_exhausted="interrupt", iterations=9
    )
    asked = graph.invoke({}, THREAD)["__interrupt__"][0].value
    result = graph.invoke(Command(resume={"budget": asked["spent"] + 0.02}), THREAD)
    assert result["spent"] > asked["spent"]


class SlowOnce:
    """Judges at once, but the first trial would take a minute."""

    def __init__(self):
        self.begun = threading.Event()

    def __call__(self, code):
        if code != SEED_PROGRAM and not self.begun.is_set():
            self.begun.set()
            endless = "def f():\n    while True: pass"
            run_candidate(endless, "f", Limits(wall_seconds=60), layer=Layer.PROCESS)
        return evaluate_value(code)


@pytest.mark.process
def test_a_cancelled_trial_ends_at_once_and_its_answer_is_not_paid_again(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    evaluate = SlowOnce()
    with BillingServer() as server:
        server.script(trying(0.6), submitting("1.1.1"))
        graph = graph_on(server, problem=toy_problem(evaluate=evaluate), saver=InMemorySaver())

        async def cancelled():
            task = asyncio.create_task(graph.ainvoke({}, THREAD))
            await asyncio.to_thread(evaluate.begun.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        started = monotonic()
        asyncio.run(cancelled())
        assert monotonic() - started < 30
        result = graph.invoke(None, THREAD)
        assert (result["best_score"], len(server.requests)) == (0.6, 2)

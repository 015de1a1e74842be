"""The generating model with tools: what it can do in a step, and how the step ends."""

import asyncio
from itertools import count

import pytest
from agent_answers import agent_answer, calling, submitting, tool_results, trying
from billing_server import Refusal, Reply
from fakes import ScriptedModel, evaluate_value, hashed_answer, rewrite, toy_problem
from langgraph.checkpoint.memory import InMemorySaver
from tool_graph import ANSWER_COST, PRICE, billed, graph_on, spent, steps

from costada.graph.build import create_discovery_graph
from costada.models.replies import visible_text
from costada.nodes.settings import Settings
from costada.store.run_store import RunStore
from costada.values.evaluation import Evaluation


def test_what_it_tried_it_can_submit_without_writing_it_again(server):
    store, judged = RunStore(), []

    def evaluate(code: str) -> Evaluation:
        judged.append(code)
        return evaluate_value(code)

    server.script(trying(0.2), trying(0.7), submitting("1.1.2"))
    result = graph_on(server, store, problem=toy_problem(evaluate=evaluate)).invoke({})
    assert (result["best_score"], result["best_program"].count("0.7000")) == (0.7, 1)
    assert len(judged) == 3  # the initial program and two trials
    assert spent(store) == billed(server) == 3 * ANSWER_COST
    calls = list(store.call_log.calls(store.run_ids()[0]))
    assert [(call.role, call.attempt) for call in calls] == [
        ("generation", 1),
        ("generation", 2),
        ("generation", 3),
    ]
    assert visible_text(calls[2].answer) == "[tool call] submit\ncandidate: 1.1.2"
    assert calls[0].prompt in calls[1].prompt
    assert "Score: 0.7000" in calls[2].prompt


def test_it_is_told_score_or_error_and_what_is_left(server):
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
    ("call", "told"),
    [
        (calling("run_shell", command="ls"), "There is no tool 'run_shell'"),
        (calling("evaluate_candidate"), "needs the argument 'changes'"),
        (calling("evaluate_candidate", changes=3), "must be a text"),
        (calling("evaluate_candidate", changes="no"), "neither a SEARCH/REPLACE block nor"),
        (calling("evaluate_candidate", changes=rewrite(0.3), base="9.9"), "no program '9.9'"),
        (calling("read_program", id="../etc/passwd"), "There is no program '../etc/passwd'"),
        (calling("read_program", id="0.1", depth="2"), "takes no argument 'depth'"),
        (calling("search_archive", words="quicksort"), "No program holds all of these words."),
        (calling("submit"), "needs either 'candidate' or 'changes'"),
        (submitting("1.1.7"), "You evaluated no candidate '1.1.7'"),
        (Reply("{not json", tool="submit"), "no JSON object"),
    ],
)
def test_a_wrong_call_is_answered_in_words_and_the_attempt_goes_on(server, call, told):
    server.script(call, Reply(rewrite(0.4)))
    result = graph_on(server).invoke({})
    assert told in tool_results(server.requests[-1])[0]
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
    (row,) = steps(store)
    calls = [(call.role, call.attempt) for call in store.call_log.calls(store.run_ids()[0])]
    assert (row["attempts"], row["score"]) == (2, 0.4)
    assert calls == [("generation", 1), ("generation", 2), ("retry", 3)]


def test_an_attempt_that_is_executed_again_repeats_no_call_and_no_evaluation(server):
    """The process dies in the evaluation of the second trial, and again after its verdict."""
    store, saver, judged = RunStore(), InMemorySaver(), count(1)
    thread = {"configurable": {"thread_id": "run"}}

    def evaluate(code: str) -> Evaluation:
        if next(judged) == 3:  # after the initial program and the first trial
            raise InterruptedError
        return evaluate_value(code)

    server.script(trying(0.2), trying(0.7), submitting("1.1.2"))
    graph = graph_on(server, store, problem=toy_problem(evaluate=evaluate), saver=saver)
    with pytest.raises(InterruptedError):
        graph.invoke({}, thread)
    result = graph.invoke(None, thread)
    assert (result["best_score"], len(server.requests), next(judged)) == (0.7, 3, 5)
    before = next(s for s in graph.get_state_history(thread) if s.next == ("generate",))
    again = graph.invoke(None, before.config)
    assert (again["best_score"], again["spent"]) == (0.7, result["spent"])
    assert (len(server.requests), next(judged)) == (3, 6)


def test_it_works_asynchronously(server):
    server.script(trying(0.2), submitting("1.1.1"))
    assert asyncio.run(graph_on(server).ainvoke({}))["best_score"] == 0.2


@pytest.mark.parametrize("method", ["adaevolve", "best-of-n", "evox"])
def test_every_method_can_have_such_a_generator(server, method):
    server.default = agent_answer
    result = graph_on(server, method=method, iterations=4, max_failures=99).invoke({})
    assert result["iterations"] == 4


def test_a_model_that_can_not_call_tools_is_refused_before_anything_is_sent():
    model = ScriptedModel(answer=hashed_answer, prompts=[])
    with pytest.raises(ValueError, match=r"generator: got 'agent', and model 'scripted'.*tools"):
        create_discovery_graph(
            toy_problem(), model, budget=1.0, settings=Settings(price=PRICE, generator="agent")
        )

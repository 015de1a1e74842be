"""What single nodes do: verdicts, what prompts show, tried tactics, cancellation."""

import asyncio
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle, islice

import pytest
from fakes import (
    IDEAS,
    SEED_PROGRAM,
    evaluate_value,
    is_guide_prompt,
    program,
    rewrite,
    toy_problem,
)
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from needed_plugins import EVOX
from toy_graph import discovery, scripted
from typing_extensions import TypedDict

from costada.evaluators.registry import problem
from costada.evaluators.sandbox.candidate_runs import run_candidate
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.graph.node_execution import CancellableNode
from costada.nodes.context import prompt_view
from costada.store.run_store import RunStore
from costada.values.candidate import Candidate, Program
from costada.values.evaluation import EVALUATOR_FAULT, NOT_SCORED, SANDBOX_FAULT, Evaluation, failed


class Judge:
    """Counts what it is asked."""

    def __init__(self, verdict: Callable[[str], Evaluation] = evaluate_value) -> None:
        self.asked: list[str] = []
        self._verdict = verdict

    def __call__(self, code: str) -> Evaluation:
        self.asked.append(code)
        return self._verdict(code)


def graph_with(judge, *answers, iterations=4, **options):
    replies = iter(answers)
    model = scripted(lambda prompt: IDEAS if is_guide_prompt(prompt) else next(replies))
    options.setdefault("problem", judge and toy_problem(evaluate=judge))
    return discovery(model, iterations=iterations, **options), model


def streamed(graph, config=None):
    return list(graph.stream({}, config, stream_mode="custom"))


def test_a_program_proposed_again_is_not_run_again_and_keeps_its_verdict():
    judge = Judge()
    answers = cycle([rewrite(0.3), rewrite(0.5), rewrite(0.7)])
    graph, _ = graph_with(judge, *islice(answers, 60), iterations=8)
    rows = streamed(graph)
    scores = [row["score"] for row in rows]
    assert sorted(judge.asked) == sorted([SEED_PROGRAM, *map(program, (0.3, 0.5, 0.7))])
    assert [row["is_cached"] for row in rows] == [
        score in scores[:place] for place, score in enumerate(scores)
    ]
    assert len(scores) == 8


def test_a_failed_program_proposed_again_fails_again_and_is_retried():
    judge = Judge()
    graph, _ = graph_with(judge, rewrite(1.5), rewrite(1.5), rewrite(0.4), iterations=1)
    (row,) = streamed(graph)
    assert (row["attempts"], row["score"], row["is_cached"]) == (3, 0.4, False)
    assert judge.asked == [SEED_PROGRAM, program(1.5), program(0.4)]


def test_the_verdict_is_taken_over_whole():
    def verdict(code: str) -> Evaluation:
        return replace(evaluate_value(code), artifacts={"log": "fine"}, metrics={"n": 7})

    store = RunStore()
    graph, _ = graph_with(Judge(verdict), rewrite(0.3), rewrite(0.3), iterations=2, store=store)
    streamed(graph)
    first, second = (store.candidates.get(store.run_ids()[0], name) for name in ("1.1", "2.1"))
    assert second.is_cached
    assert (second.artifacts, second.metrics, second.objective) == (
        first.artifacts,
        first.metrics,
        first.objective,
    )
    assert second.ticket == 2


@pytest.mark.parametrize("mark", [EVALUATOR_FAULT, SANDBOX_FAULT])
def test_a_verdict_that_came_of_a_fault_is_never_used_again(mark):
    def verdict(code: str) -> Evaluation:
        return failed("broke", artifacts={mark: "broke"}) if "1.5" in code else evaluate_value(code)

    judge = Judge(verdict)
    graph, _ = graph_with(judge, rewrite(1.5), rewrite(1.5), rewrite(0.4), iterations=1)
    streamed(graph)
    assert judge.asked.count(program(1.5)) == 2


def test_another_run_in_the_same_file_judges_for_itself(tmp_path):
    judge = Judge()
    config = {"configurable": {"thread_id": "1"}}
    with SqliteSaver.from_conn_string(str(tmp_path / "run.sqlite")) as saver:
        for _ in range(2):
            graph, _ = graph_with(judge, rewrite(0.3), iterations=1, saver=saver)
            assert [row["is_cached"] for row in streamed(graph, config)] == [False]
    assert judge.asked == [SEED_PROGRAM, program(0.3)] * 2


def test_an_initial_verdict_that_is_known_is_not_asked_for():
    judge = Judge()
    known = toy_problem(evaluate=judge, seed_evaluation=evaluate_value(SEED_PROGRAM))
    graph, _ = graph_with(judge, rewrite(0.3), iterations=1, problem=known)
    streamed(graph)
    assert judge.asked == [program(0.3)]


def test_an_interrupted_evaluation_is_made_good_when_the_run_resumes(tmp_path):
    stops = [True]

    def verdict(code: str) -> Evaluation:
        if "0.5" in code and stops.pop():
            raise InterruptedError("the evaluation was interrupted")
        return evaluate_value(code)

    config = {"configurable": {"thread_id": "1"}}
    with SqliteSaver.from_conn_string(str(tmp_path / "run.sqlite")) as saver:
        graph, model = graph_with(
            Judge(verdict), rewrite(0.3), rewrite(0.5), iterations=2, saver=saver
        )
        with pytest.raises(InterruptedError):
            streamed(graph, config)
        stops.append(False)
        rest = list(graph.stream(None, config, stream_mode="custom"))
    assert [(row["iteration"], row["score"]) for row in rest] == [(2, 0.5)]
    assert len(model.prompts) == 2


@pytest.mark.process
def test_texts_and_numbers_of_the_score_reach_the_prompt_of_the_next_step():
    def score(output: float) -> Evaluation:
        return Evaluation(
            score=output,
            objective=output,
            is_valid=True,
            metrics={"spread": 0.25},
            artifacts={"feedback": "move the left one", "tolerance": "it needs 1e-7"},
        )

    problem = toy_problem(
        evaluate=None,
        score=score,
        initial_program="# EVOLVE-BLOCK-START\ndef value():\n    print('hello')\n    return 0.1\n"
        "# EVOLVE-BLOCK-END\n",
    )
    graph, model = graph_with(None, rewrite(0.3), iterations=1, problem=problem)
    streamed(graph)
    prompt = model.prompts[0]
    assert "- spread: 0.2500" in prompt
    assert "- combined_score: 0.1000" in prompt
    assert "## Evaluator feedback" in prompt
    for text in ("move the left one", "it needs 1e-7", "hello"):
        assert text in prompt
    assert "eval_time" not in prompt


def scaling(factor):
    def verdict(code: str) -> Evaluation:
        known = evaluate_value(code)
        return replace(known, score=factor * known.score)

    return verdict


@pytest.mark.parametrize(("factor", "is_cached"), [(1.0, True), (1.0 + 1e-12, False)])
def test_a_resumed_run_judges_a_known_program_again_if_its_evaluator_carries_something_else(
    tmp_path, factor, is_cached
):
    config = {"configurable": {"thread_id": "1"}}
    with SqliteSaver.from_conn_string(str(tmp_path / "run.sqlite")) as saver:
        graph, _ = graph_with(scaling(1.0), rewrite(0.3), iterations=1, saver=saver)
        streamed(graph, config)
        longer, _ = graph_with(scaling(factor), rewrite(0.3), iterations=2, saver=saver)
        (row,) = longer.stream(None, config, stream_mode="custom")
    assert (row["iteration"], row["is_cached"], row["score"]) == (2, is_cached, factor * 0.3)


def candidate_with(metrics=None, artifacts=None, **changes):
    return Candidate(
        id="1.1",
        program=Program.of("x = 1"),
        score=0.0,
        metrics=metrics or {},
        artifacts={"log": "fine", **(artifacts or {})},
        **changes,
    )


@pytest.mark.parametrize("mark", [EVALUATOR_FAULT, NOT_SCORED, SANDBOX_FAULT])
def test_marks_stay_out_of_prompts_for_they_repeat_the_error(mark):
    view = prompt_view(
        candidate_with(artifacts={mark: "it broke"}, error="it broke"), toy_problem()
    )
    assert (view.artifacts, view.error) == ({"log": "fine"}, "it broke")


@pytest.mark.parametrize(
    ("mark", "evaluator"), [(EVALUATOR_FAULT, ""), (SANDBOX_FAULT, ""), (NOT_SCORED, "print")]
)
def test_only_a_verdict_that_came_of_no_fault_is_kept_for_the_same_program(mark, evaluator):
    verdict = failed("it broke", metrics={"n": 2.0}, artifacts={mark: "it broke"})
    judged = Candidate.from_evaluation("1.1", Program.of("x = 1"), verdict, "print")
    assert judged.evaluator == evaluator
    for field in ("score", "objective", "is_valid", "metrics", "artifacts", "error"):
        assert getattr(judged, field) == getattr(verdict, field)


def test_the_evaluation_time_stays_out_of_prompts_so_that_prompts_repeat():
    measured = candidate_with({"sum_radii": 1.3, "eval_time": 0.2345})
    assert prompt_view(measured, toy_problem()).metrics == {"sum_radii": 1.3}
    assert prompt_view(measured, toy_problem()).artifacts == {"log": "fine"}


def test_metrics_named_like_the_time_of_an_evaluation_stay_out_of_prompts():
    times = {"execution_time_mean": 1.2, "execution_time_std": 0.1, "elapsed_seconds": 3.0}
    own = {"efficiency_score": 0.9, "time_to_target": 7.0, "num_evaluation_times": 3.0}
    assert prompt_view(candidate_with(own | times), toy_problem()).metrics == own


def test_an_objective_is_shown_though_it_is_a_time():
    timed = replace(toy_problem(), objectives=("execution_time:min", "size:max"))
    own = {"execution_time": 1.2, "size": 2.0}
    assert prompt_view(candidate_with(own | {"wall_time": 3.0}), timed).metrics == own


def test_texts_without_a_sign_stay_out_of_prompts():
    texts = {"feedback": "", "stdout": " \n", "note": "seen"}
    shown = prompt_view(candidate_with(artifacts=texts), toy_problem()).artifacts
    assert shown == {"log": "fine", "note": "seen"}


def test_metrics_that_a_problem_declares_as_timings_stay_out_of_prompts():
    own = {"efficiency_score": 0.9, "execution_time": 12.0, "success_rate": 1.0}
    shown_metrics = prompt_view(candidate_with(own), problem("signal_processing")).metrics
    assert shown_metrics == {"success_rate": 1.0}


@pytest.mark.process
@pytest.mark.parametrize("method", ["costada", EVOX])
def test_the_metrics_of_an_own_evaluator_reach_the_model(method):
    def evaluate(code):
        return replace(evaluate_value(code), metrics={"efficiency_score": 0.25, "eval_time": 7.0})

    model = scripted()
    discovery(model, problem=toy_problem(evaluate=evaluate), iterations=3, method=method).invoke({})
    (*_, prompt) = (each for each in model.prompts if "# Output" not in each)
    assert "- efficiency_score: 0.25" in prompt
    assert "eval_time" not in prompt


USES = 6
"""Attempts that follow one guide: three tactics, two uses each."""


def ideas(guide: int) -> str:
    idea = '{{"idea": "{0}", "description": "do it", "approach_type": "a.b"}}'
    return f'{{"ideas": [{", ".join(idea.format(f"{guide}.{n}") for n in (1, 2, 3))}]}}'


def guide_prompts(value: Callable[[int, int, bool], float], iterations: int) -> list[str]:
    """Return what the guides of a run were asked.

    `value` is the score of an attempt, by the guides so far, the attempts since the last one (from
    1) and whether the attempt has a tactic.
    """
    asked: list[str] = []
    since = [0]

    def answer(prompt: str) -> str:
        if is_guide_prompt(prompt):
            asked.append(prompt)
            since[0] = 0
            return ideas(len(asked))
        since[0] += 1
        return rewrite(value(len(asked), since[0], "## Tactic" in prompt))

    discovery(scripted(answer), budget=9.0, iterations=iterations).invoke({})
    return asked


def tried_in(prompt: str) -> list[tuple[str, str, float]]:
    lines = re.findall(r"(SUCCESS|FAILED): a\.b - (\S+) \(improvement (\S+)\)", prompt)
    return [(outcome, idea, float(rise)) for outcome, idea, rise in lines]


def test_a_rise_after_the_last_use_is_none_of_the_tactics():
    def value(guides: int, since: int, is_guided: bool) -> float:
        assert is_guided == (guides > 0 and since <= USES)
        return 0.9 if guides == 1 and since == USES + 1 else 0.05

    _, second, *_ = guide_prompts(value, 20)
    assert tried_in(second) == [("FAILED", f"1.{n}", -0.05) for n in (1, 2, 3)]


def test_a_rise_at_the_last_use_counts_for_the_whole_batch():
    def value(guides: int, since: int, is_guided: bool) -> float:
        return 0.9 if guides == 1 and since == USES else 0.05

    _, second, *_ = guide_prompts(value, 20)
    assert tried_in(second) == [("SUCCESS", f"1.{n}", 0.8) for n in (1, 2, 3)]


def test_ten_tactics_are_shown_and_older_ones_left_out():
    first, *_, last = guide_prompts(lambda *_: 0.05, 60)
    assert tried_in(first) == []
    guides = int(tried_in(last)[-1][1].split(".")[0])
    everything = [f"{guide}.{n}" for guide in range(1, guides + 1) for n in (1, 2, 3)]
    assert guides > 4
    assert [idea for _, idea, _ in tried_in(last)] == everything[-10:]


ENDLESS = "def f():\n    while True: pass"


class SlowNode:
    """Evaluates a program that does not end, and notes how that was stopped."""

    def __init__(self):
        self.begun = threading.Event()
        self.interrupted = threading.Event()

    def __call__(self, state, config, runtime):
        self.begun.set()
        try:
            run_candidate(ENDLESS, "f", Limits(wall_seconds=60), layer=Layer.PROCESS)
        except InterruptedError:
            self.interrupted.set()
            raise
        return state


class Counted(TypedDict):
    count: int


def graph_of(node):
    graph = StateGraph(Counted)
    graph.add_node("evaluate", CancellableNode(node, "evaluate"))
    graph.add_edge(START, "evaluate")
    return graph.compile()


@pytest.mark.process
def test_a_cancelled_task_takes_its_evaluation_along():
    node = SlowNode()

    async def cancel_while_it_evaluates():
        task = asyncio.create_task(graph_of(node).ainvoke({"count": 1}))
        await asyncio.to_thread(node.begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_while_it_evaluates())
    assert node.interrupted.wait(timeout=30)


def test_a_node_that_is_not_cancelled_gives_its_answer_in_both_worlds():
    graph = graph_of(lambda state, config, runtime: {"count": state["count"] + 1})
    assert graph.invoke({"count": 1}) == {"count": 2}
    assert asyncio.run(graph.ainvoke({"count": 1})) == {"count": 2}

"""Programs that a run has judged before, and verdicts on their way into prompts."""

from collections.abc import Callable
from dataclasses import replace
from itertools import cycle, islice

import pytest
from fakes import (
    IDEAS,
    SEED_PROGRAM,
    ScriptedModel,
    evaluate_value,
    is_guide_prompt,
    program,
    rewrite,
)
from fakes import toy_problem as toy
from langgraph.checkpoint.sqlite import SqliteSaver

from costada.controller.constants import Constants
from costada.graph.build import create_discovery_graph
from costada.nodes.settings import Settings
from costada.store.run_store import RunStore
from costada.values.evaluation import EVALUATOR_FAULT, SANDBOX_FAULT, Evaluation, failed
from costada.values.prices import Price


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
    model = ScriptedModel(
        answer=lambda prompt: IDEAS if is_guide_prompt(prompt) else next(replies), prompts=[]
    )
    settings = Settings(price=Price("1", "2"), constants=Constants(max_iterations=iterations))
    problem = options.pop("problem", None) or toy(evaluate=judge)
    graph = create_discovery_graph(problem, model, budget=1.0, settings=settings, **options)
    return graph, model


def rows_of(graph, config=None):
    return list(graph.stream({}, config, stream_mode="custom"))


def test_a_program_proposed_again_is_not_run_again_and_keeps_its_verdict():
    judge = Judge()
    answers = cycle([rewrite(0.3), rewrite(0.5), rewrite(0.7)])
    graph, _ = graph_with(judge, *islice(answers, 60), iterations=8)
    rows = rows_of(graph)
    scores = [row["score"] for row in rows]
    assert sorted(judge.asked) == sorted([SEED_PROGRAM, *map(program, (0.3, 0.5, 0.7))])
    assert [row["is_cached"] for row in rows] == [
        score in scores[:place] for place, score in enumerate(scores)
    ]
    assert len(scores) == 8


def test_a_failed_program_proposed_again_fails_again_and_is_retried():
    judge = Judge()
    graph, _ = graph_with(judge, rewrite(1.5), rewrite(1.5), rewrite(0.4), iterations=1)
    (row,) = rows_of(graph)
    assert (row["attempts"], row["score"], row["is_cached"]) == (3, 0.4, False)
    assert judge.asked == [SEED_PROGRAM, program(1.5), program(0.4)]


def test_the_verdict_is_taken_over_whole():
    def verdict(code: str) -> Evaluation:
        return replace(evaluate_value(code), artifacts={"log": "fine"}, metrics={"n": 7})

    store = RunStore()
    graph, _ = graph_with(Judge(verdict), rewrite(0.3), rewrite(0.3), iterations=2, store=store)
    rows_of(graph)
    first, second = (store.candidates.get(store.run_ids()[0], name) for name in ("1.1", "2.1"))
    assert second.is_cached
    assert (second.artifacts, second.metrics, second.objective) == (
        first.artifacts,
        first.metrics,
        first.objective,
    )
    assert second.iteration == 2


@pytest.mark.parametrize("mark", [EVALUATOR_FAULT, SANDBOX_FAULT])
def test_a_verdict_that_came_of_a_fault_is_never_used_again(mark):
    def verdict(code: str) -> Evaluation:
        return failed("broke", artifacts={mark: "broke"}) if "1.5" in code else evaluate_value(code)

    judge = Judge(verdict)
    graph, _ = graph_with(judge, rewrite(1.5), rewrite(1.5), rewrite(0.4), iterations=1)
    rows_of(graph)
    assert judge.asked.count(program(1.5)) == 2


def test_another_run_in_the_same_file_judges_for_itself(tmp_path):
    judge = Judge()
    config = {"configurable": {"thread_id": "1"}}
    with SqliteSaver.from_conn_string(str(tmp_path / "run.sqlite")) as saver:
        for _ in range(2):
            graph, _ = graph_with(judge, rewrite(0.3), iterations=1, checkpointer=saver)
            assert [row["is_cached"] for row in rows_of(graph, config)] == [False]
    assert judge.asked == [SEED_PROGRAM, program(0.3)] * 2


def test_an_initial_verdict_that_is_known_is_not_asked_for():
    judge = Judge()
    known = toy(evaluate=judge, seed_evaluation=evaluate_value(SEED_PROGRAM))
    graph, _ = graph_with(judge, rewrite(0.3), iterations=1, problem=known)
    rows_of(graph)
    assert judge.asked == [program(0.3)]


def test_an_interrupted_evaluation_is_made_good_when_the_run_goes_on(tmp_path):
    stops = [True]

    def verdict(code: str) -> Evaluation:
        if "0.5" in code and stops.pop():
            raise InterruptedError("the evaluation was interrupted")
        return evaluate_value(code)

    config = {"configurable": {"thread_id": "1"}}
    with SqliteSaver.from_conn_string(str(tmp_path / "run.sqlite")) as saver:
        graph, model = graph_with(
            Judge(verdict), rewrite(0.3), rewrite(0.5), iterations=2, checkpointer=saver
        )
        with pytest.raises(InterruptedError):
            rows_of(graph, config)
        stops.append(False)
        rest = list(graph.stream(None, config, stream_mode="custom"))
    assert [(row["iteration"], row["score"]) for row in rest] == [(2, 0.5)]
    assert len(model.prompts) == 2


def test_texts_and_numbers_of_the_score_reach_the_prompt_of_the_next_step():
    def score(output: float) -> Evaluation:
        return Evaluation(
            score=output,
            objective=output,
            is_valid=True,
            metrics={"spread": 0.25},
            artifacts={"feedback": "move the left one", "tolerance": "it needs 1e-7"},
        )

    problem = toy(
        evaluate=None,
        score=score,
        initial_program="# EVOLVE-BLOCK-START\ndef value():\n    print('hello')\n    return 0.1\n"
        "# EVOLVE-BLOCK-END\n",
    )
    graph, model = graph_with(None, rewrite(0.3), iterations=1, problem=problem)
    rows_of(graph)
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


@pytest.mark.parametrize(("factor", "is_cached", "score"), [(1.0, True, 0.3), (0.5, False, 0.15)])
def test_a_resumed_run_judges_a_known_program_again_if_its_evaluator_carries_something_else(
    tmp_path, factor, is_cached, score
):
    config = {"configurable": {"thread_id": "1"}}
    with SqliteSaver.from_conn_string(str(tmp_path / "run.sqlite")) as saver:
        graph, _ = graph_with(scaling(1.0), rewrite(0.3), iterations=1, checkpointer=saver)
        rows_of(graph, config)
        longer, _ = graph_with(scaling(factor), rewrite(0.3), iterations=2, checkpointer=saver)
        longer.update_state(config, {"stop_reason": ""}, as_node="gate_intervention")
        (row,) = longer.stream(None, config, stream_mode="custom")
    assert (row["iteration"], row["is_cached"], row["score"]) == (2, is_cached, score)

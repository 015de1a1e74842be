from dataclasses import replace

import pytest
from fakes import ScriptedModel, evaluate_value, hashed_answer, toy_problem

from costada.controller.constants import Constants
from costada.evaluators.registry import problem
from costada.graph.build import create_discovery_graph
from costada.nodes.context import shown
from costada.nodes.settings import Settings
from costada.values.candidate import Candidate
from costada.values.evaluation import EVALUATOR_FAULT, NO_VERDICT, SANDBOX_FAULT, failed
from costada.values.prices import Price
from costada.values.program import Program


def candidate_with(metrics=None, artifacts=None, **changes):
    return Candidate(
        id="1.1",
        program=Program.of("x = 1"),
        score=0.0,
        metrics=metrics or {},
        artifacts={"log": "fine", **(artifacts or {})},
        **changes,
    )


@pytest.mark.parametrize("mark", [EVALUATOR_FAULT, NO_VERDICT, SANDBOX_FAULT])
def test_marks_stay_out_of_prompts_for_they_repeat_the_error(mark):
    view = shown(candidate_with(artifacts={mark: "it broke"}, error="it broke"), toy_problem())
    assert (view.artifacts, view.error) == ({"log": "fine"}, "it broke")


@pytest.mark.parametrize(
    ("mark", "evaluator"), [(EVALUATOR_FAULT, ""), (SANDBOX_FAULT, ""), (NO_VERDICT, "print")]
)
def test_only_a_verdict_that_came_of_no_fault_is_kept_for_the_same_program(mark, evaluator):
    verdict = failed("it broke", metrics={"n": 2.0}, artifacts={mark: "it broke"})
    judged = Candidate.judged("1.1", Program.of("x = 1"), verdict, "print")
    assert judged.evaluator == evaluator
    for field in ("score", "objective", "is_valid", "metrics", "artifacts", "error"):
        assert getattr(judged, field) == getattr(verdict, field)


def test_the_evaluation_time_stays_out_of_prompts_so_that_prompts_repeat():
    measured = candidate_with({"sum_radii": 1.3, "eval_time": 0.2345})
    assert shown(measured, toy_problem()).metrics == {"sum_radii": 1.3}
    assert shown(measured, toy_problem()).artifacts == {"log": "fine"}


def test_a_metric_whose_name_only_resembles_ours_is_shown():
    own = {"efficiency_score": 0.9, "execution_time": 12.0, "my_eval_time": 3.0}
    assert shown(candidate_with(own), toy_problem()).metrics == own


def test_metrics_that_a_problem_declares_as_timings_stay_out_of_prompts():
    own = {"efficiency_score": 0.9, "execution_time": 12.0, "success_rate": 1.0}
    shown_metrics = shown(candidate_with(own), problem("signal_processing")).metrics
    assert shown_metrics == {"success_rate": 1.0}


@pytest.mark.parametrize("method", ["costada", "evox"])
def test_the_metrics_of_an_own_evaluator_reach_the_model(method):
    def evaluate(code):
        return replace(evaluate_value(code), metrics={"efficiency_score": 0.25, "eval_time": 7.0})

    model = ScriptedModel(answer=hashed_answer)
    settings = Settings(price=Price("1", "2"), constants=Constants(max_iterations=3), method=method)
    graph = create_discovery_graph(
        toy_problem(evaluate=evaluate), model, budget=1.0, settings=settings
    )
    graph.invoke({})
    (*_, prompt) = (each for each in model.prompts if "# Output" not in each)
    assert "- efficiency_score: 0.25" in prompt
    assert "eval_time" not in prompt

"""How evaluators of other tools answer, and what becomes of it."""

import json
import re

import pytest
from peer_scripts import LOAD, MAIN

from costada.evaluators.folders import load_folder
from costada.evaluators.problem import check_problem
from costada.nodes.context import prompt_view
from costada.values.candidate import Candidate, Program
from costada.values.evaluation import EVALUATOR_FAULT, LOG, PRIVATE_METRICS, SCORED_BY, UNSHOWN

pytestmark = pytest.mark.process

PROGRAM = "def answer():\n    return 3.0\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("problems") / "given"


@pytest.fixture
def write(place):
    """Write a problem folder, always in the same place: its sandbox is prepared once."""

    def write(evaluator, config="", name="evaluator.py", program=PROGRAM, **others):
        place.mkdir(exist_ok=True)
        for path in place.iterdir():
            path.unlink()
        files = {name: LOAD + evaluator, "initial_program.py": program, "problem.md": "Answer."}
        files |= {"config.yaml": config} if config else {}
        for file, text in {**files, **others}.items():
            (place / file).write_text(text)
        return load_folder(place)

    return write


@pytest.mark.parametrize(
    "module",
    [
        "openevolve.evaluation_result",
        "skydiscover.evaluation",
        "skydiscover.evaluation.evaluation_result",
    ],
)
def test_a_result_of_another_tool_is_understood_without_that_tool(write, module):
    evaluator = (
        f"from {module} import EvaluationResult\n"
        "def evaluate(program_path):\n"
        "    metrics = {'combined_score': load(program_path).answer(), 'n': 2}\n"
        "    return EvaluationResult(metrics=metrics, artifacts={'hint': 'go on', 'raw': b'b'})\n"
    )
    evaluation = check_problem(write(evaluator))
    assert (evaluation.score, evaluation.metrics["n"]) == (3.0, 2.0)
    assert evaluation.artifacts == {"hint": "go on", "raw": "b"}


def test_a_result_has_the_methods_of_the_original(write):
    evaluator = (
        "from openevolve.evaluation_result import EvaluationResult as Result\n"
        "import pickle\n"
        "def evaluate(program_path):\n"
        "    bare, rich = Result.from_dict({'a': 1}), Result({'a': 1}, {'b': 'c'})\n"
        "    again = pickle.loads(pickle.dumps(rich)).artifacts\n"
        "    is_right = (bare.to_dict(), bare.artifacts, again) == ({'a': 1}, {}, {'b': 'c'})\n"
        "    return {'combined_score': is_right and rich.has_artifacts()}\n"
    )
    assert check_problem(write(evaluator)).score == 1.0


def test_only_what_evaluators_import_has_a_stand_in(write):
    evaluator = "def evaluate(path):\n    from openevolve.database import ProgramDatabase\n"
    error = write(evaluator).evaluate(PROGRAM).error
    assert "No module named 'openevolve.database'" in error


def stages(first="0.6", second="0.7", third="0.8"):
    """An evaluator in stages whose scores are expressions; `evaluate` must not be called."""
    texts = [
        f"def evaluate_stage{number}(program_path):\n    answer = load(program_path).answer\n"
        f"    return {{'combined_score': {score}, 's{number}': {number}}}\n"
        for number, score in ((1, first), (2, second), (3, third))
        if score
    ]
    return "".join(texts) + "def evaluate(program_path): return {'combined_score': -1}\n"


def thresholds(*values):
    return f"evaluator: {{cascade_thresholds: {list(values)}}}\n"


@pytest.mark.parametrize(
    ("evaluator", "config", "score", "reached"),
    [
        (stages(), thresholds(0.5, 0.7), 0.8, 3),
        (stages(), thresholds(0.5, 0.71), 0.7, 2),
        (stages(), thresholds(0.61, 0.1), 0.6, 1),
        (stages(), thresholds(0.5), 0.7, 2),
        (stages(), "evaluator: {cascade_evaluation: true, cascade_thresholds: []}", 0.7, 2),
        (stages(), "max_iterations: 1", 0.7, 2),  # 0.5 and 0.75, unless others are given
        (stages(third=""), thresholds(0.1, 0.1), 0.7, 2),
        (stages(second="", third=""), thresholds(0.1, 0.1), 0.6, 1),
        (stages(), "max_solution_length: 9\n" + thresholds(0.1, 0.1), 0.7, 2),
        (stages(second="0.2"), thresholds(0.5, 0.3), 0.2, 2),
    ],
)
def test_each_stage_is_reached_by_the_threshold_of_the_one_before(
    write, evaluator, config, score, reached
):
    evaluation = check_problem(write(evaluator, config))
    assert evaluation.objective == score
    assert [n for n in (1, 2, 3) if f"s{n}" in evaluation.metrics] == [*range(1, reached + 1)]


def test_thresholds_that_say_nothing_are_not_among_those_taken_over(write):
    config = "evaluator: {cascade_evaluation: true, cascade_thresholds: []}"
    [note] = write(stages(), config).notes
    assert note.endswith("evaluator.cascade_evaluation; not: evaluator.cascade_thresholds")


@pytest.mark.parametrize("config", ["", "evaluator: {cascade_evaluation: false}"])
def test_without_a_cascade_the_program_is_evaluated_at_once(write, config):
    assert write(stages(), config).evaluate(PROGRAM).objective == -1.0


def test_a_stage_without_a_combined_score_passes_by_the_mean_of_its_numbers(write):
    evaluator = (
        "def evaluate(path): pass\n"
        "def evaluate_stage1(path): return {'a': 0.4, 'b': 0.8, 'flag': True, 'error': 0.0}\n"
        "def evaluate_stage2(path): return {'c': 5}\n"
    )
    # (0.4 + 0.8 + 1) / 3 is 0.733..., and all numbers but the error count in the end
    evaluation = check_problem(write(evaluator, thresholds(0.73)))
    assert evaluation.objective == pytest.approx((0.4 + 0.8 + 1 + 5) / 4)
    assert "c" not in write(evaluator, thresholds(0.74)).evaluate(PROGRAM).metrics


def test_an_error_of_a_stage_that_was_passed_fails_no_later_one(write):
    evaluator = (
        "def evaluate(path): pass\n"
        "def evaluate_stage1(path): return {'combined_score': 0.6, 'error': 'slow', 'failed': 0}\n"
        "def evaluate_stage2(path): return {'combined_score': -0.5}\n"
    )
    evaluation = check_problem(write(evaluator, thresholds(0.5)))
    assert (evaluation.objective, evaluation.error) == (-0.5, None)
    assert evaluation.artifacts["error of stage 1"] == "slow"
    failing = evaluator.replace("-0.5}", "-0.5, 'error': 'wrong'}")
    assert write(failing, thresholds(0.5)).evaluate(PROGRAM).error == "wrong"
    assert write(evaluator.replace("0.6", "0"), thresholds(0.5)).evaluate(PROGRAM).error == "slow"


@pytest.mark.parametrize("fault", ["1 / 0", "answer(0)", "answer.absent"])
def test_a_stage_that_fails_leaves_the_result_of_the_stages_before(write, fault):
    evaluation = check_problem(write(stages(second=fault), thresholds(0.5, 0.5)))
    assert (evaluation.objective, evaluation.metrics["stage2_passed"]) == (0.6, 0.0)
    assert "Error" in evaluation.artifacts["stage2_error"]


def test_a_stage_that_takes_too_long_leaves_the_result_of_the_stages_before(write):
    config = "evaluator: {timeout: 4, cascade_thresholds: [0.5, 0.5]}"
    problem = write("import time\n" + stages(second="time.sleep(60)"), config)
    evaluation = check_problem(problem)
    assert evaluation.objective == 0.6
    assert evaluation.artifacts["stage2_error"] == "timeout: the call exceeded 4 s"


def test_a_first_stage_that_fails_fails_the_candidate(write):
    problem = write(stages(first="answer()"), thresholds(0.5))
    evaluation = problem.evaluate("def answer():\n    raise ValueError('no')\n")
    assert (evaluation.is_valid, evaluation.score) == (False, 0.0)
    assert evaluation.error.startswith("ValueError: no")


def test_without_a_combined_score_the_mean_of_the_numbers_counts_and_is_said(write):
    evaluator = (
        "def evaluate(path):\n"
        "    return {'speed_score': 0.5, 'size': 2, 'ok': True, 'note': 'x', 'complexity': 100,\n"
        "            'bad': float('nan')}\n"
    )
    problem = write(evaluator, "max_iterations: 1")
    evaluation = check_problem(problem)
    assert evaluation.objective == (0.5 + 2) / 2
    assert evaluation.artifacts[SCORED_BY].startswith(
        "combined_score is the mean of speed_score, size (without ok, complexity, bad), as the"
        " evaluator returns none; to choose"
    )
    assert 'metric = "speed_score"' in evaluation.artifacts[SCORED_BY]
    assert SCORED_BY in UNSHOWN
    assert evaluation.metrics["complexity"] == 100


@pytest.mark.parametrize(
    ("metrics", "odd", "likely"),
    [
        ({"run_time": 0.3, "num_valid": 1, "accuracy": 0.5}, "run_time, num_valid", "accuracy"),
        ({"area": 250.0, "packing": 0.5, "fill_score": 0.25}, "area", "fill_score"),
        ({"seconds": 1.0, "gap": 0.5}, "seconds", "gap"),
        ({"time_score": 0.5, "gap": 4.0}, "", "time_score"),
    ],
)
def test_a_mean_of_scores_and_times_or_counts_is_said_with_the_metric_to_choose(
    write, metrics, odd, likely
):
    evaluation = check_problem(write(f"def evaluate(path):\n    return {metrics!r}\n"))
    note = evaluation.artifacts[SCORED_BY]
    assert evaluation.objective == pytest.approx(sum(metrics.values()) / len(metrics))
    assert note.endswith(f'metric = "{likely}" in problem.toml')
    assert (f"Not all of these look like scores: {odd};" in note) is bool(odd)
    assert ("look like" in note) is bool(odd)


@pytest.mark.parametrize("values", [{}, {"value": float("nan")}, {"value": float("inf")}])
def test_an_error_in_place_of_a_score_is_the_reason_of_the_failure(write, values):
    answer = {**values, "error": "solver broke"}
    text = f"from math import inf, nan\ndef evaluate(path):\n    return {answer!r}\n"
    evaluation = write(text).evaluate(PROGRAM)
    assert (evaluation.is_valid, evaluation.error) == (False, "solver broke")
    assert EVALUATOR_FAULT not in evaluation.artifacts


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"error": 1000.0}, "reports error 1000, and no combined_score"),
        ({"num_failed": 3, "timeout": True}, "reports num_failed 3, timeout 1, and no"),
        ({"exception": "solver broke"}, "solver broke"),
        ({"combined_score": 0.0, "failed": ["case 1"]}, "case 1"),
    ],
)
def test_what_is_named_like_a_failure_is_never_a_score(write, answer, error):
    evaluation = write(f"def evaluate(path):\n    return {answer!r}\n").evaluate(PROGRAM)
    assert (evaluation.is_valid, evaluation.score) == (False, 0.0)
    assert error in evaluation.error
    assert EVALUATOR_FAULT not in evaluation.artifacts


def test_a_mean_leaves_out_what_is_named_like_a_failure(write):
    answer = {"recall": 0.5, "neg_error": -0.25, "error": 1000.0, "runtime_errors": 7}
    evaluation = check_problem(write(f"def evaluate(path):\n    return {answer!r}\n"))
    assert evaluation.objective == (0.5 - 0.25) / 2
    assert (
        "the mean of recall, neg_error (without error, runtime_errors)"
        in (evaluation.artifacts[SCORED_BY])
    )


def test_a_failure_may_be_minimised_by_name(write):
    evaluator = "def evaluate(path):\n    return {'error': 4.0}\n"
    settings = 'metric = "error"\ndirection = "minimize"\nreference = 2.0'
    assert check_problem(write(evaluator, **{"problem.toml": settings})).score == 0.5


def test_a_command_line_must_report_a_combined_score(write):
    for text in ('{"speed": 0.5, "size": 2}', '{"speed": 0.5}'):
        printing = f"if __name__ == '__main__':\n    print({text!r})\n"
        problem = write(printing, **{"evaluate.sh": "python evaluator.py $1"})
        with pytest.raises(ValueError, match=r"returned no combined_score.* \(it returned s"):
            check_problem(problem)
    leaving = FILES.replace('"combined_score": value', '"speed": value') + MAIN
    with pytest.raises(ValueError, match="the evaluator returned no combined_score"):
        check_problem(write(leaving, name="evaluate.py"))


@pytest.mark.parametrize("name", ["metrics.json", "correct.json"])
@pytest.mark.parametrize(
    ("text", "said"),
    [("{'combined_score': 1}", "is not JSON: Expecting"), ("[1]", "holds a list; expected a JSON")],
)
def test_a_file_of_results_that_is_no_json_object_is_named(write, name, text, said):
    leaving = FILES + f"    open(os.path.join(results_dir, {name!r}), 'w').write({text!r})\n" + MAIN
    with pytest.raises(ValueError, match=rf"{name}, which evaluate.py left, {said}"):
        check_problem(write(leaving, name="evaluate.py"))


def test_an_error_of_none_is_no_error(write):
    evaluator = "def evaluate(path):\n    return {'combined_score': 0.0, 'error': None}\n"
    assert write(evaluator).evaluate(PROGRAM).is_valid


def test_a_metric_may_be_chosen_in_place_of_the_mean_or_the_combined_score(write):
    evaluator = (
        "def evaluate(path):\n    answer = load(path).answer()\n"
        "    if answer < 0: return {'combined_score': 0.0, 'error': 'below 0'}\n"
        "    if answer > 5: return {'combined_score': answer}\n"
        "    return {'speed_score': answer, 'size': 20, 'combined_score': 8}\n"
    )
    problem = write(evaluator, **{"problem.toml": 'metric = "speed_score"'})
    evaluation = check_problem(problem)
    assert (evaluation.objective, evaluation.metrics["combined_score"]) == (3.0, 3.0)
    assert SCORED_BY not in evaluation.artifacts
    assert problem.evaluate("def answer(): return -1").error == "below 0"
    fault = problem.evaluate("def answer(): return 6").artifacts[EVALUATOR_FAULT]
    assert "returned no speed_score; expected a number (it returned combined_score)" in fault


def test_an_evaluator_may_be_a_coroutine(write):
    evaluator = "async def evaluate(path): return {'combined_score': load(path).answer()}\n"
    assert check_problem(write(evaluator)).objective == 3.0


FILES = """
import json, os
def main(program_path, results_dir):
    value = load(program_path).answer()
    metrics = {"combined_score": value, "public": {"gap": 10 - value, "hint": "more"},
               "private": {"seed": 7}, "text_feedback": "go on"}
    correct = {"correct": value < 10, "error": "" if value < 10 else "too high"}
    for name, content in (("metrics", metrics), ("correct", correct)):
        with open(os.path.join(results_dir, name + ".json"), "w") as file:
            json.dump(content, file)
"""


def test_an_evaluator_that_leaves_files_is_run_as_a_program(write):
    problem = write(FILES + MAIN, name="evaluate.py")
    evaluation = check_problem(problem)
    assert (evaluation.objective, evaluation.metrics["gap"]) == (3.0, 7.0)
    assert evaluation.artifacts["feedback"] == "go on"
    assert evaluation.artifacts["hint"] == "more"
    assert json.loads(evaluation.artifacts[PRIVATE_METRICS]) == {"seed": 7}
    assert PRIVATE_METRICS in UNSHOWN
    assert "seed" not in evaluation.metrics
    too_high = problem.evaluate("def answer(): return 11")
    assert (too_high.is_valid, too_high.error) == (False, "too high")


def test_the_log_of_a_valid_program_is_not_shown_beside_private_metrics(write):
    problem = write(FILES.replace("    correct =", "    print(metrics)\n    correct =") + MAIN)
    shown = {}
    for number in (3, 11):
        program = Program.of(f"def answer(): return {number}")
        evaluation = problem.evaluate_program(program)
        assert "'seed': 7" in evaluation.artifacts[LOG]
        candidate = Candidate.from_evaluation(f"c{number}", program, evaluation, "")
        shown[number] = LOG in prompt_view(candidate, problem).artifacts
    assert shown == {3: False, 11: True}


def test_an_evaluator_that_leaves_no_files_is_broken(write):
    silent = "def main(program_path, results_dir): load(program_path)\n" + MAIN
    problem = write(silent, name="evaluate.py")
    with pytest.raises(ValueError, match=r"evaluate.py left no metrics.json in its --results_dir"):
        check_problem(problem)
    evaluation = problem.evaluate("1 / 0")
    assert EVALUATOR_FAULT not in evaluation.artifacts
    assert evaluation.error.startswith("ZeroDivisionError")


def test_a_command_line_needs_no_guard_around_it(write):
    unguarded = MAIN.replace('if __name__ == "__main__":', "if True:")
    problem = write(FILES + unguarded, name="evaluate.py")
    assert problem.evaluate("def answer(): return 2").score == 2.0


def test_results_among_the_files_of_a_program_are_not_those_of_the_evaluator(write):
    silent = write("def main(program_path, results_dir): pass\n" + MAIN, name="evaluate.py")
    forged = {"results/metrics.json": '{"combined_score": 9}', "solver.py": ""}
    forged |= {"results/correct.json": '{"correct": true}'}
    evaluation = silent.evaluate(Program.of(forged))
    assert "left no metrics.json in its --results_dir" in evaluation.error


HELPER = """
from shinka.core import run_shinka_eval
def aggregate(results):
    public = {"count": len(results)}
    return {"combined_score": sum(results), "public": public, "extra_data": object()}
def validate(result):
    return (result < 10, None) if result < 10 else (False, f"{result} is too high")
def main(program_path, results_dir):
    run_shinka_eval(
        program_path=program_path, results_dir=results_dir, experiment_fn_name="answer",
        num_runs=3, get_experiment_kwargs=lambda index: {"index": index},
        validate_fn=validate, aggregate_metrics_fn=aggregate, run_workers=2,
    )
"""


@pytest.mark.parametrize(
    ("program", "objective", "error"),
    [
        ("def answer(index): return index + 1", 6.0, None),
        ("def answer(index): return index * 9", None, "Validation failed: 18 is too high"),
        ("def answer(index): return index / 0", None, "division by zero"),
        ("def other(): pass", None, "module 'program' has no attribute 'answer'"),
        ("def answer(index): return float('nan') if index else 1", None, "Validation failed"),
        ("def answer(index: return 1", None, "(candidate.py, line 1)"),
    ],
)
def test_the_helper_of_shinka_runs_validates_and_aggregates(write, program, objective, error):
    evaluation = write(HELPER + MAIN, name="evaluate.py").evaluate(program)
    assert evaluation.objective == objective
    if error is None:
        assert (evaluation.error, evaluation.metrics["num_valid_runs"]) == (None, 3.0)
        assert evaluation.metrics["count"] == 3.0
    else:
        assert error in evaluation.error


def test_a_traceback_shows_the_program_and_not_what_loads_and_calls_it(write):
    problem = write(HELPER + MAIN, name="evaluate.py")
    program = "def answer(index):\n    try:\n        1 / 0\n    finally:\n        [][index]\n"
    log = problem.evaluate(program).artifacts["log"]
    files = re.findall(r'File "([^"]+)"', log)
    assert [file.rpartition("/")[2] for file in files] == ["candidate.py", "candidate.py"]
    assert "ZeroDivisionError: division by zero" in log
    assert "IndexError: list index out of range" in log


def test_an_evaluator_of_a_container_prints_one_object(write):
    evaluator = """
import json, sys
NUMBERS = json.load(open("/benchmark/numbers.json"))
def main():
    print("reading", sys.argv[1][-3:])
    value = load(sys.argv[1]).answer()
    print(json.dumps({"status": "success", "combined_score": value, "metrics": {"n": NUMBERS[1]},
                      "artifacts": {"feedback": "go on"}}))
if __name__ == "__main__":
    main()
"""
    others = {"evaluate.sh": 'python evaluator.py "$1"\n', "numbers.json": "[1, 2]"}
    problem = write(evaluator, **others, **{"problem.toml": 'files = ["numbers.json"]'})
    evaluation = check_problem(problem)
    assert (evaluation.objective, evaluation.metrics["n"]) == (3.0, 2.0)
    assert evaluation.artifacts["feedback"] == "go on"
    assert evaluation.artifacts["log"] == "reading .py\n"

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import asdict, replace
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from billing_server import BillingServer, HangUp
from compared_runs import outcome
from fakes import ScriptedModel, evaluate_value, hashed_answer, toy_problem

from costada.controller.constants import Constants
from costada.evaluators.sandbox.limits import Limits
from costada.experiments.comparison.comparison import compare_outcomes
from costada.experiments.comparison.metrics import Point, crossing
from costada.experiments.comparison.outcomes import (
    NOT_DECIDING,
    append_outcomes,
    config_facts,
    find_outcomes,
)
from costada.experiments.comparison.tables import final_quality
from costada.models.chat_models import chat_model
from costada.plugins.lab.landscape.simulation import simulate_run
from costada.reports.trace import stored_rows
from costada.runs.config import RunConfig
from costada.runs.discovery import discover
from costada.store.run_store import RunStore
from costada.values.evaluation import Direction, Evaluation
from costada.values.usage import Price

pytestmark = pytest.mark.process


def test_a_run_folder_becomes_an_outcome(finished, near):
    (found,) = find_outcomes(finished.parent).outcomes
    with RunStore(finished / "run.sqlite", is_read_only=True) as store:
        rows = stored_rows(store, store.run_ids()[-1])
    assert (found.problem, found.method, found.model) == ("near", "costada", "offline")
    assert (found.seed, found.budget, found.is_minimized) == (0, 1.0, False)
    assert [point.spent for point in found.points] == [row["spent"] for row in rows]
    assert found.points[-1].best_objective == rows[-1]["best_objective"]
    assert found.seed_score == found.seed_objective == pytest.approx(0.6)
    assert sum(found.dollars_by_role.values()) == pytest.approx(rows[-1]["spent"])


def test_name_and_direction_are_those_at_the_start_of_the_run(near, invoke, tmp_path):
    folder = shutil.copytree(near, tmp_path / "problem")
    facts = 'name = "nearest"\ndirection = "minimize"\nreference = 1.0\n'
    (folder / "problem.toml").write_text(facts)
    run_command(invoke, folder, tmp_path / "runs" / "one")
    shutil.rmtree(folder)
    (found,) = find_outcomes(tmp_path / "runs").outcomes
    assert (found.problem, found.is_minimized) == ("nearest", True)


@pytest.mark.parametrize(
    ("setup", "reason"),
    [
        ("", "its settings are not recorded"),
        ('{"problem": {"name": "near"}, "settings": {}}', "setup of the run is"),
        ('{"problem": {"name": "near", "direction": "minimize"}, "settings": [1]}', "setup of the"),
        ("{", "Expecting"),
    ],
)
def test_a_run_file_without_the_setup_of_its_run_is_left_out(finished, tmp_path, setup, reason):
    shutil.copytree(finished, tmp_path / "one")
    update_file(tmp_path / "one", "UPDATE costada_run SET setup = ?", setup)
    (left_out,) = find_outcomes(tmp_path).left_out
    assert left_out.reason.startswith(reason)


def test_what_is_not_finished_is_left_out_with_the_reason(finished, tmp_path):
    for name in ("a-longer", "b-empty", "c-broken", "d-odd"):
        shutil.copytree(finished, tmp_path / name)
    change_setting(tmp_path / "a-longer" / "settings.json", max_iterations=9)
    (tmp_path / "b-empty" / "run.sqlite").unlink()
    (tmp_path / "c-broken" / "run.sqlite").write_bytes(b"no database" * 100)
    (tmp_path / "d-odd" / "settings.json").write_text("{")
    found = find_outcomes(tmp_path)
    reasons = {Path(each.place).name: each.reason for each in found.left_out}
    assert found.outcomes == ()
    assert reasons["a-longer"].startswith("not finished: 3 iterations, $0.")
    assert reasons["b-empty"] == "has not started"
    assert "not a database" in reasons["c-broken"]
    assert "Invalid JSON" in reasons["d-odd"]


PRICES = {"price": "1,2"}


class Scripted(ScriptedModel):
    """A model with a parameter that LangChain knows of; it may use tools and does not."""

    temperature: float = 0.0

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"temperature": self.temperature}

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(**kwargs)


def discovered(out, problem=None, model=None, **options):
    model = model or Scripted(answer=hashed_answer)
    given = {"budget": 1.0, "max_iterations": 2, **PRICES, **options}
    return discover(problem or toy_problem(), model, out=out, **given)


def refusing(out, answer=lambda prompt: "I would rather not.", **options):
    model = ScriptedModel(answer=answer)
    return discover(toy_problem(), model, budget=0.02, max_failures=4, out=out, **PRICES, **options)


def run_command(invoke, folder, out, seed=0, iterations=1):
    result = invoke("run", folder, "--max-iterations", iterations, "--seed", seed, "--out", out)
    assert result.exit_code == 0, result.output


def change_setting(settings, **changes):
    settings.write_text(json.dumps({**json.loads(settings.read_text()), **changes}))


def update_file(folder, statement, *values):
    with closing(sqlite3.connect(folder / "run.sqlite")) as connection, connection:
        connection.execute(statement, values)


def only_mix(folder):
    """The only group of settings in which the runs below a folder differ."""
    found = find_outcomes(folder)
    assert found.left_out == ()
    (mix,) = compare_outcomes(found.outcomes).mixes
    return mix


@pytest.mark.parametrize("row", ["1.5", "{}", '{"iteration": 1}', '{"spent": "x"}'])
def test_a_run_whose_rows_are_none_of_a_run_is_left_out(finished, tmp_path, row):
    odd = shutil.copytree(finished, tmp_path / "odd")
    shutil.copytree(finished, tmp_path / "sound")
    update_file(odd, "UPDATE costada_step SET row = ?", row)
    found = find_outcomes(tmp_path)
    assert [each.place for each in found.outcomes] == [str(tmp_path / "sound")]
    assert [each.place for each in found.left_out] == [str(odd)]


@pytest.mark.parametrize("column", ["spent", "best_score", "best_objective", "iteration"])
def test_a_run_with_a_number_beyond_those_of_any_run_is_left_out(finished, tmp_path, column):
    odd = shutil.copytree(finished, tmp_path / "odd")
    last = json.loads((finished / "steps.jsonl").read_text().splitlines()[-1])
    update_file(odd, "UPDATE costada_step SET row = ?", json.dumps({**last, column: 10**400}))
    found = find_outcomes(tmp_path)
    assert ([each.place for each in found.left_out], found.outcomes) == ([str(odd)], ())


def test_a_run_that_failures_ended_counts_with_its_last_iteration_until_it_is_resumed(tmp_path):
    ended = refusing(tmp_path / "run")
    found = find_outcomes(tmp_path)
    (run,) = found.outcomes
    assert (ended.stop_reason, found.left_out) == ("failures", ())
    assert (run.has_given_up, [point.iteration for point in run.points]) == (True, [1, 2])
    assert crossing(run) == run.points[-1] == Point(2, ended.spent, 0.1, 1.0)
    answers = iter(range(3))

    def stopping(prompt):
        if next(answers, None) is None:
            raise KeyboardInterrupt
        return "I would rather not."

    with pytest.raises(KeyboardInterrupt):
        refusing(tmp_path / "run", stopping, resume=True)
    (left_out,) = find_outcomes(tmp_path).left_out
    assert left_out.reason.startswith("not finished: 3 iterations, $0.")
    ended = refusing(tmp_path / "run", hashed_answer, resume=True)
    (run,) = find_outcomes(tmp_path).outcomes
    assert (ended.stop_reason, run.has_given_up) == ("budget", False)
    assert run.points[-1].iteration == ended.iterations > 3


def test_a_run_without_one_usable_answer_is_left_out(tmp_path):
    with BillingServer(default=HangUp()) as server:
        model = chat_model("openai:stand-in", base_url=server.url, retry_wait=0)
        hard = {"budget": 0.064, "budget_policy": "hard", "max_iterations": 100}
        ended = discovered(tmp_path / "run", model=model, **hard)
    assert (ended.stop_reason, ended.iterations) == ("failures", 1)
    (left_out,) = find_outcomes(tmp_path).left_out
    assert left_out.reason == "no request got a usable response"


def test_outcomes_come_back_from_a_curves_file_as_they_were(tmp_path):
    one = outcome([(0.1, 0.4), (1.2, 1 / 3 + 0.3)], seed=1)
    two = replace(outcome([], seed=2), seed_objective=None, is_minimized=True)
    (tmp_path / "deep").mkdir()
    for run in (one, two):
        append_outcomes(tmp_path / "deep" / "simulated.curves.jsonl", [run])
    assert find_outcomes(tmp_path).outcomes == (one, two)


def test_a_fork_that_was_killed_before_it_was_complete_is_no_run(finished, tmp_path):
    """It leaves a hidden folder, which may look like a finished run."""
    shutil.copytree(finished, tmp_path / "all" / ".fork.0123")
    found = find_outcomes(tmp_path / "all")
    assert (found.outcomes, found.left_out) == ((), ())
    assert len(find_outcomes(tmp_path / "all" / ".fork.0123").outcomes) == 1


def test_a_repeated_run_and_a_torn_line_are_left_out(tmp_path):
    run, file = outcome([(1.0, 0.5)]), tmp_path / "a.curves.jsonl"
    append_outcomes(file, [run, run, replace(run, seed=1)])
    with file.open("a") as lines:
        lines.write('{"problem": "to')
    found = find_outcomes(tmp_path)
    assert [each.seed for each in found.outcomes] == [0, 1]
    same, torn = found.left_out
    assert (same.place, same.reason) == (f"{file}:2", f"the same run as {file}:1")
    assert torn.place == f"{file}:4"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"budget": inf}, "budget: got inf, expected a finite number"),
        ({"budget": 0.0}, "budget: got 0.0, expected more than 0"),
        ({"seed_score": nan}, "best_score: got nan"),
        ({"dollars_by_role": {"guide": nan}}, "dollars_by_role: got nan"),
        ({"points": (Point(1, 0.1, 0.5, inf),)}, "best_objective: got inf"),
        ({"points": (Point(1, 0.1, 0.3, None),)}, "best_score: got 0.3 after 0.4"),
        (
            {"points": (Point(1, 0.2, 0.4, None), Point(2, 0.1, 0.4, None))},
            "spent: got 0.1 after 0.2, expected it never to fall",
        ),
    ],
)
def test_an_inconsistent_outcome_is_neither_written_nor_read(tmp_path, change, fault):
    odd, file = replace(outcome([]), **change), tmp_path / "odd.curves.jsonl"
    with pytest.raises(ValueError, match=fault):
        append_outcomes(file, [odd])
    assert not file.exists()
    file.write_text(json.dumps(asdict(odd)) + "\n")
    (left_out,) = find_outcomes(tmp_path).left_out
    assert fault in left_out.reason


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match="nowhere: is not a folder, expected one with runs below it"
    ):
        find_outcomes(tmp_path / "nowhere")


def scored(score_of, objective_of=lambda score: score):
    def evaluate(code):
        score = score_of(evaluate_value(code).score)
        return Evaluation(score=score, objective=objective_of(score), is_valid=True)

    return evaluate


OTHERS = {
    "generator": {"generator": "agent"},
    "price.input_per_million": {"price": "3,2"},
    "max_failures": {"max_failures": 7},
    "max_iterations": {"max_iterations": 1},
    "constants.reference_cost": {"reference_cost": 0.02},
    "lost_calls": {"lost_calls": "ignore"},
    "evaluator": {"problem": toy_problem(evaluate=scored(lambda score: score / 2))},
    "task": {"problem": toy_problem(task="Return a small number.")},
    "limits.wall_seconds": {"problem": toy_problem(limits=Limits(wall_seconds=9))},
    "model.temperature": {"model": Scripted(answer=hashed_answer, temperature=0.5)},
    "guide_model.temperature": {"guide_model": Scripted(answer=hashed_answer)},
}


@pytest.mark.parametrize("setting", OTHERS)
def test_runs_that_differ_in_another_setting_are_neither_dropped_nor_averaged(tmp_path, setting):
    discovered(tmp_path / "a")
    discovered(tmp_path / "b", **OTHERS[setting])
    found = find_outcomes(tmp_path)
    assert found.left_out == ()
    comparison = compare_outcomes(found.outcomes)
    assert [sum(map(len, each.runs["costada"].values())) for each in comparison.sections] == [1, 1]
    (mix,) = [each for each in comparison.mixes if setting in each.differing]
    assert len(set(mix.differing[setting])) == 2


def test_runs_may_differ_in_method_and_seed_and_count_once(tmp_path):
    discovered(tmp_path / "a")
    discovered(tmp_path / "b", seed=1)
    discovered(tmp_path / "c", method="evox")
    discovered(tmp_path / "d", keep_history=True, seed=2)
    discovered(tmp_path / "e", preflight=False, seed=3)
    shutil.copytree(tmp_path / "a", tmp_path / "f")
    found = find_outcomes(tmp_path)
    comparison = compare_outcomes(found.outcomes)
    (section,) = comparison.sections
    counts = {method: len(runs["toy"]) for method, runs in section.runs.items()}
    assert counts == {"costada": 4, "evox": 1}
    assert comparison.mixes == ()
    assert [each.reason for each in found.left_out] == [f"the same run as {tmp_path / 'a'}"]


def test_every_setting_decides_unless_it_is_named_as_not_deciding():
    class LaterConfig(RunConfig):
        strictness: int = 0

    first, second = (LaterConfig(problem="toy", strictness=number) for number in (1, 2))
    assert config_facts(first) != config_facts(second)
    tables = {"controller": {"base_patience": 8}, "other_prices": {"a": Price(1, 2)}}
    config = RunConfig(problem="toy", **tables)
    known = {name.partition(".")[0] for name in config_facts(config)}
    unset = {name for name, field in RunConfig.model_fields.items() if field.default is None}
    assert set(RunConfig.model_fields) == known | NOT_DECIDING | unset


def test_a_copy_with_changed_settings_is_another_run(finished, tmp_path):
    for name in ("a", "b"):
        shutil.copytree(finished, tmp_path / name)
    change_setting(tmp_path / "b" / "settings.json", lost_calls="ignore")
    differing = only_mix(tmp_path).differing
    assert {name: sorted(values) for name, values in differing.items()} == {
        "lost_calls": ["count", "ignore"]
    }


def test_a_minimised_problem_of_python_is_ranked_by_its_direction(tmp_path):
    evaluate = scored(lambda score: score, lambda score: 1.0 / max(score, 0.01))
    problem = toy_problem(direction=Direction.MINIMIZE, reference=1.0, evaluate=evaluate)
    for seed in range(2):
        discovered(tmp_path / str(seed), problem, seed=seed)
    found = find_outcomes(tmp_path)
    assert [each.is_minimized for each in found.outcomes] == [True, True]
    ends = [each.points[-1].best_objective for each in found.outcomes]
    (section,) = compare_outcomes(found.outcomes).sections
    table = final_quality(section)
    assert "lower is better" in table.title
    best = table.rows[0][table.header.index("best objective")]
    assert float(best) == pytest.approx(min(filter(None, ends)), rel=1e-4)


def test_problems_of_one_folder_name_differ_by_content_not_by_place(near, invoke, tmp_path):
    runs = tmp_path / "runs"
    for seed, parent in enumerate(("one", "moved", "other")):
        folder = shutil.copytree(near, tmp_path / parent / "near")
        if parent == "other":
            (folder / "evaluator.py").write_text(
                (near / "evaluator.py").read_text().replace("0.7", "0.6")
            )
        run_command(invoke, folder, runs / parent, seed, 2)
    result = invoke("compare", runs)
    assert result.exit_code == 0, result.output
    comparison = compare_outcomes(find_outcomes(runs).outcomes)
    found = [
        len(each) for section in comparison.sections for each in section.runs["costada"].values()
    ]
    names = {problem for section in comparison.sections for problem in section.problems}
    assert sorted(found) == [1, 2]
    assert len(names) == 2
    assert all(name.startswith("near [") for name in names)
    (mix,) = comparison.mixes
    assert set(mix.differing) == {"evaluator"}
    for text in (result.stdout, (runs / "comparison.md").read_text()):
        assert "evaluator" in text
        assert str(runs / "other") in text
    for name in ("html", "tex"):
        assert "Settings that differ" in (runs / f"comparison.{name}").read_text()


def test_an_extended_run_is_no_run_of_the_higher_budget(tmp_path):
    discovered(tmp_path / "a", budget=0.004, max_iterations=9)
    discovered(tmp_path / "a", budget=0.01, max_iterations=9, resume=True)
    discovered(tmp_path / "b", budget=0.01, max_iterations=9, seed=1)
    [(name, budgets)] = only_mix(tmp_path).differing.items()
    assert (name, sorted(budgets)) == ("budget_at_start", ["0.004", "0.01"])


def test_a_fork_is_no_run_of_its_own_seed(invoke, tmp_path):
    discovered(tmp_path / "a", keep_history=True)
    forked = invoke("fork", tmp_path / "a", "--at", 2, "--seed", 1, "--out", tmp_path / "b")
    assert forked.exit_code == 0, forked.output
    assert len(find_outcomes(tmp_path).outcomes) == 2
    assert sorted(only_mix(tmp_path).differing["forked_after"]) == ["-", "2"]


def test_a_run_that_two_evaluators_judged_says_so(near, invoke, tmp_path, capfd):
    folder = shutil.copytree(near, tmp_path / "near")
    run_command(invoke, folder, tmp_path / "runs")
    (folder / "extra.txt").write_text("more")
    resumed = invoke("resume", tmp_path / "runs", "--max-iterations", 2)
    assert resumed.exit_code == 0, resumed.output
    assert "evaluator was " in capfd.readouterr().err
    (run,) = find_outcomes(tmp_path / "runs").outcomes
    assert run.settings.get("evaluators") == "2"


def test_simulated_runs_with_other_constants_are_compared_separately():
    others = Constants(num_frontiers=3)
    runs = [
        simulate_run("costada", 0, 0.05),
        simulate_run("costada", 1, 0.05),
        simulate_run("costada", 0, 0.05, others),
    ]
    comparison = compare_outcomes(runs)
    (mix,) = comparison.mixes
    assert set(mix.differing) == {"constants.num_frontiers"}
    counts = [sum(map(len, each.runs["costada"].values())) for each in comparison.sections]
    assert sorted(counts) == [1, 2]


def test_runs_with_a_small_budget_are_compared_with_those_of_the_same_settings_only():
    runs = [
        outcome([(1.1, 0.6)], settings={"generator": "model"}),
        outcome([(0.6, 0.5)], settings={"generator": "model"}, budget=0.5),
        outcome([(0.6, 0.7)], settings={"generator": "agent"}, budget=0.5),
    ]
    (rerun,) = compare_outcomes(runs).reruns
    assert rerun.rerun.mean == 0.5


def test_a_sweep_is_not_resumed_with_another_evaluator(near, invoke, tmp_path):
    folder, out = shutil.copytree(near, tmp_path / "near"), tmp_path / "out"
    words = ("--problems", folder, "--methods", "uniform", "--max-iterations", 1, "--quiet")
    first = invoke("sweep", *words, "--seeds", 1, "--out", out)
    assert first.exit_code == 0, first.output
    evaluator = folder / "evaluator.py"
    evaluator.write_text(evaluator.read_text().replace("0.7", "0.6"))
    second = invoke("sweep", *words, "--seeds", 2, "--out", out)
    assert second.exit_code == 2
    assert "evaluator was " in second.stderr
    assert not (out / "near" / "uniform" / "seed-1" / "settings.json").exists()

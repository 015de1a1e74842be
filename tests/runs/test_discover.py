from threading import Barrier
from typing import Any

import pytest
from fakes import ScriptedModel, hashed_answer, toy_problem

import costada
from costada.runs.config import checked_config
from costada.runs.discovery import discover
from costada.runs.plan import plan_run

PRICES = {"price": "1,2"}
MONEY: dict[str, Any] = {"budget": 0.02, **PRICES}


def model():
    return ScriptedModel(answer=hashed_answer)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What a run in a folder has found."""
    return discover(toy_problem(), model(), out=tmp_path_factory.mktemp("found") / "run", **MONEY)


def folder_of(found):
    assert found.folder is not None
    return found.folder


def test_a_run_in_memory_returns_its_best_program_and_its_account():
    found = discover(toy_problem(), model(), **MONEY)
    assert found.stop_reason == "budget"
    assert found.spent >= 0.02
    assert found.remaining == 0
    assert found.folder is None
    assert found.best_objective == pytest.approx(10 * found.best_score)
    assert f"return {found.best_score:.4f}" in found.best_program


@pytest.mark.parametrize("out", [None, "run"])
def test_parallel_steps_call_the_model_at_the_same_time(tmp_path, out):
    together = Barrier(4, timeout=60)

    def waiting(prompt):
        together.wait()
        return hashed_answer(prompt)

    options = {"parallel": 4, "order": "launch", "max_iterations": 4, "budget": 1.0, **PRICES}
    folder = tmp_path / out if out else None
    found = discover(toy_problem(), ScriptedModel(answer=waiting), out=folder, **options)
    assert (found.iterations, found.stop_reason) == (4, "iterations")


def test_a_plan_has_what_the_settings_say_about_parallel_steps():
    given = {
        "problem": "circle_packing",
        "parallel": 3,
        "order": "launch",
        "evaluations_at_once": 2,
    }
    plan = plan_run(checked_config({**given, "preflight": False}))
    assert (plan.parallel, plan.order, plan.problem.evaluations_at_once) == (3, "launch", 2)


def test_a_run_in_a_folder_finds_the_same(found):
    in_memory = discover(toy_problem(), model(), **MONEY)
    assert (folder_of(found) / "best_program.py").read_text() == found.best_program
    assert (found.best_program, found.spent) == (in_memory.best_program, in_memory.spent)


def test_resuming_a_finished_run_returns_its_result(found):
    silent = model()
    again = discover(toy_problem(), silent, out=found.folder, resume=True, **MONEY)
    assert again == found
    assert silent.prompts == []


def test_a_problem_that_has_changed_since_the_run_started_is_named_in_the_log(tmp_path, caplog):
    out = tmp_path / "run"
    discover(toy_problem(), model(), out=out, **MONEY)
    assert caplog.messages == []
    changed = toy_problem(task="Return a number.")
    discover(changed, model(), out=out, resume=True, **{**MONEY, "budget": 0.03})
    (message,) = caplog.messages
    assert "task was Return a large number, at most 1., is Return a number." in message


def test_a_limit_of_answers_that_a_given_model_would_ignore_is_refused():
    silent = model()
    with pytest.raises(ValueError, match="max_tokens: got 500 with a model given as an object"):
        discover(toy_problem(), silent, max_tokens=500, **MONEY)
    assert silent.prompts == []


def test_a_second_run_into_the_same_folder_is_refused(found):
    with pytest.raises(ValueError, match="already holds a run"):
        discover(toy_problem(), model(), out=found.folder, **MONEY)


def test_a_run_stopped_by_ctrl_c_is_resumed_as_if_it_had_not_been(tmp_path):
    calls = 0

    def interrupted(prompt):
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return hashed_answer(prompt)

    stopped = ScriptedModel(answer=interrupted)
    money = {"lost_calls": "ignore", **MONEY}
    arguments = {"out": tmp_path / "run", **money}
    with pytest.raises(KeyboardInterrupt):
        discover(toy_problem(), stopped, **arguments)
    assert (tmp_path / "run" / "report.html").is_file()
    found = discover(toy_problem(), model(), resume=True, **arguments)
    whole = discover(toy_problem(), model(), **money)
    assert (found.best_program, found.iterations) == (whole.best_program, whole.iterations)


def test_a_run_of_objects_cannot_be_resumed_by_name_and_says_how(found, invoke):
    result = invoke("resume", folder_of(found))
    assert result.exit_code == 2
    assert "discover(..., out=FOLDER, resume=True)" in result.output


@pytest.mark.parametrize(
    ("name", "text"), [("budget", "0.01"), ("step_cap", "1"), ("seed", "3"), ("memory_mb", "512")]
)
def test_a_text_for_a_number_is_refused(name, text):
    with pytest.raises(ValueError, match=rf"\A{name}: got '{text}', expected a number\Z"):
        discover(toy_problem(), model(), **{**MONEY, name: text})


def test_wrong_settings_are_refused_before_a_folder_appears(tmp_path):
    with pytest.raises(ValueError, match=r"\Abudget: got 0, expected greater than 0\Z"):
        discover(toy_problem(), model(), budget=0, out=tmp_path / "run")
    with pytest.raises(ValueError, match="model 'scripted' has no known price"):
        discover(toy_problem(), model(), budget=1, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_public_name_is_this_function():
    assert costada.discover is discover

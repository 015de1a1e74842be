from pathlib import Path

import pytest
from fakes import ScriptedModel, hashed_answer, toy_problem

import costada
from costada.runs.config import RunConfig
from costada.runs.discovery import DiscoverOptions, discover

PRICES = {"price_in": "1", "price_out": "2"}


def model() -> ScriptedModel:
    return ScriptedModel(answer=hashed_answer)


def test_a_run_in_memory_returns_its_best_program_and_its_account() -> None:
    found = discover(toy_problem(), model(), budget=0.02, seed=3, **PRICES)
    assert found.stop_reason == "budget"
    assert found.spent >= 0.02
    assert found.remaining == 0
    assert found.folder is None
    assert found.best_objective == pytest.approx(10 * found.best_score)
    assert f"return {found.best_score:.4f}" in found.best_program


def test_a_run_in_a_folder_finds_the_same(tmp_path: Path) -> None:
    in_memory = discover(toy_problem(), model(), budget=0.02, seed=3, **PRICES)
    found = discover(toy_problem(), model(), budget=0.02, seed=3, out=tmp_path / "run", **PRICES)
    assert found.folder == tmp_path / "run"
    assert (tmp_path / "run" / "best_program.py").read_text() == found.best_program
    assert (found.best_program, found.spent) == (in_memory.best_program, in_memory.spent)


def test_going_on_with_a_finished_run_returns_its_result(tmp_path: Path) -> None:
    first = discover(toy_problem(), model(), budget=0.02, out=tmp_path / "run", **PRICES)
    silent = model()
    again = discover(
        toy_problem(), silent, budget=0.02, out=tmp_path / "run", resume=True, **PRICES
    )
    assert again == first
    assert silent.prompts == []


def test_a_second_run_into_the_same_folder_is_refused(tmp_path: Path) -> None:
    discover(toy_problem(), model(), budget=0.005, out=tmp_path / "run", **PRICES)
    with pytest.raises(ValueError, match="already holds a run"):
        discover(toy_problem(), model(), budget=0.005, out=tmp_path / "run", **PRICES)


def test_a_run_stopped_by_ctrl_c_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    calls = 0

    def interrupted(prompt: str) -> str:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return hashed_answer(prompt)

    stopped = ScriptedModel(answer=interrupted)
    money = {"budget": 0.03, "lost_calls": "ignore", **PRICES}
    arguments = {"out": tmp_path / "run", **money}
    with pytest.raises(KeyboardInterrupt):
        discover(toy_problem(), stopped, **arguments)
    assert (tmp_path / "run" / "report.png").is_file()
    found = discover(toy_problem(), model(), resume=True, **arguments)
    whole = discover(toy_problem(), model(), **money)
    assert (found.best_program, found.iterations) == (whole.best_program, whole.iterations)


def test_a_run_of_objects_cannot_be_resumed_by_name_and_says_how(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from costada.runs.cli import app

    discover(toy_problem(), model(), budget=0.005, out=tmp_path / "run", **PRICES)
    result = CliRunner().invoke(app, ["resume", str(tmp_path / "run")])
    assert result.exit_code == 2
    assert "discover(..., out=FOLDER, resume=True)" in result.output


def test_wrong_settings_are_refused_before_a_folder_appears(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\Abudget: got 0, expected greater than 0\Z"):
        discover(toy_problem(), model(), budget=0, out=tmp_path / "run")
    with pytest.raises(ValueError, match="model 'scripted' has no known price"):
        discover(toy_problem(), model(), budget=1, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_public_name_is_this_function() -> None:
    assert costada.discover is discover


def test_every_setting_of_a_run_can_be_given() -> None:
    named = {"problem", "model", "guide_model", "budget"}
    assert set(DiscoverOptions.__annotations__) == set(RunConfig.model_fields) - named

import json
from decimal import Decimal

import pytest
from pydantic import ValidationError

from costada.runs.config import PRESETS, RunConfig, checked_config, load_config
from costada.runs.user_input import as_option, explain
from costada.store.schema import FORMAT
from costada.values.prices import Price


def refused(**given):
    with pytest.raises(ValidationError) as caught:
        RunConfig.model_validate({"problem": "circle_packing", **given})
    return explain(caught.value, RunConfig.model_fields, as_option)


def test_a_run_that_says_only_its_problem_uses_the_documented_defaults():
    config = RunConfig(problem="circle_packing")
    assert (config.model, config.budget, config.reference_cost) == ("offline", 1.0, 0.01)
    assert (config.max_iterations, config.seed, config.price) == (100, 0, None)


@pytest.mark.parametrize(
    ("name", "price", "budget", "reference_cost"),
    [("glm-5", Price("0.60", "1.92"), 1.0, 0.01), ("gpt-5.4", Price("2.50", "15.00"), 5.0, 0.1)],
)
def test_a_preset_carries_the_papers_numbers(name, price, budget, reference_cost):
    config = RunConfig(problem="circle_packing", preset=name)
    assert config.price == PRESETS[name].price == price
    assert (config.budget, config.reference_cost) == (budget, reference_cost)


def test_what_is_said_wins_over_the_preset():
    config = RunConfig(
        problem="p", preset="gpt-5.4", budget=0.5, price_in=Decimal(1), price_out=Decimal(2)
    )
    assert (config.budget, config.reference_cost) == (0.5, 0.1)
    assert config.price == Price(1, 2)


def test_an_option_left_out_on_the_command_line_counts_as_not_said():
    assert RunConfig.model_validate({"problem": "p", "budget": None}).budget == 1.0


def test_a_guide_that_is_the_same_model_needs_no_price_of_its_own():
    config = RunConfig(problem="p", guide_model="offline", preset="glm-5")
    assert config.guide_price is None


def test_the_price_of_a_model_is_not_that_of_another_guide():
    config = RunConfig(problem="p", model="openai:a", guide_model="openai:b", preset="glm-5")
    assert config.guide_price is None


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"budget": 0}, "--budget: got 0, expected greater than 0"),
        ({"budget": "nan"}, "--budget: got 'nan', expected a finite number"),
        ({"max_iterations": 0}, "--max-iterations: got 0, expected greater than or equal to 1"),
        ({"seed": -1}, "--seed: got -1, expected greater than or equal to 0"),
        ({"problem": ""}, "PROBLEM: got '', expected at least 1 character"),
        ({"price_in": 1}, "--price-in and --price-out: got only one, expected both or none"),
        ({"price_in": "inf", "price_out": 1}, "--price-in: got 'inf', expected a finite number"),
        (
            {"guide_price_in": 1, "guide_price_out": 1},
            "--guide-price-in: needs a --guide-model that differs from the model",
        ),
        (
            {"base_url": "http://localhost/v1"},
            "--base-url: got one for no openai: model, expected model openai:NAME",
        ),
        (
            {"base_url": "localhost", "model": "openai:x"},
            "--base-url: got 'localhost', expected an address such as http://localhost:8000/v1",
        ),
        (
            {"on_missing_usage": "guess"},
            "--on-missing-usage: got 'guess', expected 'raise' or 'estimate'",
        ),
    ],
)
def test_a_wrong_setting_is_named_with_its_value_and_what_was_expected(given, line):
    assert refused(**given) == line


def test_every_wrong_setting_gets_its_line():
    assert len(refused(budget=-1, seed=-1).splitlines()) == 2


def test_a_misspelt_setting_is_refused_with_the_nearest_one():
    assert refused(bugdet=2).startswith("Unknown setting 'bugdet'. Did you mean 'budget'?")


def test_a_key_in_the_address_is_refused_because_settings_are_saved():
    text = refused(model="openai:x", base_url="http://me:secret@host/v1")
    assert "keys come from the environment" in text


@pytest.mark.parametrize(
    ("preset", "line"),
    [
        ("glm5", "Unknown preset 'glm5'. Did you mean 'glm-5'? Known: glm-5, gpt-5.4."),
        ("zzz", "Unknown preset 'zzz'. Known: glm-5, gpt-5.4."),
    ],
)
def test_a_misspelt_preset_is_refused_with_the_nearest_one(preset, line):
    assert refused(preset=preset) == line


def test_saved_settings_are_read_back_unchanged(tmp_path):
    config = RunConfig(problem="p", price_in=Decimal("0.60"), price_out=Decimal("1.92"), seed=7)
    config.save(tmp_path / "settings.json")
    assert load_config(tmp_path / "settings.json") == config


def test_settings_are_never_saved_over_others(tmp_path):
    config = RunConfig(problem="p")
    config.save(tmp_path / "settings.json")
    with pytest.raises(FileExistsError):
        config.save(tmp_path / "settings.json")


@pytest.mark.parametrize(("found", "said"), [(None, "no format"), (FORMAT + 1, "format 3")])
def test_a_folder_of_another_version_is_refused(tmp_path, found, said):
    path = tmp_path / "settings.json"
    settings = {"problem": "p", "budget": 1} | ({} if found is None else {"format": found})
    path.write_text(json.dumps(settings))
    expected = (
        rf"settings\.json: written by another version of CostAda \({said}, expected {FORMAT}\)"
    )
    with pytest.raises(ValueError, match=f"{expected}; use that version for this run, or start"):
        load_config(path)


def test_settings_edited_into_nonsense_are_refused_by_field(tmp_path):
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"format": FORMAT, "problem": "p", "budget": "much"}))
    with pytest.raises(ValueError, match=r"settings\.json:\nbudget: got 'much', expected a valid"):
        load_config(path)


def test_a_folder_without_settings_holds_no_run(tmp_path):
    with pytest.raises(ValueError, match="holds no run"):
        load_config(tmp_path / "settings.json")


def test_a_problem_folder_is_kept_by_its_full_path(near, monkeypatch):
    monkeypatch.chdir(near.parent)
    assert RunConfig(problem="near").problem == str(near.resolve())


def test_a_python_caller_gets_a_value_error_with_the_same_lines():
    with pytest.raises(ValueError, match=r"\Abudget: got -1, expected greater than 0\Z"):
        checked_config({"problem": "p", "budget": -1})

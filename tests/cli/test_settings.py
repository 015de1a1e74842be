import inspect
import json
import re
from math import inf, nan
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
from declared_limits import untested_limits
from pydantic import ValidationError

from costada.cli.mcp_command import mcp
from costada.cli.run import run
from costada.cli.setting_options import read_settings
from costada.cli.sweep_command import sweep
from costada.controller.constants import Constants
from costada.models.providers import RetryPolicy
from costada.runs.config import RunConfig, checked_config
from costada.runs.discovery import discover
from costada.runs.folder import RunFolder, load_config
from costada.runs.keywords import DiscoverKeywords
from costada.runs.setting_types import PRESETS
from costada.runs.user_input import as_option, explain
from costada.store.run_store import RunStore
from costada.store.schema import FORMAT
from costada.values.usage import Price

pytestmark = pytest.mark.process


def refused(**given):
    with pytest.raises(ValidationError) as caught:
        RunConfig.model_validate({"problem": "circle_packing", **given})
    return explain(caught.value, RunConfig.model_fields, as_option)


def test_a_run_that_says_only_its_problem_uses_the_documented_defaults():
    config = RunConfig(problem="circle_packing")
    assert (config.model, config.budget, config.constants.reference_cost) == (
        "offline",
        1.0,
        0.01,
    )
    assert (config.max_iterations, config.seed, config.price) == (100, 0, None)


@pytest.mark.parametrize(
    ("name", "price", "budget", "reference_cost"),
    [("glm-5", Price("0.60", "1.92"), 1.0, 0.01), ("gpt-5.4", Price("2.50", "15.00"), 5.0, 0.1)],
)
def test_a_preset_carries_the_papers_numbers(name, price, budget, reference_cost):
    config = RunConfig(problem="circle_packing", preset=name)
    assert config.model_price == PRESETS[name].price == price
    assert (config.budget, config.reference_cost) == (budget, reference_cost)


def test_what_is_said_wins_over_the_preset():
    config = RunConfig(problem="p", preset="gpt-5.4", budget=0.5, price=Price(1, 2))
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


AGENT = {"generator": "agent"}
MENU = {"models": [{"name": name, "model": "offline"} for name in ("a", "b@low")]}
ELSEWHERE = {"name": "b", "model": "anthropic:x"}
MINE = {"name": "mine", "model": "openai:x"}
URL = "http://localhost:8000/v1"
ABOVE_A_YEAR = 31_622_400.000000004
NO_OPENAI_MODEL = "--base-url: got one for no openai: model, expected model openai:NAME"
IS_POSITIVE, IS_FINITE, IS_COUNT = (
    f"expected {words}"
    for words in ("greater than 0", "a finite number", "greater than or equal to 1")
)

REFUSALS = [
    ({"problem": ""}, "PROBLEM: got '', expected at least 1 character"),
    ({"bugdet": 2}, "Unknown setting 'bugdet'. Did you mean 'budget'? Known: "),
    ({"budget": 0}, f"--budget: got 0, {IS_POSITIVE}"),
    ({"budget": nan}, f"--budget: got nan, {IS_FINITE}"),
    ({"target": inf}, f"--target: got inf, {IS_FINITE}"),
    ({"budget": True}, "--budget: got True, expected a number"),
    ({"budget": "much"}, "--budget: got 'much', expected a number"),
    (
        {"preset": "glm5"},
        "--preset: Unknown preset 'glm5'. Did you mean 'glm-5'? Known: glm-5, gpt-5.4.",
    ),
    ({"preset": "zzz"}, "--preset: Unknown preset 'zzz'. Known: glm-5, gpt-5.4."),
    ({"price": "1"}, "--price: got '1', expected dollars per million tokens as IN,OUT"),
    ({"price": "inf,1"}, "--price: input_per_million: got 'inf', expected finite dollars"),
    ({"price": "x,1"}, "--price: input_per_million: got 'x', expected a number of dollars"),
    ({"price": 1}, "--price: got 1, expected a price such as Price(0.6, 1.92), a table or a"),
    ({**MENU, "price": "1,1"}, "price: got one with models, expected the price of each in the"),
    ({"guide_price": "1"}, "--guide-price: got '1', expected dollars per million tokens as IN,"),
    ({"guide_price": "1,1"}, "--guide-price: needs a --guide-model that differs from the model"),
    (
        {"guide_price": "1,1", "guide_model": "offline"},
        "--guide-price: needs a --guide-model that differs from the model",
    ),
    (
        {"model": "openai:x", "other_prices": {"openai:x": "1,2"}},
        "other_prices.openai:x: got a name with its provider, openai; expected other_prices.x",
    ),
    ({"other_prices": {"x": 3}}, "other_prices.x: got 3, expected a price such as"),
    (
        {"other_prices": {"x": {"input_per_million": 1}}},
        "other_prices.x: got {'input_per_million': 1}, expected input_per_million, output_per",
    ),
    ({"reference_cost": 0}, f"--reference-cost: got 0, {IS_POSITIVE}"),
    ({"reference_cost": inf}, f"--reference-cost: got inf, {IS_FINITE}"),
    (
        {"on_missing_usage": "guess"},
        "--on-missing-usage: got 'guess', expected 'raise' or 'estimate'",
    ),
    ({"lost_calls": "forget"}, "--lost-calls: got 'forget', expected 'count' or 'ignore'"),
    (
        {"lost_calls": "ignore", "budget_policy": "hard"},
        "--lost-calls: got 'ignore' under a hard budget, expected 'count': a lost call may have"
        " been billed",
    ),
    ({"budget_policy": "soft"}, "--budget-policy: got 'soft', expected 'crossing' or 'hard'"),
    ({"compute_price": 0}, f"--compute-price: got 0, {IS_POSITIVE}"),
    ({"compute_price": inf}, f"--compute-price: got inf, {IS_FINITE}"),
    ({**AGENT, "step_cap": 0}, f"--step-cap: got 0, {IS_POSITIVE}"),
    ({**AGENT, "step_cap": inf}, f"--step-cap: got inf, {IS_FINITE}"),
    (
        {"step_cap": 0.1},
        "--step-cap: got 0.1 with generator 'model', expected generator 'agent' or a command",
    ),
    (
        {"experiment": "luck"},
        "--experiment: got 'luck', expected 'guides', 'calibration' or 'router'",
    ),
    ({"stop_when_flat": -1.0}, f"--stop-when-flat: got -1.0, {IS_POSITIVE}"),
    ({"stop_when_flat": 0.0}, f"--stop-when-flat: got 0.0, {IS_POSITIVE}"),
    ({"stop_when_flat": 1.0}, "--stop-when-flat: got 1.0, expected less than 1"),
    ({"stop_when_flat": nan}, f"--stop-when-flat: got nan, {IS_FINITE}"),
    ({"purse_slice": 0.0}, f"--purse-slice: got 0.0, {IS_POSITIVE}"),
    ({"purse_slice": 1e20}, "--purse-slice: got 1e+20, expected less than 1000"),
    ({"purse_slice": nan}, f"--purse-slice: got nan, {IS_FINITE}"),
    ({"gains_in_flight": 0.0}, f"--gains-in-flight: got 0.0, {IS_POSITIVE}"),
    ({"gains_in_flight": nan}, f"--gains-in-flight: got nan, {IS_FINITE}"),
    (
        {"method": "costda"},
        "--method: Unknown method 'costda'. Did you mean 'costada'? Known: ",
    ),
    ({"method": "greedy"}, "--method: Unknown method 'greedy'. Known: adaevolve, "),
    ({"max_iterations": 0}, f"--max-iterations: got 0, {IS_COUNT}"),
    (
        {"max_iterations": 1_000_001},
        "--max-iterations: got 1000001, expected less than or equal to 1000000",
    ),
    (
        {"max_iterations": 10**20},
        f"--max-iterations: got {10**20}, expected less than or equal to 1000000",
    ),
    ({"max_failures": 0}, f"--max-failures: got 0, {IS_COUNT}"),
    ({"seed": -5}, "--seed: got -5, expected greater than or equal to 0"),
    ({"seed": -1}, "--seed: got -1, expected greater than or equal to 0"),
    ({"seed": 2**63}, f"--seed: got {2**63}, expected less than or equal to {2**63 - 1}"),
    ({"seed": 1.0}, "--seed: got 1.0, expected an integer"),
    ({"seed": "x"}, "--seed: got 'x', expected an integer"),
    ({"seed": True}, "--seed: got True, expected a number"),
    ({"parallel": 0}, f"--parallel: got 0, {IS_COUNT}"),
    ({"parallel": 257}, "--parallel: got 257, expected less than or equal to 256"),
    ({"parallel": True}, "--parallel: got True, expected a number"),
    ({"order": "random"}, "--order: got 'random', expected 'landing' or 'launch'"),
    ({"generator": " "}, "--generator: got ' ', expected model, agent or a command with {prompt}"),
    (
        {"generator": "aider {file}"},
        "--generator: got 'aider {file}', expected model, agent or a command with {prompt},"
        " {model}, {url}, or {files} as a word of its own (unknown {file}); braces that stand for",
    ),
    (
        {"generator": "aider 'x"},
        '--generator: got "aider \'x", expected model, agent or a command with {prompt}, {model},'
        " {url}, or {files} as a word of its own (No closing quotation); braces that stand for",
    ),
    (
        {"generator": "aider | tee log"},
        "--generator: got 'aider | tee log', expected a command without '|', as no shell takes",
    ),
    ({"generator_timeout": 0}, f"--generator-timeout: got 0, {IS_POSITIVE}"),
    (
        {"generator_timeout": ABOVE_A_YEAR},
        f"--generator-timeout: got {ABOVE_A_YEAR}, expected less than or equal to",
    ),
    ({"generator_timeout": inf}, f"--generator-timeout: got inf, {IS_FINITE}"),
    ({"tool_evaluations": 0}, f"--tool-evaluations: got 0, {IS_COUNT}"),
    ({"guides": "some"}, "--guides: got 'some', expected 'paper', 'always', 'never' or 'learned'"),
    ({"parents": "front"}, "--parents: got 'front', expected 'method' or 'pareto'"),
    ({"prompt_order": "new"}, "--prompt-order: got 'new', expected 'constant-first' or 'paper'"),
    ({"controller": 8}, "controller: got 8, expected a table of names and values"),
    ({"controller": {"base_patience": 8.5}}, "controller.base_patience: got 8.5, expected an int"),
    ({"controller": {"min_intensity": 0.9}}, "controller.min_intensity: got 0.9, expected at most"),
    ({"controller": {"reference_cost": 1}}, "controller.reference_cost: expected as the setting"),
    ({"controller": {"patience": 1}}, "Unknown setting 'controller.patience'. Did you mean"),
    (
        {"controller": Constants(max_iterations=5), "max_iterations": 6},
        "--max-iterations: got 6 and 5 in controller, expected only one",
    ),
    ({"model": ""}, "--model: got '', expected at least 1 character"),
    (
        {**MENU, "model": "openai:x"},
        "model: got 'openai:x' with models, expected only one of them",
    ),
    ({**MENU, "model": "offline"}, "model: got 'offline' with models, expected only one of them"),
    ({"models": MENU["models"][:1] * 2}, "models: got a, a, expected different names"),
    ({"router": "best"}, "router: got 'best', expected budgeted-thompson, "),
    ({"router": "ucb1"}, "router: got 'ucb1' without models, expected both"),
    (
        {**MENU, "router": "fixed:c"},
        "router: got 'fixed:c', expected a model of the menu: a, b@low",
    ),
    ({"guide_model": ""}, "--guide-model: got '', expected at least 1 character"),
    ({"base_url": URL}, NO_OPENAI_MODEL),
    ({"base_url": URL, "models": [ELSEWHERE]}, NO_OPENAI_MODEL),
    ({"base_url": URL, "models": [ELSEWHERE, {**MINE, "base_url": URL}]}, NO_OPENAI_MODEL),
    (
        {"base_url": "localhost", "model": "openai:x"},
        "--base-url: got 'localhost', expected an address such as http://localhost:8000/v1",
    ),
    (  # settings are saved
        {"base_url": "http://me:secret@host/v1", "model": "openai:x"},
        "--base-url: got 'http://***@host/v1', expected no key in the address; keys come from the"
        " environment",
    ),
    ({"max_tokens": 0}, f"--max-tokens: got 0, {IS_COUNT}"),
    ({"gateway": "perhaps"}, "--gateway: got 'perhaps', expected true or false"),
    ({"retry_wait": 600}, "--retry-wait: got 600, expected at most --longest-wait, which is 300"),
    ({"sandbox": "jail"}, "--sandbox: got 'jail', expected 'auto', 'process', 'landlock', "),
    ({"evaluations_at_once": 0}, f"--evaluations-at-once: got 0, {IS_COUNT}"),
    (
        {"evaluations_at_once": 257},
        "--evaluations-at-once: got 257, expected less than or equal to 256",
    ),
    (
        {"evaluations_at_once": 3, "evaluate_on": "local:2"},
        "--evaluations-at-once: got 3 with --evaluate-on 'local:2', expected at most 2",
    ),
    (
        {"evaluate_on": "pbs://a"},
        "--evaluate-on: got 'pbs://a', expected here, local:N (1 to 9999), dask://HOST:PORT",
    ),
    (
        {"endpoint": "10.0.0.5:70000"},
        "--endpoint: got '10.0.0.5:70000', expected an address of this machine: HOST or HOST:PORT",
    ),
    ({"timeout": 0}, f"--timeout: got 0, {IS_POSITIVE}"),
    ({"timeout": ABOVE_A_YEAR}, f"--timeout: got {ABOVE_A_YEAR}, expected less than or equal to"),
    ({"timeout": 1e300}, "--timeout: got 1e+300, expected less than or equal to 31622400"),
    ({"timeout": nan}, f"--timeout: got nan, {IS_FINITE}"),
    ({"memory_mb": 15}, "--memory-mb: got 15, expected greater than or equal to 16"),
    ({"log": "mlflow,none"}, "--log: got none with others, expected it alone"),
    ({"log": "mlflow,mlflow"}, "--log: got 'mlflow,mlflow', expected different trackers"),
    ({"log": "zzz"}, "--log: Unknown tracker 'zzz'. Known: mlflow, none, tensorboard, wandb."),
]


@pytest.mark.parametrize(("given", "line"), REFUSALS)
def test_a_wrong_setting_is_named_with_its_value_and_what_was_expected(given, line):
    assert refused(**given).startswith(line)


def test_each_limit_of_a_setting_has_a_row_just_outside():
    own = RunConfig.model_fields.keys() - RetryPolicy.model_fields.keys()
    assert untested_limits(RunConfig, own, (given for given, _ in REFUSALS)) == []


def test_every_wrong_setting_gets_its_line():
    assert len(refused(budget=-1, seed=-1).splitlines()) == 2


def test_saved_settings_are_read_back_unchanged(tmp_path):
    config = RunConfig(problem="p", price=Price("0.60", "1.92", "0.06"), seed=7)
    RunFolder(tmp_path).save(config)
    assert RunFolder(tmp_path).load() == config


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, "no format"),
        (3, "format 3"),
        ([5], r"format \[5\]"),
        ({}, r"format {}"),
        (4.0, r"format 4\.0"),
        (5.0, r"format 5\.0"),
        (True, "format True"),
    ],
)
def test_a_folder_of_another_version_is_refused(tmp_path, found, said):
    path = tmp_path / "settings.json"
    settings = {"problem": "p", "budget": 1} | ({} if found is None else {"format": found})
    path.write_text(json.dumps(settings))
    expected = (
        rf"settings\.json: written by another version of CostAda \({said}, expected {FORMAT}\)"
    )
    with pytest.raises(ValueError, match=f"{expected}; use that version for this run, or start"):
        load_config(path)


def test_a_run_of_before_has_its_settings_under_their_earlier_names(tmp_path):
    path = tmp_path / "settings.json"
    earlier = {"evaluators": 2, "evaluations": "local:3"}
    path.write_text(json.dumps({"format": FORMAT, "problem": "p", "budget": 1, **earlier}))
    config = load_config(path)
    assert (config.evaluations_at_once, config.evaluate_on) == (2, "local:3")


def test_settings_edited_into_nonsense_are_refused_by_field(tmp_path):
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"format": FORMAT, "problem": "p", "budget": "much"}))
    with pytest.raises(ValueError, match=r"settings\.json:\nbudget: got 'much', expected a number"):
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


def test_a_run_with_tools_is_resumed_and_reports_its_cost(near, invoke, tmp_path):
    folder = tmp_path / "run"
    options = ("--generator", "agent", "--tool-evaluations", 2, "--step-cap", 0.04)
    begun = invoke("run", near, *options, "--max-iterations", 2, "--out", folder)
    assert begun.exit_code == 0, begun.output
    assert json.loads((folder / "settings.json").read_text())["generator"] == "agent"
    resumed = invoke("resume", folder, "--max-iterations", 3, "--json")
    assert resumed.exit_code == 0, resumed.output
    found = json.loads(resumed.stdout)
    with RunStore(folder / "run.sqlite", is_read_only=True) as store:
        (run_id,) = store.run_ids()
        calls = list(store.call_log.calls(run_id))
    assert found["iterations"] == 3
    assert found["spent"] == pytest.approx(float(sum(call.cost for call in calls)))
    assert len(calls) > found["iterations"]


def test_from_python_it_is_an_option_like_any_other(near):
    found = discover(near, "offline", budget=1.0, generator="agent", max_iterations=2)
    assert (found.iterations, found.stop_reason) == (2, "iterations")


def test_a_dry_run_says_that_a_step_takes_several_answers(near, invoke):
    with_tools = invoke("run", near, "--generator", "agent", "--dry-run").output
    without = invoke("run", near, "--dry-run").output
    assert "a step takes several" in with_tools
    assert "a step takes several" not in without


def test_a_model_without_tools_is_refused_before_a_folder_is_made(invoke, tmp_path):
    folder = tmp_path / "run"
    refused = invoke(
        "run", "landscape", "--model", "simulated", "--generator", "agent", "--out", folder
    )
    assert refused.exit_code == 2
    assert "model 'simulated': cannot call tools" in refused.output
    assert not folder.exists()


def given(tmp_path, *words, text=""):
    """The settings of a command line, with a configuration file."""
    file = tmp_path / "run.toml"
    file.write_text(text)
    pairs = list(zip(words[::2], words[1::2], strict=True))
    sets = [value for option, value in pairs if option == "--set"]
    options = {option.removeprefix("--"): value for option, value in pairs if option != "--set"}
    return read_settings(options, sets, file)


def parameters_of(command):
    return set(inspect.signature(command).parameters)


def test_the_commands_and_discover_have_the_settings_of_the_configuration():
    settings = set(RunConfig.model_fields)
    shared = {"set_values", "config_file"}
    tables = {"controller", "other_prices"}
    assert settings - parameters_of(run) == tables
    assert settings - parameters_of(sweep) == {"problem", "method", "seed", *tables}
    assert settings - parameters_of(mcp) == {"problem", "budget", "seed", *tables}
    assert all(shared <= parameters_of(command) for command in (run, sweep, mcp))
    keywords = {*DiscoverKeywords.__annotations__, *parameters_of(discover)}
    assert settings - keywords == set()
    assert set(DiscoverKeywords.__annotations__) <= settings
    assert all(field.description for field in RunConfig.model_fields.values())


def test_types_and_choices_of_discover_are_those_of_the_configuration():
    for name, hint in get_type_hints(DiscoverKeywords).items():
        field = RunConfig.model_fields[name]
        choices = [get_args(kind) for kind in (hint, field.annotation)]
        if get_origin(hint) is Literal:
            assert choices[0] == choices[1], name
        assert (type(None) in choices[0]) >= (field.default is None), name


def test_every_option_shows_the_description_of_its_setting(invoke):
    text = " ".join(invoke("run", "--help-all").output.replace("│", " ").split())
    for name, field in RunConfig.model_fields.items():
        if name not in ("controller", "other_prices"):
            assert as_option(name) in text
            assert " ".join(field.description.split()[:3]) in text


def test_the_command_line_wins_over_the_file_and_constants_are_reached(tmp_path):
    text = "budget = 2.0\nseed = 3\ngateway = true\n[controller]\nmin_intensity = 0.2\n"
    words = ("--seed", 4, "--set", "controller.base_patience=8", "--set", "gateway=false")
    found = given(tmp_path, *words, "--set", "model=openai:x", text=text)
    config = RunConfig.model_validate({**found, "problem": "p"})
    assert (config.budget, config.seed, config.gateway, config.model) == (2, 4, False, "openai:x")
    assert (config.constants.base_patience, config.constants.min_intensity) == (8, 0.2)
    assert config.search.constants == config.constants
    assert RunConfig.model_validate_json(config.model_dump_json()) == config


def test_prices_of_further_models_come_from_the_file_or_the_command_line(tmp_path):
    text = "[other_prices.a]\ninput_per_million = 1\noutput_per_million = 2\n"
    word = "other_prices.b-5.4={input_per_million=1, output_per_million=2, cached_per_million=0.1}"
    found = given(tmp_path, "--set", word, text=text)
    config = RunConfig.model_validate({**found, "problem": "p"})
    assert config.search.other_prices == {"a": Price(1, 2), "b-5.4": Price(1, 2, 0.1)}
    assert RunConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize(
    ("words", "text", "message"),
    [
        (("--set", "controller.base_patiense=8"), "", "Did you mean 'controller.base_patience'?"),
        (("--set", "bugdet=8"), "", "Unknown setting 'bugdet'. Did you mean 'budget'?"),
        (("--set", "budget"), "", "--set: got 'budget', expected NAME=VALUE"),
        (("--set", "seed=1", "--seed", 2), "", "--set seed: also given as --seed"),
        (("--tool_evaluations", 2), "", "--tool-evaluations: needs --generator agent"),
        ((), "budget = ", "run.toml: "),
        ((), "controller = 8", "run.toml: controller: expected a table"),
        ((), "other_prices = 8", "run.toml: other_prices: expected a table"),
        (("--set", "other_prices=8"), "", "Did you mean 'other_prices.MODEL'?"),
    ],
)
def test_wrong_settings_from_a_file_or_the_command_line_are_refused(tmp_path, words, text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        given(tmp_path, *words, text=text)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("budget = 'x'", "run.toml: budget: got 'x', expected a number"),
        ("memory_mb = 0", "run.toml: memory_mb: got 0, expected"),
        ("bugdet = 1", "run.toml: Unknown setting 'bugdet'. Did you mean 'budget'?"),
    ],
)
def test_a_wrong_value_in_a_file_names_the_file_and_no_option(invoke, tmp_path, text, line):
    file = tmp_path / "run.toml"
    file.write_text(text)
    result = invoke("run", "circle_packing", "--config", file, "--dry-run")
    assert result.exit_code == 2
    assert f"costada: {tmp_path}/{line}" in result.stderr


def test_values_of_a_file_that_options_replace_or_complete_are_not_refused(tmp_path):
    text = "problem = 'p'\nbudget = 'x'\nseed = 'y'\nguide_model = 'openai:m'\n"
    found = given(tmp_path, "--budget", 2.0, "--set", "seed=4", text=text)
    assert (found["budget"], found["seed"], found["guide_model"]) == (2.0, 4, "openai:m")


def test_a_run_takes_its_problem_and_constants_from_a_file_and_keeps_them(near, invoke, tmp_path):
    out, file = tmp_path / "run", tmp_path / "run.toml"
    file.write_text(f"problem = '{near}'\nmax_iterations = 2\n[controller]\nbase_patience = 8\n")
    result = invoke("run", "--config", file, "--set", "controller.archive_size=5", "--out", out)
    assert result.exit_code == 0, result.output
    saved = json.loads((out / "settings.json").read_text())
    assert saved["controller"] == {"base_patience": 8, "archive_size": 5}
    with RunStore(out / "run.sqlite", is_read_only=True) as store:
        settings = store.setup(store.run_ids()[0]).settings
    assert (settings["constants.base_patience"], settings["constants.archive_size"]) == ("8", "5")
    assert invoke("resume", out, "--max-iterations", 3).exit_code == 0


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("run",), "PROBLEM: is missing, expected a problem's name or its folder"),
        (("forecast",), "PROBLEM: is missing, expected a problem's name or its folder"),
        (("simulate", "--menu", "nope"), "--menu: got 'nope', expected 'random' or a TOML file"),
        (("simulate", "--seeds", "1", "--out", __file__), "is a file, expected a folder"),
        (
            ("sweep", "--problems", "landscape", "--methods", "nope", "--out", "o"),
            "--methods: Unknown method 'nope'",
        ),
        (("sweep", "--status", "--out", "missing"), "is not a folder, expected that of a sweep"),
        (("run", "circle_packing", "--out", "/proc/x"), "/proc/x: cannot be created (No such"),
        (("check", "circle_packing"), "circle_packing: is a benchmark, which needs no check"),
        (("run", "x", "--set", "bugdet=1"), "Did you mean 'budget'?"),
        (("run", "x", "--set", "problem=y"), "--set problem: also given as PROBLEM"),
        (("run", "x", "--config", "missing.toml"), "missing.toml: No such file"),
        (
            ("sweep", "--problems", "all", "--methods", "all", "--out", "o", "--set", "seed=1"),
            "seed: this command does not take it from a file or --set",
        ),
        (("mcp", "--max-budget", 1, "--set", "budget=1"), "budget: this command does not take it"),
    ],
)
def test_commands_refuse_settings_that_they_do_not_take(invoke, words, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke(*words)
    assert result.exit_code == 2
    assert text in result.output
    assert list(tmp_path.iterdir()) == []


def test_the_runs_of_a_sweep_get_its_constants(near, invoke, tmp_path):
    words = ("--methods", "costada", "--seeds", 1, "--max-iterations", 1, "--out", tmp_path)
    sets = ("--set", "controller.base_patience=8", "--set", "controller.calibrates_cost=false")
    sets += ("--set", "controller.optimism_scale=1e-5")
    price = "{input_per_million=0.0000001, output_per_million=2}"
    sets += ("--set", f"other_prices.other-5.4={price}")
    result = invoke("sweep", "--problems", near, *words, *sets)
    assert result.exit_code == 0, result.output
    config = RunFolder(tmp_path / "near" / "costada" / "seed-0").load()
    constants = {"base_patience": 8, "calibrates_cost": False, "optimism_scale": 1e-5}
    assert config.controller == constants
    assert config.other_prices == {"other-5.4": Price("1e-7", 2)}

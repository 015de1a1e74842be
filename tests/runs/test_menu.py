"""Models as a user writes them: entries, aliases, efforts, service tiers and named sets."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from langchain_openai import ChatOpenAI

from costada.cli.setting_options import read_settings
from costada.models.menu import MenuModel, ModelEntry
from costada.models.runnable_tree import underlying_models
from costada.runs.config import RunConfig, checked_config
from costada.runs.configured_models import menu_model
from costada.runs.models_file import (
    ModelsFile,
    named_models,
    read_models_file,
    resolved_entry,
    resolved_menu,
)
from costada.runs.plan import plan_run
from costada.runs.search_request import parse_request
from costada.values.usage import Price

FILE = """
[models.glm]
model = "openai:z-ai/glm-5"
base_url = "https://openrouter.ai/api/v1"
api_key_variable = "OPENROUTER_API_KEY"
price = { input_per_million = 0.6, output_per_million = 1.92, cached_per_million = 0.11 }
parameters = { temperature = 0.5, top_p = 0.9 }
max_tokens = 16000

[models.glm.sets.deep]
parameters = { extra_body = { reasoning = { effort = "high" } }, temperature = 1.0 }
timeout = 1200

[models."openai:gpt-5.4"]
max_tokens = 9000

[models.own]
model = "openai:gpt-5.4"
price = { input_per_million = "2.4", output_per_million = 12, cached_per_million = "0.3" }

[sets.brief]
max_tokens = 500
parameters = { verbosity = "low" }

[sets.low]
parameters = { reasoning_effort = "minimal" }
"""


@pytest.fixture
def file(tmp_path: Path) -> ModelsFile:
    path = tmp_path / "models.toml"
    path.write_text(FILE)
    return read_models_file(path)


NO_FILE = ModelsFile()


def client_of(entry: ModelEntry, **settings: Any) -> ChatOpenAI:
    menu = menu_model(entry, RunConfig(problem="p", **settings))
    (model,) = underlying_models(menu.model)
    assert isinstance(model, ChatOpenAI)
    return model


def test_a_reader_sees_what_is_set_for_each_model_in_one_line():
    config = RunConfig.model_validate(
        {
            "problem": "p",
            "models": [
                {"name": "offline", "model": "offline"},
                {
                    "name": "large",
                    "model": "openai:gpt-5.4",
                    "parameters": {"reasoning_effort": "low"},
                    "price": "2.5,15,0.25",
                },
            ],
        }
    )
    (shown,) = [each.value for each in config.listed if each.name == "models"]
    assert shown == (
        'offline; large (model openai:gpt-5.4, parameters {"reasoning_effort": "low"},'
        " price 2.5,15,0.25)"
    )


def test_an_alias_brings_address_key_variable_price_and_parameters(file, monkeypatch):
    entry = resolved_entry("glm", file)
    assert entry == ModelEntry(
        name="glm",
        model="openai:z-ai/glm-5",
        base_url="https://openrouter.ai/api/v1",
        api_key_variable="OPENROUTER_API_KEY",
        price=Price("0.6", "1.92", "0.11"),
        parameters={"temperature": 0.5, "top_p": 0.9},
        max_tokens=16000,
    )
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-router")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai")
    client = client_of(entry)
    assert client.model_name == "z-ai/glm-5"
    assert client.openai_api_base == "https://openrouter.ai/api/v1"
    assert client.openai_api_key.get_secret_value() == "sk-router"
    assert (client.temperature, client.top_p, client.max_tokens) == (0.5, 0.9, 16000)


def test_a_set_is_laid_over_its_model(file, monkeypatch):
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-router")
    entry = resolved_entry("glm@deep", file)
    assert entry.name == "glm@deep"
    assert entry.price == Price("0.6", "1.92", "0.11")
    client = client_of(entry)
    assert (client.temperature, client.top_p) == (1.0, 0.9)
    assert client.extra_body == {"reasoning": {"effort": "high"}}
    assert client.request_timeout == 1200
    assert menu_model(entry, RunConfig(problem="p")).entry.timeout == 1200


@pytest.mark.parametrize("effort", ["none", "minimal", "low", "medium", "high", "xhigh", "max"])
def test_an_effort_of_openai_is_its_reasoning_effort(effort, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk")
    entry = resolved_entry(f"openai:gpt-5.4@{effort}", NO_FILE)
    assert (entry.name, entry.model) == (f"openai:gpt-5.4@{effort}", "openai:gpt-5.4")
    assert client_of(entry).reasoning_effort == effort


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("anthropic:claude-sonnet-4-6@xhigh", {"effort": "xhigh"}),
        ("google_genai:gemini-3-flash@minimal", {"thinking_level": "minimal"}),
        ("groq:openai/gpt-oss-120b@low", {"reasoning_effort": "low"}),
    ],
)
def test_other_providers_have_their_own_names_for_effort(text, parameters):
    assert resolved_entry(text, NO_FILE).parameters == parameters


def test_effort_and_tier_go_together(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk")
    entry = resolved_entry("openai:gpt-5.4@low@flex", NO_FILE)
    client = client_of(entry)
    assert (client.reasoning_effort, client.service_tier) == ("low", "flex")


def test_flex_is_given_more_patience_unless_a_timeout_is_set(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk")
    config = RunConfig(problem="p", call_timeout=600)
    flex = resolved_entry("openai:gpt-5.4@flex", NO_FILE)
    assert menu_model(flex, config).entry.timeout == 900
    assert client_of(flex).request_timeout == 900
    own = flex.model_copy(update={"timeout": 60.0})
    assert menu_model(own, config).entry.timeout == 60
    standard = resolved_entry("openai:gpt-5.4", NO_FILE)
    assert menu_model(standard, config).entry.timeout is None


def test_a_given_price_is_halved_at_the_flex_tier(file):
    entry = resolved_entry("own@flex", file)
    assert entry.price == Price("2.4", 12, "0.3")
    assert entry.tier_prices == {"flex": Price("1.2", 6, "0.15")}
    assert resolved_entry("own@default", file).tier_prices == {}
    with pytest.raises(ValueError, match=r"own@priority asks .*expected tier_prices.priority"):
        resolved_entry("own@priority", file)


def test_named_sets_serve_every_model_and_come_before_efforts(file):
    assert resolved_entry("openai:gpt-5.4@brief", file).max_tokens == 500
    assert resolved_entry("openai:gpt-5.4", file).max_tokens == 9000
    assert resolved_entry("openai:gpt-5.4@low", file).parameters == {"reasoning_effort": "minimal"}
    assert resolved_entry("glm@brief", file).parameters["verbosity"] == "low"


WRONG = {
    "gml": r"Unknown model 'gml'\. Did you mean 'glm'\? Known: glm, ",
    "openai:gpt-5.4@hgih": "got 'hgih' behind @, expected one of .*high",
    "openai:gpt-5.4@high@low@max": "sets reasoning_effort twice",
    "openai:gpt-5.4@flex@default": "sets service_tier twice",
    "mistralai:large@high": "expected one of brief, low; models.toml may define it",
    "openai:gpt-5.4@": "got '' behind @",
    "a b": "Unknown model",
    "openai:a b": "without spaces and commas",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_text_says_what_was_expected(text, file):
    with pytest.raises(ValueError, match=WRONG[text]):
        resolved_entry(text, file)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "[models.x]\nprice = {input_per_million = 1, output_per_million = 1}",
            "x.model: is missi",
        ),
        ('[models."openai:m"]\nbase_url = "http://a.invalid"', "base_url: expected only for an"),
        ('[models."openai:m"]\napi_key_variable = "KEY"', "api_key_variable: expected only for"),
        ('[models."openai:m"]\nmodel = "openai:n"', "model: expected only for an alias"),
        ('[models."a@b"]\nmodel = "openai:n"', "expected a name without @"),
        ('[models.x]\nmodel = "openai:n"\nurl = "http://a"', "Unknown setting 'models.x.url'"),
        (
            '[models.x]\nmodel = "openai:n"\nprise = 1',
            "Did you mean 'models.x.price'? Known: models.x.",
        ),
        (
            '[models.x]\nmodel = "openai:n"\n[models.x.sets.y]\ntimeuot = 1',
            "Did you mean 'models.x.sets.y.timeout'?",
        ),
        (
            '[models.x]\nmodel = "openai:n"\nbase_url = "ftp://a"',
            "models.x.base_url: got 'ftp://a', expected an address such as",
        ),
        ('[models.x]\nmodel = "openai:n"\nname = "y"', "'models.x.name'. Known: models.x."),
        ("[sets.y]\nparameters = {api_key = 1}", "sets.y.parameters: got 'api_key', expected one"),
        ("[models", "models.toml: "),
        ('[aliases.x]\nmodel = "openai:n"', "Unknown setting 'aliases'"),
        ('[models.x]\nmodel = "openai:n"\nprice = {input_per_million = 1}', "expected input_per"),
    ],
)
def test_a_wrong_file_is_refused_by_its_name_and_the_field(tmp_path, content, message):
    path = tmp_path / "models.toml"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"models\.toml") as raised:
        read_models_file(path)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"parameters": {"openai_api_base": "http://a"}}, "got 'openai_api_base', expected one of"),
        ({"parameters": {"default_headers": {}}}, "got 'default_headers'"),
        ({"parameters": {"extra_body": {"model": "other"}}}, "extra_body.model, expected one"),
        ({"parameters": {"extra_body": {"n": 4}}}, "got extra_body.n"),
        ({"parameters": {"extra_body": {"api_key": "sk"}}}, "got extra_body.api_key"),
        ({"parameters": {"extra_body": "model"}}, "extra_body that is not a table"),
        ({"base_url": "ftp://a"}, "expected an address such as"),
        ({"base_url": "http://a:port/v1"}, "expected an address such as"),
        ({"base_url": "http://[::1"}, "expected an address such as"),
        ({"base_url": "http://key@a"}, "expected no key in the address"),
        ({"api_key_variable": "sk-123"}, "name of an environment variable, never a key"),
        ({"tier_prices": {"flex": {"input_per_million": 1, "output_per_million": 1}}}, "without a"),
        ({"timeout": 0}, "greater than 0"),
        ({"service_tier": "a b"}, "match pattern"),
        ({"name": "x\x1b[31m"}, "printable"),
        ({"name": "\u202ex"}, "printable"),
    ],
)
def test_a_wrong_entry_names_its_field(fields, message):
    entry = {"name": "x", "model": "openai:m", **fields}
    with pytest.raises(ValueError, match="models") as raised:
        checked_config({"problem": "p", "models": [entry]})
    assert message in str(raised.value)


def test_the_file_in_the_working_folder_is_read_if_none_is_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="Unknown model 'glm'"):
        resolved_menu("glm")
    (tmp_path / "models.toml").write_text(FILE)
    (entry,) = resolved_menu("glm")
    assert isinstance(entry, ModelEntry)
    assert entry.model == "openai:z-ai/glm-5"
    other = tmp_path / "other.toml"
    with pytest.raises(ValueError, match=r"other\.toml: does not exist"):
        resolved_menu("glm", other)
    other.write_text('[models.glm]\nmodel = "offline"\n')
    (entry,) = resolved_menu(["glm"], other)
    assert isinstance(entry, ModelEntry)
    assert entry.model == "offline"


def test_resolved_entries_need_no_file(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models.toml").write_text("broken [")
    entry = resolved_entry("glm@deep", file)
    table = entry.model_dump(mode="json")
    config = checked_config({"problem": "p", "models": resolved_menu(json.dumps([table]))})
    assert config.models == (entry,)
    assert RunConfig.model_validate_json(config.model_dump_json()) == config
    with pytest.raises(ValueError, match="no model that it could explain"):
        resolved_menu([table], tmp_path / "models.toml")


@pytest.mark.parametrize("text", ["[x", "[" * 100_000])
def test_a_menu_that_is_no_json_is_refused_by_its_name(text):
    with pytest.raises(ValueError, match=r"models: got '\[.*, expected a JSON list: "):
        resolved_menu(text)


def test_the_names_of_the_models_stand_for_the_model():
    models = [ModelEntry(name=name, model="offline") for name in ("a", "b@low")]
    config = checked_config({"problem": "p", "models": models})
    assert config.model == "a,b@low"
    assert RunConfig.model_validate(config.model_dump()) == config


def test_a_base_url_is_for_an_entry_that_has_none():
    models = [{"name": "b", "model": "anthropic:x"}, {"name": "mine", "model": "openai:x"}]
    url = "http://localhost:8000/v1"
    assert checked_config({"problem": "p", "models": models, "base_url": url}).base_url == url


def test_a_preset_gives_a_menu_budget_and_reference_cost_and_no_price():
    models = [ModelEntry(name=name, model="openai:gpt-5.4") for name in ("a", "b")]
    config = checked_config({"problem": "p", "models": models, "preset": "gpt-5.4"})
    assert (config.budget, config.reference_cost, config.price) == (5.0, 0.1, None)
    assert checked_config({"problem": "p", "models": models}).reference_cost is None


def test_chat_models_get_the_name_of_their_constructor():
    first, second = (ChatOpenAI(model=name, api_key="none") for name in ("m-1", "m-2"))
    assert [each.name for each in named_models([first, second])] == ["m-1", "m-2"]
    menu = named_models([first, MenuModel("again", first, Price(1, 2)), "offline"])
    assert [each.name for each in menu] == ["m-1", "again", "offline"]
    with pytest.raises(ValueError, match="expected a model id or a chat model"):
        named_models([first, 3])  # type: ignore[list-item]


def test_the_key_variables_of_a_resolved_menu_are_known_to_its_run(file, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk")
    entry = ModelEntry(name="mine", model="openai:m", api_key_variable="MY_KEY", price="1,2")
    menu = [menu_model(entry, RunConfig(problem="p"))]
    config = parse_request("circle_packing", None, menu, None, None, {"budget": 1.0}).config
    assert "MY_KEY" in config.key_variables
    assert config.models[0].model.startswith("object:")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"entry": ""}, "got the name ''"),
        ({"model": "openai:x"}, "expected a LangChain chat model"),
        ({"tier_prices": {"flex": Price(1, 2)}}, "tier_prices: got some without a price"),
        ({"timeout": -1}, "^models: m: timeout: got -1, expected greater than 0$"),
        ({"entry": ModelEntry(name="m", model="x"), "timeout": 1}, "expected price and timeout in"),
        (
            {"entry": ModelEntry(name="m", model="x", base_url="http://a/v1")},
            "^models: m: base_url: got 'http://a/v1' beside a chat model, which it does not change",
        ),
        ({"entry": ModelEntry(name="m", model="x", max_tokens=9)}, "max_tokens: got 9 beside a"),
        ({"entry": ModelEntry(name="m", model="x", service_tier="flex")}, "service_tier: got 'fl"),
        ({"entry": ModelEntry(name="m", model="x", api_key_variable="K")}, "api_key_variable: go"),
        (
            {"entry": ModelEntry(name="m", model="x", parameters={"effort": "low"})},
            "parameters: got {'effort': 'low'} beside a chat model",
        ),
    ],
)
def test_a_wrong_menu_model_is_refused(options, message):
    model = ChatOpenAI(model="m", api_key="none")
    with pytest.raises(ValueError, match=message):
        MenuModel(**{"entry": "m", "model": model, **options})


def test_an_entry_with_name_price_and_timeout_names_a_chat_model():
    entry = ModelEntry(name="m", model="x", price="1,2", timeout=7)
    found = MenuModel(entry, ChatOpenAI(model="m", api_key="none"))
    assert (found.name, found.entry.price, found.entry.timeout) == ("m", Price(1, 2), 7)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"model": "openai:gpt-4.1", "service_tier": "flex"}, "no known price for this model"),
        ({"model": "openai:gpt-5.4", "parameters": {"effort": "low"}}, "effort: ChatOpenAI, the"),
        ({"model": "offline", "parameters": {"temperature": 1}}, "takes no parameters"),
        ({"model": "openai:gpt-5.4", "api_key_variable": "NO_SUCH_KEY"}, "NO_SUCH_KEY must hold"),
        (
            {"model": "openai:m", "base_url": "http://a", "api_key_variable": "NO_SUCH_KEY"},
            "NO_SUCH_KEY must hold",
        ),
        ({"model": "opnai:gpt"}, "did you mean 'openai:gpt'"),
    ],
)
def test_an_entry_that_cannot_be_asked_is_refused_by_its_name(entry, message, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk")
    with pytest.raises(ValueError, match=message) as raised:
        menu_model(ModelEntry(name="mine", **entry), RunConfig(problem="p"))
    assert str(raised.value).startswith("models: mine: ")


def test_a_tier_with_a_given_price_needs_no_list(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk")
    given = {"price": Price(1, 2), "tier_prices": {"flex": Price("0.5", 1)}}
    entry = ModelEntry(name="mine", model="openai:gpt-4.1", service_tier="flex", **given)
    found = menu_model(entry, RunConfig(problem="p")).entry.given_price
    assert found is not None
    assert found.at_tier("flex").input_per_million == Decimal("0.5")


@pytest.mark.parametrize(
    ("guide", "effort", "is_entry"),
    [
        ("openai:gpt-5.4@high", "high", True),
        ("openai:gpt-5.4@max", "max", False),
        ("openai:gpt-5.4", None, False),
        (None, None, False),
    ],
)
def test_a_guide_is_an_entry_of_the_menu_or_like_one(monkeypatch, guide, effort, is_entry):
    monkeypatch.setenv("OPENAI_API_KEY", "sk")
    models = resolved_menu("openai:gpt-5.4@low,openai:gpt-5.4@high")
    options = {"problem": "circle_packing", "models": models, "preflight": False}
    plan = plan_run(checked_config({**options, "guide_model": guide}))
    assert [each.name for each in plan.menu] == ["openai:gpt-5.4@low", "openai:gpt-5.4@high"]
    assert plan.model is plan.menu[0].model
    if guide is None:
        assert plan.guide_model is None
        return
    assert plan.guide_model is not None
    assert (plan.guide_model is plan.menu[1].model) is is_entry
    (client,) = underlying_models(plan.guide_model)
    assert isinstance(client, ChatOpenAI)
    assert client.reasoning_effort == effort


def test_a_file_of_settings_may_hold_a_menu(tmp_path):
    (tmp_path / "models.toml").write_text(FILE)
    file = tmp_path / "run.toml"
    file.write_text('models = ["glm", "offline"]\nrouter = "ucb1"\n')
    given = read_settings({}, [], file, models_file=tmp_path / "models.toml")
    config = checked_config({**given, "problem": "p"})
    assert [entry.name for entry in config.models] == ["glm", "offline"]
    with pytest.raises(ValueError, match=r"--models-file: got .* without --models"):
        read_settings({}, [], None, models_file=tmp_path / "models.toml")

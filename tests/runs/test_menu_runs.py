"""Runs, sweeps and resumed runs over a menu, against servers that keep their own bills."""

import json
from decimal import Decimal
from typing import Any

import pytest
from billing_server import BillingServer, Reply
from fakes import ScriptedModel, hashed_answer, program, toy_problem

import costada
from costada.models.menu import MenuModel
from costada.runs.discovery import discover
from costada.runs.folder import RunFolder
from costada.store.run_store import RunStore
from costada.values.usage import Price

RATES = {"full": (Decimal(2), Decimal(8), Decimal("0.5")), "cheap": (Decimal(1), Decimal(3), None)}
"""Dollars per million tokens: input, output, cached input."""

FILE = """
[models.full]
model = "openai:stand-in"
base_url = "{url}"
price = {{ input_per_million = 2, output_per_million = 8, cached_per_million = 0.5 }}

[models.cheap]
model = "openai:small"
base_url = "{url}"
price = {{ input_per_million = 1, output_per_million = 3 }}
max_tokens = 700
"""


class TieredServer:
    """Answers the flex tier's requests by turns at that tier and at the standard one."""

    def __init__(self, server: BillingServer) -> None:
        self.server = server.reset(self.answer)
        self.dollars: dict[str, Decimal] = {}
        self.tiers: list[str] = []

    def answer(self, body: Any) -> Reply:
        number = len(self.server.requests)
        asked = body.get("service_tier")
        tier = asked if asked is None or number % 2 else "default"
        cached, sent, received = 10 * number, 1000 + 7 * number, 100 + number
        rates = RATES["full" if body["model"] == "stand-in" else "cheap"]
        price_in, price_out, price_cached = rates
        price_cached = price_in if price_cached is None else price_cached
        cost = (sent - cached) * price_in + cached * price_cached + received * price_out
        cost /= 2_000_000 if tier == "flex" else 1_000_000
        name = body["model"] + (f"@{asked}" if asked else "")
        self.dollars[name] = self.dollars.get(name, Decimal(0)) + cost
        self.tiers.append(str(tier))
        text = f"```python\n{program(0.1 + number / 100)}```"
        return Reply(text, sent, received, cached_tokens=cached, service_tier=tier)


@pytest.fixture
def provider(running_server):
    return TieredServer(running_server)


@pytest.fixture
def file(tmp_path, provider):
    path = tmp_path / "mine.toml"
    path.write_text(FILE.format(url=provider.server.url))
    return path


def rows_of(folder):
    with RunStore(RunFolder(folder).database, is_read_only=True) as store:
        (run_id,) = store.run_ids()
        return list(store.call_log.calls(run_id, with_texts=False))


def dollars_by_entry(folder):
    found: dict[str, Decimal] = {}
    for row in rows_of(folder):
        found[row.entry] = found.get(row.entry, Decimal(0)) + row.cost
    return found


def assert_billed(provider, folder):
    names = {"full": "stand-in", "full@flex": "stand-in@flex", "cheap": "small"}
    by_hand = {each: provider.dollars[name] for each, name in names.items()}
    assert dollars_by_entry(folder) == by_hand
    assert not any(row.bound for row in rows_of(folder))
    row = json.loads((folder / "steps.jsonl").read_text().splitlines()[-1])
    assert Decimal(str(row["spent"])) == pytest.approx(sum(by_hand.values()), rel=Decimal("1e-15"))
    for name, tries in ((each["name"], each["tries"]) for each in row["router"]):
        assert tries == sum(each.entry == name for each in rows_of(folder))


def test_a_menu_is_charged_by_the_tier_that_answered_and_resumed_without_its_file(
    invoke, provider, file, tmp_path
):
    folder = tmp_path / "run"
    problem = tmp_path / "problem"
    problem.mkdir()
    (problem / "problem.md").write_text("Return a large number, at most 1.\n")
    (problem / "initial_program.py").write_text(program(0.1))
    (problem / "evaluator.py").write_text(
        "import runpy\n\n\ndef evaluate(path):\n"
        '    return {"combined_score": runpy.run_path(path)["value"](), "validity": 1.0}\n'
    )
    words = ("--models", "full,full@flex,cheap", "--models-file", file, "--router", "round-robin")
    begun = invoke(
        "run", problem, *words, "--max-iterations", 7, "--method", "uniform", "--out", folder
    )
    assert begun.exit_code == 0, begun.output
    assert {"flex", "default", "None"} == set(provider.tiers)
    assert_billed(provider, folder)
    small = [body for body in provider.server.requests if body["model"] == "small"]
    assert {body["max_completion_tokens"] for body in small} == {700}
    file.unlink()
    resumed = invoke("resume", folder, "--max-iterations", 12)
    assert resumed.exit_code == 0, resumed.output
    assert len(provider.server.requests) == 12
    assert_billed(provider, folder)
    compared = invoke("compare", folder, "--out", tmp_path / "comparison")
    assert "full,full@flex,cheap by round-robin" in compared.output


def test_python_takes_texts_chat_models_and_named_ones(provider, file, tmp_path):
    scripted = ScriptedModel(answer=hashed_answer)
    named = MenuModel("named", ScriptedModel(answer=hashed_answer), Price(5, 10))
    options: dict[str, Any] = {
        "budget": 1.0,
        "models": ["full", scripted, named],
        "models_file": file,
        "router": "round-robin",
        "max_iterations": 6,
        "other_prices": {"scripted": Price(1, 2)},
        "method": "uniform",
        "out": tmp_path / "run",
    }
    found = discover(toy_problem(), **options)
    assert found.iterations == 6
    expected = {
        "full": provider.dollars["stand-in"],
        "scripted": 2 * Decimal("0.002"),
        "named": 2 * Decimal("0.01"),
    }
    assert dollars_by_entry(tmp_path / "run") == expected
    saved = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert [each["model"] for each in saved["models"]] == [
        "openai:stand-in",
        "object:ScriptedModel",
        "object:ScriptedModel",
    ]
    again = discover(toy_problem(), **{**options, "resume": True, "max_iterations": 9})
    assert again.iterations == 9
    with pytest.raises(ValueError, match=r"models was .*got"):
        discover(
            toy_problem(), **{**options, "resume": True, "max_iterations": 9, "models": ["full"]}
        )


def test_a_run_with_objects_is_resumed_from_python_only(invoke, tmp_path):
    models = [MenuModel(name, ScriptedModel(answer=hashed_answer), Price(1, 2)) for name in "ab"]
    out = tmp_path / "run"
    discover("circle_packing", models=models, budget=1.0, max_iterations=1, out=out)
    refused = invoke("resume", out, "--max-iterations", 2)
    assert refused.exit_code == 2
    assert "this run got ScriptedModel as a Python object; resume it from Python" in refused.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "model: got None, expected a chat model or a model id, or several models"),
        ({"model": "offline", "models": ["offline"]}, "model: got offline and models, expected"),
        ({"model": "offline", "models_file": "x.toml"}, "models_file: got x.toml without models"),
        ({"models": ["offline", "offline"]}, "expected different names"),
        ({"models": ["simulated", "offline"]}, "models: got 'simulated' for problem 'toy'"),
    ],
)
def test_wrong_models_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        discover(toy_problem(), budget=1.0, **options)


def test_a_menu_of_one_is_a_run_of_one_model(tmp_path):
    model = ScriptedModel(answer=hashed_answer)
    options: dict[str, Any] = {"budget": 0.02, "seed": 5}
    one = discover(toy_problem(), model, price="1,2", out=tmp_path / "one", **options)
    menu = [MenuModel("mine", model, Price(1, 2))]
    two = discover(toy_problem(), models=menu, out=tmp_path / "two", **options)
    assert (one.spent, one.best_program) == (two.spent, two.best_program)
    steps = [(tmp_path / name / "steps.jsonl").read_text() for name in ("one", "two")]
    untimed = [
        [
            {key: value for key, value in json.loads(line).items() if "seconds" not in key}
            for line in text.splitlines()
        ]
        for text in steps
    ]
    assert untimed[0] == untimed[1]


def test_a_sweep_passes_its_menu_to_every_run(invoke, near, file, provider, tmp_path):
    out = tmp_path / "sweep"
    words = ("--methods", "uniform,costada", "--seeds", 1, "--max-iterations", 2, "--jobs", 1)
    menu = ("--models", "cheap,full@flex", "--models-file", file, "--router", "fixed:full@flex")
    swept = invoke("sweep", "--problems", near, *words, *menu, "--out", out)
    assert swept.exit_code == 0, swept.output
    for method in ("uniform", "costada"):
        config = RunFolder(out / "near" / method / "seed-0").load()
        assert [entry.name for entry in config.models] == ["cheap", "full@flex"]
        assert config.models[1].tier_prices == {"flex": Price(1, 4, "0.25")}
        assert config.router == "fixed:full@flex"
    again = invoke("sweep", "--problems", near, *words, *menu, "--out", out, "--dry-run")
    assert "finished" in again.output


def test_menu_models_are_ready_for_a_graph(file, provider):
    models = costada.menu_models("cheap,full@flex", file)
    assert [each.name for each in models] == ["cheap", "full@flex"]
    graph = costada.create_discovery_graph(toy_problem(), models=models, budget=0.01)
    found = graph.invoke({})
    assert found["spent"] == pytest.approx(float(sum(provider.dollars.values())), rel=1e-12)


def test_a_search_as_a_tool_takes_a_menu(file, provider):
    models = costada.menu_models("cheap,full", file)
    tool = costada.create_discovery_tool(
        toy_problem(), models=models, max_budget=1.0, router="round-robin", max_iterations=4
    )
    call = {"name": tool.name, "args": {"problem": "toy", "budget": 1.0}, "id": "1"}
    found = tool.invoke({**call, "type": "tool_call"}).artifact
    assert {"small", "stand-in"} == {bill.model for bill in provider.server.bill}
    assert found["spent"] == pytest.approx(float(sum(provider.dollars.values())), rel=1e-12)

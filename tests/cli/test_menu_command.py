"""What a run with several models prints."""

import json
from decimal import Decimal

import pytest

from costada.models.prices import GivenPrice
from costada.nodes.calls.bounds import EXPECTED_ANSWER
from costada.reports.summary import sum_by_model
from costada.reports.trace import rows_of_file
from costada.runs.folder import RunFolder
from costada.store.history import RunHistory
from costada.store.run_store import RunStore
from costada.values.usage import Price

pytestmark = pytest.mark.process

PRICES = {"small": Decimal("0.2"), "middle": Decimal(1), "large": Decimal(5)}
"""Prices of 1:5:25; output costs three times the input."""


@pytest.fixture(scope="module")
def menu(tmp_path_factory):
    """The options of three models that answer the same."""
    file = tmp_path_factory.mktemp("menu") / "models.toml"
    file.write_text(
        "\n".join(
            f'[models.{name}]\nmodel = "offline"\n'
            f"price = {{input_per_million = {price}, output_per_million = {3 * price}}}"
            for name, price in PRICES.items()
        )
    )
    return ("--models-file", file, "--models", ",".join(PRICES))


@pytest.fixture(scope="module")
def run(invoke, near, menu, tmp_path_factory):
    """A finished run of the menu, and what it printed as JSON."""
    folder = tmp_path_factory.mktemp("run") / "menu"
    options = ("--budget", 2, "--max-iterations", 12, "--out", folder, "--json")
    result = invoke("run", near, *menu, *options)
    assert result.exit_code == 0, result.output
    return RunFolder(folder), json.loads(result.stdout)


def test_dollars_of_models_roles_and_requests_agree_to_the_last_digit(run):
    folder, printed = run
    with RunStore(folder.database, is_read_only=True) as store:
        (run_id,) = store.run_ids()
        calls = list(store.call_log.calls(run_id, with_texts=False))
    with RunHistory.of(folder.database) as history:
        by_model = sum_by_model(history.used(run_id), PRICES)
    priced = {
        name: sum(GivenPrice(Price(p, 3 * p)).cost(c.usage) for c in calls if c.entry == name)
        for name, p in PRICES.items()
    }
    assert {name: used.dollars for name, used in by_model.items()} == priced
    assert sum(priced.values(), Decimal(0)) == Decimal(str(printed["spent"]))
    assert [model["name"] for model in printed["models"]] == list(PRICES)
    for model in printed["models"]:
        used = by_model[model["name"]]
        assert model["ledger"]["dollars"] == float(used.dollars)
        assert model["ledger"]["calls"] == used.calls
        guides = [c for c in calls if c.entry == model["name"] and c.role == "guide"]
        assert model["tries"] == used.calls - len(guides)
        assert model["dollars"] == pytest.approx(
            float(used.dollars - sum((call.cost for call in guides), Decimal(0)))
        )
    assert all(used.calls for used in by_model.values())
    assert printed["router"] == "budgeted-thompson"


def test_the_summary_names_the_router_and_each_model(run, invoke):
    folder, printed = run
    lines = invoke("resume", folder.path, "--quiet").stdout.splitlines()
    start = lines.index("  models          chosen by budgeted-thompson")
    for line, model in zip(lines[start + 1 :], printed["models"], strict=False):
        words = line.split()
        assert words[:2] == [model["name"], f"${model['ledger']['dollars']:.6f}"]
        attempt = "attempt" if model["tries"] == 1 else "attempts"
        assert f"{model['tries']} {attempt} with credit {model['credit']:.2f}" in line


def test_the_trace_shows_the_model_of_each_attempt(run, invoke):
    folder, _ = run
    text = invoke("trace", folder.path).stdout
    assert "model: model of each attempt" in text
    for row in rows_of_file(folder.database):
        assert len(row["models"]) == row["attempts"]
        assert ", ".join(row["models"]) in text


def test_a_forecast_has_rows_for_each_model_and_for_taking_turns(invoke, near, menu):
    words = ("--budget", 0.5, "--max-iterations", 10**6, "--json")
    found = json.loads(invoke("forecast", near, *menu, *words).stdout)
    assert [row["model"] for row in found["budgets"]] == [
        name for name in (*PRICES, "each in turn") for _ in range(4)
    ]
    steps = {step["model"]: step for step in found["steps"]}
    tokens = steps["small"]["tokens_in"] + 3 * EXPECTED_ANSWER
    for name, price in PRICES.items():
        assert steps[name]["dollars"] == pytest.approx(float(price) * tokens / 1e6)
    mean = float(sum(PRICES.values())) / 3 * tokens / 1e6
    assert steps["each in turn"]["dollars"] == pytest.approx(mean)


@pytest.mark.parametrize(
    ("command", "budget", "router", "left_out"),
    [
        (("forecast",), 0.5, "budgeted-thompson", True),
        (("forecast",), 5, "budgeted-thompson", False),
        (("forecast",), 0.5, "ucb1", False),
        (("run", "--dry-run"), 0.5, "budgeted-thompson", True),
        (("run", "--dry-run"), 5, "cautious-thompson", False),
    ],
)
def test_forecast_and_dry_run_name_a_model_without_first_tries(
    invoke, near, menu, command, budget, router, left_out
):
    result = invoke(*command, near, *menu, "--budget", budget, "--router", router)
    words = "large gets no first tries: an attempt is expected to cost $0.1"
    assert (words in result.stdout) is left_out
    assert "small gets" not in result.stdout

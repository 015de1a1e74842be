import json
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_runs import call, settings, step, write_steps

from costada.nodes.calls.bounds import EXPECTED_ANSWER
from costada.runs.budget_forecast import (
    BudgetForecast,
    Measured,
    Speed,
    Step,
    budget_forecast,
    mean_step,
    measure_runs,
)
from costada.store.rows import CallStatus, RunSetup
from costada.store.run_store import RunStore
from costada.values.usage import Usage

pytestmark = pytest.mark.process

PRICED = ("--price", "1,2")


def a_step(dollars=0.03, name="glm", seconds=20.0):
    return Step(name, tokens_in=1500.0, tokens_out=4000.0, dollars=dollars, seconds=seconds)


def test_a_budget_pays_for_the_step_that_crosses_it():
    assert budget_forecast(a_step(), 1.0, max_iterations=100) == BudgetForecast(
        model="glm",
        budget=1.0,
        steps=34,
        tokens_in=51_000,
        tokens_out=136_000,
        dollars=pytest.approx(1.02),
        hours=pytest.approx(34 * 20 / 3600),
        is_limited=False,
    )


def test_a_hard_budget_does_not():
    found = budget_forecast(a_step(), 1.0, max_iterations=100, is_hard=True)
    assert (found.steps, found.dollars) == (33, pytest.approx(0.99))


def test_steps_in_flight_share_the_time():
    found = budget_forecast(a_step(), 1.0, max_iterations=100, parallel=4)
    assert found.hours == pytest.approx(9 * 20 / 3600)  # 34 steps in 9 rounds of 4


@pytest.mark.parametrize(("dollars", "limit"), [(0.03, 20), (0.0, 20), (1e-320, 20)])
def test_the_iteration_limit_ends_a_run_that_the_budget_does_not(dollars, limit):
    found = budget_forecast(a_step(dollars), 1.0, max_iterations=limit)
    assert (found.steps, found.is_limited) == (limit, True)


costs = st.floats(min_value=1e-5, max_value=10.0)


@given(costs, st.floats(min_value=0.01, max_value=100.0), st.booleans())
def test_steps_fill_the_budget_and_double_money_buys_no_fewer(dollars, budget, is_hard):
    def found(scale):
        return budget_forecast(
            a_step(dollars), scale * budget, max_iterations=10**9, is_hard=is_hard
        )

    assert found(2).steps >= found(1).steps
    assert abs(found(1).dollars - budget) <= dollars * (1 + 1e-9)
    assert (found(1).dollars <= budget * (1 + 1e-12)) or not is_hard


@given(st.lists(costs, min_size=2, max_size=4))
def test_taking_turns_lies_between_the_models(prices):
    steps = [a_step(price) for price in prices]
    found = [budget_forecast(each, 1.0, max_iterations=10**9).steps for each in steps]
    turns = budget_forecast(mean_step(steps), 1.0, max_iterations=10**9).steps
    assert min(found) <= turns <= max(found)


def test_a_request_takes_a_fixed_time_or_its_tokens_at_a_rate():
    assert Speed(50.0).seconds(4000) == 80.0
    assert Speed(50.0, 7.5).seconds(4000) == 7.5


def begun(folder):
    run = settings(folder)
    with RunStore(run.database) as store:
        facts = {"name": "toy", "direction": "maximize"}
        store.open_run("run", "costada", "toy", setup=RunSetup(facts, {}))
    return run


@pytest.fixture
def earlier(tmp_path):
    """Two iterations of `near` with four answered calls of 3 s and 1 s, and one that failed."""
    run = begun(tmp_path / "earlier")
    calls = [
        call(1, usage=Usage(1000, 500), seconds=3.0, model="offline"),
        call(1, usage=Usage(3000, 700), seconds=1.0, model="offline", role="guide"),
        call(2, usage=Usage(1000, 500), seconds=3.0, model="offline"),
        call(2, usage=Usage(3000, 700), seconds=1.0, model="offline", role="retry"),
        call(2, role="retry", attempt=2, status=CallStatus.ERROR, cost=Decimal(0), seconds=99.0),
    ]
    write_steps(run, [step(1), step(2)], calls=calls)
    return run


def test_measured_are_the_answered_calls_of_a_run(earlier):
    found = measure_runs([earlier.path], "toy")
    assert (len(found.calls), found.iterations, found.calls_per_step) == (4, 2, 2.0)
    assert Measured().calls_per_step == 1.0


def test_runs_of_another_problem_or_without_steps_are_refused(earlier, tmp_path):
    with pytest.raises(ValueError, match=r"holds a run of problem 'toy', expected 'near'"):
        measure_runs([earlier.path], "near")
    with pytest.raises(ValueError, match=r"holds no run \(there is no run.sqlite"):
        measure_runs([tmp_path], "near")
    empty = begun(tmp_path / "empty")
    with pytest.raises(ValueError, match=r"no step is finished there, expected one"):
        measure_runs([empty.path], "toy")


def test_a_forecast_has_four_budgets_of_the_step_that_a_dry_run_expects(invoke, near):
    options = (near, *PRICED, "--budget", "0.1", "--max-iterations", 1000, "--json")
    dry = json.loads(invoke("run", *options, "--dry-run").stdout)
    found = json.loads(invoke("forecast", *options).stdout)
    (expected,) = found["steps"]
    assert expected["dollars"] == pytest.approx(dry["step_cost"])
    assert [row["budget"] for row in found["budgets"]] == pytest.approx([0.025, 0.05, 0.1, 0.2])
    assert found["budgets"][2]["steps"] == dry["steps"]
    assert expected["seconds"] == pytest.approx(EXPECTED_ANSWER / 50, abs=5)
    assert "50 answer tokens per second; no retries and no guides." in found["assumptions"][0]


def test_evaluations_are_paid_from_the_same_budget():
    step = replace(a_step(dollars=0.03), judging=0.01)
    found = budget_forecast(step, 1.0, max_iterations=100)
    assert (found.steps, found.dollars, found.judging) == (
        25,
        pytest.approx(0.75),
        pytest.approx(0.25),
    )
    assert mean_step([step, a_step(dollars=0.05)]).judging == pytest.approx(0.005)


def test_what_judged_earlier_steps_is_measured_apart(earlier):
    judging = [
        call(0, role="compute", cost=Decimal("0.5")),
        call(1, role="compute", cost=Decimal("0.01")),
        call(2, role="evaluation", cost=Decimal("0.03"), seconds=9.0),
    ]
    write_steps(earlier, [], calls=judging, candidates=[])
    found = measure_runs([earlier.path], "toy")
    assert (len(found.calls), found.iterations) == (4, 2)
    assert found.judging == Decimal("0.04")  # without that of the initial program


def test_a_forecast_shows_search_and_evaluations_apart(invoke, near):
    options = (near, *PRICED, "--compute-price", 3600)
    found = json.loads(invoke("forecast", *options, "--json").stdout)
    (expected,) = found["steps"]
    assert expected["judging"] > 0
    assert "Evaluations cost their time at the compute price." in found["assumptions"]
    assert "evaluations" in invoke("forecast", *options).stdout.splitlines()[2]
    assert "evaluations" not in invoke("forecast", near, *PRICED).stdout.splitlines()[2]


def test_measured_calls_replace_what_is_assumed(invoke, near, tmp_path):
    out = tmp_path / "run"
    invoke("run", near, "--max-iterations", 4, "--out", out, "--quiet")
    ledger = json.loads(invoke("resume", out, "--json").stdout)["ledger"].values()
    result = invoke("forecast", near, *PRICED, "--measured", out, "--json")
    (expected,) = json.loads(result.stdout)["steps"]
    tokens = [sum(role[f"{kind}_tokens"] for role in ledger) for kind in ("input", "output")]
    assert expected["tokens_in"] == pytest.approx(tokens[0] / 4)
    assert expected["tokens_out"] == pytest.approx(tokens[1] / 4)
    assert expected["dollars"] == pytest.approx((tokens[0] + 2 * tokens[1]) / 4e6)
    assert expected["measured_calls"] == sum(role["calls"] for role in ledger)


def test_a_person_reads_a_table_and_what_it_assumes(invoke, near, tmp_path):
    words = ("--budget", 10, "--max-iterations", 7, "--seconds-per-call", 30)
    lines = invoke("forecast", near, *words).stdout.splitlines()
    assert lines[0] == "Forecast: no model was called and nothing was written."
    rows = [line.split() for line in lines if line.strip().startswith("offline")]
    assert [row[:3] for row in rows] == [
        *(["offline", "$2.5", "7*"], ["offline", "$5", "7*"]),
        *(["offline", "$10", "7*"], ["offline", "$20", "7*"]),
    ]
    text = " ".join(lines)
    assert "30 s per request" in text
    assert "*: ends at the iteration limit, 7" in text


def test_what_is_refused_for_a_run_is_refused_for_a_forecast(invoke, near):
    assert invoke("forecast", near, "--model", "openai:mine").exit_code == 2
    for option in ("--tokens-per-second", "--seconds-per-call"):
        for value in ("-1", "nan", "inf"):
            result = invoke("forecast", near, f"{option}={value}")
            assert (result.exit_code, f"{option}: got {value}, expected" in result.output) == (
                2,
                True,
            )

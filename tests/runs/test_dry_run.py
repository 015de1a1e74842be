import json
import re
from dataclasses import replace
from math import ceil, floor

import pytest
from billing_server import BillingServer, Reply
from judged_problems import judged_folder

from costada.runs.config import RunConfig
from costada.runs.dry_run import EXPECTED_ANSWER, SHORT_ANSWER, dry_run_of, first_prompts
from costada.runs.plan import plan_run

pytestmark = pytest.mark.process

PRICED = ("--model", "openai:mine", "--price", "1,2")
DEAR_GUIDE = ("--guide-model", "openai:dear", "--guide-price", "100,100")


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "no key")
    with BillingServer(default=Reply("nothing")) as running:
        yield running


def forecast_of(plan):
    return dry_run_of(plan, first_prompts(plan))


def test_the_first_prompt_is_the_one_that_the_run_sends(invoke, near, server, tmp_path):
    options = (*PRICED, "--base-url", server.url, "--seed", 3)
    found = json.loads(invoke("run", near, *options, "--dry-run", "--json").stdout)
    assert server.requests == []
    invoke("run", near, *options, "--max-iterations", 1, "--out", tmp_path / "run", "--quiet")
    texts = [message["content"] for message in server.requests[0]["messages"]]
    characters = len("".join(texts))
    assert found["prompts"] == [
        {"role": "program", "characters": characters, "tokens": -(-characters // 3)}
    ]


def test_a_command_as_the_generator_is_not_run(invoke, near, tmp_path):
    words = ("--generator", f"touch {tmp_path / 'ran'}", "--step-cap", 0.1)
    found = invoke("run", near, *words, "--dry-run", "--show-prompt").stdout
    assert "The current program is the file `candidate.py` of the working folder." in found
    assert "with a command  a step costs what the command's requests cost" in found
    assert not (tmp_path / "ran").exists()


def test_costs_and_steps_follow_from_prompt_price_and_budget(invoke, near, server):
    result = invoke(
        "run", near, *PRICED, "--base-url", server.url, "--budget", "0.1", "--dry-run", "--json"
    )
    found = json.loads(result.stdout)
    (prompt,), tokens = [each["characters"] for each in found["prompts"]], found["prompt_tokens"]
    assert found["step_cost"] == pytest.approx((tokens + 2 * EXPECTED_ANSWER) / 1e6)
    assert found["worst_call"] == pytest.approx((prompt + 64 + 2 * 32_000) / 1e6)
    assert (found["worst_tokens_in"], found["worst_tokens_out"]) == (prompt + 64, 32_000)
    assert found["steps"] == -(-100_000 // (tokens + 2 * EXPECTED_ANSWER))
    assert found["fewest_steps"] == 2
    assert found["most_steps"] == -(-100_000 // (tokens + 2 * SHORT_ANSWER))
    assert (found["reference_cost"], found["price_source"]) == (0.01, "given")
    assert (found["model"], found["budget"], found["max_iterations"]) == ("openai:mine", 0.1, 100)


def test_each_model_of_a_menu_has_its_price_at_the_tier_that_it_asks_for(
    invoke, near, tmp_path, monkeypatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "no key")
    file = tmp_path / "prices.toml"
    file.write_text(
        '[models.mine]\nmodel = "openai:mine"\nbase_url = "http://127.0.0.1:9/v1"\n'
        "max_tokens = 2000\nprice = {input_per_million = 1, output_per_million = 2}\n"
    )
    menu = "openai:gpt-5.4@low,openai:gpt-5.4@flex,mine"
    words = ("--models", menu, "--models-file", file, "--budget", 1, "--dry-run")
    found = json.loads(invoke("run", near, *words, "--json").stdout)
    assert (found["model"], found["router"]) == (menu, "budgeted-thompson")
    (characters,) = [each["characters"] for each in found["prompts"]]
    tokens = found["prompt_tokens"]
    low, flex, mine = found["models"]
    assert [each["name"] for each in found["models"]] == menu.split(",")
    assert low["step_cost"] == pytest.approx((2.5 * tokens + 15 * EXPECTED_ANSWER) / 1e6)
    assert flex["step_cost"] == pytest.approx((1.25 * tokens + 7.5 * EXPECTED_ANSWER) / 1e6)
    assert mine["step_cost"] == pytest.approx((tokens + 2 * 2000) / 1e6)
    assert low["worst_call"] == flex["worst_call"]  # the standard tier may answer
    assert low["worst_call"] == pytest.approx((2.5 * (characters + 64) + 15 * 32_000) / 1e6)
    assert flex["price_source"].endswith("openai/gpt-5.4, flex tier")
    mean = sum(each["step_cost"] for each in found["models"]) / 3
    assert found["step_cost"] == pytest.approx(mean)
    assert found["reference_cost"] == pytest.approx(mean, rel=0.02)
    text = invoke("run", near, *words).stdout
    assert "models          3, chosen by budgeted-thompson; a step is expected to cost" in text
    for each in found["models"]:
        line = next(line for line in text.splitlines() if f"  {each['name']} " in line)
        assert f"${each['step_cost']:.4f}, first call at most ${each['worst_call']:.4f}" in line


@pytest.mark.parametrize(("policy", "share"), [("crossing", 4.0), ("hard", 0.5)])
def test_requests_in_flight_cost_at_most_their_worst_cases_and_no_more_than_a_hard_budget(
    invoke, near, policy, share
):
    words = ("--parallel", 4, "--budget-policy", policy, "--budget")
    worst = json.loads(invoke("run", near, *words, 1, "--dry-run", "--json").stdout)["worst_call"]
    dry = invoke("run", near, *words, 0.5 * worst, "--dry-run", "--json").stdout
    assert json.loads(dry)["most_in_flight"] == pytest.approx(share * worst)
    text = invoke("run", near, *words, 0.5 * worst, "--dry-run").stdout
    assert f"in flight       up to 4 requests, together at most ${share * worst:.4f}" in text


def test_a_person_reads_it_in_a_few_lines_and_no_folder_appears(invoke, near, tmp_path):
    out = tmp_path / "run"
    result = invoke("run", near, "--dry-run", "--budget-policy", "hard", "--out", out)
    assert (result.exit_code, out.exists()) == (0, False)
    lines = result.stdout.splitlines()
    assert lines[0] == "Dry run: nothing was sent and nothing was written."
    begins = [line[:16].strip() for line in lines[1:]]
    expected = ["problem", "model", "first program", "a step", "steps", "worst call", "budget"]
    assert [begin for begin in begins if begin != "sandbox"] == expected
    assert "$0.6 in, $1.92 out per million tokens; the paper's GLM-5 price" in result.stdout
    assert "reference cost $0.01" in result.stdout
    assert "$1 (hard)" in result.stdout


def test_what_is_refused_for_a_run_is_refused_for_a_dry_one(invoke, near):
    result = invoke("run", near, "--model", "openai:mine", "--dry-run")
    assert result.exit_code == 2


@pytest.mark.parametrize("generator", [(), ("--generator", "true", "--step-cap", 0.1)])
def test_a_start_that_reaches_the_target_ends_a_run_that_costs_nothing(invoke, near, generator):
    options = ("run", near, "--target", 0, *generator, "--dry-run")
    said = invoke(*options, "--show-prompt").stdout
    assert said.endswith(
        "  The initial program reaches the target of 0: the run ends at once, asks no model and"
        " costs nothing.\n"
    )
    assert "costs only that program's evaluation" in invoke(*options, "--compute-price", 1).stdout
    found = json.loads(invoke(*options, "--json").stdout)
    assert (found["prompts"], found["steps"], found["stop_reason"]) == ([], 0, "target")


@pytest.mark.parametrize("method", ["costada", "best-of-n", "evox"])
def test_every_method_tells_its_first_prompts(near, method):
    plan = plan_run(RunConfig(problem=str(near), method=method, budget_policy="hard"))
    prompts = first_prompts(plan)
    roles = [role for role, _ in prompts]
    assert roles == (["guide", "program"] if method == "evox" else ["program"])
    assert all("secret number" in f"{prompt.system}{prompt.user}" for _, prompt in prompts)


def test_the_dearest_of_several_models_is_the_worst_case(near):
    cheap, dear = (
        plan_run(RunConfig(problem=str(near), price=f"{price},{price}")) for price in (1, 3)
    )
    assert forecast_of(dear).worst_call == pytest.approx(3 * forecast_of(cheap).worst_call)


def test_a_hard_budget_pays_for_whole_steps_only(near):
    for policy, steps in (("crossing", 3), ("hard", 2)):
        plan = plan_run(RunConfig(problem=str(near), budget_policy=policy))
        cost = forecast_of(plan).step_cost
        assert forecast_of(replace(plan, budget=2.5 * cost)).steps == steps


def test_free_models_make_all_iterations(near):
    plan = plan_run(RunConfig(problem=str(near), price="0,0", max_iterations=7))
    found = forecast_of(plan)
    assert (found.step_cost, found.steps, found.most_steps) == (0.0, 7, 7)


@pytest.mark.parametrize("model", ["openai:mine", "offline"])
def test_the_longest_answer_bounds_what_a_call_and_a_lost_one_can_cost(invoke, near, server, model):
    options = (*PRICED[2:], "--model", model, "--max-tokens", 500, "--dry-run", "--json")
    address = ("--base-url", server.url) if model != "offline" else ()
    found = json.loads(invoke("run", near, *options, *address).stdout)
    assert found["worst_tokens_out"] == 500
    assert found["worst_call"] == pytest.approx((found["worst_tokens_in"] + 2 * 500) / 1e6)


def test_the_evaluation_of_a_step_is_apart_and_counts(invoke, near):
    options = ("run", near, *PRICED, "--budget", 1, "--timeout", 5, "--dry-run", "--json")
    free = json.loads(invoke(*options).stdout)
    assert free["evaluation"] is None
    found = json.loads(invoke(*options, "--compute-price", 3600).stdout)
    evaluation = found["evaluation"]
    assert evaluation["cost"] == pytest.approx(evaluation["seconds"])  # a dollar a second
    assert evaluation["worst"] == 5
    assert found["step_cost"] == free["step_cost"]
    whole = found["step_cost"] + evaluation["cost"]
    assert found["steps"] == -(-1 // whole)
    assert found["fewest_steps"] == 1
    text = invoke(*options[:-1], "--compute-price", 3600).stdout
    assert "s like the initial program, at most $5.0000" in text
    assert "if answers and evaluations are as long as they may be" in text


def test_the_models_of_an_evaluator_are_named_and_not_asked(invoke, server, tmp_path):
    folder = judged_folder(tmp_path / "judged", server.url, settings="evaluation_dollars = 0.05")
    options = ("run", folder, *PRICED, "--base-url", server.url, "--dry-run")
    found = json.loads(invoke(*options, "--json").stdout)
    assert server.requests == []
    assert found["evaluation"] == {
        "seconds": None,
        "cost": 0.0,
        "worst": 0.05,
        "models": {"evaluation judge": "$3 in, $15 out per million tokens; given"},
    }
    text = invoke(*options).stdout
    assert "  an evaluation   at most $0.0500; costada check measures one, costada forecast" in text
    least, most = found["fewest_steps"], found["steps"]
    assert least == ceil(found["budget"] / (found["worst_call"] + 0.05)) < most
    assert f"{least} for the budget if answers and evaluations cost as much as they may" in text
    assert f", {most} if evaluations cost nothing" in text
    assert "    evaluation judge  $3 in, $15 out per million tokens" in text


def test_a_hard_budget_leaves_the_bound_of_an_evaluation_after_the_last_step(
    invoke, server, tmp_path
):
    folder = judged_folder(tmp_path / "judged", server.url, settings="evaluation_dollars = 0.5")
    options = (folder, *PRICED, "--base-url", server.url, "--budget", 1, "--json")
    whole = json.loads(invoke("run", *options, "--dry-run").stdout)
    hard = (*options, "--budget-policy", "hard")
    found = json.loads(invoke("run", *hard, "--dry-run").stdout)
    assert whole["steps"] == ceil(1 / whole["step_cost"])
    assert found["steps"] == floor((1 - 0.5) / found["step_cost"]) < whole["steps"]
    forecast = json.loads(invoke("forecast", *hard).stdout)
    assert forecast["budgets"][0]["steps"] == 0  # of $0.25
    assert forecast["budgets"][2]["steps"] == min(found["steps"], 100)
    assert any("An evaluation costs at most $0.5000" in each for each in forecast["assumptions"])


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        (("--budget", "0.1"), "pays for about "),
        (("--budget", "0.1", "--quiet"), ""),
        (("--budget", "10"), ""),
        (("--budget", "0.1", "--max-iterations", "2"), ""),
        (
            ("--budget", "0.1", "--max-iterations", "2", *DEAR_GUIDE),
            "pays for no guide, expected to cost",
        ),
    ],
)
def test_a_budget_too_small_for_ten_iterations_or_a_guide_is_warned_of(
    invoke, near, server, options, warned
):
    # An iteration is expected to cost 2 * EXPECTED_ANSWER millionths of a dollar and its prompt.
    result = invoke("run", near, *PRICED, "--base-url", server.url, *options, "--dry-run")
    assert result.exit_code == 0
    assert (warned in result.stderr) if warned else ("pays for" not in result.stderr)


@pytest.mark.parametrize("command", [("run", "--dry-run"), ("forecast",)])
def test_a_budget_below_one_iteration_is_warned_of_with_the_offline_model_too(
    invoke, near, command
):
    tiny = invoke(*command, near, "--budget", "0.0001")
    found = re.fullmatch(
        r"costada: the budget of \$0.0001 pays for less than one iteration, expected to cost"
        r" \$[\d.]+; --budget ([\d.]+) pays for one\n",
        tiny.stderr,
    )
    assert tiny.exit_code == 0
    assert invoke(*command, near, "--budget", found[1]).stderr == ""


@pytest.mark.parametrize("policy", ["crossing", "hard"])
def test_a_warning_counts_iterations_as_the_dry_run_does_and_names_a_budget_that_suffices(
    invoke, near, server, policy
):
    options = (*PRICED, "--base-url", server.url, "--budget-policy", policy, "--dry-run", "--json")
    warned = invoke("run", near, *options, "--budget", "0.02")
    paid, wanted = re.findall(r"about (\d+) of 10 iterations.*--budget ([\d.]+)", warned.stderr)[0]
    assert int(paid) == json.loads(warned.stdout)["steps"] < 10
    enough = invoke("run", near, *options, "--budget", wanted)
    assert json.loads(enough.stdout)["steps"] >= 10
    assert "pays for" not in enough.stderr


def test_a_warning_leaves_nothing_aside_where_the_last_iteration_may_cross_the_budget(
    invoke, server, tmp_path
):
    folder = judged_folder(tmp_path / "judged", server.url, settings="evaluation_dollars = 0.5")
    options = ("run", folder, *PRICED, "--base-url", server.url, "--dry-run", "--json")
    warned = invoke(*options, "--budget", "0.01")
    wanted = float(re.findall(r"--budget ([\d.]+)", warned.stderr)[0])
    assert wanted == pytest.approx(10 * json.loads(warned.stdout)["step_cost"], rel=0.1)

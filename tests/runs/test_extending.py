import json
import os
import shutil
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fakes import ScriptedModel, evaluate_value, hashed_answer, is_guide_prompt, toy_problem
from langgraph.runtime import RunControl

from costada.controller.credit import remaining_ratio
from costada.evaluators.problem import Problem
from costada.graph.routes import can_resume
from costada.nodes.state import SearchState
from costada.reports.progress import Progress
from costada.runs.config import RunConfig
from costada.runs.discovery import discover
from costada.runs.folder import RunFolder
from costada.runs.interruption import STOPPING, draining_on_signal
from costada.runs.plan import plan_run
from costada.runs.runner import execute_run, is_finished
from costada.runs.search_request import SearchRequest
from costada.store.run_store import RunStore
from costada.values.evaluation import Evaluation

PRICES = {"price": "1,2"}
BUDGET = 0.04


def rows_in(folder):
    return [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]


def spent_in_calls(folder):
    with RunStore(folder / "run.sqlite") as store:
        (run_id,) = store.run_ids()
        return float(sum(call.cost for call in store.call_log.calls(run_id)))


def model():
    return ScriptedModel(answer=hashed_answer)


@pytest.fixture(scope="module")
def spent(near, invoke, tmp_path_factory):
    """The folder of a run that has spent its budget."""
    folder = tmp_path_factory.mktemp("spent") / "run"
    result = invoke("run", near, "--budget", BUDGET, "--out", folder, "--json")
    assert json.loads(result.stdout)["stop_reason"] == "budget", result.output
    return folder


@pytest.fixture
def folder(spent, tmp_path):
    return shutil.copytree(spent, tmp_path / "run")


def test_a_raised_budget_resumes_the_run_where_it_stopped_and_may_be_raised_again(folder, invoke):
    before = rows_in(folder)
    result = invoke("resume", folder, "--budget", 2 * BUDGET, "--json")
    assert result.exit_code == 0, result.output
    facts, rows = json.loads(result.stdout), rows_in(folder)
    assert rows[: len(before)] == before
    assert [row["iteration"] for row in rows] == [*range(1, len(rows) + 1)]
    for row in rows[len(before) :]:
        assert row["remaining_ratio"] == remaining_ratio(2 * BUDGET, row["spent"])
    assert rows[-2]["spent"] < 2 * BUDGET <= rows[-1]["spent"]
    assert (facts["budget"], facts["stop_reason"]) == (2 * BUDGET, "budget")
    assert facts["spent"] == rows[-1]["spent"] == pytest.approx(spent_in_calls(folder))
    assert facts["uncharged"] == pytest.approx(0)
    assert RunFolder(folder).load().budget == 2 * BUDGET
    assert invoke("resume", folder, "--budget", 2.5 * BUDGET).exit_code == 0
    assert rows_in(folder)[-1]["spent"] >= 2.5 * BUDGET


def test_nothing_that_could_be_spent_raised_means_nothing_spent(folder, invoke):
    before = rows_in(folder)
    result = invoke("resume", folder, "--budget", BUDGET, "--max-iterations", 500)
    assert result.exit_code == 0
    spent = f"${before[-1]['spent']:.6f} of ${BUDGET}"
    words = f"this run has finished and has spent {spent}; it spends nothing more without a higher"
    assert words in " ".join(result.output.split())
    assert rows_in(folder) == before


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--budget", 0.01, "budget: got 0.01, expected at least 0.04, which the run has"),
        ("--max-iterations", 3, "--max-iterations: got 3, expected at least"),
        ("--budget", "nan", "--budget: got nan"),
        ("--budget", -1, "--budget: got -1"),
    ],
)
def test_limits_are_never_lowered(folder, invoke, option, value, message):
    settings = (folder / "settings.json").read_bytes()
    result = invoke("resume", folder, option, value)
    assert result.exit_code == 2
    assert message in result.output
    assert (folder / "settings.json").read_bytes() == settings


def test_a_resumed_run_may_be_carried_out_in_another_way_and_keeps_it(folder, invoke):
    words = ("--parallel", 4, "--order", "launch", "--evaluations-at-once", 2)
    for more in (words, ()):
        assert invoke("resume", folder, *more).exit_code == 0
        config = RunFolder(folder).load()
        assert (config.parallel, config.order, config.evaluations_at_once) == (4, "launch", 2)


def test_a_raised_iteration_limit_gives_the_run_that_it_would_have_been(near, tmp_path, invoke):
    short, whole = tmp_path / "short", tmp_path / "whole"
    for method in ("costada", "adaevolve"):
        options = (near, "--budget", 1, "--method", method)
        for folder, limit in ((short / method, 2), (whole / method, 4)):
            ran = invoke("run", *options, "--max-iterations", limit, "--out", folder)
            assert ran.exit_code == 0
        assert invoke("resume", short / method, "--max-iterations", 4).exit_code == 0
        assert rows_in(short / method) == rows_in(whole / method)
        same = ("best_program.py", "settings.json")
        for name in same:
            assert (short / method / name).read_bytes() == (whole / method / name).read_bytes()


def test_a_process_that_died_between_raising_and_resuming_loses_nothing(folder, invoke):
    settings = folder / "settings.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "budget": 2 * BUDGET}))
    assert not is_finished(RunFolder(folder))
    assert invoke("resume", folder).exit_code == 0
    assert rows_in(folder)[-1]["spent"] >= 2 * BUDGET
    assert is_finished(RunFolder(folder))


def test_discover_resumes_with_a_higher_budget_and_refuses_a_lower_one(tmp_path):
    out = tmp_path / "run"
    first = discover(toy_problem(), model(), budget=0.01, out=out, **PRICES)
    rows = rows_in(out)
    more = discover(toy_problem(), model(), budget=0.02, out=out, resume=True, **PRICES)
    assert first.spent < 0.02 <= more.spent == pytest.approx(spent_in_calls(out))
    assert rows_in(out)[: len(rows)] == rows
    with pytest.raises(ValueError, match=r"budget: got 0\.01, expected at least 0\.02"):
        discover(toy_problem(), model(), budget=0.01, out=out, resume=True, **PRICES)
    with pytest.raises(ValueError, match="started with other settings: seed was 0, got 1"):
        discover(toy_problem(), model(), budget=0.05, seed=1, out=out, resume=True, **PRICES)
    assert RunFolder(out).load().budget == 0.02


def test_a_run_that_failures_stopped_is_resumed(tmp_path):
    out = tmp_path / "run"
    options: dict[str, Any] = {"budget": 0.02, "max_failures": 4, "out": out, **PRICES}
    refusing = ScriptedModel(answer=lambda prompt: "I would rather not.")
    first = discover(toy_problem(), refusing, **options)
    assert (first.stop_reason, len(refusing.prompts)) == ("failures", 4)
    rows = rows_in(out)
    more = discover(toy_problem(), model(), resume=True, **options)
    assert (more.stop_reason, rows_in(out)[: len(rows)]) == ("budget", rows)
    assert more.spent == pytest.approx(spent_in_calls(out))


def test_a_hard_budget_is_extended_although_it_was_not_all_spent(tmp_path):
    out = tmp_path / "run"
    options: dict[str, Any] = {"budget_policy": "hard", "out": out, **PRICES}
    first = discover(toy_problem(), model(), budget=0.02, **options)
    assert (first.stop_reason, first.spent < 0.02) == ("budget", True)
    silent = model()
    again = discover(toy_problem(), silent, budget=0.02, resume=True, **options)
    assert (again, silent.prompts) == (first, [])
    more = discover(toy_problem(), model(), budget=0.04, resume=True, **options)
    assert (more.stop_reason, first.spent < more.spent < 0.04) == ("budget", True)


def stopped(reason, **changes):
    at_end = {"stop_reason": reason, "spent": 1.1, "remaining": 0.0, "iterations": 50}
    return SearchState(**{**at_end, **changes})  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("state", "budget", "max_iterations", "can"),
    [
        (stopped("budget"), 1.0, 100, False),
        (stopped("budget"), 1.1, 100, False),
        (stopped("budget"), 1.2, 100, True),
        (stopped("budget"), 1.2, 50, False),
        (stopped("budget", spent=0.95, remaining=1.0 - 0.95), 1.0, 100, False),
        (stopped("budget", spent=0.95, remaining=1.0 - 0.95), 1.5, 100, True),
        (stopped("iterations"), 2.0, 50, False),
        (stopped("iterations"), 2.0, 51, True),
        (stopped("failures"), 2.0, 100, True),
        (stopped("failures"), 1.0, 100, False),
    ],
)
def test_a_run_is_resumed_only_if_its_obstacle_may_be_gone(state, budget, max_iterations, can):
    assert can_resume(state, budget, max_iterations) is can


CONFIG = RunConfig(
    problem="object:toy",
    model="object:ScriptedModel",
    price="1,2",
    budget=1.0,
    max_iterations=14,
)
SANDBOXED = Problem(
    name="number",
    task="Return a number.",
    initial_program="def value():\n    return 0.1\n",
    entry_point="value",
    score=lambda output: Evaluation(score=output, objective=output, is_valid=True),
)


def never(text):
    return False


@dataclass
class Run:
    """One run in a folder, and what its model was asked, over all its processes."""

    folder: Path
    prompts: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def go(self, number=signal.SIGTERM, *, in_call=never, in_evaluation=never):
        """Begin the run or go on with it; the signal comes once, where it is asked for."""

        def interrupt():
            if STOPPING not in self.notices[begun:]:
                os.kill(os.getpid(), number)

        def answer(prompt):
            self.prompts.append(prompt)
            if in_call(prompt):
                interrupt()
            return hashed_answer(prompt)

        def evaluate(code):
            if in_evaluation(code):
                interrupt()
                SANDBOXED.evaluate(SANDBOXED.initial_program)
            return evaluate_value(code)

        begun, place, control = len(self.notices), RunFolder(self.folder), RunControl()
        problem, model = toy_problem(evaluate=evaluate), ScriptedModel(answer=answer)
        plan = plan_run(SearchRequest(CONFIG, problem=problem, model=model))
        if not place.settings.exists():
            place.claim(CONFIG)
        with draining_on_signal(control, self.notices.append, ""):
            return execute_run(plan, place, Progress(), control)

    @property
    def trace(self):
        return (self.folder / "steps.jsonl").read_text().splitlines()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An undisturbed run; it buys a guide."""
    run = Run(tmp_path_factory.mktemp("whole") / "run")
    assert run.go().iterations == CONFIG.max_iterations
    assert any(map(is_guide_prompt, run.prompts))
    return run


def test_a_guide_call_is_finished_and_never_made_again(whole, tmp_path):
    run = Run(tmp_path / "run")
    assert run.go(signal.SIGTERM, in_call=is_guide_prompt).stop_reason == "interrupted"
    assert is_guide_prompt(run.prompts[-1])
    assert run.notices == [STOPPING]
    assert len(run.trace) < CONFIG.max_iterations
    assert run.go().stop_reason == "iterations"
    assert (run.trace, run.prompts) == (whole.trace, whole.prompts)


def test_an_evaluation_is_broken_off_and_made_good_without_another_call(whole, tmp_path):
    run = Run(tmp_path / "run")
    stopped = run.go(signal.SIGINT, in_evaluation=lambda code: len(run.prompts) == 3)
    assert (stopped.stop_reason, len(run.prompts)) == ("interrupted", 3)
    assert run.go().stop_reason == "iterations"
    assert (run.trace, run.prompts) == (whole.trace, whole.prompts)


def test_a_run_drained_again_and_again_is_the_same_run(whole, tmp_path):
    run = Run(tmp_path / "run")
    sessions = 1
    while run.go(in_call=lambda prompt: len(run.prompts) % 6 == 0).stop_reason == "interrupted":
        sessions += 1
    assert sessions == len(whole.prompts) // 6 + 1
    assert sessions > 2
    assert (run.trace, run.prompts) == (whole.trace, whole.prompts)


@pytest.mark.parametrize(("name", "what"), [("report.html", "page"), ("row.json", "row")])
def test_a_run_whose_page_or_row_cannot_be_written_is_not_resumed(folder, invoke, name, what):
    (folder / name).unlink(missing_ok=True)
    (folder / name).mkdir()
    before = spent_in_calls(folder)
    result = invoke("resume", folder, "--budget", 2 * BUDGET)
    assert result.exit_code == 1
    assert f"{name}: is not a file, expected the {what} of the run there" in result.output
    assert spent_in_calls(folder) == before

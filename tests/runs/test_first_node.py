"""A run that stopped in its first node is resumed from its beginning."""

import json
from dataclasses import replace

import pytest
from fakes import ScriptedModel, hashed_answer, toy_problem
from langgraph.runtime import RunControl

from costada.reports.progress import Progress
from costada.runs.config import RunConfig
from costada.runs.folder import RunFolder
from costada.runs.plan import plan_run
from costada.runs.runner import execute_run
from costada.runs.search_request import SearchRequest
from costada.store.run_store import RunStore

CONFIG = RunConfig(problem="toy", budget=1.0, max_iterations=2, price="1,2", preflight=False)


@pytest.fixture
def folder(tmp_path):
    claimed = RunFolder(tmp_path / "run")
    claimed.claim(CONFIG)
    return claimed


def execute(folder, control, problem):
    """Start or resume the run of a folder."""
    model = ScriptedModel(answer=hashed_answer)
    plan = plan_run(SearchRequest(CONFIG, problem=problem, model=model))
    return execute_run(plan, folder, Progress(), control)


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_again(folder):
    with RunStore(folder.database) as store:
        store.open_run("killed", "costada", "toy")
    assert execute(folder, RunControl(), toy_problem()).stop_reason == "iterations"
    rows = [json.loads(line) for line in folder.steps.read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [1, 2]


def test_a_run_that_is_stopped_in_its_first_node_has_its_initial_program(folder):
    control = RunControl()

    def evaluate(text):
        control.request_drain("SIGINT")
        raise InterruptedError("the evaluation was interrupted")

    stopped = execute(folder, control, replace(toy_problem(), evaluate=evaluate))
    assert (stopped.stop_reason, stopped.iterations, stopped.spent) == ("interrupted", 0, 0.0)
    assert stopped.best_program == toy_problem().start.text
    assert execute(folder, RunControl(), toy_problem()).stop_reason == "iterations"

"""A signal drains a run wherever it arrives, and the rest of the run is as if it had not come."""

import os
import signal
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fakes import ScriptedModel, evaluate_value, hashed_answer, is_guide_prompt, toy_problem
from langgraph.runtime import RunControl

from costada.evaluators.problem import Problem
from costada.reports.progress import Progress
from costada.runs.config import RunConfig
from costada.runs.folder import RunFolder
from costada.runs.interruption import STOPPING, draining_on_signal
from costada.runs.plan import plan_run
from costada.runs.runner import carry_out
from costada.values.evaluation import Evaluation

CONFIG = RunConfig(
    problem="object:toy",
    model="object:ScriptedModel",
    price_in="1",
    price_out="2",
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
        plan = plan_run(
            CONFIG,
            given_problem=toy_problem(evaluate=evaluate),
            given_model=ScriptedModel(answer=answer),
        )
        if not place.settings.exists():
            place.claim(CONFIG)
        with draining_on_signal(control, self.notices.append):
            return carry_out(plan, place, Progress(), control)

    @property
    def trace(self):
        return (self.folder / "steps.jsonl").read_text().splitlines()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nobody disturbs; it buys a guide."""
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

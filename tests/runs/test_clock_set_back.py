"""A run whose clock is set back between two processes goes on where it was."""

import json
import shutil
import time
from inspect import getsource

import pytest
from shifted_clock import told_at

from costada.runs.folder import RunFolder
from costada.runs.fork import fork_run
from costada.store.checkpoints import KEPT_CHECKPOINTS

pytestmark = pytest.mark.process

BACK = -120
FIRST = KEPT_CHECKPOINTS + 4
"""Iterations of the first process: more than a run file keeps checkpoints of."""


def advance(folder, iterations, is_resumed):
    """Return iterations and dollars of a run so far, and the calls that were made for it now."""
    from fakes import ScriptedModel, hashed_answer, toy_problem

    from costada.runs.discovery import discover

    model = ScriptedModel(answer=hashed_answer)
    limits = {"budget": 10, "max_iterations": iterations, "reference_cost": 0.002}
    prices = {"price": "1,2"}
    found = discover(toy_problem(), model, out=folder, resume=is_resumed, **limits, **prices)
    return [found.iterations, found.spent, len(model.prompts)]


ADVANCE = f"""
import json, sys
{getsource(advance)}
print(json.dumps(advance(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "True")))
"""


def carry_on(folder, shift, iterations, *, is_resumed=True):
    """Return what `advance` does, in a process of its own where the clock is shifted."""
    if not shift:
        return advance(str(folder), iterations, is_resumed)
    found: list[float] = json.loads(told_at(shift, ADVANCE, folder, iterations, is_resumed))
    return found


def test_the_clock_of_a_process_can_be_shifted():
    script = "import time, datetime; print(time.time()); print(datetime.datetime.now().timestamp())"
    for found in told_at(-3600, script).split():
        assert float(found) == pytest.approx(time.time() - 3600, abs=60)


@pytest.fixture(scope="module")
def set_back(tmp_path_factory):
    """A run that was resumed with its clock set back, and what `advance` has returned."""
    run = tmp_path_factory.mktemp("set-back") / "run"
    first = carry_on(run, 0, FIRST, is_resumed=False)
    return run, [first, carry_on(run, BACK, FIRST + 3)]


def test_a_run_is_resumed_from_the_checkpoint_that_was_written_last(set_back, tmp_path):
    whole, run = tmp_path / "whole", tmp_path / "run"
    _, spent, num_calls = carry_on(whole, 0, FIRST + 5, is_resumed=False)
    shutil.copytree(set_back[0], run)
    made = [*set_back[1], carry_on(run, 2 * BACK, FIRST + 4), carry_on(run, 0, FIRST + 5)]
    assert [iterations for iterations, _, _ in made] == [FIRST, FIRST + 3, FIRST + 4, FIRST + 5]
    assert sum(calls for _, _, calls in made) == num_calls
    assert made[-1][1] == spent
    assert (run / "steps.jsonl").read_text() == (whole / "steps.jsonl").read_text()


def test_a_fork_finds_the_iterations_that_came_after_the_clock_was_set_back(set_back, tmp_path):
    run = RunFolder(set_back[0])
    lines = run.steps.read_text().splitlines()
    for iteration in (FIRST - 2, FIRST + 2):
        fork = fork_run(run, iteration, RunFolder(tmp_path / f"fork-{iteration}"))
        assert fork.iterations == iteration
        assert fork.folder.steps.read_text().splitlines() == lines[:iteration]
    first_kept = FIRST + 3 - (KEPT_CHECKPOINTS - 1)
    with pytest.raises(ValueError, match=f"expected {first_kept} to {FIRST + 3};"):
        fork_run(run, 2, RunFolder(tmp_path / "early"))

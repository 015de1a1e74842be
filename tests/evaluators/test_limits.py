"""The least limits that are accepted."""

from dataclasses import replace
from shutil import copytree

import pytest

from costada.evaluators.problem import confine
from costada.evaluators.registry import problem
from costada.evaluators.sandbox.candidate_runs import run_candidate
from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import MIN_MEMORY_MB, Limits
from costada.evaluators.sandbox.minimum_time import EMPTY_PROGRAM
from costada.runs.config import RunConfig
from costada.runs.folder import RunFolder

pytestmark = pytest.mark.process


@pytest.mark.parametrize("name", [Layer.BUBBLEWRAP, Layer.LANDLOCK, Layer.PROCESS])
def test_a_program_that_does_nothing_works_with_the_least_memory(name):
    try:
        layer = chosen_layer(name)
    except ValueError as reason:
        pytest.skip(str(reason))
    limits = Limits(memory_mb=MIN_MEMORY_MB)
    result = run_candidate(EMPTY_PROGRAM, "answer", limits, layer=layer)
    assert (result.output, result.error, result.log) == (0, None, "")


def test_less_memory_is_refused_in_the_settings_of_a_folder_and_by_commands(invoke, near, tmp_path):
    copytree(near, tmp_path, dirs_exist_ok=True)
    with (tmp_path / "problem.toml").open("a") as file:
        file.write("\nmemory_mb = 15\n")
    result = invoke("check", tmp_path)
    line = "problem.toml: memory_mb: got 15, expected greater than or equal to 16"
    assert (result.exit_code, line in " ".join(result.output.split())) == (2, True)
    result = invoke("run", "circle_packing", "--memory-mb", 1)
    line = "costada: --memory-mb: got 1, expected greater than or equal to 16"
    assert (result.exit_code, line in " ".join(result.output.split())) == (2, True)
    small = replace(problem("circle_packing"), limits=Limits(memory_mb=15))
    with pytest.raises(ValueError, match=r"memory_mb: got 15, expected at least 16$"):
        confine(small)


def test_a_stored_run_with_less_memory_is_loaded_and_continues(invoke, near, tmp_path):
    out = tmp_path / "run"
    claimed = RunFolder(out)
    config = RunConfig(problem=str(near), max_iterations=1, preflight=False, seed=1)
    claimed.claim(config.model_copy(update={"memory_mb": 8}))
    assert claimed.load().memory_mb == 8
    resumed = invoke("resume", out, "--max-iterations", 2)
    assert (resumed.exit_code, claimed.load().memory_mb) == (0, 8), resumed.output


def test_a_timeout_that_no_program_can_keep_is_refused():
    with pytest.raises(ValueError, match=r"timeout: got 1e-06, but a program that does nothing"):
        confine(problem("circle_packing"), timeout=1e-6)

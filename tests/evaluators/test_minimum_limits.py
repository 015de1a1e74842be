import re

import pytest

from costada.evaluators.problem import confine
from costada.evaluators.registry import problem
from costada.evaluators.sandbox.candidate_runs import run_candidate
from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.minimum_limits import EMPTY_PROGRAM, minimum_memory

pytestmark = pytest.mark.process


@pytest.fixture(params=[Layer.BUBBLEWRAP, Layer.PROCESS])
def layer(request):
    try:
        return chosen_layer(request.param)
    except ValueError as reason:
        pytest.skip(str(reason))


def test_a_program_that_does_nothing_works_with_the_least_memory(layer):
    limits = Limits(memory_mb=minimum_memory(layer))
    result = run_candidate(EMPTY_PROGRAM, "answer", limits, {"number": 3}, layer)
    assert (result.output, result.error, result.log) == ([3], None, "")


def test_less_memory_than_an_empty_program_needs_is_refused_by_the_least(invoke, tmp_path):
    out = tmp_path / "run"
    result = invoke("run", "circle_packing", "--memory-mb", 1, "--out", out)
    assert result.exit_code == 2
    words = "--memory-mb: got 1, but a program that does nothing needs 2 MiB in the sandbox"
    assert words in " ".join(result.output.split())
    assert not out.exists()


def test_a_timeout_that_no_program_can_keep_is_refused():
    with pytest.raises(ValueError, match=r"timeout: got 0\.0001, but a program that does nothing"):
        confine(problem("circle_packing"), timeout=0.0001)


def test_too_little_memory_in_a_problem_is_refused_without_naming_an_option(invoke, tmp_path):
    assert invoke("init", tmp_path / "small").exit_code == 0
    file = tmp_path / "small" / "problem.toml"
    file.write_text(re.sub("memory_mb = .*", "memory_mb = 1", file.read_text()))
    result = invoke("check", tmp_path / "small")
    assert result.exit_code == 2
    words = "costada: problem 'small': memory_mb: got 1, but a program that does nothing needs"
    assert words in " ".join(result.output.split())


def test_the_least_memory_that_was_named_is_accepted():
    layer = confine(problem("circle_packing")).sandbox
    assert confine(problem("circle_packing"), memory_mb=minimum_memory(layer)).limits.memory_mb == 2

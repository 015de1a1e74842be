"""What an attempt is expected to cost, before any was made."""

from dataclasses import replace
from statistics import fmean

import pytest
from fakes import toy_problem

from costada.controller.constants import Constants
from costada.evaluators.registry import problem
from costada.nodes.attempts import first_prompt, ordinary_input
from costada.nodes.calls.bounds import EXPECTED_ANSWER, EXPECTED_PROGRAM, prompt_tokens
from costada.runs.setting_types import PRESETS
from costada.values.usage import Usage, call_cost

GLM_5 = PRESETS["glm-5"].price
LONG_PROGRAM = "x = 1\n" * 2000
"""12,000 bytes: 4,000 tokens."""


def test_the_expected_cost_is_that_of_recorded_attempts_within_five_percent():
    menu = pytest.importorskip("costada.plugins.lab.landscape.landscape_menu")
    table = pytest.importorskip("costada.plugins.lab.recorded.table")
    paid = [
        float(call_cost(each.tokens, GLM_5))
        for each in table.recorded_transitions()
        if each.tokens is not None and not each.is_capped
    ]
    tokens = ordinary_input(problem("circle_packing"), Constants())
    expected = float(call_cost(Usage(tokens, EXPECTED_ANSWER), GLM_5))
    assert expected == pytest.approx(fmean(paid), rel=0.05)
    assert float(call_cost(menu.EXPECTED_TOKENS, GLM_5)) == pytest.approx(fmean(paid), rel=0.05)


@pytest.mark.parametrize("num_inspirations", [0, 2, 4])
def test_each_program_of_an_ordinary_prompt_counts(num_inspirations):
    constants = Constants(num_inspirations=num_inspirations)
    short, long = toy_problem(), replace(toy_problem(), initial_program=LONG_PROGRAM)
    first = prompt_tokens(first_prompt(short))
    parents_growth = EXPECTED_PROGRAM - -(-len(short.initial_program) // 3)
    expected = first + parents_growth + num_inspirations * EXPECTED_PROGRAM
    assert ordinary_input(short, constants) == expected
    first = prompt_tokens(first_prompt(long))
    assert ordinary_input(long, constants) == first + num_inspirations * 4000


def test_an_inspiration_of_several_files_shows_those_that_it_changed():
    files = {"solve.py": LONG_PROGRAM, "other.py": LONG_PROGRAM}
    several = replace(toy_problem(), initial_program=files, entry_point="solve:value")
    first = prompt_tokens(first_prompt(several))
    assert ordinary_input(several, Constants()) == first + 4 * EXPECTED_PROGRAM


def test_a_method_that_starts_from_the_initial_program_each_time_shows_no_other():
    toy = toy_problem()
    first = prompt_tokens(first_prompt(toy))
    assert ordinary_input(toy, Constants(), "best-of-n") == first

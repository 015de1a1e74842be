"""What each edit does to programs, and what it leaves as it is."""

from random import Random

import numpy as np
import pytest
from offline_programs import (
    AREA,
    PACKING,
    PROGRAMS,
    SCALAR,
    SEARCHED,
    SPREAD,
    edit_context,
    result,
    searching,
    value,
)

from costada.plugins.offline.answers import USUAL_EDITS
from costada.plugins.offline.constructor import find_constructor, with_fresh_functions
from costada.plugins.offline.general_ideas import IDEAS
from costada.plugins.offline.loop_edits import repeat_corrections, use_slack
from costada.plugins.offline.running_time import evaluation_counts, evaluation_limit
from costada.plugins.offline.search_edits import (
    METHODS,
    change_evaluations,
    cheaper_scoring,
    polish,
    search_with,
    shrink_step,
)
from costada.plugins.offline.small_edits import (
    change_literals,
    new_seed,
    take_function,
    take_numbers,
)

KINDS = {kind.__name__: kind for kind, _ in USUAL_EDITS}
KINDS |= {each.approach: each.edit for each in IDEAS}


def test_only_lines_between_the_markers_may_change():
    program = edit_context(PACKING).program
    assert program.first_line == PACKING.split("\n").index("# EVOLVE-BLOCK-START") + 2
    names = [each.name for each in program.functions()]
    assert names == ["construct_packing", "ring", "compute_max_radii"]
    assert len(edit_context(AREA).program.functions()) == 3


def test_every_kind_of_edit_fits_some_program():
    contexts = [edit_context(PACKING, PACKING.replace("0.7", "0.5")), *map(edit_context, SEARCHED)]
    contexts += [edit_context(searching(cheaper_scoring(edit_context(PACKING), Random(0)).code))]
    for name, kind in KINDS.items():
        assert any(kind(each, Random(0)) for each in contexts), name


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", KINDS)
def test_an_edited_program_still_compiles_and_changes_inside_the_markers_only(name, program):
    def outside(code: str) -> list[str]:
        start, end = code.find("# EVOLVE-BLOCK-START"), code.find("# EVOLVE-BLOCK-END")
        return [code[: max(0, start)], code[end:].rstrip() if end > 0 else ""]

    text = PROGRAMS[program]
    others = (text.replace("0.5", "0.4"), text.replace("+ 1", "+ 2"))
    edits = (KINDS[name](edit_context(text, *others), Random(seed)) for seed in range(2))
    for edit in filter(None, edits):
        compile(edit.code, "candidate", "exec")
        assert edit.summary.endswith(".")
        assert outside(edit.code) == outside(text)


@pytest.mark.parametrize("text", [PACKING, AREA, SPREAD])
@pytest.mark.parametrize("method", METHODS.values(), ids=lambda each: each.name)
def test_no_search_makes_a_program_worse_and_a_row_search_makes_it_better(method, text):
    edit = search_with(method, edit_context(text), Random(1))
    if edit is None:
        assert method.min_factor > 1
    else:
        assert value(edit.code) >= (1.1 if method.name == "row_search" else 1.0) * value(text)


def test_a_second_search_takes_the_place_of_the_first():
    code = searching(searching(AREA), "annealing")
    assert "row_search" not in code
    assert (code.count("annealing("), code.count("def objective")) == (2, 1)


@pytest.mark.parametrize("text", [PACKING, SPREAD])
def test_tables_leave_the_value_as_it_is(text):
    edit = cheaper_scoring(edit_context(text), Random(0))
    assert "pair_table_1" in edit.code
    assert value(edit.code) == pytest.approx(value(text), rel=1e-12)
    assert cheaper_scoring(edit_context(edit.code), Random(0)) is None


def test_a_table_replaces_the_same_expression_behind_the_loop_as_well():
    slack = use_slack(edit_context(PACKING), Random(0))
    table = cheaper_scoring(edit_context(slack.code), Random(0))
    assert value(table.code) == pytest.approx(value(slack.code), rel=1e-12)
    assert table.code.count("np.sqrt") == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("low = min", "points[j] += 0.0\n      low = min"),
        ("points[i] - points[j]", "points[i] - np.roll(points[j], low)"),
        ("np.linalg.norm(points[i] - points[j])", "abs(points[i] - points[j])"),
        ("points[i] - points[j]", "points[i:] - points[j]"),
    ],
)
def test_no_table_is_made_of_what_changes_in_the_loop_or_is_no_number_for_each_pair(old, new):
    assert cheaper_scoring(edit_context(SPREAD.replace(old, new)), Random(0)) is None


@pytest.mark.parametrize("edit", [use_slack, repeat_corrections])
def test_better_corrections_keep_every_limit(edit):
    centers, radii, total = result(edit(edit_context(PACKING), Random(0)).code)
    distances = np.linalg.norm(centers[:, None] - centers[None, :], axis=-1)
    np.fill_diagonal(distances, np.inf)
    assert (radii[:, None] + radii[None, :] <= distances + 1e-12).all()
    assert (radii >= 0).all()
    assert total > value(PACKING)


def test_slack_is_used_inside_gentle_passes_too():
    gentle = repeat_corrections(edit_context(PACKING), Random(0))
    assert value(use_slack(edit_context(gentle.code), Random(0)).code) > value(gentle.code)


def test_literals_are_perturbed_scaled_and_rounded():
    text = "def f():\n    return 0.1234\n"
    edits = [change_literals(edit_context(text), Random(seed)) for seed in range(30)]
    verbs = {each.summary.split()[0]: float(each.code.split("return ")[1]) for each in edits}
    assert set(verbs) == {"Move", "Scale", "Round"}
    assert verbs["Round"] == 0.1
    assert verbs["Scale"] / 0.1234 in (pytest.approx(k, abs=2e-3) for k in (0.67, 0.8, 1.25, 1.5))


def test_equal_numbers_of_a_statement_change_together():
    edit = change_literals(edit_context("def f():\n    return 0.3 + 0.3 * 2\n"), Random(0))
    first, second = edit.code.split("return ")[1].split(" * 2")[0].split(" + ")
    assert first == second != "0.3"


def test_a_seed_becomes_another_one():
    assert "default_rng(3)" not in new_seed(edit_context(AREA), Random(0)).code
    assert new_seed(edit_context(SCALAR), Random(0)) is None


def test_parts_of_other_programs_come_with_the_functions_they_call():
    edit = take_function(edit_context(PACKING, searching(PACKING)), Random(0))
    assert "def row_search(" in edit.code
    assert value(edit.code) > value(PACKING)
    edit = take_numbers(edit_context(PACKING, PACKING.replace("0.7", "0.45")), Random(0))
    assert "ring(16, 0.45)" in edit.code


def counts_and_limit(text: str) -> tuple[list[int], int]:
    program = edit_context(text).program
    constructor = find_constructor(program)
    counts = [count for _, count in evaluation_counts(constructor)]
    return counts, evaluation_limit(program, constructor)


def test_searches_get_longer_up_to_the_limit_of_their_time():
    text = searching(AREA)
    while edit := change_evaluations(edit_context(text), Random(0)):
        text = edit.code
    (count,), limit = counts_and_limit(text)
    assert limit / 1.1 < count <= limit


def test_two_searches_share_the_limit():
    text = searching(AREA).replace("evaluations=40", "evaluations=100000")
    counts, limit = counts_and_limit(polish(edit_context(text), Random(0)).code)
    assert len(counts) == 2
    assert sum(counts) <= limit


def test_cheaper_scoring_lets_a_search_go_on_for_longer():
    cheap = cheaper_scoring(edit_context(PACKING), Random(0)).code
    assert counts_and_limit(cheap)[1] > 5 * counts_and_limit(PACKING)[1]


def test_a_step_shrinks_with_the_turns_of_its_loop():
    edit = shrink_step(edit_context(searching(AREA)), Random(0))
    assert "for turn in range(evaluations)" in edit.code
    assert value(edit.code) > value(AREA)


@pytest.mark.parametrize(
    ("loop", "share"),
    [
        ("range(200)", "turn / (200)"),
        ("range(2, 12)", "(turn - (2)) / ((12) - (2))"),
        ("range(0, 1000, 5)", "(turn - (0)) / ((1000) - (0))"),
        ("reversed(range(9))", None),
        ("range(*x)", None),
    ],
)
def test_a_shrinking_step_counts_the_turns_of_a_range_that_counts_up(loop, share):
    code = f"def run(step=0.1):\n    for _ in {loop}:\n        x = rng.normal(0, step)\n"
    edit = shrink_step(edit_context(code), Random(0))
    assert edit is None if share is None else f"step * (1.0 - {share})" in edit.code


def test_the_nested_functions_follow_a_change_of_the_statements_they_repeat():
    edit = cheaper_scoring(edit_context(searching(SPREAD)), Random(0))
    assert edit.code.count("pair_table_1 = ") == 1
    assert with_fresh_functions(edit.code).count("pair_table_1 = ") == 2
    assert with_fresh_functions(AREA) == AREA


def test_a_loss_is_searched_downwards():
    text = "import numpy as np\n\ndef f():\n    x = np.ones(3)\n    loss = np.sum(x**2)\n"
    assert find_constructor(edit_context(text + "    return x, loss\n").program).value == "-loss"
    assert value(searching(text + "    return x, loss\n\ndef run():\n    return f()\n")) < 3.0

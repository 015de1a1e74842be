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
from costada.plugins.offline.edits import change_numbers, spread_zeros, take_lines
from costada.plugins.offline.ideas import IDEAS
from costada.plugins.offline.loop_edits import tabulate_distances, use_slack
from costada.plugins.offline.searches import (
    EVALUATIONS,
    METHODS,
    complete,
    evaluation_limit,
    find_constructor,
    more_evaluations,
    search_with,
)

KINDS = {kind.__name__: kind for kind, _ in USUAL_EDITS}
KINDS |= {each.approach: each.edit for each in IDEAS}

ZEROS = """import numpy as np


def points():
    places = np.zeros((11, 2))
    return places
"""


def test_only_lines_between_the_markers_may_change():
    lines = PACKING.split("\n")
    start, end = (lines.index(f"# EVOLVE-BLOCK-{edge}") for edge in ("START", "END"))
    assert edit_context(PACKING).editable == range(start + 1, end)
    assert edit_context(AREA).editable == range(len(AREA.split("\n")))


def test_every_kind_of_edit_fits_some_program():
    contexts = [edit_context(PACKING, PACKING.replace("0.7", "0.5")), *map(edit_context, SEARCHED)]
    contexts += [edit_context(searching(tabulate_distances(edit_context(PACKING), Random(0)).code))]
    contexts += [edit_context(ZEROS), edit_context("One.\nTwo.\n")]
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
        code = complete(edit.code)
        compile(code, "candidate", "exec")
        assert edit.summary.endswith(".")
        assert outside(code) == outside(text)


@pytest.mark.parametrize("text", [PACKING, AREA, SPREAD])
@pytest.mark.parametrize("method", METHODS.values(), ids=lambda each: each.name)
def test_no_search_makes_a_program_worse_and_a_row_search_makes_it_better(method, text):
    edit = search_with(method, edit_context(text), Random(1))
    if edit is None:
        assert method.min_evaluations > counts_and_limit(text)[1]
    else:
        best = value(complete(edit.code.replace("evaluations=40", "evaluations=200")))
        assert best >= (1.1 if method.name == "row_search" else 1.0) * value(text)


def test_a_second_search_takes_the_place_of_the_first():
    code = searching(searching(AREA), "annealing")
    assert "row_search" not in code
    assert code.count("annealing(") == 2
    assert len(EVALUATIONS.findall(code)) == 1


def test_a_function_of_the_program_that_has_the_name_of_a_search_stays():
    code = AREA + "\n\ndef annealing(points):\n    return points\n"
    assert complete(code) == code


def test_a_search_keeps_the_repairs_of_the_array():
    text = AREA.replace("0.02, 0.98)", "0.4, 0.6)")
    points, _ = result(searching(text, "annealing"))
    assert points.min() >= 0.4
    assert points.max() <= 0.6


def test_a_loss_is_searched_downwards():
    text = """import numpy as np

def start():
    x = np.ones(3)
    return x

def loss(x):
    return np.sum(x**2)

def run():
    x = start()
    return x, loss(x)
"""
    assert find_constructor(edit_context(text)).objective == "-np.sum(loss(x))"
    assert value(searching(text)) < 3.0


def test_a_score_of_several_parts_is_not_searched():
    text = AREA.replace("return smallest\n", "return smallest, points\n")
    assert find_constructor(edit_context(text)) is None


@pytest.mark.parametrize("text", [PACKING, SPREAD])
def test_tables_leave_the_value_as_it_is(text):
    edit = tabulate_distances(edit_context(text), Random(0))
    assert "_distances = " in edit.code
    assert value(edit.code) == pytest.approx(value(text), rel=1e-12)
    assert tabulate_distances(edit_context(edit.code), Random(0)) is None


def test_a_table_replaces_the_same_expression_behind_the_loop_as_well():
    slack = use_slack(edit_context(PACKING), Random(0))
    table = tabulate_distances(edit_context(slack.code), Random(0))
    assert value(table.code) == pytest.approx(value(slack.code), rel=1e-12)
    assert "np.sqrt" not in table.code


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("low = min", "points[j] += 0.0\n      low = min"),
        ("points[i] - points[j]", "points[i] - np.roll(points[j], low)"),
        ("np.linalg.norm(points[i] - points[j])", "abs(points[i] - points[j])"),
        ("points[i] - points[j]", "points[i:] - points[j]"),
        ("for j in range(i + 1, n)", "for j in others"),
    ],
)
def test_no_table_is_made_of_what_changes_in_the_loop_or_is_not_a_number_for_each_pair(old, new):
    assert tabulate_distances(edit_context(SPREAD.replace(old, new)), Random(0)) is None


def test_using_slack_keeps_every_limit():
    centers, radii, total = result(use_slack(edit_context(PACKING), Random(0)).code)
    distances = np.linalg.norm(centers[:, None] - centers[None, :], axis=-1)
    np.fill_diagonal(distances, np.inf)
    assert (radii[:, None] + radii[None, :] <= distances + 1e-12).all()
    assert (radii >= 0).all()
    assert total > value(PACKING)


def test_fractions_change_before_other_numbers_and_equal_ones_of_a_line_together():
    text = "def f():\n    return 0.3 + 0.3 * 2 + g(7)\n"
    edits = [change_numbers(edit_context(text), Random(seed)) for seed in range(40)]
    returned = [each.code.split("return ")[1] for each in edits]
    pairs = [each.split(" * ")[0].split(" + ") for each in returned]
    assert all(first == second for first, second in pairs)
    assert sum(first != "0.3" for first, _ in pairs) > 30


def test_comments_imports_and_parts_of_names_are_left_alone():
    text = "# 0.5 of it\nimport x1\nfrom y import z2\nname3 = other_4\n"
    assert change_numbers(edit_context(text), Random(0)) is None


def test_a_seed_becomes_any_other_one():
    codes = {change_numbers(edit_context(AREA), Random(seed)).code for seed in range(60)}
    seeds = {int(code.split("default_rng(")[1].split(")")[0]) for code in codes}
    assert len(seeds) > 3
    assert max(seeds) > 12


def test_zeros_become_random_numbers_of_the_same_shape_unless_they_are_filled_later():
    codes = [spread_zeros(edit_context(ZEROS), Random(seed)).code for seed in range(20)]
    for code in codes:
        names = {}
        exec(code, names)
        places = names["points"]()
        assert places.shape == (11, 2)
        assert 0 <= places.min() < places.max() <= 1.25
    assert len(set(codes)) == 20
    assert spread_zeros(edit_context(PACKING), Random(0)) is None


def test_lines_of_other_programs_are_taken():
    edit = take_lines(edit_context(PACKING, PACKING.replace("0.7", "0.45")), Random(0))
    assert "ring(16, 0.45)" in edit.code
    assert take_lines(edit_context(SCALAR, SCALAR), Random(0)) is None


def counts_and_limit(text: str) -> tuple[list[int], int]:
    context = edit_context(text)
    counts = [int(each) for each in EVALUATIONS.findall(text)]
    return counts, evaluation_limit(context, find_constructor(context))


def test_searches_get_longer_up_to_the_limit_of_their_time():
    text = searching(AREA)
    while edit := more_evaluations(edit_context(text), Random(0)):
        text = edit.code
    (count,), limit = counts_and_limit(text)
    assert limit / 1.1 < count <= limit


def test_two_searches_share_the_limit():
    lines = searching(AREA).replace("evaluations=40", "evaluations=100000").split("\n")
    number = next(n for n, line in enumerate(lines) if "evaluations=100000" in line)
    twice = "\n".join([*lines[: number + 1], lines[number], *lines[number + 1 :]])
    counts, limit = counts_and_limit(complete(twice))
    assert len(counts) == 2
    assert sum(counts) <= limit


def test_cheaper_scoring_lets_a_search_go_on_for_longer():
    cheap = tabulate_distances(edit_context(PACKING), Random(0)).code
    assert counts_and_limit(cheap)[1] > 5 * counts_and_limit(PACKING)[1]

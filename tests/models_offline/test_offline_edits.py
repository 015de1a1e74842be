from random import Random

import numpy as np
import pytest
from offline_programs import AREA, PACKING, PROGRAMS, SCALAR, SPREAD, parsed, result, scene, value

from costada.models.offline.answers import USUAL_EDITS
from costada.models.offline.constructor import find_constructor, with_fresh_functions
from costada.models.offline.ideas import IDEAS
from costada.models.offline.loop_edits import repeat_corrections, use_slack
from costada.models.offline.running_time import evaluation_counts, evaluation_limit
from costada.models.offline.search_edits import (
    METHODS,
    change_evaluations,
    cheaper_scoring,
    polish,
    search_with,
    shrink_step,
)
from costada.models.offline.small_edits import (
    change_literals,
    new_seed,
    take_function,
    take_numbers,
)

KINDS = {kind.__name__: kind for kind, _ in USUAL_EDITS}
KINDS |= {each.approach: each.edit for each in IDEAS}
SEEDS = range(2)


def searching(text: str, method: str = "row_search") -> str:
    edit = search_with(METHODS[method], scene(text), Random(0))
    assert edit is not None
    return edit.code


def test_every_kind_of_edit_fits_some_program():
    other = PACKING.replace("0.7", "0.5")
    scenes = [scene(PACKING, other), scene(searching(PACKING)), scene(searching(SPREAD))]
    scenes += [scene(searching(cheaper_scoring(scene(PACKING), Random(0)).code))]
    for name, kind in KINDS.items():
        assert any(kind(each, Random(0)) for each in scenes), name


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", KINDS)
def test_an_edited_program_still_compiles_and_changes_inside_the_markers_only(name, program):
    text = PROGRAMS[program]
    others = (text.replace("0.5", "0.4"), text.replace("+ 1", "+ 2"))
    for seed in SEEDS:
        edit = KINDS[name](scene(text, *others), Random(seed))
        if edit is None:
            continue
        compile(edit.code, "candidate", "exec")
        assert edit.summary.endswith(".")
        if "EVOLVE" in text:
            assert outside(edit.code) == outside(text)


def outside(text: str) -> list[str]:
    start, end = text.index("# EVOLVE-BLOCK-START"), text.index("# EVOLVE-BLOCK-END")
    return [text[:start], text[end:].rstrip()]


@pytest.mark.parametrize("program", ["packing", "area", "spread"])
@pytest.mark.parametrize("method", METHODS.values(), ids=lambda each: each.name)
def test_no_search_makes_a_program_worse(program, method):
    text = PROGRAMS[program]
    edit = search_with(method, scene(text), Random(1))
    if edit is None:
        assert method.appetite > 1
    else:
        assert value(edit.code) >= value(text)


@pytest.mark.parametrize("program", ["packing", "area", "spread"])
def test_a_row_search_makes_a_program_better(program):
    assert value(searching(PROGRAMS[program])) > 1.1 * value(PROGRAMS[program])


def test_a_second_search_takes_the_place_of_the_first():
    edit = search_with(METHODS["annealing"], scene(searching(AREA)), Random(0))
    assert edit is not None
    assert "row_search" not in edit.code
    assert edit.code.count("annealing(") == 2
    assert edit.code.count("def objective") == 1


@pytest.mark.parametrize("program", ["packing", "spread"])
def test_tables_leave_the_value_as_it_is(program):
    text = PROGRAMS[program]
    edit = cheaper_scoring(scene(text), Random(0))
    assert edit is not None
    assert "pair_table_1" in edit.code
    assert value(edit.code) == pytest.approx(value(text), rel=1e-12)
    assert cheaper_scoring(scene(edit.code), Random(0)) is None


def test_a_table_replaces_the_same_expression_behind_the_loop_as_well():
    slack = use_slack(scene(PACKING), Random(0))
    table = cheaper_scoring(scene(slack.code), Random(0))
    assert value(table.code) == pytest.approx(value(slack.code), rel=1e-12)
    assert table.code.count("np.sqrt") == 1


def test_no_table_is_made_of_an_array_that_changes_in_the_loop():
    moving = SPREAD.replace("      low = min", "      points[j] += 0.0\n      low = min")
    assert cheaper_scoring(scene(moving), Random(0)) is None


@pytest.mark.parametrize("edit", [use_slack, repeat_corrections])
def test_better_corrections_keep_every_limit(edit):
    changed = edit(scene(PACKING), Random(0))
    centers, radii, total = result(changed.code)
    distances = np.linalg.norm(centers[:, None] - centers[None, :], axis=-1)
    np.fill_diagonal(distances, np.inf)
    assert (radii[:, None] + radii[None, :] <= distances + 1e-12).all()
    assert (radii >= 0).all()
    assert total > value(PACKING)


def test_slack_is_used_inside_gentle_passes_too():
    gentle = repeat_corrections(scene(PACKING), Random(0))
    both = use_slack(scene(gentle.code), Random(0))
    assert value(both.code) > value(gentle.code)


def test_literals_are_perturbed_scaled_and_rounded():
    text = "def f():\n    return 0.1234\n"
    edits = [change_literals(scene(text), Random(seed)) for seed in range(30)]
    verbs = {each.summary.split()[0]: float(each.code.split("return ")[1]) for each in edits}
    assert set(verbs) == {"Move", "Scale", "Round"}
    assert verbs["Round"] == 0.1
    assert verbs["Scale"] / 0.1234 in (pytest.approx(k, abs=2e-3) for k in (0.67, 0.8, 1.25, 1.5))


def test_equal_numbers_of_a_statement_change_together():
    text = "def f():\n    return 0.3 + 0.3 * 2\n"
    edit = change_literals(scene(text), Random(0))
    first, second = edit.code.split("return ")[1].split(" * 2")[0].split(" + ")
    assert first == second != "0.3"


def test_a_seed_becomes_another_one():
    edit = new_seed(scene(AREA), Random(0))
    assert "default_rng(3)" not in edit.code
    assert new_seed(scene(SCALAR), Random(0)) is None


def test_a_function_comes_with_the_functions_it_calls():
    edit = take_function(scene(PACKING, searching(PACKING)), Random(0))
    assert "def row_search(" in edit.code
    assert value(edit.code) > value(PACKING)


def test_numbers_come_from_the_same_places_of_another_program():
    edit = take_numbers(scene(PACKING, PACKING.replace("0.7", "0.45")), Random(0))
    assert "ring(16, 0.45)" in edit.code


def test_searches_get_longer_up_to_the_limit_of_their_time():
    text = searching(AREA)
    for _ in range(12):
        edit = change_evaluations(scene(text), Random(0))
        text = edit.code if edit else text
    program = parsed(text)
    constructor = find_constructor(program)
    limit = evaluation_limit(program, constructor)
    assert edit is None
    assert limit / 1.1 < evaluation_counts(constructor)[0][1] <= limit


def test_two_searches_share_the_limit():
    text = searching(AREA).replace("evaluations=40", "evaluations=100000")
    program = parsed(polish(scene(text), Random(0)).code)
    constructor = find_constructor(program)
    counts = [count for _, count in evaluation_counts(constructor)]
    assert len(counts) == 2
    assert sum(counts) <= evaluation_limit(program, constructor)


def test_cheaper_scoring_lets_a_search_go_on_for_longer():
    program, cheap = parsed(PACKING), parsed(cheaper_scoring(scene(PACKING), Random(0)).code)
    limits = [evaluation_limit(each, find_constructor(each)) for each in (program, cheap)]
    assert limits[1] > 5 * limits[0]


def test_a_step_shrinks_with_the_turns_of_its_loop():
    edit = shrink_step(scene(searching(AREA)), Random(0))
    assert "for turn in range(evaluations)" in edit.code
    assert value(edit.code) > value(AREA)


def test_the_nested_functions_follow_a_change_of_the_statements_they_repeat():
    edit = cheaper_scoring(scene(searching(SPREAD)), Random(0))
    assert edit.code.count("pair_table_1 = ") == 1
    assert with_fresh_functions(edit.code).count("pair_table_1 = ") == 2
    assert with_fresh_functions(AREA) == AREA


def test_a_loss_is_searched_downwards():
    text = "import numpy as np\n\ndef f():\n    x = np.ones(3)\n    loss = np.sum(x**2)\n"
    constructor = find_constructor(parsed(text + "    return x, loss\n"))
    assert constructor.value == "-loss"
    assert value(searching(text + "    return x, loss\n\ndef run():\n    return f()\n")) < 3.0

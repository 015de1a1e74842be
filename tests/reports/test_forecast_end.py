"""When a run will end, as the live view tells it."""

import io

import pytest
from rich.console import Console

from costada.reports.progress import LiveProgress, RunHeading, remaining_iterations

HEADING = RunHeading("toy", budget=1.0, max_iterations=100)


@pytest.mark.parametrize(
    ("spent", "iteration", "iterations"),
    [(0.5, 10, 10), (0.3, 10, 24), (0.01, 10, 90), (0.0, 10, 90), (1.2, 10, 0), (0.5, 100, 0)],
)
def test_what_is_left_goes_at_the_mean_step_cost_up_to_the_iteration_limit(
    spent, iteration, iterations
):
    assert remaining_iterations(1.0, spent, iteration, 100) == iterations


def panel(rows_before, rows, *, is_over=False):
    text = io.StringIO()
    progress = LiveProgress(Console(file=text, width=100, force_terminal=True, color_system=None))
    with progress:
        progress.begin(HEADING, rows_before)
        for row in rows:
            progress.step(row)
        if not is_over:
            progress._live.refresh()
            return text.getvalue().rsplit("╭", 1)[1]
    return text.getvalue().rsplit("╭", 1)[1]


def test_the_panel_tells_how_many_iterations_are_left_and_when_they_will_have_ended(make_row):
    shown = panel([], [make_row(iteration=1, spent=0.25)])
    assert "about 3 iterations" in shown
    assert "end" in shown


@pytest.mark.parametrize("before", [[], [41]])
def test_it_tells_nothing_before_an_iteration_of_this_session(make_row, before):
    assert "left" not in panel([make_row(iteration=t, spent=0.5) for t in before], [])


def test_a_run_that_is_over_has_no_end_to_come(make_row):
    assert "left" not in panel([], [make_row(spent=0.25)], is_over=True)

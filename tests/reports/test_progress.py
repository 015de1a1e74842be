import io
from typing import Any

import pytest
from rich.console import Console

from costada.reports.progress import (
    LineProgress,
    LiveProgress,
    Progress,
    RunHeading,
    progress_on,
    remaining_iterations,
)
from costada.runs.interruption import STOPPING

HEADING = RunHeading("toy, offline, seed 0", budget=1.0, max_iterations=100)


def console(*, is_terminal: bool) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, width=100, force_terminal=is_terminal, color_system=None), text


def follow(progress: Progress, rows: list[Any]) -> None:
    with progress:
        progress.begin(HEADING, [])
        for row in rows:
            progress.step(row)


def test_a_pipe_gets_a_heading_and_one_line_per_iteration(make_row):
    target, text = console(is_terminal=False)
    follow(progress_on(target, is_quiet=False), [make_row(), make_row(iteration=2)])
    lines = text.getvalue().splitlines()
    assert lines[0] == "toy, offline, seed 0: budget $1"
    assert [line.split()[0] for line in lines[1:]] == ["t=1", "t=2"]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_what_holds_the_candidates_is_shown(*, is_terminal):
    target, text = console(is_terminal=is_terminal)
    with (progress := progress_on(target, is_quiet=False)):
        progress.begin(RunHeading("toy", 1.0, 100, sandbox="landlock"), [])
    assert "sandbox landlock" in text.getvalue()


def line_of(row: Any) -> str:
    target, text = console(is_terminal=False)
    LineProgress(target).step(row)
    return text.getvalue().removesuffix("\n")


def test_a_line_says_frontier_action_money_and_events(make_row):
    row = make_row(frontier=2, objective=None, events=["guide_charged", "backoff"])
    assert line_of(row) == (
        "t=1  frontier 2  exploration  step $0.0150  spent $0.0150"
        "  objective none  best 4.99  guide_charged  backoff"
    )


def test_nothing_valid_yet_is_said_so(make_row):
    assert "best none" in line_of(make_row(best_objective=None, best_score=0.0))


def test_a_terminal_gets_a_panel_with_budget_best_frontier_mode_and_events(make_row):
    target, text = console(is_terminal=True)
    rows = [
        make_row(),
        make_row(
            iteration=2,
            frontier=2,
            action="balanced",
            spent=0.25,
            step_cost=0.0312,
            global_gain=0.1,
            best_objective=5.5,
            events=["guide_scheduled:breakthrough"],
            failure="ValueError: no\ntrace",
        ),
    ]
    follow(progress_on(target, is_quiet=False), rows)
    panel = " ".join(text.getvalue().rsplit("╭", 1)[1].split())
    for words in (
        "toy, offline, seed 0",
        "$0.2500 of $1",
        "5.5 (score 0.4990)",
        "frontier 2",
        "balanced (intensity 0.50)",
        "$0.0312",
        "2 of at most 100",
        "t=2 best from 4.99 to 5.5",
        "t=2 guide scheduled: breakthrough",
        "t=2 failed: ValueError: no",
    ):
        assert words in panel


def test_a_resumed_run_shows_at_once_where_it_stands(make_row):
    target, text = console(is_terminal=True)
    with (progress := LiveProgress(target)):
        progress.begin(HEADING, [make_row(iteration=41, spent=0.5)])
    assert "41 of at most 100" in text.getvalue()


def test_the_panel_shows_that_a_wish_to_stop_was_heard(make_row):
    target, text = console(is_terminal=True)
    with (progress := LiveProgress(target)):
        progress.begin(HEADING, [])
        progress.notice(STOPPING)
    assert "Ctrl-C again stops at once" in text.getvalue()


def test_a_pipe_reports_a_wish_to_stop_on_standard_error(capfd):
    LineProgress(console(is_terminal=False)[0]).notice(STOPPING)
    assert capfd.readouterr().err == f"{STOPPING}\n"


def test_quiet_shows_nothing(make_row):
    target, text = console(is_terminal=True)
    progress = progress_on(target, is_quiet=True)
    assert type(progress) is Progress
    follow(progress, [make_row()])
    assert text.getvalue() == ""


def test_a_narrow_panel_shows_every_fact_whole(make_row):
    text = io.StringIO()
    target = Console(file=text, width=50, force_terminal=True, color_system=None)
    follow(LiveProgress(target), [make_row()])
    shown = " ".join(text.getvalue().split())
    for fact in ("last step $0.0150", "mode exploration (intensity 0.50)", "1 of at most 100"):
        assert fact in shown


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

import io
import re
from decimal import Decimal
from time import time

import pytest
from rich.console import Console
from rows import call_row

from costada.reports.progress import (
    LineProgress,
    LiveProgress,
    Progress,
    RunHeading,
    progress_on,
    remaining_iterations,
)
from costada.reports.summary import cache_text, sum_by_role
from costada.runs.interruption import STOPPING
from costada.store.history import RunHistory
from costada.store.outage import DatabaseUnavailable, Patience, outlast
from costada.store.rows import CallStatus
from costada.store.run_store import RunStore
from costada.values.usage import Usage

HEADING = RunHeading("toy, offline, seed 0", budget=1.0, max_iterations=100)


def console(*, is_terminal, width=100):
    text = io.StringIO()
    return Console(file=text, width=width, force_terminal=is_terminal, color_system=None), text


def follow(progress, rows, before=()):
    with progress:
        progress.begin(HEADING, list(before))
        for row in rows:
            progress.step(row)


def test_a_pipe_gets_a_heading_and_one_line_per_iteration(make_row):
    target, text = console(is_terminal=False)
    follow(progress_on(target, is_quiet=False), [make_row(), make_row(iteration=2)])
    lines = text.getvalue().splitlines()
    assert lines[0] == "toy, offline, seed 0: budget $1"
    assert [line.split()[0] for line in lines[1:]] == ["t=1", "t=2"]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_sandbox_of_the_candidates_is_shown(*, is_terminal):
    target, text = console(is_terminal=is_terminal)
    with (progress := progress_on(target, is_quiet=False)):
        progress.begin(RunHeading("toy", 1.0, 100, sandbox="landlock"), [])
    assert "sandbox landlock" in text.getvalue()


def line_of(row):
    target, text = console(is_terminal=False)
    LineProgress(target).step(row)
    return text.getvalue().splitlines()[0]


def test_a_line_says_frontier_action_money_and_events(make_row):
    row = make_row(frontier=2, objective=None, events=["guide_charged", "backoff"])
    assert line_of(row) == (
        "t=1  frontier 2  exploration  step $0.0150  spent $0.0150"
        "  objective none  best 4.99  guide_charged  backoff"
    )
    assert "best none" in line_of(make_row(best_objective=None, best_score=0.0))


def test_a_panel_shows_only_attempts_that_were_made_as_failed(make_row):
    target, text = console(is_terminal=True, width=180)
    rows = [
        make_row(failure="no program\nat all"),
        make_row(iteration=2, failure="nothing is left", events=["out_of_money"]),
    ]
    follow(LiveProgress(target), rows)
    assert "failed: no program" in text.getvalue()
    assert "not paid for: nothing is left" in text.getvalue()
    assert "failed: nothing" not in text.getvalue()


def test_a_terminal_gets_a_panel_with_budget_best_frontier_mode_and_events(make_row):
    target, text = console(is_terminal=True)
    second = {"spent": 0.25, "step_cost": 0.0312, "global_gain": 0.1, "best_objective": 5.5}
    events = {"events": ["guide_scheduled:breakthrough"], "failure": "ValueError: no\ntrace"}
    row = make_row(iteration=2, frontier=2, action="balanced", **second, **events)
    follow(progress_on(target, is_quiet=False), [make_row(), row])
    panel = " ".join(text.getvalue().rsplit("╭", 1)[1].split())
    for words in (
        *("toy, offline, seed 0", "$0.2500 of $1", "5.5 (score 0.4990)", "frontier 2"),
        *("balanced (intensity 0.50)", "$0.0312", "2 of at most 100", "t=2 best from 4.99 to 5.5"),
        *("t=2 guide scheduled: breakthrough", "t=2 failed: ValueError: no"),
    ):
        assert words in panel


def test_a_panel_lists_requests_in_flight_with_frontier_seconds_and_bound(tmp_path):
    target, _ = console(is_terminal=True)
    with RunStore(tmp_path / "run.sqlite") as store, (progress := LiveProgress(target)):
        store.open_run("run", "costada", "toy")
        sent = {"status": CallStatus.STARTED, "cost": Decimal(0)}
        now = time()
        for call in (
            call_row(ticket=1),
            call_row(ticket=2, **sent, ended_at=now - 65, frontier=1, bound=Decimal("0.02")),
            call_row(ticket=3, **sent, ended_at=now - 5, role="guide", bound=Decimal("0.03")),
        ):
            store.call_log.put_call("run", call)
        heading = RunHeading("toy", 1.0, 100, parallel=4, database=tmp_path / "run.sqlite")
        progress.begin(heading, [])
        panel = lines_of(progress)
        assert "in flight 2 requests, at most $0.0500" in panel
        (row,) = [line for line in panel if line.startswith("frontier 2")]
        assert re.fullmatch(
            r"frontier 2 1:0\d, at most \$0\.0200 guide 0:0\d, at most \$0\.0300", row
        )
    assert "in flight" not in " ".join(lines_of(progress))


def test_a_panel_says_which_share_of_the_prompts_came_from_a_cache_and_what_that_saved(
    tmp_path, make_row
):
    """Of 1,000 tokens at $2 per million 400 cost $0.2: without a cache $0.0004 more."""
    target, _ = console(is_terminal=True)
    with RunStore(tmp_path / "run.sqlite") as store, (progress := LiveProgress(target)):
        store.open_run("run", "costada", "toy")
        read = {"usage": Usage(1000, 0, 400), "price_in": "2", "price_out": "10"}
        store.call_log.put_call("run", call_row(**read, cost=Decimal("0.00128")))
        progress.begin(RunHeading("toy", 1.0, 100, database=tmp_path / "run.sqlite"), [make_row()])
        assert "cached 40% of tokens in, $0.0007 saved" in " ".join(lines_of(progress))


def test_the_end_of_a_run_says_what_prompt_caches_saved_or_cost(tmp_path):
    rates = {"price_in": "2", "price_out": "10"}
    plain = call_row(usage=Usage(1000, 10), cost=Decimal("0.0021"), **rates)
    read = call_row(usage=Usage(1000, 10, 600), cost=Decimal("0.00102"), **rates)
    written = Usage(1000, 10, cache_write_tokens=400)
    wrote = call_row(usage=written, cost=Decimal("0.0023"), role="guide", **rates)

    def said(*calls):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.sqlite"
        with RunStore(path) as store:
            for each in calls:
                store.call_log.put_call("run", each)
        with RunHistory.of(path) as history:
            return cache_text(sum_by_role(history.used("run")).values())

    assert said(plain) == ""
    assert said(plain, read) == "30.00% of the tokens in, $0.001080 saved"
    assert said(plain, read, wrote) == "20.00% of the tokens in, $0.000880 saved"
    assert said(wrote) == "0.00% of the tokens in, $0.000200 more, for writing them"


def lines_of(progress):
    """The lines of a panel as it stands, without frame and runs of blanks."""
    target, text = console(is_terminal=True)
    target.print(progress)
    return [" ".join(line.strip("│ \n").split()) for line in text.getvalue().splitlines()]


def test_a_panel_has_as_many_lines_whatever_is_in_flight_and_counts_what_it_leaves_out(tmp_path):
    heights = []
    for number in (0, 3, 20):
        path = tmp_path / f"{number}.sqlite"
        target, _ = console(is_terminal=True)
        with RunStore(path) as store, (progress := LiveProgress(target)):
            store.open_run("run", "costada", "toy")
            for ticket in range(1, number + 1):
                sent = {"status": CallStatus.STARTED, "cost": Decimal(0), "ended_at": time()}
                store.call_log.put_call("run", call_row(ticket=ticket, **sent, frontier=0))
            progress.begin(RunHeading("toy", 1.0, 100, parallel=20, database=path), [])
            panel = lines_of(progress)
        heights.append(len(panel))
        assert any(line.endswith("and 13 more") for line in panel) is (number == 20)
    assert len(set(heights)) == 1


def menu_rows(**changes):
    """What a row says of two models; `changes` are those of the second."""
    known = {"credit": 0.5, "tries": 3, "dollars": 0.0123, "is_disabled": False}
    posterior = {"mean": 0.2, "deviation": 0.0471}
    return [
        {"name": "small", **known, **posterior},
        {"name": "large@high", **known, **posterior, **changes},
    ]


@pytest.mark.parametrize("width", [100, 50])
def test_a_panel_shows_dollars_and_tries_of_each_model_and_what_is_disabled(make_row, width):
    target, text = console(is_terminal=True, width=width)
    first = make_row(models=["small"], router=menu_rows())
    disabled = menu_rows(dollars=1.5, tries=1234, is_disabled=True)
    noted = {"models": ["small", "large@high"], "events": ["disabled:large@high"]}
    second = make_row(iteration=2, router=disabled, **noted)
    follow(LiveProgress(target), [first, second])
    lines = [" ".join(line.strip("│ ").split()) for line in text.getvalue().splitlines()]
    expected = " 0.200 \u00b1 0.047" if width == 100 else ""
    assert f"small $0.0123 3{expected}" in lines
    assert f"large@high $1.5000 1,234{expected} disabled" in lines
    assert any("small, then large@high" in line for line in lines)
    assert any(line.startswith("t=2 disabled: large@high") for line in lines)


def test_a_line_names_the_model_of_each_attempt(make_row):
    router = menu_rows()
    assert "  exploration  model small  step" in line_of(make_row(models=["small"], router=router))
    retried = make_row(models=["large@high", "small"], router=router)
    assert "  model large@high, then small  step" in line_of(retried)


def test_a_resumed_run_shows_its_iteration_at_once(make_row):
    target, text = console(is_terminal=True)
    follow(LiveProgress(target), [], before=[make_row(iteration=41, spent=0.5)])
    assert "41 of at most 100" in text.getvalue()


def test_a_request_to_stop_is_confirmed_in_the_panel_or_on_standard_error(capfd):
    target, text = console(is_terminal=True)
    with (progress := LiveProgress(target)):
        progress.begin(HEADING, [])
        progress.notice(STOPPING)
    assert "Ctrl-C again stops at once" in text.getvalue()
    LineProgress(console(is_terminal=False)[0]).notice(STOPPING)
    assert capfd.readouterr().err == f"{STOPPING}\n"


def test_the_panel_says_since_when_the_run_waits_for_its_database():
    target, text = console(is_terminal=True)
    num_tries = 0

    def ask():
        nonlocal num_tries
        num_tries += 1
        if num_tries < 3:
            raise DatabaseUnavailable(5, "no answer", "postgresql://h/d")
        target.print(progress)

    progress = LiveProgress(target)
    # It waits from the second failure on; the third try is made, and the panel drawn, within.
    outlast(ask, Patience(60))
    assert re.search(
        r"Waiting for the database, since \d\d:\d\d:\d\d \(no answer\)", text.getvalue()
    )
    target.print(progress)
    assert text.getvalue().count("Waiting for the database") == 1


def test_quiet_shows_nothing(make_row):
    target, text = console(is_terminal=True)
    progress = progress_on(target, is_quiet=True)
    assert type(progress) is Progress
    follow(progress, [make_row()])
    assert text.getvalue() == ""


def test_a_narrow_panel_shows_every_fact(make_row):
    target, text = console(is_terminal=True, width=50)
    follow(LiveProgress(target), [make_row()])
    shown = " ".join(text.getvalue().split())
    for fact in ("last step $0.0150", "mode exploration (intensity 0.50)", "1 of at most 100"):
        assert fact in shown


@pytest.mark.parametrize(
    ("parallel", "is_in_step"), [(1, True), (4, False)], ids=["alone", "parallel"]
)
def test_no_last_step_is_named_before_there_is_one(make_row, parallel, is_in_step):
    target, text = console(is_terminal=True)
    with (progress := LiveProgress(target)):
        progress.begin(RunHeading("toy", 1.0, 100, parallel=parallel), [])
        progress._live.refresh()
        before = text.getvalue()
        progress.step(make_row())
        progress._live.refresh()
    assert "1 of at most 100" in before
    assert "last step" not in before
    assert ("in this step)" in before) is is_in_step
    assert "last step" in text.getvalue()


@pytest.mark.parametrize(
    ("spent", "iteration", "iterations"),
    [(0.5, 10, 10), (0.3, 10, 24), (0.01, 10, 90), (0.0, 10, 90), (1.2, 10, 0), (0.5, 100, 0)],
)
def test_the_rest_is_spent_at_the_mean_step_cost_up_to_the_iteration_limit(
    spent, iteration, iterations
):
    assert remaining_iterations(1.0, spent, iteration, 100) == iterations


@pytest.mark.parametrize(
    ("before", "spent", "is_over", "is_shown"),
    [([], [0.25], False, True), ([], [], False, False), ([0.5], [], False, False),
     ([], [0.25], True, False)],
)  # fmt: skip
def test_the_panel_forecasts_the_end_after_an_iteration_of_this_session(
    make_row, before, spent, is_over, is_shown
):
    target, text = console(is_terminal=True)
    with (progress := LiveProgress(target)):
        progress.begin(RunHeading("toy", 1.0, 100), [make_row(spent=each) for each in before])
        for each in spent:
            progress.step(make_row(spent=each))
        progress._live.refresh()
        shown = text.getvalue()
    shown = (text.getvalue() if is_over else shown).rsplit("╭", 1)[1]
    assert ("left" in shown) is ("about 3 iterations" in shown) is is_shown
    assert not is_shown or "end" in shown


@pytest.mark.parametrize("is_terminal", [True, False])
def test_an_event_is_explained_where_it_first_occurs_and_not_again(make_row, *, is_terminal):
    target, text = console(is_terminal=is_terminal)
    charged = {"events": ["guide_charged"]}
    with (progress := progress_on(target, is_quiet=False)):
        progress.begin(HEADING, [make_row(**charged), make_row(iteration=2, **charged)])
        progress.step(make_row(iteration=3, **charged))
        progress.step(make_row(iteration=4, **charged))
    shown = text.getvalue().rsplit("╭", 1)[-1]
    assert shown.count("guide charged" if is_terminal else "guide_charged") >= 2
    assert shown.count("a guide was asked") == 1


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 50), (50, 30), (100, 16)])
def test_a_panel_fits_on_the_terminal_and_has_one_frame(make_row, tmp_path, width, height):
    text = io.StringIO()
    target = Console(file=text, width=width, height=height, force_terminal=True, color_system=None)
    path = tmp_path / "run.sqlite"
    progress = LiveProgress(target)
    with RunStore(path) as store:
        store.open_run("run", "costada", "toy")
        for ticket in range(1, 21):
            sent = {"status": CallStatus.STARTED, "cost": Decimal(0), "ended_at": time()}
            store.call_log.put_call("run", call_row(ticket=ticket, **sent, frontier=0))
        progress.begin(RunHeading("toy", 1.0, 100, parallel=20, database=path), [])
        for iteration in range(1, 80):
            progress.step(make_row(iteration=iteration, events=["backoff"], router=menu_rows()))
        target.print(progress)
    lines = text.getvalue().splitlines()
    assert len(lines) < height
    assert {len(line) for line in lines} == {width}
    assert [line[0] for line in lines] == ["╭", *"│" * (len(lines) - 2), "╰"]


def test_a_wide_panel_lists_the_last_steps_with_their_objectives(make_row):
    text = io.StringIO()
    target = Console(file=text, width=200, height=50, force_terminal=True, color_system=None)
    progress = LiveProgress(target)
    progress.begin(HEADING, [])
    for iteration in range(1, 61):
        progress.step(make_row(iteration=iteration, objective=float(iteration)))
    target.print(progress)
    shown = [line.strip("│ ").split() for line in text.getvalue().splitlines()]
    steps = [words for words in shown if words and words[0].isdigit()]
    assert len(steps) >= 30
    last = ["60", "1", "exploration", "$0.0150", "60", "4.99"]
    assert steps[-1] == last

"""The page as a reader's browser shows it."""

import re
from decimal import Decimal
from time import time
from typing import Any

import pytest
from page_runs import (
    MENU,
    call,
    candidate,
    front_run,
    long_run,
    menu_run,
    serving,
    settings,
    step,
    write_steps,
)

from costada.reports.page.feed import Feed
from costada.reports.page.page import write_page
from costada.reports.trace import rows_of_file
from costada.runs.folder import RunFolder
from costada.runs.folder_lease import hold_lease
from costada.store.rows import CallStatus
from costada.store.run_copy import Cut, cut_back
from costada.values.candidate import Program
from costada.values.usage import Usage

pytestmark = pytest.mark.browser

MARKUP = (
    "</script><script>window.hurt = 1</script><img src=x onerror='window.hurt = 1'>"
    "<svg onload='window.hurt = 1'></svg>{{7*7}}<!-- \u202e"
)

ERROR = "TypeError: no\n  File candidate.py, line 3, in value\n    return total + None"


def opened(page: Any, run: RunFolder, anchor: str = "") -> Any:
    page.goto(write_page(run).as_uri() + anchor)
    page.wait_for_selector("#table tbody tr")
    return page


@pytest.fixture
def guided(tmp_path):
    """A run of four iterations: a new best, a failure repaired, a guide, a second new best."""
    run = settings(tmp_path / "run", budget=0.1)
    first, changed = Program.of("a = 1\nb = 2\nc = 3\n"), Program.of("a = 1\nb = 5\nc = 3\n")
    write_steps(
        run,
        [
            step(1, global_gain=0.2, utility=0.2, objective=0.6, best_objective=0.6),
            step(2, attempts=2, step_cost=0.004, events=["guide_scheduled:refinement"]),
            step(3, events=["guide_charged", "backoff"], step_cost=0.005, tactic_uses_left=5),
            step(4, global_gain=0.1, events=["consolidation_opened"], objective=0.7, spent=0.013),
        ],
        calls=[
            *(call(1), call(2), call(2, role="retry", attempt=2), call(3)),
            call(3, role="guide", cost=Decimal("0.003"), prompt="Give ideas.", answer="Ideas."),
            call(4, prompt="the fourth prompt", answer="the fourth answer"),
        ],
        candidates=[
            candidate(1, objective=0.6, program=first),
            candidate(2, is_valid=False, objective=None, score=0.0, error=ERROR),
            candidate(2, id="2.2"),
            candidate(3, parent_id="2.2"),
            candidate(4, objective=0.7, parent_id="1.1>1@2", program=changed),
            candidate(2, id="1.1>1@2", migrated_in=2),
        ],
    )
    return run


def test_the_page_opens_without_a_word_in_the_console_and_fits_its_width(page, guided):
    for scheme, width in (("light", 1400), ("dark", 800), ("light", 360)):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 800})
        opened(page, guided)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.locator(".chart:visible svg").count() == 8
    assert page.said == []


def test_key_figures_spending_by_role_and_failures_by_kind_are_those_of_the_run(page, guided):
    opened(page, guided)
    told = page.locator("#key div").all_inner_texts()
    assert [" ".join(text.split()) for text in told] == [
        "Best objective 0.5 that of the start",
        "Spent $0.0130 of $0.10",
        "Iterations 4 of 10, 2 new bests",
        "Requests 6 9,000 tokens",
        "Guides 1 1 consolidation opened",
        "Failures 1 in 1 iteration",
    ]
    rows = page.locator("#roles tbody tr").all_inner_texts()
    assert [row.split()[:4] for row in rows] == [
        ["generation", "$0.008", "62", "%"],
        ["retry", "$0.002", "15", "%"],
        ["guide", "$0.003", "23", "%"],
    ]
    (row,) = page.locator("#kinds tbody tr").all_inner_texts()
    assert row.split("\t") == ["raised TypeError", "program", "TypeError: no", "2", "1"]


def test_a_step_opens_with_its_prompt_and_answer_on_demand(page, guided):
    opened(page, guided)
    assert "the fourth prompt" not in page.content()
    page.click("#table a >> text='4'")
    page.click("#drawer summary >> text=Prompt")
    page.click("#drawer summary >> text=Answer")
    shown = page.locator("#drawer details[open] pre")
    shown.nth(1).wait_for()
    assert shown.all_inner_texts() == ["the fourth prompt", "the fourth answer"]
    assert page.evaluate("location.hash") == "#t=4"


def test_the_lineage_leads_from_the_start_to_the_best_past_copies(page, guided):
    opened(page, guided)
    heads = page.locator("#ancestors .parts").all_inner_texts()
    assert [text.split("\n")[0] for text in heads] == ["start", "iteration 1", "iteration 4"]
    page.click("#ancestors li:nth-child(3) summary")
    page.wait_for_selector("#ancestors .diff")
    assert page.locator("#ancestors .removed").all_inner_texts() == ["\u2212 b = 2"]
    assert page.locator("#ancestors .added").all_inner_texts() == ["+ b = 5"]
    assert page.inner_text("#ancestors li:nth-child(3) summary") == "Diff +1 \u22121 lines"


def test_a_candidate_of_several_files_is_shown_and_compared_file_by_file(page, tmp_path):
    run = settings(tmp_path / "run")
    start = Program.of({"a.py": "x = 1\n", "b.py": "y = 2\n"})
    changed = Program.of({"a.py": "x = 1\n", "b.py": "y = 3\n"})
    found = [candidate(0, program=start), candidate(1, program=changed)]
    write_steps(run, [step(1, global_gain=0.1)], candidates=found)
    opened(page, run, "#t=1")
    page.wait_for_selector("#drawer .diff")
    lines = page.locator("#drawer .diff span").all_inner_texts()
    assert lines == ["b.py", "\u2212 y = 2", "+ y = 3"]
    page.click("#drawer summary >> text=b.py")
    text = page.wait_for_selector("#drawer details:has(> summary:text-is('b.py')) pre")
    assert text.inner_text() == "y = 3\n"
    assert page.locator("#drawer >> text='Unchanged: a.py'").count() == 1


def test_a_link_to_a_step_opens_it_and_the_lineage_of_its_candidate_can_be_shown(page, guided):
    opened(page, guided, "#t=3")
    assert page.inner_text("#drawer-title") == "Iteration 3"
    page.click("#drawer button >> text=Show its lineage")
    assert page.inner_text("#lineage-title") == "Lineage of the program of iteration 3"
    assert page.locator("#ancestors li").count() == 3
    page.click("text=Back to the best program")
    assert page.inner_text("#lineage-title") == "Lineage of the best program"


def test_keys_move_through_a_chart_open_a_step_and_leave_it(page, guided):
    opened(page, guided)
    chart = page.locator("#spent-chart svg")
    chart.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#tip").startswith("Iteration 2: frontier 1, exploitation")
    page.keyboard.press("Enter")
    assert page.inner_text("#drawer-title") == "Iteration 2"
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#drawer-title") == "Iteration 3"
    page.keyboard.press("Escape")
    assert not page.is_visible("#drawer")
    assert page.evaluate("document.activeElement === document.querySelector('#spent-chart svg')")


def test_the_panel_of_a_step_holds_the_focus_where_it_covers_the_page(page, guided):
    page.set_viewport_size({"width": 900, "height": 700})
    opened(page, guided)
    page.click("#table a >> text='3'")
    page.wait_for_selector("#drawer .card")
    assert page.evaluate("document.activeElement.id") == "drawer-title"
    count = page.locator("#drawer :is(button, summary, pre):visible").count()
    for _ in range(2 * count):
        page.keyboard.press("Tab")
        assert page.evaluate(
            "document.activeElement === document.body"  # the browser's own bar
            " || document.activeElement.closest('#drawer') !== null"
        )
    page.click("#drawer .term >> nth=0")
    box = page.locator("#meaning").bounding_box()
    middle = [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2]
    assert page.evaluate("([x, y]) => document.elementFromPoint(x, y).id", middle) == "meaning"
    page.keyboard.press("Escape")
    assert not page.is_visible("#meaning")
    assert page.is_visible("#drawer")
    page.set_viewport_size({"width": 1800, "height": 700})  # beside the page: nothing is covered
    page.wait_for_selector("#drawer:not(:modal)")
    page.click("#best-diff")
    assert page.inner_text("#drawer-title") == "Iteration 3"
    page.set_viewport_size({"width": 900, "height": 700})
    page.wait_for_selector("#drawer:modal")
    page.mouse.click(20, 300)
    page.wait_for_selector("#drawer", state="hidden")
    assert page.evaluate("document.activeElement.textContent") == "3"
    assert page.evaluate("location.hash") == ""
    assert page.said == []


def test_a_step_that_could_not_be_paid_for_has_not_failed(page, tmp_path):
    run = settings(tmp_path / "run", budget=0.01)
    poor = {"objective": None, "score": None, "events": ["out_of_money"], "failure": "no money"}
    write_steps(
        run,
        [
            step(1, failure="no program"),
            step(2, **poor, attempts=2),
            step(3, **poor, attempts=1, step_cost=0.0),
        ],
        calls=[call(1), call(2)],
        candidates=[candidate(2, is_valid=False, objective=None, score=0.0, error=ERROR)],
    )
    opened(page, run)
    rows = page.locator("#table tbody tr").all_inner_texts()
    events = [row.split("\t")[2] for row in rows]
    assert events == ["failed", "out of money, failed", "out of money"]
    page.select_option("#which", "failed")
    assert page.inner_text("#listed") == "1 to 2 of 2"
    assert "Last failure, in iteration 2: raised TypeError." in page.inner_text("#outcome")
    page.click("#table a >> text='2'")
    page.wait_for_selector("#drawer h3 >> text=Why the last attempt was not made")


def test_evaluations_that_cost_money_have_a_role_of_their_own(page, tmp_path):
    run = settings(tmp_path / "run", budget=0.1)
    computed = {"role": "compute", "usage": Usage(0, 0), "model": "", "prompt": "", "answer": ""}
    write_steps(
        run,
        [step(1, step_cost=0.008)],
        calls=[call(1), call(1, **computed, cost=Decimal("0.006"), seconds=1.5)],
    )
    opened(page, run, "#t=1")
    rows = page.locator("#roles tbody tr").all_inner_texts()
    assert [row.split()[:4] for row in rows] == [
        ["generation", "$0.002", "25", "%"],
        ["compute", "$0.006", "75", "%"],
    ]
    assert page.locator("#cost-legend span").all_inner_texts() == ["generation", "compute"]
    assert page.locator("#calls-legend span").all_inner_texts() == ["generation", "compute"]
    assert "Requests\n1\n" in page.locator("#key").inner_text()  # the evaluation is not one
    card = page.locator(".bill", has_text="compute 1").inner_text()
    assert "1.50" in card
    assert "tokens" not in card


@pytest.fixture
def hundred(tmp_path):
    run = settings(tmp_path / "run", max_iterations=100)
    write_steps(run, [step(t, failure="no" if t == 70 else None) for t in range(1, 101)])
    return run


@pytest.fixture
def three_models(tmp_path):
    return menu_run(tmp_path / "run", 40, disabled=30)


def test_a_run_with_one_model_has_no_part_on_models(page, guided):
    opened(page, guided)
    assert not page.is_visible("#models")
    assert not page.is_visible("#models-link")


def test_the_dollars_tries_and_gains_of_each_model_are_those_of_calls_and_rows(page, three_models):
    opened(page, three_models)
    figures = Feed(three_models).figures()
    last = {row[1]: row for row in figures["models"]["rows"]}
    calls = figures["calls"]
    cost, entry = (calls["columns"].index(name) for name in ("cost", "entry"))
    rows = [row.split("\t") for row in page.locator("#model-table tbody tr").all_inner_texts()]
    assert [row[0] for row in rows] == list(MENU)
    for name, dollars, _, _, requests, doubt, tries, *_, credit, _, expected, disabled in rows:
        own = [row[cost] for row in calls["rows"] if row[entry] == name]
        assert float(dollars.removeprefix("$")) == pytest.approx(sum(own), abs=1e-6)
        assert int(requests) == int(tries) == last[name][3] == len(own)
        assert float(credit) == pytest.approx(last[name][2], abs=5e-4)
        assert doubt == "0"
        assert expected == f"{last[name][6]:.3f} \u00b1 {last[name][7]:.3f}"
        assert disabled == ("disabled in 30" if name == "large" else "")


def test_each_model_has_a_line_of_dollars_credit_and_expected_credit(page, three_models):
    for scheme, width in (("light", 1280), ("dark", 900), ("light", 390)):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 800})
        opened(page, three_models)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        for holder in ("model-dollars-chart", "model-credit-chart", "posterior-chart"):
            assert page.locator(f"#{holder} .line").count() == 3
        assert page.locator("#posterior-chart .band").count() == 3
        is_whole = "(table) => table.scrollWidth <= table.clientWidth"
        assert width < 1280 or page.locator("#model-table").evaluate(is_whole)
        assert page.locator("#tries-chart .pause").count() == 1
    assert page.said == []


def test_a_chosen_range_begins_with_what_models_had_before_it(page, three_models):
    opened(page, three_models)
    page.fill("#first", "35")
    page.keyboard.press("Enter")
    assert page.locator("#model-dollars-chart .line").count() == 3
    drawn = page.get_attribute("#model-dollars-chart .line.model-3", "d")
    assert re.fullmatch(r"M[\d.]+ ([\d.]+)H[\d.]+V\1", drawn)  # level: it was disabled before


def test_a_step_names_the_model_of_each_attempt(page, three_models):
    rows = rows_of_file(three_models.database)
    retried = next(row for row in rows if len(row["models"]) > 1)
    opened(page, three_models, f"#t={retried['iteration']}")
    page.wait_for_selector("#drawer .card")
    facts = page.inner_text("#drawer-body > div:last-child .facts, #drawer-body > .facts")
    assert f"model\n{', then '.join(retried['models'])}" in facts


def test_a_watched_page_follows_the_models(page, three_models):
    with serving(three_models) as server:
        page.goto(server.address)
        page.wait_for_selector("#model-table tbody tr")
        facts = {"credit": 1.0, "tries": 7, "dollars": 0.1, "is_disabled": False}
        rows = [{"name": name, **facts, "mean": 0.5, "deviation": 0.1} for name in MENU]
        write_steps(three_models, [step(41, spent=0.9, models=["small"], router=rows)])
        page.wait_for_selector("#model-table >> text=0.500 \u00b1 0.100")
        assert page.said == []


def test_a_drag_and_the_form_choose_the_iterations_shown(page, hundred):
    opened(page, hundred)
    page.fill("#first", "21")
    page.fill("#last", "60")
    page.keyboard.press("Enter")
    ticks = page.locator("#spent-chart .tick").all_text_contents()
    assert ("30" in ticks, "80" in ticks) == (True, False)
    page.locator("#spent-chart svg").scroll_into_view_if_needed()
    box = page.locator("#spent-chart svg").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 40, steps=4)
    page.mouse.up()
    first, last = (int(page.input_value(name)) for name in ("#first", "#last"))
    assert 30 < first < last < 50
    page.click("#all")
    assert (page.input_value("#first"), page.input_value("#last")) == ("1", "100")


@pytest.mark.parametrize(
    ("first", "last", "wrong", "said"),
    [
        ("0", "50", "#first", "greater than or equal to 1"),
        ("1.5", "50", "#first", "valid value"),
        ("", "50", "#first", "fill out"),
        ("1", "101", "#last", "less than or equal to 100"),
        ("60", "50", "#last", "The last iteration must not come before the first."),
    ],
)
def test_the_form_says_which_iterations_it_does_not_take(page, hundred, first, last, wrong, said):
    opened(page, hundred)
    page.fill("#first", first)
    page.fill("#last", last)
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == wrong[1:]
    assert said in page.evaluate("document.activeElement.validationMessage")
    assert "80" in page.locator("#spent-chart .tick").all_text_contents()
    page.fill("#first", "21")
    page.fill("#last", "60")
    page.keyboard.press("Enter")
    assert "80" not in page.locator("#spent-chart .tick").all_text_contents()


def test_a_method_without_intensity_and_credit_shows_neither(page, tmp_path):
    run = settings(tmp_path / "run", method="evox", budget=1000.0)
    write_steps(run, [step(number, intensity=0.0, utility=0.0) for number in (1, 2, 3)])
    opened(page, run)
    assert page.locator("#credit, #credit-link").count() == 2
    assert page.locator("#credit:visible, #credit-link:visible").count() == 0
    assert page.inner_text("#control h3 >> nth=1") == "Remaining budget"
    assert page.inner_text("#lanes-legend") == ""
    drawn = page.locator("#spent-chart .spent").bounding_box()
    assert drawn["height"] > 80  # the budget, far above what was spent, does not flatten the line
    assert page.locator("#spent-chart text", has_text="budget $1,000.00 ↑").count() == 1


def test_the_list_has_pages_and_a_filter(page, hundred):
    opened(page, hundred)
    assert page.inner_text("#listed") == "1 to 50 of 100"
    page.click("#older")
    assert page.inner_text("#listed") == "51 to 100 of 100"
    page.select_option("#which", "failed")
    assert page.locator("#table tbody a").all_inner_texts() == ["70"]


@pytest.fixture
def hostile(tmp_path):
    run = settings(tmp_path / "run", problem=f"object:{MARKUP}", model=MARKUP)
    own = {"program": Program.of(MARKUP), "changes": MARKUP, "artifacts": {MARKUP: MARKUP}}
    bad = {"is_valid": False, "error": MARKUP, "score": 0.0, "objective": None}
    write_steps(
        run,
        [
            step(1, action=MARKUP, events=[MARKUP], failure=MARKUP, global_gain=0.1),
            step(2, candidate_id="2.1"),
        ],
        calls=[call(1, prompt=MARKUP, answer=MARKUP, role=MARKUP, error=MARKUP), call(2)],
        candidates=[candidate(1, **own), candidate(2, **own, **bad, parent_id="1.1")],
    )
    return run


def test_what_programs_and_answers_hold_never_runs(page, hostile):
    opened(page, hostile, "#t=2")
    for place in (2, 1):
        page.wait_for_selector("#drawer .card")
        for summary in page.locator("summary").all():
            summary.evaluate("node => node.click()")  # the drawer may lie above it
        page.wait_for_timeout(50)
        if place == 2:
            page.click("#before")
    assert MARKUP.replace("\u202e", "\ufffd") in page.inner_text("#drawer")
    page.keyboard.press("Escape")
    page.hover("#lanes-chart svg", position={"x": 300, "y": 40}, force=True)
    assert page.evaluate("window.hurt") is None
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 3
    assert page.said == []


def test_markup_that_gets_into_the_page_all_the_same_is_held_by_the_policy(page, guided):
    opened(page, guided)
    outcome = page.evaluate(
        "() => { try { document.body.innerHTML = '<b>x</b>'; return 'set' }"
        " catch (error) { return error.name } }"
    )
    assert outcome == "TypeError"
    page.evaluate(
        "() => { const own = document.createElement('div');"
        " own.setAttribute('style', 'color: red'); document.body.append(own) }"
    )
    assert any("Content Security Policy" in said for said in page.said)
    reached = page.evaluate("() => fetch('https://example.com').then(() => 1, () => 0)")
    assert reached == 0


@pytest.fixture
def watched(guided):
    with serving(guided) as server:
        yield server


def test_a_watched_page_follows_the_run_and_fetches_texts(page, guided, watched):
    page.goto(watched.address)
    page.wait_for_selector("#table tbody tr")
    page.click("#ancestors li:nth-child(2) summary")
    page.wait_for_selector("#ancestors .diff")
    write_steps(guided, [step(5, failure="no program")])
    page.wait_for_selector("#table >> text=failed")
    assert page.input_value("#last") == "5"
    assert page.locator("#ancestors .diff").count() == 1
    page.click("#table a >> text='5'")
    page.click("#drawer summary >> text=Prompt")
    page.wait_for_selector("#drawer pre >> text=Change the program of iteration 5.")
    assert page.said == []


def test_the_keyboard_focus_survives_updates_of_a_running_run(page, guided, watched):
    page.goto(watched.address)
    page.wait_for_selector("#table tbody tr")
    for number, name in enumerate(("#key .term >> nth=1", "#lanes-legend .term >> nth=0"), start=5):
        page.focus(name)
        word = page.evaluate("document.activeElement.textContent")
        write_steps(guided, [step(number, events=["guide_charged"], tactic_uses_left=2)])
        page.wait_for_selector(f"#key >> text='{number - 3}'")  # guides
        assert page.evaluate("document.activeElement.textContent") == word
        assert page.locator("#meaning").is_visible()
    page.focus("#first")
    page.keyboard.type("3")
    write_steps(guided, [step(7)])
    page.wait_for_selector("#table a >> text='7'")
    assert page.input_value("#first") == "13"
    assert page.input_value("#last") == "7"


MIDNIGHT = 1_700_006_400  # UTC


@pytest.fixture
def overlapping(tmp_path):
    """Three tickets, the second and third at the same time; the third ended first. Then a pause."""
    run = settings(tmp_path / "run", parallel=2)
    times = {1: (0, 10), 2: (10, 30), 3: (12, 20), 4: (3630, 3640)}
    calls = {
        ticket: call(ticket, seconds=end - begin, ended_at=MIDNIGHT + end, frontier=ticket % 2)
        for ticket, (begin, end) in times.items()
    }
    failed = call(3, seconds=2.0, ended_at=MIDNIGHT + 12, status=CallStatus.ERROR, cost=Decimal(0))
    steps = [step(number, ticket=ticket) for number, ticket in enumerate((1, 3, 2, 4), start=1)]
    write_steps(run, steps, calls=[*calls.values(), failed])
    return run


def test_requests_at_the_same_time_lie_one_above_the_other(page, overlapping):
    opened(page, overlapping)
    drawn = page.get_attribute("#calls-chart .call-generation", "d")
    bars = [tuple(map(float, re.split("[ H]", bar))) for bar in drawn.split("M")[1:]]
    (first, second, third, fourth) = sorted(bars)
    assert first[1] == second[1] == fourth[1] > third[1]
    assert second[0] < third[0] < third[2] < second[2]
    assert (second[2] - second[0]) / (first[2] - first[0]) == pytest.approx(2, rel=0.01)
    assert fourth[0] - second[2] < first[2] - first[0]  # an hour is shown as a pause
    assert page.locator("#calls-chart .pause").count() == 1
    assert page.get_attribute("#calls-chart .call-failed", "d").count("M") == 1
    note = page.inner_text("#calls-note")
    assert "50 s of requests in 40 s: 1.3 in flight on average. 1 pause shortened" in note


def test_a_request_under_the_pointer_says_what_it_was_and_opens_its_iteration(page, overlapping):
    opened(page, overlapping)
    drawn = page.get_attribute("#calls-chart .call-generation", "d")
    bars = [tuple(map(float, re.split("[ H]", bar))) for bar in drawn.split("M")[1:]]
    x, y, _ = min(bars, key=lambda bar: bar[1])
    place = {"x": x + 3, "y": y}
    page.hover("#calls-chart svg", position=place)
    lines = page.inner_text("#tip").splitlines()
    assert lines[0] == "Ticket 3: frontier 2, generation, attempt 1"
    assert lines[1].endswith(", 8 s")
    assert lines[2:] == ["$0.0020, 1,000 tokens in, 500 out", "ended as iteration 2"]
    page.click("#calls-chart svg", position=place)
    assert page.inner_text("#drawer-title") == "Iteration 2"


def test_a_watched_page_shows_what_is_in_flight_while_the_run_is_held(page, overlapping):
    sent = {"status": CallStatus.STARTED, "cost": Decimal(0), "seconds": 0.0}
    calls = [
        call(5, **sent, bound=Decimal("0.05"), ended_at=time() - 125, frontier=0),
        call(6, **sent, bound=Decimal("0.01"), ended_at=time() - 185, role="guide"),
    ]
    write_steps(overlapping, [], calls=calls, candidates=[])
    with serving(overlapping) as server:
        with hold_lease(overlapping.path):
            page.goto(server.address)
            page.wait_for_selector("#flight")
            assert page.inner_text("#flight-title") == "2 requests in flight, at most $0.0600"
            assert page.locator("#flight-list li").all_inner_texts() == [
                "guide ticket 6, 3 min, $0.0100",
                "frontier 1 ticket 5, 2 min, $0.0500",
            ]
            assert "4 iterations finished, 2 requests in flight" in page.inner_text("#standing")
            assert page.locator("#calls-chart .call-open").count() == 1
        page.wait_for_selector("#flight", state="hidden")
        assert page.said == []


def test_a_watched_page_reports_a_lost_server(page, watched):
    page.goto(watched.address)
    page.wait_for_selector("#table tbody tr")
    page.route("**/figures/*", lambda route: route.abort())
    page.wait_for_selector("text=Cut off")


def test_the_heading_of_a_fork_names_its_origin_and_no_path(page, tmp_path):
    run = settings(tmp_path / "forked")
    write_steps(run, [step(1), step(2)])
    assert "forked from" not in opened(page, run).inner_text("#settings")
    cut_back(run.database, Cut("run", 1, 0, 0, 1, {}, folder="/home/ann/first <b>run"), "other")
    heading = opened(page, run).inner_text("#settings")
    assert " · forked · forked from first <b>run after iteration 1 · " in heading
    assert "ann" not in heading


def test_five_thousand_iterations_open_and_answer_at_once(page, tmp_path):
    def text(iteration: int) -> tuple[str, str, str]:
        return f"Prompt {iteration}. " * 40, f"Answer {iteration}. " * 20, f"x = {iteration}\n" * 40

    run = long_run(tmp_path / "run", 5000, text)
    file = write_page(run)
    assert file.stat().st_size < 8_000_000
    opened(page, run, "#t=4321")
    assert page.evaluate("performance.now()") < 10_000
    assert page.locator("#table tbody tr").count() == 50
    assert page.evaluate("document.querySelectorAll('*').length") < 6_000
    page.click("#drawer summary >> text=Answer")
    page.wait_for_selector("#drawer pre >> text=Answer 4321.")


def test_the_front_is_a_picture_and_a_table_and_its_points_open_their_iterations(page, tmp_path):
    goals = {"speed:max": [1.0, 2.0, 4.0, 3.0], "memory:min": [5.0, 6.0, 9.0, 9.5]}
    opened(page, front_run(tmp_path / "run", goals, [0, 1, 2]))
    assert page.is_visible("#front-link")
    names = page.locator("#front-table tbody td:first-child").all_inner_texts()
    assert names == ["iteration 2", "iteration 1", "start"]
    assert "3 candidates on the front" in page.inner_text("#front-note")
    assert page.is_hidden("#axes")
    # From the slowest to the fastest: up where the next one needs more memory, then across to it.
    (path,) = page.locator("#front-chart path.line.front").all()
    assert re.sub(r"[-\d. ]", "", str(path.get_attribute("d"))) == "MVHVH"
    (dots,) = page.locator("#front-chart path.rises").all()
    assert str(dots.get_attribute("d")).count("M") == 3
    page.locator("#front").scroll_into_view_if_needed()
    circle = page.locator("#front-chart circle").bounding_box()
    page.mouse.move(circle["x"] + circle["width"] / 2, circle["y"] + circle["height"] / 2)
    assert page.inner_text("#tip").splitlines()[0] == "Starting program, on the front"
    page.click("#front-table >> text=iteration 1")
    page.wait_for_selector("#drawer dt >> text=measured again")
    assert "0.75, 0.5" in page.inner_text("#drawer-body")
    assert page.said == []


def test_with_three_objectives_the_reader_chooses_which_two_the_picture_shows(page, tmp_path):
    goals = {"a:max": [1.0, 2.0], "b:min": [5.0, 6.0], "c:max": [0.0, 8.0]}
    opened(page, front_run(tmp_path / "run", goals, [0, 1]))
    assert page.locator("#front-chart path.line.front").count() == 0
    assert page.locator("#front-chart text >> text=b (lower is better)").count() == 1
    page.select_option("#axis-up", "2")
    assert page.locator("#front-chart text >> text=c (higher is better)").count() == 1
    assert page.said == []


def test_a_run_of_one_objective_shows_no_front(page, guided):
    opened(page, guided)
    assert page.is_hidden("#front")
    assert page.is_hidden("#front-link")

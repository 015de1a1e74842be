"""The part of a run's page on its candidates: tree, search, comparison and the opened candidate."""

import random
from functools import cache
from typing import Any

import pytest
from page_runs import call, candidate, serving, settings, step, write_steps

from costada.reports.page.page import write_page
from costada.store.run_store import RunStore
from costada.values.candidate import Program

pytestmark = pytest.mark.browser

IDEA = {"idea": "Sort the radii", "description": "largest first"}
FAILED = {"is_valid": False, "objective": None, "score": 0.0}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A start, two children of which the first leads to the best, and two that failed."""
    run = settings(tmp_path_factory.mktemp("candidates") / "run", budget=0.1)
    found = [
        candidate(1, objective=0.6, score=0.6, program=Program.of("hexagonal = True\n")),
        candidate(2, **FAILED, error="ZeroDivisionError: no radius"),
        candidate(3, **FAILED, error="TypeError: no"),
        candidate(4, objective=0.55, score=0.55),
        candidate(5, objective=0.8, score=0.8, parent_id="1.1"),
    ]
    steps = [step(1, global_gain=0.1), step(2), step(3), step(4), step(5, global_gain=0.2)]
    calls = [call(number) for number in range(1, 6)]
    write_steps(run, steps, candidates=[candidate(0), *found], calls=calls)
    return run


@pytest.fixture
def opened(page, run):
    page.goto(write_page(run).as_uri())
    page.locator("#candidates").scroll_into_view_if_needed()
    page.wait_for_selector("#tree-chart canvas[width]")  # painted
    return page


def found(page: Any, words: str, summary: str) -> list[list[str]]:
    page.fill("#tree-search", "")
    page.wait_for_selector("#tree-found:empty", state="attached")
    page.fill("#tree-search", words)
    page.wait_for_selector(f"#tree-found >> text='{summary}'")
    rows = page.locator("#tree-table tbody tr").all_inner_texts()
    return [row.split("\t")[1:4] for row in rows]


def test_a_search_finds_text_in_programs_and_failures(opened):
    one = "1 place in 1 candidate"
    assert found(opened, "HEXAGONAL", one) == [["1.1", "program", "hexagonal = True"]]
    assert found(opened, "zerodiv", one) == [["2.1", "failure", "ZeroDivisionError: no radius"]]
    assert found(opened, "nowhere", "nothing found") == []
    opened.fill("#tree-search", "")
    opened.wait_for_selector("#tree-listed >> text='1 to 4 of 4'")
    assert opened.said == []


def test_a_search_finds_the_ideas_of_a_guide_in_the_live_page(page, tmp_path):
    run = settings(tmp_path / "run")
    write_steps(run, [step(1), step(2, events=["guide_charged"])])
    with RunStore(run.database) as store:
        store.put_tactics("run", 2, {"tactics": [IDEA], "mode": "refinement"})
    with serving(run) as server:
        page.goto(server.address)
        assert found(page, "radii", "1 place in 1 candidate") == [["2.1", "idea", "Sort the radii"]]
        assert page.said == []


def test_keys_walk_the_tree_unfold_failures_and_open_and_pick_candidates(opened):
    opened.focus("#tree-chart canvas")

    def after(key: str) -> str:
        opened.keyboard.press(key)
        return opened.inner_text("#spoken")

    assert after("Home").startswith("0.1: the start")
    assert after("ArrowRight").startswith("1.1: frontier 2")  # leads to the best
    assert after("ArrowRight").startswith("5.1: ")
    assert after("ArrowLeft").startswith("1.1: ")
    assert after("ArrowDown").startswith("4.1: ")
    assert after("ArrowDown").startswith("2 failed candidates of 0.1, folded")
    after("Enter")
    assert after("ArrowDown").startswith("3.1: frontier 2, exploration, failed: raised TypeError")
    assert after("ArrowUp").startswith("2.1: ")
    assert after("End").startswith("5.1: ")
    assert after("Space") == "Picked 5.1"
    opened.keyboard.press("Enter")
    assert opened.inner_text("#drawer-title") == "Iteration 5"
    opened.keyboard.press("Escape")
    assert opened.evaluate("document.activeElement.matches('#tree-chart canvas')")


def test_keys_and_a_wheel_do_nothing_before_the_tree_is_painted(page, run):
    page.set_viewport_size({"width": 1200, "height": 100})
    page.goto(write_page(run).as_uri())
    canvas = page.locator("#tree-chart canvas:not([width])")
    for key in ("Home", "End", "ArrowDown", "0", "+"):
        canvas.dispatch_event("keydown", {"key": key})
    canvas.dispatch_event("keydown", {"key": "ArrowDown", "shiftKey": True})
    canvas.dispatch_event("wheel", {"deltaY": 9, "ctrlKey": True})
    assert canvas.count() == 1
    assert page.said == []


LONGEST = """(canvas) => {
  const hex = getComputedStyle(document.documentElement).getPropertyValue("--best").trim();
  const best = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const { data, width } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let [longest, length] = [0, 0];
  for (let at = 0; at < data.length; at += 4) {
    const isBest = data[at + 3] === 255 && best.every((value, place) => data[at + place] === value);
    length = isBest && (at / 4) % width ? length + 1 : 0;
    longest = Math.max(longest, length);
  }
  return longest / width;
}"""


def test_the_path_to_the_best_is_marked_in_the_tree(opened):
    opened.click("#tree-places >> text=By descent")
    canvas = opened.locator("#tree-chart canvas")
    for _ in range(50):
        if canvas.evaluate(LONGEST) > 0.3:  # from the start to the child, a third of the width
            return
        opened.evaluate("() => new Promise(requestAnimationFrame)")
    raise AssertionError(f"the longest line is {canvas.evaluate(LONGEST):.2f} of the width")


def test_a_click_opens_a_candidate_and_with_shift_picks_it(opened):
    opened.focus("#tree-chart canvas")
    opened.keyboard.press("End")
    tip = opened.locator("#tip").bounding_box()
    canvas = opened.locator("#tree-chart canvas").bounding_box()
    opened.mouse.move(canvas["x"] + 5, canvas["y"] + 5)
    # A tip lies beside its candidate, at the left of it where there is no room at the right.
    at = tip["x"] + tip["width"] + 16, tip["y"] - 14
    opened.keyboard.down("Shift")
    opened.mouse.click(*at)
    opened.keyboard.up("Shift")
    assert opened.inner_text("#spoken") == "Picked 5.1"
    opened.mouse.click(*at)
    assert opened.inner_text("#drawer-title") == "Iteration 5"


def test_an_opened_candidate_begins_with_its_change_and_ends_with_the_controller(opened):
    opened.click("#tree-table a >> text='5.1'")
    opened.wait_for_selector("#drawer .diff")
    names = opened.locator("#drawer-body :is(h3, h4, summary)").all_inner_texts()
    begins = ["5.1", "Change from 1.1", "Program", "Prompt", "Answer", "Feedback", "Dollars"]
    for name, begin in zip(names, [*begins, "Controller"], strict=True):
        assert name.startswith(begin)
    lines = opened.locator("#drawer .diff span").all_inner_texts()
    assert lines == ["\u2212 hexagonal = True", "+ def value():", "+     return 5"]


def test_a_metric_of_the_evaluator_can_be_chosen_for_height_and_colour(page, tmp_path):
    run = settings(tmp_path / "run")
    metrics = [{"radius": 0.25, "cells": 7}, {"radius": 2.5}, {"radius": 1.0, "cells": 9}]
    found = [candidate(each, metrics=values) for each, values in enumerate(metrics)]
    write_steps(run, [step(1), step(2)], candidates=found)
    page.goto(write_page(run).as_uri())
    page.locator("#candidates").scroll_into_view_if_needed()
    page.wait_for_selector("#tree-chart canvas[width]")
    assert page.locator("#tree-height option").all_inner_texts() == ["objective", "cells", "radius"]
    page.select_option("#tree-height", "radius")
    page.select_option("#tree-colour", label="cells")
    headings = page.locator("#tree-table th").all_inner_texts()
    assert headings[-4:] == ["objective", "cells", "radius", "cost"]
    rows = [each.split("\t") for each in page.locator("#tree-table tbody tr").all_inner_texts()]
    assert {row[1]: row[-3:-1] for row in rows} == {
        "0.1": ["7", "0.25"],
        "1.1": ["\u2013", "2.5"],
        "2.1": ["9", "1"],
    }
    assert "cells, by rank" in page.inner_text("#tree-legend")
    page.focus("#tree-chart canvas")
    tops = {}
    for key in ("Home", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
        name, _, facts = page.inner_text("#spoken").partition(":")
        tops[name] = page.locator("#tip").bounding_box()["y"]
        assert "radius" in facts
    # A tip lies by its candidate: (1 - 0.25) is a third of (2.5 - 0.25), from the bottom up.
    rises = [tops["0.1"] - tops[each] for each in ("2.1", "1.1")]
    assert rises[1] > 60
    assert rises[0] == pytest.approx(rises[1] / 3, abs=1)
    assert page.said == []


def test_what_an_archive_holds_now_is_marked_and_listed(page, run):
    with RunStore(run.database) as store:
        store.candidates.put_archive("run", 0, 1, ["0.1", "4.1"])
        store.candidates.put_archive("run", 0, 2, ["0.1", "1.1"])
        store.candidates.put_archive("run", 1, 1, ["5.1>1"])
    page.goto(write_page(run).as_uri())
    page.locator("#candidates").scroll_into_view_if_needed()
    page.click("#tree-archive")
    assert "in an archive now" in page.inner_text("#tree-legend")
    page.select_option("#tree-list", "archive")
    rows = page.locator("#tree-table tbody tr").all_inner_texts()
    assert [row.split("\t")[1] for row in rows] == ["5.1", "1.1", "0.1"]
    page.focus("#tree-chart canvas")
    page.keyboard.press("End")
    assert "in an archive" in page.inner_text("#spoken")
    assert page.said == []


@cache
def common(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """The most lines that two texts have in common, in order."""
    if not one or not other:
        return 0
    if one[0] == other[0]:
        return 1 + common(one[1:], other[1:])
    return max(common(one[1:], other), common(one, other[1:]))


def columns(page: Any) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Kind and text of each line on the left and on the right."""
    cells = page.locator("#compare .split span").evaluate_all(
        "(all) => all.map((each) => [each.className, each.textContent.slice(2)])"
    )
    return cells[::2], cells[1::2]


def test_two_picked_candidates_are_compared_side_by_side_and_inline(page, tmp_path):
    rng = random.Random(4)
    ends = [[rng.choice("abcd") for _ in range(size)] for size in (30, 20, 25, 15)]
    middle = [str(number) for number in range(20)]
    programs = [ends[0] + middle + ends[1], ends[2] + middle + ends[3]]
    texts = [Program.of("\n".join(lines) + "\n") for lines in programs]
    run = settings(tmp_path / "run")
    own = [candidate(number, program=text) for number, text in enumerate(texts, start=1)]
    write_steps(run, [step(1), step(2)], candidates=[candidate(0), *own])
    page.goto(write_page(run).as_uri())
    for name in ("1.1", "2.1"):
        page.check(f"[data-pick='{name}']")
    page.wait_for_selector("#compare .split .gap")
    page.click("#compare-whole")
    page.wait_for_selector("#compare .gap", state="detached")
    left, right = columns(page)
    for side, lines in ((left, programs[0]), (right, programs[1])):
        assert [text for kind, text in side if kind != "blank"] == lines
    same = sum(kind == "same" for kind, _ in left)
    assert same == common(tuple(programs[0]), tuple(programs[1]))
    page.click("#compare-split")
    page.wait_for_selector("#compare .diff:not(.split)")
    signs = [text[0] for text in page.locator("#compare .diff span").all_text_contents()]
    assert signs.count("\u2212") == 70 - same
    page.click("#compare-swap")
    page.wait_for_selector("#compare-names >> text=/^2.1.*1.1/")
    page.click("#compare-clear")
    assert page.is_hidden("#compare")
    assert page.locator("[data-pick]:checked").count() == 0
    assert page.said == []


def test_programs_of_several_files_are_compared_whole(page, tmp_path):
    run = settings(tmp_path / "run")
    start = {"a.py": "x = 1\n", "b.py": "y = 2\n"}
    first, second = {**start, "a.py": "x = 3\n"}, {**start, "b.py": "y = 4\n"}
    own = [candidate(n, program=Program.of(p)) for n, p in enumerate((start, first, second))]
    write_steps(run, [step(1), step(2)], candidates=own)
    page.goto(write_page(run).as_uri())
    for name in ("1.1", "2.1"):
        page.check(f"[data-pick='{name}']")
    page.wait_for_selector("#compare .split")
    left, right = ([text for _, text in side] for side in columns(page))
    assert left == ["py", "x = 3", "py", "y = 2"]
    assert right == ["py", "x = 1", "py", "y = 4"]

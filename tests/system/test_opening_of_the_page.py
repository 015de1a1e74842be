"""The page as a reader meets it: result first, words explained, charts that can be read."""

import re
import subprocess
from itertools import pairwise
from typing import Any

import pytest
from page_runs import call, candidate, front_run, long_run, menu_run, settings, step, write_steps

from costada.reports.page.page import write_page
from costada.runs.folder import RunFolder
from costada.store.rows import RunSetup
from costada.store.run_store import RunStore
from costada.values.candidate import Program

pytestmark = pytest.mark.browser

MIDNIGHT = 1_700_006_400  # UTC
TASK = "Pack circles\ninto a square.\n\n- as many\n- as large\n"
START = "def value():\n    return 1\n"
BEST = 'def value():\n    """Return <b>two</b>.\n    # no comment\n    """\n    return 2  # more\n'
RUST = "fn main<'a>(b: &'a str, c: u8) { 'x'; } // c\n"

OVERLAPS = """() => [...document.querySelectorAll('.chart svg')].flatMap((svg) => {
  const frame = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll('text')]
    .map((text) => [text.textContent, text.getBoundingClientRect()]);
  const name = svg.parentElement.id;
  const outside = texts
    .filter(([, box]) => box.left < frame.left - 1 || box.right > frame.right + 1);
  const pairs = texts.flatMap(([one, a], place) => texts.slice(place + 1).filter(([, b]) =>
    a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3
  ).map(([other]) => `${name}: ${one} / ${other}`));
  return [...pairs, ...outside.map(([text]) => `${name}: ${text} is cut off`)];
})"""


def opened(page: Any, run: RunFolder) -> Any:
    page.goto(write_page(run).as_uri())
    page.wait_for_selector("#result")
    return page


def begin(run: RunFolder, start: Program, task: str = TASK) -> None:
    with RunStore(run.database) as store:
        facts = {"name": "toy", "direction": "maximize", "language": "Python"}
        setup = RunSetup(facts, {}, store.put_text(task))
        store.open_run("run", "costada", "toy", "bubblewrap", setup)
        store.candidates.put("run", candidate(0, program=start, objective=0.25))


@pytest.fixture
def solved(tmp_path):
    """A run of three iterations: a better program, a failure, an idle one."""
    run = settings(tmp_path / "run", budget=0.5)
    begin(run, Program.of(START))
    times = {1: (0, 10), 2: (10, 20), 3: (40, 80)}
    write_steps(
        run,
        [
            step(1, global_gain=0.5, utility=0.2, objective=0.75, best_objective=0.75),
            step(2, failure="ValueError: no\nsecond line", objective=None),
            step(3, best_objective=0.75),
        ],
        calls=[
            call(number, seconds=end - begun, ended_at=MIDNIGHT + end)
            for number, (begun, end) in times.items()
        ],
        candidates=[
            candidate(1, program=Program.of(BEST), objective=0.75, inspirations=("0.1",)),
            candidate(2, is_valid=False, objective=None, score=0.0, error="ValueError: no"),
            candidate(3, parent_id="1.1"),
        ],
    )
    run.write_best_program(Program.of(BEST), ".py")
    return run


def test_the_page_opens_with_the_task_the_outcome_and_the_chosen_settings(page, solved):
    opened(page, solved)
    first = page.locator("main > section:visible").first
    assert first.get_attribute("id") == "result"
    assert page.locator("#task p").all_inner_texts() == [
        "Pack circles into a square.",
        "- as many\n- as large",
    ]
    outcome = page.inner_text("#outcome")
    assert outcome.startswith(f"Stopped.\n\nResume with costada resume {solved.path}\n")
    assert "in iteration 1 at $0.0020: objective 0.75, +0.5 over the start." in outcome
    assert "Last failure, in iteration 2: raised ValueError." in outcome
    assert page.inner_text("#outcome pre") == "ValueError: no\nsecond line"
    chosen = page.locator("#all-settings > dl dt").all_inner_texts()
    assert chosen == ["problem object:toy", "budget 0.5", "max_iterations 10", "model scripted"]
    page.click("#all-settings summary")
    page.wait_for_selector("#all-settings details dt:has-text('max_failures')")
    assert page.said == []


@pytest.mark.parametrize(
    ("validation", "words"),
    [
        (0.6, "0.6: 0.05 below its score on the examples."),
        (0.65, "0.65: equal to its score on the examples."),
        (0.65 + 2**-52, "0.65: equal to its score on the examples."),
        (0.7, "0.7: 0.05 above its score on the examples."),
    ],
    ids=["below", "equal", "equal but for a digit", "above"],
)
def test_the_result_is_the_best_on_validation_with_its_gap(page, tmp_path, validation, words):
    run = settings(tmp_path / "run", budget=0.5)
    begin(run, Program.of(START))
    write_steps(
        run,
        [
            step(
                1,
                global_gain=0.4,
                objective=0.65,
                validation=validation,
                is_result=True,
                examples=40,
            ),
            step(2, global_gain=0.2, objective=0.85, validation=0.5, is_result=False, examples=40),
        ],
        candidates=[
            candidate(1, program=Program.of(BEST), score=0.65, objective=0.65),
            candidate(2, score=0.85, objective=0.85),
        ],
    )
    run.write_best_program(Program.of(BEST), ".py")
    opened(page, run)
    outcome = page.inner_text("#outcome")
    assert "in iteration 1" in outcome
    assert f"best on the validation examples, with a mean score of {words}" in outcome
    assert page.inner_text("#best-text pre") == BEST
    assert page.said == []


def test_the_best_program_is_coloured_compared_and_downloaded(page, solved, tmp_path):
    opened(page, solved)
    assert page.inner_text("#best-text pre") == BEST
    colours = {
        kind: page.locator(f"#best-text .code-{kind}").all_inner_texts()
        for kind in ("word", "text", "number", "comment")
    }
    assert colours == {
        "word": ["def", "return"],
        "text": ['"""Return <b>two</b>.\n    # no comment\n    """'],
        "number": ["2"],
        "comment": ["# more"],
    }
    with page.expect_download() as saved:
        page.click("#best-download")
    assert saved.value.suggested_filename == "best_program.py"
    assert saved.value.path().read_text() == BEST
    page.click("#best-copy")
    page.wait_for_selector("#best-copy:text-is('Copied')")
    page.click("#best-diff")
    assert page.inner_text("#best-changes") == "+4 \u22121 lines from the start"
    removed = page.locator("#best-text .removed").all_inner_texts()
    assert removed == ["\u2212     return 1"]
    with page.expect_download() as saved:
        page.click("#best-download")
    assert saved.value.suggested_filename == "best_program.py.patch"
    (tmp_path / "initial_program.py").write_text(START)
    subprocess.run(["git", "apply", saved.value.path()], cwd=tmp_path, check=True)
    assert (tmp_path / "initial_program.py").read_text() == BEST
    assert page.said == []


def test_each_file_of_the_best_program_can_be_read(page, tmp_path):
    run = settings(tmp_path / "run")
    start = {"a.py": "x = 1\n", "b/c.rs": RUST}
    begin(run, Program.of(start))
    best = Program.of({**start, "a.py": "x = 2\n"})
    write_steps(run, [step(1, global_gain=0.1)], candidates=[candidate(1, program=best)])
    opened(page, run)
    assert page.inner_text("#best-text pre") == "x = 2\n"
    page.select_option("#best-file", label="b/c.rs")
    assert page.inner_text("#best-text pre") == RUST
    assert page.locator("#best-text .code-comment").all_inner_texts() == ["// c"]
    assert page.locator("#best-text .code-text").all_inner_texts() == ["'x'"]
    assert page.locator("#best-text .code-word").all_inner_texts() == ["fn"]


def test_a_run_that_failed_too_often_says_so_with_its_last_failure(page, tmp_path):
    run = settings(tmp_path / "run", max_failures=4)
    begin(run, Program.of(START), task="")
    write_steps(run, [step(1), *(step(t, attempts=2, failure=f"no {t}") for t in (2, 3))])
    opened(page, run)
    words = "too many attempts in a row yielded no usable program; resume with costada resume"
    assert f"Stopped: {words}" in page.inner_text("#standing")
    assert page.inner_text("#outcome pre") == "no 3"
    assert "No candidate is better" in page.inner_text("#outcome")
    assert "has no text of its task" in page.inner_text("#task")


def test_words_explain_themselves_by_keyboard_pointer_and_touch(page, chromium, solved):
    opened(page, solved)
    word = page.locator("[data-term=R]")
    word.focus()
    assert page.inner_text("#meaning").startswith("Moving average of the allocation reward")
    assert word.get_attribute("aria-describedby") == "meaning"
    page.wait_for_timeout(100)  # the focus scrolls the word into view
    assert page.is_visible("#meaning")
    page.keyboard.press("Escape")
    assert page.is_hidden("#meaning")
    page.hover("[data-term=frontier]")
    assert "searches in a run" in page.inner_text("#meaning")
    page.hover("#meaning")
    page.wait_for_timeout(300)
    assert page.is_visible("#meaning")
    named = set(page.locator("[data-term]").evaluate_all("all => all.map((n) => n.dataset.term)"))
    page.click("#words summary")
    assert named <= set(page.locator("#glossary dt").all_inner_texts())
    assert page.said == []
    with chromium.new_context(has_touch=True, viewport={"width": 390, "height": 800}) as phone:
        touched = opened(phone.new_page(), solved)
        touched.tap("[data-term=intensity]")
        assert "Probability that an iteration explores" in touched.inner_text("#meaning")
        touched.tap("#credit-title")
        assert touched.is_hidden("#meaning")


def heights(page: Any, holder: str) -> list[float]:
    texts = page.locator(f"#{holder} .tick[text-anchor=end]").all_text_contents()
    return [float(text) for text in texts]


def test_the_vertical_axis_is_zoomed_by_button_drag_and_key(page, solved):
    opened(page, solved)
    whole = heights(page, "objective-chart")
    page.click("#objective .zoom button >> nth=0")
    nearer = heights(page, "objective-chart")
    assert max(nearer) - min(nearer) < 0.7 * (max(whole) - min(whole))
    assert min(nearer) <= 0.75 <= max(nearer) + 0.1
    page.click("#objective .zoom >> text=Fit")
    assert heights(page, "objective-chart") == whole
    page.focus("#objective-chart svg")
    page.keyboard.press("Shift+ArrowUp")
    assert heights(page, "objective-chart") == nearer
    page.keyboard.press("0")
    assert heights(page, "objective-chart") == whole
    page.locator("#objective-chart svg").scroll_into_view_if_needed()
    box = page.locator("#objective-chart svg").bounding_box()
    page.mouse.move(box["x"] + 400, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 402, box["y"] + 200, steps=4)
    page.mouse.up()
    dragged = heights(page, "objective-chart")
    assert max(dragged) - min(dragged) < 0.5 * (max(whole) - min(whole))
    assert (page.input_value("#first"), page.input_value("#last")) == ("1", "3")
    page.dblclick("#objective-chart svg", position={"x": 400, "y": 100})
    assert heights(page, "objective-chart") == whole


def test_the_best_is_shown_over_dollars_iterations_and_time(page, solved):
    opened(page, solved)

    def places() -> list[float]:
        drawn = page.get_attribute("#objective-chart path.line.best", "d")
        return [float(x) for x in re.findall(r"(?:M|H)([\d.]+)", drawn)]

    page.click("#across >> text=Iterations")
    even = [right - left for left, right in pairwise(places())]
    assert even == pytest.approx([even[0]] * 3, abs=0.2)
    page.click("#across >> text=Time")
    # It took 10, 10 and, after a break of 20, another 40 seconds.
    steps = [right - left for left, right in pairwise(places())]
    assert [each / steps[0] for each in steps] == pytest.approx([1, 1, 6], rel=0.02)
    words = page.locator("#objective-chart .tick[text-anchor=middle]").all_text_contents()
    assert all(re.fullmatch(r"\d\d:\d\d(:\d\d)?", each) for each in words)
    assert page.said == []


@pytest.mark.parametrize("kind", ["long", "menu", "front"])
def test_no_text_of_a_chart_overlaps_another_or_leaves_its_chart(page, tmp_path, kind):
    folder = tmp_path / "run"
    goals = {"a long name of an objective:max": [1.0, 2.0, 4.0], "memory:min": [5.0, 6.0, 9.0]}
    run = {
        "long": lambda: long_run(folder, 150, lambda number: ("p", "a", f"x = {number}\n")),
        "menu": lambda: menu_run(folder, 12, disabled=8),
        "front": lambda: front_run(folder, goals, [0, 1, 2]),
    }[kind]()
    opened(page, run)
    for width in (1440, 900, 390):
        page.set_viewport_size({"width": width, "height": 900})
        for axis in ("Iterations", "Time", "Dollars"):
            page.click(f"#across >> text={axis}")
            assert page.evaluate(OVERLAPS) == [], (width, axis)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.said == []

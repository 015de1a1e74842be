"""The index of runs as a reader's browser shows it."""

import shutil

import pytest
from page_runs import candidate, serving_path, settings, step, write_steps

from costada.reports.alerts import AlertLimits
from costada.runs.folder import RunFolder
from costada.runs.folder_lease import hold_lease
from costada.store.run_store import RunStore

pytestmark = pytest.mark.browser

MARKUP = "<img src=x onerror='window.hurt = 1'>\u202e{{7*7}}&amp;%2e%2e"


def rising(*bests: float):
    return [
        step(number, objective=best, best_objective=best, best_score=best, spent=0.1 * number)
        for number, best in enumerate(bests, start=1)
    ]


@pytest.fixture
def root(tmp_path):
    """Three runs: two of one problem, one of another."""
    for name, problem, bests in (
        ("a", "one", (0.6, 0.9)),
        ("b", "one", (0.7, 0.7, 0.8)),
        ("c", "two", (0.55,)),
    ):
        run = settings(tmp_path / "runs" / name, problem=f"object:{problem}", seed=len(bests))
        write_steps(run, rising(*bests))
    return tmp_path / "runs"


@pytest.fixture
def watched(root):
    with serving_path(root) as server:
        yield server


def cells(page, name):
    row = f"#table tbody tr[data-id='{name}']"
    return {
        kind: page.inner_text(f"{row} td.{kind}").split("\n")[0]
        for kind in ("problem", "method", "models", "best", "spent", "iterations")
    }


def test_rows_are_those_of_the_runs_and_follow_them(page, root, watched):
    page.goto(watched.address)
    page.wait_for_selector("#table tbody tr >> nth=2")
    expected = {"problem": "one", "method": "costada", "models": "scripted"}
    assert cells(page, "a") == {**expected, "best": "0.9", "spent": "$0.2000", "iterations": "2"}
    drawn = page.get_attribute("tr[data-id='a'] .spark path", "d")
    assert drawn.count("V") == 3  # from 0.5 up to 0.6, up to 0.9, and on to the end
    page.check("tr[data-id='c'] input")
    other = settings(root / "later")
    write_steps(other, rising(0.65))
    with hold_lease(other.path):
        page.wait_for_selector("tr[data-id='later'] .state.running:visible")
        assert page.inner_text("#standing") == "Live"
        write_steps(other, [rising(0.65, 0.95)[1]])
        page.wait_for_selector("tr[data-id='later'] td.best >> text=0.95")
    page.wait_for_selector("tr[data-id='later'] .state.stopped:visible")
    assert page.is_checked("tr[data-id='c'] input")
    shutil.rmtree(other.path)
    page.wait_for_selector("tr[data-id='later']", state="detached")
    assert page.inner_text("#totals").split(" · ")[1].startswith("$0.6000 of $3.00 spent")
    assert page.said == []


def test_the_table_is_sorted_and_filtered(page, watched):
    def names():
        return page.locator("#table tbody tr td.path a").all_inner_texts()

    page.goto(watched.address)
    page.wait_for_selector("#table tbody tr >> nth=2")
    page.click("th.best button")
    assert names() == ["a", "b", "c"]
    page.click("th.spent button")
    assert names() == ["b", "a", "c"]
    page.click("th.spent button")
    assert names() == ["c", "a", "b"]
    page.fill("#words", "ONE scripted")
    assert names() == ["a", "b"]
    assert page.inner_text("#listed") == "2 of 3 runs"
    page.select_option("#state", "running")
    assert names() == []


def test_a_link_keeps_groups_with_their_sums_filters_order_and_selected_runs(page, watched):
    def shown():
        return page.evaluate(
            "[...document.querySelectorAll('#table tbody tr')].map((tr) => tr.dataset.id)"
        )

    page.goto(watched.address)
    page.wait_for_selector("#table tbody tr >> nth=2")
    page.select_option("#group", "problem")
    page.click("th.spent button")  # b spent $0.30, a $0.20, c $0.10
    assert shown() == ["group one", "b", "a", "group two", "c"]
    sums = page.inner_text("[data-id='group one'] .words")
    assert sums.startswith("2 runs: 2 stopped · $0.5000 of $2.00 spent (generation $0.0100)")
    page.check("tr[data-id='c'] input")
    page.fill("#words", "scripted")
    page.reload()
    page.wait_for_selector("#overlay-chart .over")
    assert shown() == ["group one", "b", "a", "group two", "c"]
    assert page.input_value("#words") == "scripted"
    assert page.get_attribute("th.spent", "aria-sort") == "descending"
    page.goto(f"{watched.address}#group=sweep&state=stopped&words=two&sort=nonsense")
    page.wait_for_selector("[data-id='group no sweep']")
    assert shown() == ["group no sweep", "c"]
    assert page.input_value("#state") == "stopped"
    page.check("tr[data-id='c'] input")
    page.select_option("#state", "running")
    page.click("#clear")
    page.select_option("#state", "")
    assert not page.is_checked("tr[data-id='c'] input")  # nothing hidden stays ticked
    assert page.said == []


@pytest.mark.parametrize("width", [390, 900])
def test_a_narrow_table_is_sorted_by_columns_that_it_does_not_show(page, watched, width):
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(watched.address)
    page.wait_for_selector("#table tbody tr >> nth=2")
    names = page.locator("#table tbody tr td.path a")
    assert page.locator("th.seed").is_hidden()
    keys = page.locator("#order option").evaluate_all("options => options.map(each => each.value)")
    assert keys == page.locator("th [data-focus]").evaluate_all(
        "buttons => buttons.map(each => each.dataset.focus.replace('sort ', ''))"
    )
    page.get_by_label("Sort by").select_option("seed")  # as many as a run has steps
    assert names.all_inner_texts() == ["c", "a", "b"]
    page.get_by_role("button", name="Reverse").click()
    assert names.all_inner_texts() == ["b", "a", "c"]
    page.set_viewport_size({"width": 1900, "height": 800})
    assert page.locator("#order").is_hidden()
    assert page.get_attribute("th.seed", "aria-sort") == "descending"


def test_chosen_runs_lie_over_each_other_and_the_address_keeps_them(page, watched):
    page.goto(watched.address)
    page.wait_for_selector("#table tbody tr >> nth=2")
    assert page.is_hidden("#overlay")
    for name in "ab":
        page.check(f"tr[data-id='{name}'] input")
    assert page.locator("#overlay-chart .over").count() == 2
    assert page.input_value("#quantity") == "objective"
    page.reload()
    page.wait_for_selector("#overlay-chart .over >> nth=1")
    bests = "#overlay-legend b"
    assert page.locator(bests).all_inner_texts() == ["0.9", "0.8"]
    ticks = page.locator("#overlay-chart .tick").all_text_contents()
    assert {"$0", "$0.10", "$0.30"} <= set(ticks)
    page.locator("#overlay-chart svg").focus()
    for _ in range(20):  # two fifths of $0.30
        page.keyboard.press("ArrowRight")
    assert page.locator(bests).all_inner_texts() == ["0.6", "0.7"]
    page.keyboard.press("Escape")
    page.check("tr[data-id='c'] input")  # another problem: scores
    assert page.input_value("#quantity") == "score"
    assert page.is_disabled("#quantity")
    page.click("#clear")
    assert page.is_hidden("#overlay")
    assert page.evaluate("location.hash") == ""
    assert page.said == []


def test_a_page_that_waits_shows_the_run_when_it_begins(page, tmp_path):
    with serving_path(tmp_path / "new") as server:
        page.goto(server.address)
        page.wait_for_selector("#waiting:visible")
        write_steps(settings(tmp_path / "new"), rising(0.6))
        page.wait_for_selector("#key div")
        assert page.inner_text("h1") == "toy"
        assert page.said == []


def test_names_of_strangers_are_text_and_lead_to_their_runs(page, tmp_path):
    name = MARKUP.replace("/", "")
    named = {"problem": f"object:{MARKUP}", "model": MARKUP}
    write_steps(settings(tmp_path / "runs" / name, budget=0.08, **named), rising(0.6))
    with serving_path(tmp_path / "runs") as server:
        page.goto(server.address)
        page.wait_for_selector("#table tbody tr")
        page.check("#table tbody input")
        shown = page.inner_text("#table tbody td.path a")
        assert shown == MARKUP.replace("\u202e", "\ufffd")
        assert page.locator("img").count() == 0
        page.click("#table tbody td.path a")
        page.wait_for_selector("#key div >> text=$0.020 over the budget: the step that crossed it")
        page.click("#top >> text=All runs")
        page.wait_for_selector("#table tbody tr")
        assert page.is_checked("#table tbody input")  # the address keeps what is selected
        assert page.evaluate("window.hurt") is None
        assert page.said == []


def test_a_lost_server_is_reported(page, watched):
    page.goto(watched.address)
    page.wait_for_selector("#table tbody tr")
    page.route("**/index/*", lambda route: route.abort())
    page.wait_for_selector("#standing >> text=Cut off")


def test_a_page_of_an_earlier_command_asks_once_and_stops(page, watched):
    page.goto(watched.address)
    page.wait_for_selector("#table tbody tr")
    assert page.said == []
    page.evaluate("""() => {
        const real = window.setTimeout;
        window.pausesAs = [];
        window.setTimeout = (...given) => {
            window.pausesAs.push(document.getElementById("standing").textContent);
            return real(...given);
        };
    }""")
    watched.token = "of-the-next-command"
    page.wait_for_selector("#standing >> text=it ends with a token")
    assert not any("token" in words for words in page.evaluate("window.pausesAs"))
    assert len(page.said) == 1


def test_values_beyond_whole_numbers_do_not_stop_the_page(page, root, watched):
    huge = settings(root / "huge")
    with RunStore(huge.database) as store:
        store.open_run("run", "costada", "toy", "bubblewrap")
        store.candidates.put("run", candidate(0, objective=1e17))
    write_steps(huge, rising(1e17 + 16))
    page.goto(f"{watched.address}#over=huge")
    page.wait_for_selector("#overlay-chart path.over")


RECORD = """
window.shown = [];
window.Notification = class extends window.Notification {
  constructor(title, options) { super(title, options); window.shown.push([title, options.body]); }
};
"""


REFUSE = """
window.Notification = class {
  static requestPermission() { return "granted"; }
  constructor() { throw new TypeError("Illegal constructor"); }
};
"""


def test_a_browser_that_refuses_notifications_still_shows_the_alerts(page, root):
    with (
        serving_path(root, AlertLimits(no_gain=0.15)) as server,
        page.context.browser.new_page() as own,
    ):
        own.add_init_script(REFUSE)
        own.goto(server.address)
        own.wait_for_selector("#table tbody tr >> nth=2")
        own.check("#notify")
        with hold_lease(root / "a"):
            write_steps(RunFolder(root / "a"), rising(0.6, 0.9, 0.9, 0.9)[2:])
            own.wait_for_selector("tr[data-id='a'] .alert:visible >> text=no gain for $0.20")
        assert own.is_disabled("#notify")
        assert not own.is_checked("#notify")


def test_alerts_stand_in_the_row_and_are_notified_once_switched_on(page, root):
    page.context.grant_permissions(["notifications"])
    page.add_init_script(RECORD)
    with serving_path(root, AlertLimits(no_gain=0.15)) as server:
        page.goto(server.address)
        page.wait_for_selector("#table tbody tr >> nth=2")
        a, b = RunFolder(root / "a"), RunFolder(root / "b")
        with hold_lease(a.path):  # its last gain is at the dollars it has spent
            write_steps(a, rising(0.6, 0.9, 0.9, 0.9)[2:])
            page.wait_for_selector("tr[data-id='a'] .alert:visible >> text=no gain for $0.20")
            assert page.evaluate("window.shown") == []
            page.check("#notify")
            with hold_lease(b.path):
                write_steps(b, rising(0.7, 0.7, 0.8, 0.8, 0.8)[3:])
                page.wait_for_selector("tr[data-id='b'] .alert:visible")
            page.wait_for_selector("tr[data-id='b'] .state.stopped:visible")
            shown = page.evaluate("window.shown")
            assert shown[0] == ["b", "no gain for $0.20"]
            assert [title for title, _ in shown] == ["b", "b"]
            assert shown[1][1].startswith("Stopped; resume with")
    assert page.said == []

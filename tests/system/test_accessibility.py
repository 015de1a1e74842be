"""Every page in a real browser: three widths, light or dark, by keyboard, checked with axe."""

from typing import Any

import pytest
from page_runs import menu_run, serving_path, settings

from costada.experiments.comparison.comparison_report import write_comparison
from costada.runs.folder_lease import hold_lease

pytestmark = pytest.mark.browser

axe = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="pip install axe-playwright-python"
)

VIEWS = ((1440, "light"), (900, "dark"), (390, "light"))
"""Widths on both sides of each breakpoint; axe needs seconds for each."""

NARROWEST = 320
SERIOUS = ("serious", "critical")
OF_COLORS = ("color-contrast", "link-in-text-block")
"""The rules of axe that a color scheme can break; all others are checked in one scheme."""


def findings(page: Any, rules: tuple[str, ...] = ()) -> list[str]:
    """What axe finds on a page that is serious or critical, with the first elements of each."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(axe.Axe().axe_script)
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = {"type": "rule", "values": rules}
    found = page.evaluate("async (options) => (await axe.run(options)).violations", options)
    return [
        f"{each['id']}: {each['help']} at {node['target']} ({node['html'][:200]})"
        for each in found
        if each["impact"] in SERIOUS
        for node in each["nodes"][:3]
    ]


def check(page: Any) -> None:
    """No serious finding and nothing wider than the window, at every width."""
    for width, scheme in VIEWS:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert findings(page, OF_COLORS * (scheme == "dark")) == [], (width, scheme)
    page.set_viewport_size({"width": NARROWEST, "height": 900})
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROWEST


def tab_to(page: Any, selector: str, most: int = 60) -> None:
    """Press Tab until an element has the focus, and check that the focus can be seen."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("name => document.activeElement.matches(name)", selector):
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none"
            return
    raise AssertionError(f"{most} times Tab do not lead to {selector}")


@pytest.fixture(scope="module")
def root(tmp_path_factory, near, invoke):
    """A sweep of two finished runs, a run of several models, one that waits, one unreadable."""
    root = tmp_path_factory.mktemp("watched") / "runs"
    for method in ("costada", "uniform"):
        words = ("--method", method, "--max-iterations", 2, "--quiet")
        result = invoke("run", near, *words, "--out", root / "sweep" / method)
        assert result.exit_code == 0, result.output
    menu_run(root / "menu", 12, disabled=9)
    settings(root / "fresh")
    (settings(root / "broken").database).write_bytes(b"no database" * 100)
    return root


def test_the_index_of_runs(page, root):
    with serving_path(root) as server:
        page.goto(server.address)
        page.wait_for_selector("#table tbody tr:nth-child(5)")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.select_option("#group", "method")
        tab_to(page, "[data-focus='sort best']")
        page.keyboard.press("Enter")
        assert page.get_attribute("th.best", "aria-sort") == "descending"
        tab_to(page, "[data-focus='pick menu']")
        page.keyboard.press("Space")
        page.wait_for_selector("#overlay-chart .over")
        check(page)
        page.locator("[data-focus='pick menu']").focus()
        tab_to(page, "[data-focus='open menu']")
        page.keyboard.press("Enter")
        page.wait_for_selector("#key div")
        tab_to(page, "header a[href^='/?token=']")
        page.keyboard.press("Enter")
        page.wait_for_selector("#table tbody tr:nth-child(5)")
        assert page.said == []


def test_the_index_of_a_sweep_with_its_runs_over_each_other(page, root):
    with serving_path(root / "sweep") as server:
        page.goto(f"{server.address}#over=costada,uniform")
        page.wait_for_selector("#overlay-chart .over >> nth=1")
        assert page.input_value("#quantity") == "objective"
        tab_to(page, "#quantity")
        tab_to(page, "#overlay-chart svg")
        before = page.inner_text("#overlay-legend")
        page.keyboard.press("ArrowRight")
        assert page.get_attribute("#overlay-chart .cursor", "visibility") == "visible"
        assert page.inner_text("#overlay-legend") != before  # the best at one fiftieth: the start
        check(page)
        assert page.said == []


def test_the_live_page_of_a_running_run(page, root):
    with serving_path(root) as server, hold_lease(root / "menu"):
        page.goto(server.address.replace("/?", "/runs/menu/?"))
        page.wait_for_selector("#standing.running")
        tab_to(page, "#tree-chart canvas", most=150)
        for key in ("End", "Space", "Home", "Space"):
            page.keyboard.press(key)
        page.wait_for_selector("#compare .diff")
        check(page)
        assert page.said == []


def test_the_written_page_of_a_run_with_an_open_iteration(page, root):
    page.goto((root / "sweep" / "costada" / "report.html").as_uri())
    page.wait_for_selector("#table tbody tr")
    tab_to(page, "#table a", most=150)
    page.keyboard.press("Enter")
    page.wait_for_selector("#drawer .card")
    check(page)
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.matches('#table a')")
    assert page.said == []


COVERED = """() => {
  const own = document.activeElement, box = own.getBoundingClientRect();
  const top = document.elementFromPoint(box.left + box.width / 2, box.top + Math.min(8, box.height / 2));
  return own === document.body ? null : own.contains(top) ? "" : `${own.outerHTML.slice(0, 80)} by ${top?.id}`;
}"""  # noqa: E501


@pytest.mark.parametrize(("width", "key"), [(1440, "Tab"), (900, "Shift+Tab")])
def test_the_focused_element_is_never_covered(page, root, width, key):
    page.set_viewport_size({"width": width, "height": 700})
    page.goto((root / "sweep" / "costada" / "report.html").as_uri())
    page.wait_for_selector("#table tbody tr")
    found = list[str]()
    for _ in range(300):
        page.keyboard.press(key)
        covered = page.evaluate(COVERED)
        if covered is None:
            break
        found.append(covered)
    assert len(found) > 40
    assert list(filter(None, found)) == []


@pytest.fixture(scope="module")
def comparison(root):
    """The page of a comparison of the two finished runs."""
    write_comparison(root / "sweep", root / "tables")
    return root / "tables" / "comparison.html"


def test_the_page_of_a_comparison(page, comparison):
    page.goto(comparison.as_uri())
    check(page)
    assert page.said == []


def test_the_page_of_a_comparison_leads_to_the_pages_of_its_runs(page, comparison):
    page.goto(comparison.as_uri())
    tab_to(page, "a[aria-label='uniform, seed 0']")
    page.keyboard.press("Enter")
    page.wait_for_selector("#table tbody tr")
    assert page.evaluate("location.pathname").endswith("/runs/sweep/uniform/report.html")
    assert page.said == []


def test_the_page_that_waits_for_a_run(page, root):
    with serving_path(root / "not-there-yet") as server:
        page.goto(server.address)
        page.wait_for_selector("#waiting:visible")
        check(page)
        assert page.said == []

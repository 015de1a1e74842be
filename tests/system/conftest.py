"""A headless Chromium with a page, and a provider that bills."""

import shutil

import pytest
from billing_server import BillingServer
from crash_runs import Provider
from judge_fixtures import *
from needed_programs import how_to_install
from sweep_fixtures import *

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def chromium():
    """A running Chromium; tests are skipped where none starts."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    if CHROMIUM is None:
        pytest.skip(how_to_install("chromium"))
    with sync_api.sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        except sync_api.Error as reason:
            pytest.skip(f"{CHROMIUM} does not start: {reason}")
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def tab(chromium):
    """The tab that the tests of a module use one after the other."""
    opened = chromium.new_page()
    opened.set_default_timeout(60_000)
    opened.said = []
    opened.on("console", lambda message: opened.said.append(message.text))
    opened.on("pageerror", lambda error: opened.said.append(str(error)))
    opened.on("dialog", lambda dialog: (opened.said.append("dialog"), dialog.dismiss()))
    return opened


@pytest.fixture
def page(tab):
    """An empty page; `page.said` is what its console and its errors said."""
    tab.set_viewport_size({"width": 1200, "height": 900})
    tab.said.clear()
    yield tab
    tab.goto("about:blank")
    tab.unroute_all()
    tab.emulate_media(color_scheme="null")


@pytest.fixture
def provider():
    return Provider()


@pytest.fixture
def url(provider):
    with BillingServer(default=provider.answer) as server:
        yield server.url

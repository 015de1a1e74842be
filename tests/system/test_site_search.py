"""The search of the documentation site in a browser."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.browser

CONFIG = f"""
INHERIT: {ROOT / "mkdocs.yml"}
hooks: [{ROOT / "docs" / "hooks.py"}]
nav: [index.md, other.md]
"""


def test_a_site_that_is_opened_as_a_file_is_searched(page, tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    shutil.copytree(ROOT / "docs" / "assets", docs / "assets")
    (docs / "index.md").write_text("# First\n\n[Other](other.md)\n")
    (docs / "other.md").write_text("# Second\n\nA frontier has an archive.\n")
    (tmp_path / "mkdocs.yml").write_text(CONFIG)
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "--quiet"], cwd=tmp_path, check=True)
    page.goto((tmp_path / "site" / "index.html").as_uri())
    page.locator(".md-search__input").click()
    page.keyboard.type("frontier")
    page.locator("a.md-search-result__link").first.click()
    page.wait_for_url("**/other.html*")
    assert page.locator("h1").inner_text().startswith("Second")

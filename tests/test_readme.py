"""What the README shows runs, its links lead somewhere, and it stays short."""

import re

import pytest
from doc_blocks import ROOT, blocks_of, said_by

pytestmark = pytest.mark.process

README = ROOT / "README.md"


def test_the_blocks_of_the_readme_run(tmp_path):
    assert {block.language for block in blocks_of(README)} == {"bash", "python", "sh", "py"}
    list(said_by(blocks_of(README), tmp_path))
    assert (tmp_path / "demo-run" / "report.html").stat().st_size > 10_000


def test_the_readme_is_short_and_its_links_lead_to_files():
    text = README.read_text()
    links = re.findall(r"\]\((?!https:)([^)#]+)", text)
    assert len(text.splitlines()) <= 150
    assert [link for link in links if not (ROOT / link).exists()] == []

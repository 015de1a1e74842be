import json
import re
from base64 import b64decode, b64encode
from gzip import decompress
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from page_runs import call, candidate, settings, step, write_steps

from costada.reports.page.feed import Feed
from costada.reports.page.page import ITERATIONS, blocks, embedded, policy, write_page
from costada.values.program import Program

HOSTILE = "</script><script>alert(1)</script><!--&\u2028\ud800"


class Elements(HTMLParser):
    """Collects start tags, and the text inside script and style elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": []}
        self.open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in self.inside:
            self.open = tag
            self.inside[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self.open = "" if tag == self.open else self.open

    def handle_data(self, data: str) -> None:
        if self.open:
            self.inside[self.open][-1] += data


def hashed(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


@pytest.fixture
def hostile(tmp_path):
    """A run in which every text that a model or a problem writes tries to leave its place."""
    run = settings(tmp_path / "run", problem=f"object:{HOSTILE[:-1]}", model=HOSTILE[:-1])
    program = Program.of(HOSTILE)
    write_steps(
        run,
        [step(1, failure=HOSTILE, action=HOSTILE, events=[HOSTILE])],
        calls=[call(1, prompt=HOSTILE, answer=HOSTILE, role=HOSTILE[:-1])],
        candidates=[candidate(1, program=program, changes=HOSTILE, is_valid=False, error=HOSTILE)],
    )
    return run


def test_embedded_json_is_ascii_that_closes_no_element_and_means_the_same():
    text = embedded({HOSTILE: [HOSTILE, 1.5, None]})
    assert text.isascii()
    assert not re.search("[<>&]", text)
    assert json.loads(text) == {HOSTILE: [HOSTILE, 1.5, None]}


def test_a_number_that_is_none_is_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        embedded(float("nan"))


def test_hostile_texts_add_no_element_to_the_page(hostile, tmp_path):
    calm = settings(tmp_path / "calm")
    write_steps(calm, [step(1)])
    pages = [write_page(run).read_text("utf-8") for run in (hostile, calm)]
    tags = [[tag for tag, _ in Elements(text).tags] for text in pages]
    assert tags[0] == tags[1]


def test_only_the_page_s_own_script_and_style_are_allowed(hostile):
    elements = Elements(write_page(hostile).read_text("utf-8"))
    (allowed,) = [
        attributes["content"]
        for tag, attributes in elements.tags
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert allowed == policy(is_live=False)
    (style,) = elements.inside["style"]
    assert f"style-src {hashed(style)};" in allowed
    assert f"script-src {hashed(elements.inside['script'][-1])};" in allowed
    assert "default-src 'none'" in allowed
    assert "connect-src 'none'" in allowed
    assert "require-trusted-types-for 'script'; trusted-types 'none'" in allowed


def test_the_page_names_no_address_outside_itself(hostile):
    elements = Elements(write_page(hostile).read_text("utf-8"))
    for tag, attributes in elements.tags:
        assert not {"src", "srcset", "style", "onclick", "onload"} & set(attributes), tag
        assert (attributes.get("href") or "#").startswith("#")


def test_no_script_turns_text_into_markup():
    folder = Path(__file__).parents[2] / "runs" / "page" / "scripts"
    for script in folder.glob("*.js"):
        text = script.read_text("utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text)
        assert len(text.splitlines()) < 300


def test_blocks_hold_the_texts_of_all_iterations_once_and_in_order(tmp_path):
    run = settings(tmp_path / "run", max_iterations=50)
    write_steps(run, [step(number) for number in range(1, 46)])
    packed = list(blocks(Feed(run)))
    assert [block.first for block in packed] == [0, 20, 40]
    told: list[Any] = [
        texts for block in packed for texts in json.loads(decompress(b64decode(block.packed)))
    ]
    assert ITERATIONS == 20
    assert [texts["iteration"] for texts in told] == list(range(46))
    assert told[45]["calls"][0]["prompt"] == "Change the program of iteration 45."


def test_the_same_run_gives_the_same_page_but_for_its_time(tmp_path):
    run = settings(tmp_path / "run")
    write_steps(run, [step(1)])
    texts = [
        re.sub(r'"written":"[^"]+"', "", write_page(run, tmp_path / name).read_text("utf-8"))
        for name in ("one.html", "two.html")
    ]
    assert texts[0] == texts[1]


def test_a_run_that_has_not_begun_has_no_page(tmp_path):
    with pytest.raises(ValueError, match="the run has not begun"):
        write_page(settings(tmp_path / "run"))

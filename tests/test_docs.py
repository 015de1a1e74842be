"""Every code block of `docs/` runs, and prints what the page says it prints."""

import ast
import re
import runpy
import tomllib
from importlib import import_module
from inspect import getsource
from operator import attrgetter
from textwrap import dedent

import pytest
from doc_blocks import (
    ROOT,
    blocks_of,
    check_commands,
    check_imports,
    is_as_printed,
    is_shown_by,
    locked_for_oldest_python,
    output_of_line,
    said_by,
)
from needed_programs import require

from costada.controller.constants import Constants
from costada.controller.methods import METHODS
from costada.nodes.context import RunContext
from costada.nodes.state import SearchState
from costada.plugins.gateway.gateway_of_run import gateway_journal, gateway_log
from costada.plugins.gateway.gateway_protocol import address_file
from costada.runs.config import RunConfig
from costada.runs.folder import RunFolder

pytestmark = pytest.mark.process

NEEDED = {"evaluators": "g++"}
"""Commands beyond those of CostAda that the blocks of a page call."""

PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if blocks_of(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run_in_their_order_and_print_what_it_shows(page, tmp_path):
    needed = NEEDED.get(page.stem)
    if needed:
        require(needed)
    blocks = blocks_of(page)
    assert [block.language for block in blocks if not block.is_known] == []
    for expected, said in said_by(blocks, tmp_path):
        assert not is_as_printed() or is_shown_by(expected, said), f"{expected}\n---\n{said}"


TABLES = {
    "methods": [METHODS],
    "state": [SearchState.__annotations__],
}


@pytest.mark.parametrize("page", TABLES)
def test_a_table_of_the_reference_lists_each_key(page):
    text = (ROOT / "docs" / "reference" / f"{page}.md").read_text()
    listed = set(re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE))
    missing = {key for keys in TABLES[page] for key in keys} - listed
    assert not missing


@pytest.mark.parametrize("page", ["trace", "settings"])
def test_each_source_that_a_page_names_can_be_imported(page):
    text = (ROOT / "docs" / "reference" / f"{page}.md").read_text()
    rows = [row for row in re.findall(r"^\| `.+", text, re.MULTILINE) if row.count(" | ") > 2]
    for row in rows:
        module, name = re.findall(r"`(costada[\w.]+):([\w.]+)`", row)[-1]
        assert attrgetter(name)(import_module(module)), row


ARGUMENTS = {
    "problem": "name_or_path",
    "router": "name",
    "gateway": "wanted",
    "evaluate_on": "given",
}
"""What a function calls a setting whose value is passed to it."""


def names_in(source):
    """All names that a piece of code uses, without those it defines at its top."""
    nodes = [node for top in ast.parse(source).body for node in ast.walk(top) if node is not top]
    fields = ("id", "attr", "arg")
    return {getattr(node, field, None) for node in nodes for field in fields}


def properties_that_read(setting):
    """Names of the properties of a run's types whose source reads a setting."""
    kinds = {**vars(RunContext), **vars(Constants), **vars(RunConfig)}
    found = {name: each for name, each in kinds.items() if isinstance(each, property)}
    return {name for name, each in found.items() if f".{setting}" in getsource(each.fget)}


def test_the_function_that_the_page_names_for_a_setting_reads_it():
    text = (ROOT / "docs" / "reference" / "settings.md").read_text()
    rows = re.findall(
        r"^\| `(?:controller\.)?(\w+)` \|.+`(costada[\w.]+):([\w.]+)`", text, re.MULTILINE
    )
    assert len(rows) > 60
    for setting, module, name in rows:
        place = attrgetter(name)(import_module(module))
        source = dedent(getsource(place.fget if isinstance(place, property) else place))
        known = {setting, *properties_that_read(setting), ARGUMENTS.get(setting)}
        assert known & names_in(source), f"{setting}: {module}:{name}"


def test_the_reference_holds_what_the_code_generates():
    tables = runpy.run_path(str(ROOT / "docs" / "reference_tables.py"))
    texts = [path.read_text() for path in tables["generated_files"]()]
    held = [part for text in texts for part in re.findall("<!-- end of (.+) -->", text)]
    assert sorted(held) == sorted(tables["PARTS"])
    stale = [path.name for path in tables["stale_files"]()]
    assert stale == [], "run `make reference`"


def test_the_manual_page_holds_what_the_code_generates():
    manual = runpy.run_path(str(ROOT / "docs" / "manual_page.py"))
    assert manual["PAGE"].read_text() == manual["page"](), "run `make reference`"


def test_the_first_page_lists_every_extra():
    text = (ROOT / "docs" / "start" / "five-minutes.md").read_text()
    table = text[text.index("| Extra |") :].split("\n\n")[0]
    listed = [name for row in table.splitlines() for name in re.findall("`(.+?)`", row)]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert listed == sorted(listed)
    assert set(listed) == set(project["optional-dependencies"])


def test_the_page_on_run_folders_lists_the_files_of_a_gateway(tmp_path):
    folder = RunFolder(tmp_path)
    text = (ROOT / "docs" / "reference" / "run-folder.md").read_text()
    for number in (1, 2):
        assert f"`{gateway_journal(folder, number).name}`" in text
    assert f"`{gateway_log(folder).name}`" in text
    assert f"`{address_file(gateway_journal(folder)).name}`" in text


def test_each_symbol_of_the_paper_is_in_its_home():
    for row in (ROOT / "docs" / "reference" / "symbols.md").read_text().splitlines()[4:]:
        names, homes = (re.findall(r"`([^`]+)`", cell) for cell in row.split(" | ")[1:3] or "  ")
        files, folder = [], ROOT
        for home in homes:
            folder = ROOT / home.rpartition("/")[0] if "/" in home else folder
            files.append(folder / home.rpartition("/")[2])
        text = "\n".join(file.read_text() for file in files)
        missing = [name for name in names if not re.search(rf"\b{name.split('.')[-1]}\b", text)]
        assert not missing, row


def test_a_block_that_is_not_run_names_only_what_exists():
    check_commands("export KEY=...\ncostada run circle_packing --budget 1")
    with pytest.raises(AssertionError, match="--nothing"):
        check_commands("costada run circle_packing --nothing 1")
    check_imports("from costada import Purse")
    with pytest.raises(AttributeError, match="Nothing"):
        check_imports("from costada import Nothing")


def test_dots_match_anything_and_everything_else_is_compared():
    assert is_shown_by("a\n...\nc ... e", "\na\nb\nb\nc d e\n\n")
    assert is_shown_by("a 0.5", " \na 0.5   \n")
    assert not is_shown_by("a 0.5", "a 0x5")
    assert not is_shown_by("a", "a\nb")


def test_pages_are_compared_where_the_oldest_python_has_the_locked_versions():
    lock = """
numpy==2.4.6 ; python_full_version < '3.12' \\
    --hash=sha256:0
numpy==2.5.5 ; python_full_version >= '3.12' \\
scipy==1.17.1 \\
"""
    assert locked_for_oldest_python(lock) == {"numpy": "2.4.6", "scipy": "1.17.1"}


def test_a_command_may_fail_only_if_its_exit_code_is_printed(tmp_path):
    for command in ("costada trace nowhere", "ls nowhere"):
        with pytest.raises(AssertionError, match="nowhere"):
            output_of_line(command, tmp_path)
        said = output_of_line(f'{command} || echo "exit code $?"', tmp_path)
        assert said.endswith("exit code 2\n")
    assert output_of_line('true || echo "exit code $?"', tmp_path) == ""

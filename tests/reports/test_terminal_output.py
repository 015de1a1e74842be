"""What a terminal is shown cannot command it, whoever wrote the text."""

import json
import re
import shutil
import sqlite3
import sys
import unicodedata
from contextlib import closing
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.live import Live
from rich.table import Table

from costada.reports.terminal import SafeConsole, TerminalTable, printable

HOSTILE = "x\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\u2066\b\x7f\u200b\u2028[bold]y"
COMMANDS = (
    "\x1b]",
    "\x1b[2J",
    "\x07",
    "\x9b",
    "\u202e",
    "\u2066",
    "\b",
    "\x7f",
    "\u200b",
    "\u2028",
)
DIRECTIONS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def is_obeyed(sign: str) -> bool:
    if sign in "\n\t":
        return False
    is_odd = unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp")
    return is_odd or unicodedata.bidirectional(sign) in DIRECTIONS


def found_in(text: str) -> list[str]:
    return [command for command in COMMANDS if command in text]


def spoilt(finished: Path, target: Path) -> Path:
    """Return a copy of a run whose every text is hostile."""
    shutil.copytree(finished, target)
    known = json.loads((target / "settings.json").read_text())
    (target / "settings.json").write_text(json.dumps({**known, "model": HOSTILE}))
    origin = {"folder": HOSTILE, "run_id": HOSTILE, "iteration": 1}
    with closing(sqlite3.connect(target / "run.sqlite")) as connection, connection:
        connection.execute("UPDATE costada_run SET origin = ?", (json.dumps(origin),))
        for iteration, row in connection.execute("SELECT iteration, row FROM costada_step"):
            said = {"action": HOSTILE, "events": [HOSTILE], "failure": HOSTILE}
            connection.execute(
                "UPDATE costada_step SET row = ? WHERE iteration = ?",
                (json.dumps({**json.loads(row), **said}), iteration),
            )
    return target


def test_every_character_that_a_terminal_obeys_is_told_by_its_number():
    for sign in map(chr, range(sys.maxunicode + 1)):
        if is_obeyed(sign):
            assert printable(sign) == f"\\u{ord(sign):04x}"
    assert printable("naïve 程序 עברית 🙂\n\tπ") == "naïve 程序 עברית 🙂\n\tπ"


@given(st.text())
@example("\U000e0001")
def test_json_stays_the_same(text):
    written = json.dumps({"text": text}, ensure_ascii=False)
    lone = any("\ud800" <= sign <= "\udfff" or sign > "\uffff" for sign in text)
    assert lone or json.loads(printable(written)) == {"text": text}
    assert json.loads(printable(json.dumps({"text": text}))) == {"text": text}


@pytest.mark.parametrize("is_terminal", [False, True])
def test_no_command_of_a_hostile_folder_reaches_the_terminal(
    invoke, finished, tmp_path, is_terminal, monkeypatch
):
    if is_terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")
    folder = spoilt(finished, tmp_path / "foreign")
    shown = ""
    for words in (
        *(["trace", folder], ["trace", "--json", folder], ["compare", tmp_path]),
        *(["report", folder], ["graph", "--run", folder], ["resume", folder]),
        ["resume", folder, "--budget", "0.000001"],
        ["fork", folder, "--at", 99, "--out", tmp_path / "new"],
        ["evaluate", HOSTILE, folder],
        ["sweep", "--problems", HOSTILE, "--methods", "uniform", "--out", tmp_path / "swept"],
    ):
        output = invoke(*words).output
        assert found_in(output) == [], words
        shown += output
    assert "\\u001b]0;owned" in re.sub(r"\s", "", shown)


def test_live_pictures_and_tables_are_cleaned_and_keep_the_commands_of_their_own():
    file = StringIO()
    console = SafeConsole(file=file, force_terminal=True, width=200, color_system="standard")
    table = Table(title=HOSTILE)
    table.add_column(HOSTILE)
    table.add_row(HOSTILE)
    with Live(table, console=console, auto_refresh=False):
        console.print(HOSTILE, markup=False)
    TerminalTable(["name"], [[HOSTILE]], words=["name"], bold=frozenset({0})).print(console)
    assert found_in(file.getvalue()) == []
    assert "\x1b[?25l" in file.getvalue()
    assert "[bold]y" in file.getvalue()

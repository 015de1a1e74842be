import io
import json
import re
import shutil
import sqlite3
import sys
import unicodedata
from contextlib import closing
from typing import Any

import pytest
from compared_runs import runs_of
from hypothesis import example, given
from hypothesis import strategies as st
from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from costada.experiments.comparison.outcomes import append_outcomes
from costada.reports.terminal import SafeConsole, TerminalTable, printable, printable_line
from costada.reports.trace import rows_of_file, trace_json, trace_table

pytestmark = pytest.mark.process

HOSTILE = "x\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\u2066\b\x7f\u200b\u2028[bold]y"
COMMANDS = (
    *("\x1b]", "\x1b[2J", "\x07", "\x9b", "\u202e", "\u2066", "\b", "\x7f", "\u200b", "\u2028"),
)


DIRECTIONS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def is_control(sign: str) -> bool:
    if sign in "\n\t":
        return False
    is_odd = unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp")
    return is_odd or unicodedata.bidirectional(sign) in DIRECTIONS


def found_in(text: str) -> list[str]:
    return [command for command in COMMANDS if command in text]


def copy_with_hostile_texts(finished, target):
    shutil.copytree(finished, target)
    known = json.loads((target / "settings.json").read_text())
    (target / "settings.json").write_text(json.dumps({**known, "model": HOSTILE}))
    origin = {"folder": HOSTILE, "run_id": HOSTILE, "iteration": 1}
    hostile = {"action": HOSTILE, "events": [HOSTILE], "failure": HOSTILE}
    with closing(sqlite3.connect(target / "run.sqlite")) as connection, connection:
        connection.execute("UPDATE costada_run SET origin = ?", (json.dumps(origin),))
        for iteration, row in connection.execute("SELECT iteration, row FROM costada_step"):
            connection.execute(
                "UPDATE costada_step SET row = ? WHERE iteration = ?",
                (json.dumps({**json.loads(row), **hostile}), iteration),
            )
    return target


def test_control_characters_are_shown_by_their_number():
    for sign in map(chr, range(sys.maxunicode + 1)):
        if is_control(sign):
            assert printable(sign) == f"\\u{ord(sign):04x}"
    assert printable("naïve 程序 עברית 🙂\n\tπ") == "naïve 程序 עברית 🙂\n\tπ"


def test_a_name_stays_one_line():
    assert printable_line("a\n\tb\r\x1b\u2028π") == r"a\n\tb\u000d\u001b\u2028π"


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
    folder = copy_with_hostile_texts(finished, tmp_path / "foreign")
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


def test_live_displays_and_tables_are_cleaned_and_keep_their_own_commands():
    file = io.StringIO()
    console = SafeConsole(file=file, force_terminal=True, width=200, color_system="standard")
    table = Table(HOSTILE, title=HOSTILE)
    table.add_row(HOSTILE)
    with Live(table, console=console, auto_refresh=False):
        console.print(HOSTILE, markup=False)
    TerminalTable(["name"], [[HOSTILE]], words=["name"], bold=frozenset({0})).print(console)
    assert found_in(file.getvalue()) == []
    assert "\x1b[?25l" in file.getvalue()
    assert "[bold]y" in file.getvalue()


STYLE = re.compile("\x1b\\[[0-9;?]*[A-Za-z]")
ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"


@pytest.fixture(params=[50, 80])
def width(request, monkeypatch):
    """The columns of a terminal that standard output is taken for."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(request.param))
    return request.param


def shown(result: Any, width: int) -> list[str]:
    assert result.exit_code == 0, result.output
    lines = STYLE.sub("", result.stdout).splitlines()
    assert max(len(line) for line in lines if not line.startswith("/")) <= width
    assert ELLIPSIS not in result.stdout
    return lines


def test_the_benchmarks_keep_their_names_and_numbers(invoke, width):
    text = "\n".join(shown(invoke("list"), width))
    assert "third_autocorrelation" in text
    assert "0.03093688903" in text
    assert ("Left out: direction, seed; --json" in text) is (width == 50)


def test_compared_methods_keep_their_names_and_scores(invoke, width, tmp_path):
    append_outcomes(tmp_path / "x.curves.jsonl", runs_of({"evox": [0.5], "uniform": [0.4]}))
    lines = shown(invoke("compare", tmp_path), width)
    heading = next(line.split() for line in lines if "method" in line)
    assert {"problem", "method", "score"} <= set(heading)
    assert "Left out: " in " ".join(lines)
    assert "budget ($" in " ".join(lines)


def test_simulated_methods_keep_their_intervals_and_the_file_is_named(invoke, width, tmp_path):
    options = ("--methods", "costada,uniform", "--seeds", 3, "--budget", 0.1, "--jobs", 1)
    lines = shown(invoke("simulate", *options, "--out", tmp_path), width)
    interval = re.compile(r"^ uniform +[.\d]+ \[[.\d]+, [.\d]+\]")
    assert len([line for line in lines if interval.search(line)]) == 2
    assert lines[-1] == str(tmp_path / "simulated.curves.jsonl")


def printed(rows, width=170):
    text = io.StringIO()
    trace_table(rows).print(Console(file=text, width=width, color_system=None))
    assert ELLIPSIS not in text.getvalue()
    return text.getvalue()


def test_a_trace_shows_only_attempts_that_were_made_as_failed(make_row):
    poor = {"events": ["out_of_money"], "failure": "no money"}
    rows = [
        make_row(iteration=1, failure="no program"),
        make_row(iteration=2, **poor, attempts=3),
        make_row(iteration=3, **poor),
    ]
    ends = [line.strip() for line in printed(rows).splitlines()]
    assert [end for end in ends if end.endswith("out of money, 2 attempts, failed")]
    assert [end for end in ends if end.startswith("1 ") and end.endswith("failed")]
    assert [end for end in ends if end.startswith("3 ") and end.endswith("  out of money")]


def line_with(text, word):
    return " ".join(next(line for line in text.splitlines() if word in line).split())


def test_a_trace_of_several_models_names_the_model_of_each_attempt(make_row):
    one = make_row(iteration=7, action="balanced")
    two = make_row(iteration=8, action="balanced", models=["small", "large@high"], router=[])
    assert "model" not in printed([one])
    text = printed([one, two])
    assert "model: model of each attempt" in text
    assert line_with(text, " 7 ").startswith("7 1 balanced - 0.500")
    assert line_with(text, " 8 ").startswith("8 1 balanced small, large@high 0.500")


WORDS = ["", "guide charged", "guide scheduled: breakthrough, 3 attempts", "程序 failed", "a\nb"]


@pytest.mark.parametrize("width", [24, 30, 44, 80])
def test_a_table_looks_as_rich_draws_it(width):
    cells = [(f"{10**place}", word) for place, word in enumerate(WORDS)]
    oracle = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    oracle.add_column("t", justify="right", no_wrap=True)
    oracle.add_column("events", overflow="fold")
    for each in cells:
        oracle.add_row(*each)
    drawn, expected = io.StringIO(), io.StringIO()
    TerminalTable(["t", "events"], cells, words=["events"]).print(
        Console(file=drawn, width=width, color_system=None)
    )
    Console(file=expected, width=width, color_system=None).print(oracle)
    assert drawn.getvalue() == expected.getvalue()


def test_the_table_shows_the_papers_columns_at_its_precision(make_row):
    row = make_row(
        iteration=7,
        frontier=2,
        intensity=0.461,
        step_cost=0.0179,
        remaining_ratio=0.8996,
        score=0.584,
        utility=0.0557,
        allocation_reward=0.0557,
        stagnation=0,
        low_yield_cost=0.0,
        consolidation_left=2,
        tactic_uses_left=5,
        events=["guide_charged", "consolidation_opened"],
    )
    text = printed([row])
    assert line_with(text, "action") == "t k action I c rho f u r nu L w uses events"
    assert line_with(text, "0.8996") == (
        "7 2 exploration 0.461 0.0179 0.8996 0.5840 0.0557 0.0557 0 0.0000 2 5"
        " guide charged, consolidation opened"
    )
    assert "Left out" not in printed([make_row()], width=160)


def test_tickets_have_a_column_where_one_ended_out_of_turn(make_row):
    rows = [make_row(iteration=1, ticket=2), make_row(iteration=2, ticket=1)]
    text = printed(rows)
    assert line_with(text, "action").startswith("t n k action")
    assert [line.split()[:3] for line in text.splitlines() if "exploration" in line][:2] == [
        ["1", "2", "1"],
        ["2", "1", "1"],
    ]
    in_turn = printed([make_row(iteration=1), make_row(iteration=2)])
    assert line_with(in_turn, "action").startswith("t k action")


def test_a_step_without_an_evaluation_shows_no_score_but_its_attempts(make_row):
    row = make_row(score=None, objective=None, candidate_id=None, attempts=3, failure="no program")
    line = line_with(printed([row]), "attempts")
    assert " - " in line
    assert line.endswith("3 attempts, failed")


def test_the_json_form_is_one_array_equal_to_the_rows(make_row):
    for rows in ([make_row(), make_row(iteration=2, score=None)], []):
        assert json.loads(trace_json(rows)) == rows


def test_a_folder_without_a_run_has_no_trace(tmp_path):
    with pytest.raises(ValueError, match="its run has not started"):
        rows_of_file(tmp_path / "run.sqlite")
    assert not (tmp_path / "run.sqlite").exists()


def test_a_narrow_terminal_names_the_columns_it_has_no_room_for(make_row):
    rows = [make_row(events=["consolidation_opened"]), make_row(iteration=2, utility=0.3)]
    text = printed(rows, width=80)
    assert line_with(text, "action") == "t k action c rho f u events"
    assert all(number in text for number in ("0.0150", "0.9850", "0.4000", "0.3000"))
    text = " ".join(text.split())
    assert "Left out: I (0.500), r (0.0000), nu (1), L (0.0150), w (0), uses (0);" in text
    assert "--json or a wider terminal shows all." in text
    assert "allocation reward" not in text
    for width in (20, 50):
        assert "0.0150   0.4000" in printed(rows[:1], width)

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from costada.runs.rows import rows_of_file
from costada.runs.trace import trace_json, trace_table

Row = Callable[..., Any]


def printed(table: Table) -> str:
    text = io.StringIO()
    Console(file=text, width=170, color_system=None).print(table)
    return text.getvalue()


def test_the_table_shows_the_papers_columns(make_row: Row) -> None:
    text = printed(trace_table([make_row()]))
    heading = next(line for line in text.splitlines() if "action" in line)
    assert " ".join(heading.split()) == "t k action I c rho f u r nu L w uses events"


def test_a_row_is_printed_at_the_papers_precision(make_row: Row) -> None:
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
    line = next(line for line in printed(trace_table([row])).splitlines() if "0.8996" in line)
    assert " ".join(line.split()) == (
        "7 2 exploration 0.461 0.0179 0.8996 0.5840 0.0557 0.0557 0 0.0000 2 5"
        " guide charged, consolidation opened"
    )


def test_a_step_without_an_evaluation_shows_no_score_but_its_attempts(make_row: Row) -> None:
    row = make_row(score=None, objective=None, candidate_id=None, attempts=3, failure="no program")
    line = next(line for line in printed(trace_table([row])).splitlines() if "attempts" in line)
    assert " - " in line
    assert line.rstrip().endswith("3 attempts, failed")


def test_the_json_form_is_one_array_equal_to_the_rows(make_row: Row) -> None:
    rows = [make_row(), make_row(iteration=2, score=None)]
    assert json.loads(trace_json(rows)) == rows
    assert json.loads(trace_json([])) == []


def test_a_folder_without_a_run_has_no_trace(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no run"):
        rows_of_file(tmp_path / "run.sqlite")
    assert not (tmp_path / "run.sqlite").exists()

import io
import json
from typing import Any

import pytest
from rich.console import Console

from costada.reports.trace import rows_of_file, trace_json, trace_table


def printed(rows: list[Any], width: int = 170) -> str:
    text = io.StringIO()
    trace_table(rows).print(Console(file=text, width=width, color_system=None))
    return text.getvalue()


def test_the_table_shows_the_papers_columns(make_row):
    text = printed([make_row()])
    heading = next(line for line in text.splitlines() if "action" in line)
    assert " ".join(heading.split()) == "t k action I c rho f u r nu L w uses events"


def test_a_row_is_printed_at_the_papers_precision(make_row):
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
    line = next(line for line in printed([row]).splitlines() if "0.8996" in line)
    assert " ".join(line.split()) == (
        "7 2 exploration 0.461 0.0179 0.8996 0.5840 0.0557 0.0557 0 0.0000 2 5"
        " guide charged, consolidation opened"
    )


def test_a_step_without_an_evaluation_shows_no_score_but_its_attempts(make_row):
    row = make_row(score=None, objective=None, candidate_id=None, attempts=3, failure="no program")
    line = next(line for line in printed([row]).splitlines() if "attempts" in line)
    assert " - " in line
    assert line.rstrip().endswith("3 attempts, failed")


def test_the_json_form_is_one_array_equal_to_the_rows(make_row):
    rows = [make_row(), make_row(iteration=2, score=None)]
    assert json.loads(trace_json(rows)) == rows
    assert json.loads(trace_json([])) == []


def test_a_folder_without_a_run_has_no_trace(tmp_path):
    with pytest.raises(ValueError, match="holds no run"):
        rows_of_file(tmp_path / "run.sqlite")
    assert not (tmp_path / "run.sqlite").exists()


def test_a_narrow_terminal_names_the_columns_it_has_no_room_for(make_row):
    rows = [make_row(events=["consolidation_opened"]), make_row(iteration=2, utility=0.3)]
    text = printed(rows, width=80)
    heading = next(line for line in text.splitlines() if "action" in line)
    assert " ".join(heading.split()) == "t k action c rho f u events"
    assert all(number in text for number in ("0.0150", "0.9850", "0.4000", "0.3000"))
    text = " ".join(text.split())
    assert "Left out: I (0.500), r (0.0000), nu (1), L (0.0150), w (0), uses (0);" in text
    assert "--json or a wider terminal shows all." in text
    assert "allocation reward" not in text
    assert "\N{HORIZONTAL ELLIPSIS}" not in text


@pytest.mark.parametrize("width", [20, 50])
def test_no_terminal_is_too_narrow_for_whole_numbers(make_row, width):
    text = printed([make_row(events=["consolidation_opened"])], width)
    assert "0.0150   0.4000" in text
    assert "\N{HORIZONTAL ELLIPSIS}" not in text


def test_a_table_that_fits_keeps_all_its_columns(make_row):
    assert "Left out" not in printed([make_row()], width=160)

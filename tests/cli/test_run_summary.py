"""The result of a run in a few lines."""

import json
from pathlib import Path

import pytest

from costada.cli.run_summary import summary_json, summary_text
from costada.runs.config import RunConfig
from costada.runs.folder import RunFolder
from costada.values.example_score import JudgedExamples
from costada.values.search_result import Discovery

CONFIG = RunConfig(problem="circle_packing", budget=1.0)


@pytest.mark.parametrize("is_valid", [True, False])
def test_a_file_is_named_as_the_best_program_once_one_is_valid(is_valid):
    result = Discovery(
        best_program="",
        best_score=0.0,
        best_objective=0.0 if is_valid else None,
        best_metrics={},
        spent=0.5,
        remaining=0.5,
        iterations=1,
        stop_reason="iterations",
        folder=None,
        sandbox=None,
    )
    folder = RunFolder(Path("run"))
    shown = summary_text(result, CONFIG, folder, {}, 0, [], "", 0, JudgedExamples(0, 0))
    said = json.loads(summary_json(result, CONFIG, folder, {}, 0, [], 0, JudgedExamples(0, 0)))
    named = str(folder.best_program)
    assert said["best_program"] == (named if is_valid else None)
    assert f"  best program    {named if is_valid else 'no valid one yet'}" in shown
    assert ("best objective" in shown) == is_valid

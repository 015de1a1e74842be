"""A problem folder for the tests of remote evaluations."""

import json
from dataclasses import replace

from costada.evaluators.folders import load_folder

EVALUATOR = """
import json
from pathlib import Path

from costada import Evaluation

CALLS = [{"number": 2}, {"number": 3}]
TABLE = json.loads(Path(__file__).with_name("table.json").read_text())


def score(results):
    if any(result.error for result in results):
        raise ValueError(results[0].error or results[1].error)
    right = [result.output == TABLE[place] for place, result in enumerate(results)]
    value = sum(right) / len(right)
    return Evaluation(score=value, objective=value, is_valid=True, metrics={"right": sum(right)})
"""
SETTINGS = 'entry_point = "square"\ntimeout = 20\n'
START = "def square(number):\n    return 4\n"


def write_squares(folder, settings=SETTINGS):
    """A problem whose evaluator reads the file beside it: 4 and 9 are right."""
    folder.mkdir(parents=True)
    (folder / "problem.md").write_text("Square a number.\n")
    (folder / "problem.toml").write_text(settings)
    (folder / "initial_program.py").write_text(START)
    (folder / "evaluator.py").write_text(EVALUATOR)
    (folder / "table.json").write_text(json.dumps([4, 9]))
    return folder


def load_squares(folder, timeout):
    """The problem with another limit of seconds."""
    found = load_folder(folder)
    return replace(found, limits=replace(found.limits, wall_seconds=timeout))

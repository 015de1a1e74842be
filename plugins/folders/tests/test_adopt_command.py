"""`costada check` and `costada adopt` on folders in the layouts of other tools."""

import json

import pytest

from costada.evaluators.folders import load_folder
from costada.evaluators.problem import check_problem

pytestmark = pytest.mark.process

STARTING = """import subprocess
import sys

def evaluate(program_path):
    try:
        code = f"import runpy; print(runpy.run_path({program_path!r})['place']())"
        value = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=True
        ).stdout
    except OSError:
        return {"validity": 0.0, "combined_score": 0.0}
    return {"validity": 1.0, "combined_score": float(value)}
"""
PLACE = "def place():\n    return 0.5\n\n\ndef unused():\n    return 1\n"


def facts(text):
    """Name and text of each line of the screen."""
    head, *lines = text.splitlines()
    pairs = [line.strip().split("  ", 1) for line in lines]
    return head, {name: rest.strip() for name, rest in pairs}


@pytest.fixture
def starting(tmp_path):
    """A folder of another tool whose evaluator runs the candidate in a process of its own."""
    folder = tmp_path / "folder"
    (folder / "evaluator").mkdir(parents=True)
    (folder / "evaluator" / "evaluator.py").write_text(STARTING)
    (folder / "initial_program.py").write_text(PLACE)
    (folder / "config.yaml").write_text(
        "prompt:\n  system_message: Do it.\nevaluator:\n  timeout: 40\nllm:\n  model: x\n"
    )
    return folder


def test_an_error_beside_a_score_is_on_the_screen(invoke, starting):
    answer = "{'accuracy': 0.5, 'error': 'one case timed out'}"
    text = f"def evaluate(program_path):\n    return {answer}\n"
    (starting / "evaluator" / "evaluator.py").write_text(text)
    found = facts(invoke("check", starting).stdout)[1]
    assert found["start"] == "score 0.5"
    assert found["error"] == "one case timed out (returned beside the score)"


def test_a_start_that_is_refused_is_on_the_screen_and_the_reason_below_it(invoke, starting):
    (starting / "problem.toml").write_text("processes = 0\n")
    result = invoke("check", starting, "--json")
    assert result.exit_code == 2
    found = json.loads(result.stdout)
    assert found["layout"] == "evaluator/evaluator.py, initial_program.py, config.yaml"
    assert found["start"] == "not valid"
    assert found["settings"].startswith("config.yaml: took over evaluator.timeout, ")
    assert "write processes = 16 in problem.toml" in found["fault"]
    assert "write processes = 16 in problem.toml" in result.stderr


def test_an_adopted_folder_has_the_settings_that_its_evaluator_needs(invoke, starting):
    result = invoke("adopt", starting)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == [
        f"Wrote {starting / 'problem.toml'}",
        f"Wrote {starting / 'native_evaluator.py'}",
        f"Next: costada check {starting}",
    ]
    problem = load_folder(starting)
    assert problem.entry_point == "place"
    assert (problem.limits.wall_seconds, problem.limits.processes) == (40, 256)
    assert check_problem(problem).score == 0.5


def test_nothing_is_overwritten(invoke, starting):
    (starting / "problem.toml").write_text("timeout = 7\n")
    (starting / "native_evaluator.py").symlink_to(starting / "absent")
    result = invoke("adopt", starting)
    assert (result.exit_code, result.stdout.count("Kept ")) == (0, 2)
    assert (starting / "problem.toml").read_text() == "timeout = 7\n"
    assert not (starting / "absent").exists()


def test_the_skeleton_is_an_evaluator_once_it_is_in_place(invoke, starting):
    invoke("adopt", starting)
    (starting / "evaluator" / "evaluator.py").unlink()
    (starting / "native_evaluator.py").rename(starting / "evaluator.py")
    problem = load_folder(starting)
    assert check_problem(problem).score == 0.5
    assert "place returned str" in problem.evaluate("def place(): return 'x'").error


def test_a_native_folder_needs_no_adoption(invoke, starting):
    (starting / "evaluator.py").write_text("def score(output):\n    return {}\n")
    (starting / "problem.toml").write_text('entry_point = "place"\n')
    result = invoke("adopt", starting)
    assert result.exit_code == 2
    assert "has a native evaluator" in result.stderr


def test_several_possible_entry_points_are_named_and_none_is_chosen(invoke, starting):
    evaluator = starting / "evaluator" / "evaluator.py"
    evaluator.write_text(STARTING + "\nOTHER = 'unused'\n")
    invoke("adopt", starting)
    text = (starting / "problem.toml").read_text()
    assert '# entry_point = "place"' in text
    assert '# entry_point = "unused"' in text
    assert load_folder(starting).entry_point is None

"""The example problems with a noisy score and with two objectives, and the folder of a front."""

import json
from itertools import pairwise
from math import cos, log10, sin

import pytest
from doc_blocks import ROOT
from fakes import ScriptedModel, toy_problem

from costada.evaluators.registry import problem
from costada.runs.discovery import discover
from costada.runs.folder import RunFolder
from costada.runs.fork import fork_run
from costada.runs.run_files import front_files
from costada.store.run_store import RunStore
from costada.values.candidate import Candidate, Program

pytestmark = pytest.mark.process

NOISY, TWO = (ROOT / "examples/problems" / name for name in ("noisy_speed", "two_objectives"))
COUNTED = """
from collections import Counter

def count_pairs(numbers, total):
    seen, found = Counter(), 0
    for number in numbers:
        found += seen[total - number]
        seen[number] += 1
    return found
"""
WRONG = "def count_pairs(numbers, total):\n    return len(numbers) // 7\n"


def run(folder, problem, *programs):
    """A run whose model answers with these programs; its trace rows."""
    answers = iter([f"```python\n{text}```" for text in programs])
    discover(
        problem,
        ScriptedModel(answer=lambda prompt: next(answers)),
        out=folder,
        budget=1.0,
        price="1,2",
        max_iterations=len(programs),
        controller={"max_attempts": 1},
    )
    return [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]


def test_a_faster_program_is_confirmed_by_a_second_series_and_a_wrong_one_rejected(tmp_path):
    first, second = run(tmp_path / "run", NOISY, COUNTED, WRONG)
    assert (len(first["measurements"]), len(first["confirmation"])) == (3, 3)
    six = sorted([*first["measurements"], *first["confirmation"]])
    assert first["objective"] == pytest.approx((six[2] + six[3]) / 2)
    assert "confirmed" in first["events"]
    assert "expected" in second["failure"]
    assert second["measurements"] == []
    assert (tmp_path / "run/best_program.py").read_text().strip() == COUNTED.strip()


def sine(count: int) -> str:
    return (TWO / "initial_program.py").read_text().replace("POINTS = 8", f"POINTS = {count}")


def digits(count: int) -> float:
    """Digits of a sine of so many points by hand: the error in the middle of the highest arc."""
    step = 6.3 / (count - 1)
    places = [step * number for number in range(count)]
    middles = [(one + other) / 2 for one, other in pairwise(places)]
    return -log10(max(abs(sin(x)) * (1 - cos(step / 2)) for x in middles))


def test_the_programs_of_the_front_are_written_beside_the_best_one(tmp_path):
    crooked = sine(40).replace("math.sin(step * i)", "0.9 * math.sin(step * i)")
    rows = run(tmp_path / "run", TWO, sine(30), crooked, sine(60), sine(4), "x =")
    values = [row["objectives"]["digits:max"] for row in rows[:4]]
    assert values[0] == pytest.approx(digits(30), abs=0.01)
    assert values[2] == pytest.approx(digits(60), abs=0.01)
    assert [row["front"] for row in rows] == [2, 2, 3, 4, 4]
    assert [row["objectives"]["points:min"] for row in rows] == [30, 40, 60, 4, None]
    assert rows[0]["score"] == pytest.approx(values[0] - 0.02 * 30)
    pareto = tmp_path / "run/pareto"
    assert {path.name for path in pareto.iterdir()} == {
        *("0.1.py", "1.1.py", "3.1.py", "4.1.py", "front.json")
    }
    assert (pareto / "3.1.py").read_text().strip() == sine(60).strip()
    listed = json.loads((pareto / "front.json").read_text())
    assert [each["score"] for each in listed] == sorted(
        (each["score"] for each in listed), reverse=True
    )
    assert (pareto / listed[0]["program"]).read_text() == (
        tmp_path / "run/best_program.py"
    ).read_text()
    assert listed[0]["objectives"].keys() == {"digits:max", "points:min"}


def test_a_fork_has_the_front_of_its_iteration(tmp_path):
    original, forked = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "fork")
    run(original.path, TWO, sine(30), sine(60))
    fork_run(original, 1, forked)
    for folder, expected in ((original, ["0.1", "1.1", "2.1"]), (forked, ["0.1", "1.1"])):
        with RunStore(folder.database, is_read_only=True) as store:
            front = store.candidates.front(store.run_ids()[-1], 10**9)
        assert [each.id for each in front] == expected


def test_a_run_of_one_objective_has_no_folder_of_a_front(tmp_path):
    run(tmp_path / "run", toy_problem(), "def value():\n    return 0.2\n")
    assert not (tmp_path / "run/pareto").exists()


def test_a_folder_with_a_front_is_not_overwritten_by_a_new_run(tmp_path):
    (tmp_path / "run/pareto").mkdir(parents=True)
    with pytest.raises(ValueError, match="pareto: exists, the run would overwrite it"):
        run(tmp_path / "run", TWO, sine(30))


@pytest.mark.parametrize("name", ["../1.1", "/etc/1.1", ".hidden", "a\\b"])
def test_a_candidate_of_a_foreign_run_whose_name_leads_elsewhere_is_refused(name):
    metrics = {"digits": 1.0, "points": 2.0}
    one = Candidate(id=name, program=Program.of("x"), score=1.0, metrics=metrics)
    with pytest.raises(ValueError, match="the Pareto front has a file"):
        front_files([one], problem(TWO))


def test_a_program_of_several_files_is_a_folder_of_the_front():
    files = Program.of({"src/a.py": "a", "b.md": "b"})
    one = Candidate(id="7.1", program=files, score=1.0, metrics={"digits": 1.0, "points": 2.0})
    found = front_files([one], problem(TWO))
    assert {**found, "front.json": ""} == {"7.1/src/a.py": "a", "7.1/b.md": "b", "front.json": ""}
    assert json.loads(found["front.json"])[0]["program"] == "7.1"

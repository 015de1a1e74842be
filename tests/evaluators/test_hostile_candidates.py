"""Every program of the hostile collection gets the verdict its entry demands."""

import json
from pathlib import Path

import pytest

from costada.evaluators.benchmarks.circle_packing import ENTRY_POINT, REFERENCE, score_run
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.run import run_candidate

SHARED = Path(__file__).parents[2].parent / "shared"
INDEX = SHARED / "hostile" / "index.json"
PROGRAMS = json.loads(INDEX.read_text())["programs"] if INDEX.exists() else []

needs_programs = pytest.mark.skipif(not PROGRAMS, reason=f"the collection {INDEX} is absent")
SAYS = {
    "endless_loop": "timeout",
    "long_sleep": "timeout",
    "raises_value_error": 'ValueError: no packing today\n  File "candidate.py", line 7',
    "calls_sys_exit": "SystemExit",
    "syntax_error": "line 6",
    "missing_module": "ModuleNotFoundError",
    "no_entry_point": "run_packing",
    "returns_none": "must return (centers, radii, sum_radii)",
    "wrong_number_of_circles": "shape (25, 2); expected (26, 2)",
    "nan_in_radii": "radii[7] is nan",
    "negative_radius": "radius 12 is -0.05",
    "overlapping_circles": "overlap by 0.02",
    "circle_outside_square": "circle 0 passes the left side by 0.01",
    "list_eats_memory": "out of memory",
}


def limits_for(program):
    tags = program.get("tags", [])
    wall = 1.0 if "timeout" in tags else 60.0
    return Limits(wall_seconds=wall, memory_mb=256 if "memory" in tags else 1024)


@needs_programs
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program["name"])
def test_a_hostile_program_gets_its_verdict(program, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-CANARY-1")
    limits = limits_for(program)
    source = (INDEX.parent / program["file"]).read_text()
    verdict = score_run(run_candidate(source, ENTRY_POINT, limits))
    assert "CANARY" not in f"{verdict}"
    assert verdict.seconds < limits.wall_seconds + 3
    assert len(verdict.artifacts.get("log", "")) <= limits.log_bytes
    if program["expect"] == "reject":
        assert (verdict.score, verdict.is_valid) == (0.0, False)
        assert SAYS[program["name"]] in verdict.error
    else:
        assert verdict.objective == pytest.approx(program["honest_score"], abs=1e-6)
        assert verdict.score == pytest.approx(program["honest_score"] / REFERENCE, abs=1e-6)

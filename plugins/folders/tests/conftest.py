"""The fixtures of all tests; a problem folder that needs a package, and wheels of it."""

import pytest
from made_wheels import write_wheel
from shared_fixtures import *

EVALUATOR = """import needed_module
import sys

def evaluate(program_path):
    return {"combined_score": needed_module.VALUE, "prefix": sys.prefix}
"""
FILES = {
    "problem.md": "Do it.",
    "initial_program.py": "x = 1\n",
    "problem.toml": "preload = []\n",
    "evaluator.py": EVALUATOR,
}


@pytest.fixture(scope="session")
def wheels(tmp_path_factory):
    """A folder of wheels: empty ones, and two of `needed-package`."""
    folder = tmp_path_factory.mktemp("wheels")
    for name in ("numpy", "scipy"):
        write_wheel(folder, name, "99.0", {f"empty_{name}.py": ""})
    for number, value in (("1.0", 0.25), ("2.0", 0.75)):
        write_wheel(folder, "needed_package", number, {"needed_module.py": f"VALUE = {value}\n"})
    return folder


@pytest.fixture
def needing_folder(tmp_path, wheels, monkeypatch):
    """A problem folder that needs `needed-package`, where uv finds nothing but the wheels."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("UV_FIND_LINKS", str(wheels))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_NO_CACHE", "1")
    place = tmp_path / "problem"
    place.mkdir()
    for name, text in FILES.items():
        (place / name).write_text(text)
    return place

"""What candidates see of this package where it is installed among the libraries they may read."""

import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest

import costada

ROOMS = ("controller", "evaluators", "graph", "models", "nodes", "prompts", "store", "values")
STEALING = """
import os, sys
def f(folder):
    found = []
    for path in (
        "evaluators/benchmarks/signal_processing/evaluator.py",
        "evaluators/benchmarks/signal_processing/initial_program.py",
        "models/offline/__init__.py",
    ):
        try:
            found.append(open(os.path.join(folder, path)).read()[:40])
        except OSError as error:
            found.append(type(error).__name__)
    sys.path.insert(0, os.path.dirname(folder))
    try:
        import costada.evaluators.benchmarks.signal_processing.evaluator as evaluator
        found.append(evaluator.make_signals()[0].clean[:2].tolist())
    except (ImportError, PermissionError) as error:
        found.append(type(error).__name__)
    import neighbour
    return [*found, neighbour.VALUE]
"""
RUNNING = """
import sys
from pathlib import Path
import costada
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.run import run_candidate
folder = str(Path(costada.__file__).parent)
assert folder == sys.argv[2], folder
result = run_candidate(
    sys.argv[3], "f", Limits(wall_seconds=60), {"folder": folder}, Layer(sys.argv[1]), ("numpy",)
)
print(result.error or result.output)
"""


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """A folder of libraries that holds this package and another module; links lead to it too."""
    environment = tmp_path_factory.mktemp("installed")
    libraries = environment / "lib" / "site-packages"
    (environment / "lib64").symlink_to("lib")
    root = Path(costada.__file__).parent
    for room in ROOMS:
        copytree(root / room, libraries / "costada" / room)
    (libraries / "costada" / "__init__.py").write_text("")
    (libraries / "neighbour.py").write_text("VALUE = 7\n")
    for name in ("here", "again"):
        (libraries / name).symlink_to(".")
    return libraries


def test_it_cannot_be_read_or_imported(walled, installed):
    again = installed.parents[1] / "lib64" / "site-packages"
    head = f"import sys; sys.path[:0] = [{str(installed)!r}, {str(again)!r}]\n"
    words = [str(walled), str(installed / "costada"), STEALING]
    answer = subprocess.run(
        [sys.executable, "-c", head + RUNNING, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    told = "['PermissionError', 'PermissionError', 'PermissionError', 'PermissionError', 7]"
    assert (answer.stdout.strip(), answer.stderr) == (told, "")

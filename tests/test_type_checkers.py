"""What users write is checked with the package's types, also outside of its repository."""

import json
import os
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest
from doc_blocks import ROOT, blocks_of
from methods_of_others import METHODS_OF_OTHERS

from costada import Choices, SearchContext
from costada.runs.choices import context_schema

pytestmark = pytest.mark.process

MODEL = "from langchain_openai import ChatOpenAI\n\nmodel = ChatOpenAI()\n"
"""The model that the README's agent has from elsewhere."""

PYRIGHT = which("pyright", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")

CACHE = ROOT / ".mypy_cache" / "elsewhere"
"""What mypy knows of installed packages, which takes long to find out."""

UNREAD = """
[mypy]
[mypy-openai.*,numpy.*,scipy.*,sqlalchemy.*,langsmith.*,psycopg.*,tiktoken.*]
follow_imports = skip
follow_imports_for_stubs = true
"""
"""No setting of its own, but packages whose types no signature of ours needs take half the time."""

INVOKED = """\
from costada import SearchContext, create_discovery_graph

chosen: SearchContext = {{"budget": 0.05}}
graph = create_discovery_graph("circle_packing", "offline", budget=0.03)
graph.invoke({{}}, context=chosen)
graph.invoke({{}}, context={given})
"""


NO_METHOD = """\
from costada.controller.methods import METHODS, Method

class Nothing:
    def start(self) -> None: ...

METHODS["nothing"] = Method("nothing", Nothing, "not a method", {})
"""
MISTAKES = """\
from costada import OfflineModel, RetryPolicy, create_discovery_graph, discover

discover("circle_packing", OfflineModel(), budget=1, itertions=3)
RetryPolicy(call_timeout="long")
create_discovery_graph("circle_packing", "offline", budget=0.03).invoke({"sed": 1})
print(discover("circle_packing", OfflineModel(), budget=1).best)
"""
PROGRAM = (ROOT / "tests" / "typed_program.py").read_text()
README = [each for each in blocks_of(ROOT / "README.md") if each.language in ("python", "py")]
SCRIPTS = {
    **{f"readme_{n}": MODEL * (each.language == "py") + each.text for n, each in enumerate(README)},
    **{f"method_{n}": text for n, text in enumerate(METHODS_OF_OTHERS.values())},
    "context": INVOKED.format(given='{"budget": 0.05}'),
    "misspelt": INVOKED.format(given='{"bugdet": 0.05}'),
    "no_method": NO_METHOD,
    "typed_program": PROGRAM,
    "mistakes": MISTAKES,
}
"""What is checked at once: mypy needs long to read the packages that they import."""


@pytest.fixture(scope="module")
def errors(tmp_path_factory):
    """The lines that mypy reports of each script outside of the repository."""
    folder = tmp_path_factory.mktemp("elsewhere")
    for name, script in SCRIPTS.items():
        (folder / f"{name}.py").write_text(script)
    (folder / "mypy.ini").write_text(UNREAD)
    options = ("--strict", "--no-error-summary", f"--cache-dir={CACHE}")
    checked = subprocess.run(
        [sys.executable, "-P", "-m", "mypy", *options, "."],
        cwd=folder,
        env={**os.environ, "MYPYPATH": "", "PYTHONPATH": ""},
        capture_output=True,
        text=True,
    )
    assert checked.stderr == ""
    lines = checked.stdout.splitlines()
    return {name: [line for line in lines if line.startswith(f"{name}.py:")] for name in SCRIPTS}


def test_what_has_no_type_errors_gets_none_reported(errors):
    assert any("context={" in each.text for each in README)
    assert {name for name, lines in errors.items() if lines} == {
        "misspelt",
        "no_method",
        "mistakes",
    }


def test_each_mistake_of_a_user_is_a_type_error(errors):
    lines = {line.split(":")[1] for line in errors["mistakes"] if ": error: " in line}
    assert lines == {"3", "4", "5", "6"}


@pytest.mark.skipif(PYRIGHT is None, reason="pyright is not installed: pip install pyright")
def test_pyright_agrees_with_mypy(tmp_path):
    (tmp_path / "typed_program.py").write_text(PROGRAM)
    (tmp_path / "mistakes.py").write_text(MISTAKES)
    (tmp_path / "pyrightconfig.json").write_text("{}")
    checked = subprocess.run(
        [PYRIGHT, "--pythonpath", sys.executable, "--outputjson", tmp_path],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    found = json.loads(checked.stdout)["generalDiagnostics"]
    wrong = {
        (Path(each["file"]).stem, each["range"]["start"]["line"] + 1)
        for each in found
        if each["severity"] == "error"
    }
    assert wrong == {("mistakes", line) for line in (3, 4, 5, 6)}, found


def test_a_misspelt_key_of_a_context_is_a_type_error(errors):
    (error,) = [line for line in errors["misspelt"] if ": error: " in line]
    assert error.startswith("misspelt.py:6: error: ")


def test_what_a_method_lacks_is_told(errors):
    (error,) = [line for line in errors["no_method"] if ": error: " in line]
    assert error.startswith("no_method.py:6")
    assert "ControllerKind" in error


def test_the_type_of_a_context_has_the_keys_of_its_schema():
    everything = Choices(
        max_budget=1.0,
        problems=["circle_packing"],
        models=["offline"],
        max_parallel=2,
        settings=["method"],
    )
    schema = context_schema(everything, ("circle_packing",), ("offline",))
    assert set(schema.model_fields) == set(SearchContext.__annotations__)


def test_outside_of_the_repository_the_package_is_still_the_checkout(tmp_path):
    found = subprocess.run(
        [sys.executable, "-c", "import costada.graph.build as build; print(build.__file__)"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == str(ROOT / "graph" / "build.py")

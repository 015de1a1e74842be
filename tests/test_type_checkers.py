"""What users write is checked with the package's types, also outside of its repository."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from doc_blocks import ROOT, blocks_of
from methods_of_others import METHODS_OF_OTHERS

from costada import Choices, SearchContext
from costada.runs.choices import context_schema

pytestmark = pytest.mark.process

MODEL = "from langchain_openai import ChatOpenAI\n\nmodel = ChatOpenAI()\n"
"""The model that the README's agent has from elsewhere."""

CACHE = ROOT / ".mypy_cache" / "elsewhere"
"""What mypy knows of installed packages, which takes it half a minute to find out."""

INVOKED = """\
from costada import SearchContext, create_discovery_graph

chosen: SearchContext = {{"budget": 0.05}}
graph = create_discovery_graph("circle_packing", "offline", budget=0.03)
graph.invoke({{}}, context=chosen)
graph.invoke({{}}, context={given})
"""


def errors_of(*scripts: str, folder: Path) -> str:
    """What mypy reports of scripts in a folder, with no configuration."""
    for number, script in enumerate(scripts):
        (folder / f"script_{number}.py").write_text(script)
    options = ("--strict", "--config-file=", "--no-error-summary", f"--cache-dir={CACHE}")
    checked = subprocess.run(
        [sys.executable, "-P", "-m", "mypy", *options, "."],
        cwd=folder,
        env={**os.environ, "MYPYPATH": "", "PYTHONPATH": ""},
        capture_output=True,
        text=True,
    )
    assert checked.stderr == ""
    return checked.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("elsewhere")


def test_the_python_of_the_readme_has_no_type_errors(folder):
    blocks = [each for each in blocks_of(ROOT / "README.md") if each.language in ("python", "py")]
    scripts = [MODEL * (each.language == "py") + each.text for each in blocks]
    assert any("context={" in each for each in scripts)
    assert errors_of(*scripts, folder=folder) == ""


def test_a_misspelt_key_of_a_context_is_a_type_error(folder):
    assert errors_of(INVOKED.format(given='{"budget": 0.05}'), folder=folder) == ""
    reported = errors_of(INVOKED.format(given='{"bugdet": 0.05}'), folder=folder)
    assert [line.split(": ")[1] for line in reported.splitlines()].count("error") == 1
    assert reported.startswith("script_0.py:6: error: ")


def test_methods_of_others_are_accepted_and_what_one_lacks_is_told(folder):
    broken = """\
from costada.controller.methods import METHODS, Method

class Nothing:
    def start(self) -> None: ...

METHODS["nothing"] = Method("nothing", Nothing, "not a method", {})
"""
    reported = errors_of(broken, *METHODS_OF_OTHERS.values(), folder=folder)
    (error,) = [line for line in reported.splitlines() if ": error:" in line]
    assert error.startswith("script_0.py:6")
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

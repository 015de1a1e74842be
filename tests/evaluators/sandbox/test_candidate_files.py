"""Candidates of several files: written where they belong, imported, and found by an evaluator."""

import os

import pytest
from sandbox_runs import AMPLE, LAYERS

from costada.evaluators.folder_files import EvaluatorFile
from costada.evaluators.sandbox.candidate_runs import run_calls, run_evaluator
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.values.candidate import Program

pytestmark = pytest.mark.process

PACKAGE = {
    "shapes/__init__.py": "",
    "shapes/area.py": "from shapes.sides import sides\n\ndef area(name): return sides(name) ** 2\n",
    "shapes/sides.py": (
        "from pathlib import Path\n\ndef sides(name): return int(Path('data', name).read_text())\n"
    ),
    "data/square": "3",
}
LISTING = """
import os
def evaluate(path):
    found = [os.path.relpath(os.path.join(at, name), path)
             for at, _, names in os.walk(path) for name in names]
    return {"combined_score": float(len(found)), "found": " ".join(sorted(found))}
"""


def run_files(files, entry_point, layer=Layer.AUTO, limits=AMPLE, **arguments):
    calls = run_calls(Program.of(files), entry_point, [arguments], limits, layer, ())
    return calls[0]


@pytest.mark.parametrize("layer", LAYERS, indirect=True)
def test_the_modules_and_data_of_a_program_find_each_other(layer):
    result = run_files(PACKAGE, "shapes.area:area", layer, name="square")
    assert (result.output, result.error) == (9, None)


def test_an_error_shows_each_file_by_its_path():
    broken = {**PACKAGE, "shapes/sides.py": "def sides(name):\n    return 1 / 0\n"}
    error = run_files(broken, "shapes.area:area", name="square").error
    assert error.splitlines() == [
        "ZeroDivisionError: division by zero",
        '  File "shapes/area.py", line 3, in area',
        "    def area(name): return sides(name) ** 2",
        '  File "shapes/sides.py", line 2, in sides',
        "    return 1 / 0",
    ]
    missing = run_files(PACKAGE, "shapes.area:area", name="circle").error
    assert missing.startswith("FileNotFoundError: ")
    assert "'data/circle'" in missing


def test_a_module_or_function_that_the_program_lacks_is_its_own_fault():
    assert run_files(PACKAGE, "shapes.colour:f").error.startswith("ModuleNotFoundError: ")
    assert run_files(PACKAGE, "shapes.area:colour").error.startswith(
        "AttributeError: shapes.area defines no function colour"
    )


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["../../outside.py"], "a relative path without"),
        (["/tmp/outside.py"], "a relative path without"),
        (["a/../../outside.py"], "a relative path without"),
        ([".ssh/authorized_keys"], "hidden parts"),
        (["a\\..\\b"], "without a backslash"),
        (["line\nbreak.py"], "printable"),
        (["/".join("abcdefghijklmn")], "at most 12 parts"),
        (["a", "a/b"], "expected the latter a folder"),
        ([f"{number}.py" for number in range(201)], "201 files"),
    ],
)
def test_paths_that_lead_elsewhere_are_never_written(paths, expected):
    result = run_files(dict.fromkeys(paths, "def f(): return 1"), "a:f")
    assert expected in result.error


def test_the_size_of_all_files_together_is_bounded():
    files = {f"{number}.py": "x" * 400 for number in range(3)}
    result = run_files(files, "0:f", limits=Limits(source_bytes=1000))
    assert result.error == "the files have together 1200 bytes; expected at most 1000"


def test_an_evaluator_is_given_the_folder_of_several_files(tmp_path):
    (tmp_path / "evaluator.py").write_text(LISTING)
    files = {"b.cpp": "", "a/c.h": "int x;"}
    result = run_evaluator(
        Program.of(files), EvaluatorFile(tmp_path, tmp_path / "evaluator.py"), AMPLE
    )
    assert result.output["metrics"]["found"] == "a/c.h b.cpp"


def test_an_evaluator_is_given_one_text_under_its_name(tmp_path):
    (tmp_path / "evaluator.py").write_text(
        "import os\n"
        "def evaluate(path):\n"
        "    name, text = os.path.basename(path), open(path).read()\n"
        "    return {'combined_score': 1.0, 'name': name, 'text': text}"
    )
    result = run_evaluator(
        "int main() {}",
        EvaluatorFile(tmp_path, tmp_path / "evaluator.py"),
        AMPLE,
        file_name="start.cpp",
    )
    assert result.output["artifacts"] == {}
    assert result.output["metrics"] == {
        "combined_score": 1.0,
        "name": "start.cpp",
        "text": "int main() {}",
    }


def test_files_of_one_program_are_gone_for_the_next():
    assert run_files(PACKAGE, "shapes.area:area", name="square").output == 9
    listing = {"names.py": "import os\ndef f(): return sorted(os.listdir())"}
    assert run_files(listing, "names:f").output == ["names.py"]
    assert not os.path.exists("shapes")

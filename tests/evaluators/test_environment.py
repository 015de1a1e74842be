"""An environment for a problem folder: made by uv from wheels that the tests write themselves."""

import base64
import sys
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from zipfile import ZipFile

import landlockpy
import pyseccomp
import pytest

from costada.evaluators.environment import environment_folder, interpreter_of, make_environment
from costada.evaluators.folders import load_folder
from costada.evaluators.problem import Problem, check_problem
from costada.evaluators.sandbox.interpreter import interpreter_at
from costada.values.evaluation import Evaluation

if not sys.platform.startswith("linux"):
    pytest.skip("what the sandbox needs differs here", allow_module_level=True)

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


def write_wheel(folder, name, number, files):
    """A wheel with these files; its record is what installers check."""
    about = f"{name}-{number}.dist-info"
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n"
    kind = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    texts = {**files, f"{about}/METADATA": head, f"{about}/WHEEL": kind}
    with ZipFile(folder / f"{name}-{number}-py3-none-any.whl", "w") as wheel:
        lines = []
        for path, text in texts.items():
            content = text.encode() if isinstance(text, str) else text
            digest = base64.urlsafe_b64encode(sha256(content).digest()).rstrip(b"=").decode()
            lines.append(f"{path},sha256={digest},{len(content)}")
            wheel.writestr(path, content)
        wheel.writestr(f"{about}/RECORD", "\n".join([*lines, f"{about}/RECORD,,", ""]))


def files_of(module):
    """The Python files of an installed module or package."""
    path = Path(module.__file__)
    if path.name != "__init__.py":
        return {path.name: path.read_bytes()}
    around = path.parent.parent
    return {str(p.relative_to(around)): p.read_bytes() for p in path.parent.rglob("*.py")}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """A folder of wheels: what the sandbox imports, empty ones, and two of `needed-package`."""
    folder = tmp_path_factory.mktemp("wheels")
    for module in (pyseccomp, landlockpy):
        write_wheel(folder, module.__name__, version(module.__name__), files_of(module))
    for name in ("numpy", "scipy"):
        write_wheel(folder, name, "99.0", {f"empty_{name}.py": ""})
    for number, value in (("1.0", 0.25), ("2.0", 0.75)):
        write_wheel(folder, "needed_package", number, {"needed_module.py": f"VALUE = {value}\n"})
    return folder


@pytest.fixture
def folder(tmp_path, wheels, monkeypatch):
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


def test_evaluations_run_in_the_environment_of_the_folder(folder):
    with pytest.raises(ValueError, match=r"needs needed_module; nothing says which package"):
        load_folder(folder)
    make_environment(folder, [], ["needed-package==1.0"])
    problem = load_folder(folder)
    verdict = check_problem(problem)
    assert verdict.score == 0.25
    assert verdict.artifacts["prefix"] == str(environment_folder(folder).resolve())
    assert "needed_package==1.0" in interpreter_at(problem.interpreter).packages
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)


def test_other_packages_make_another_problem(folder):
    make_environment(folder, [], ["needed-package==1.0"])
    first = load_folder(folder)
    make_environment(folder, [], ["needed-package==1.0"])
    assert load_folder(folder).fingerprint == first.fingerprint
    make_environment(folder, [], ["needed-package==2.0"])
    second = load_folder(folder)
    assert second.fingerprint != first.fingerprint
    assert check_problem(second).score == 0.75


def test_prepare_installs_the_requirements_and_check_says_where_they_are(folder, invoke):
    (folder / "requirements.txt").write_text("needed-package<2  # by another name\n")
    refused = invoke("check", folder)
    assert refused.exit_code == 2
    assert "needs          lacks needed_module" in refused.stdout
    assert "not installed  needed-package<2 (in requirements.txt)" in refused.stdout
    assert f"costada prepare {folder} --with PACKAGE" in refused.stderr
    prepared = invoke("prepare", folder)
    assert (prepared.exit_code, prepared.stderr) == (0, "")
    assert str(folder / "requirements.txt") in prepared.stdout
    checked = invoke("check", folder)
    assert checked.exit_code == 0, checked.stderr
    assert f"needs         nothing more ({environment_folder(folder)})" in checked.stdout
    assert "start         score 0.25" in checked.stdout


def test_no_environment_is_made_where_nothing_is_missing(folder, invoke):
    (folder / "evaluator.py").write_text("import json\ndef evaluate(path): return {}\n")
    (folder / "requirements.txt").write_text("pytest  # which runs this\n")
    prepared = invoke("prepare", folder)
    assert (prepared.exit_code, prepared.stderr) == (0, "")
    assert prepared.stdout.startswith("Nothing is missing, so nothing is installed.")
    assert not environment_folder(folder).exists()
    (folder / "requirements.txt").write_text("-r others.txt\n")
    (folder / "others.txt").write_text("needed-package\n")
    assert invoke("prepare", folder).exit_code == 0
    assert environment_folder(folder).exists()


def test_paths_in_the_requirements_begin_in_the_folder(folder, invoke):
    write_wheel(folder, "beside_package", "1.0", {"beside_module.py": ""})
    (folder / "requirements.txt").write_text(
        "needed-package<2\n./beside_package-1.0-py3-none-any.whl\n"
    )
    prepared = invoke("prepare", folder)
    assert (prepared.exit_code, prepared.stderr) == (0, "")
    assert "beside_package==1.0" in interpreter_at(load_folder(folder).interpreter).packages


def test_prepare_says_what_cannot_be_installed_and_what_is_still_missing(folder, invoke):
    failed = invoke("prepare", folder, "--with", "no-such-package")
    assert failed.exit_code == 2
    assert "no-such-package" in failed.stderr
    still = invoke("prepare", folder)
    assert still.exit_code == 2
    assert "still needs needed_module; nothing says which package holds" in still.stderr
    assert invoke("prepare", folder, "--with", "needed-package").exit_code == 0


def test_the_python_that_a_folder_brings_along_is_never_started(folder, tmp_path, invoke):
    program = folder / ".costada" / "environment" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nexec {sys.executable} $@\n")
    program.chmod(0o755)
    (folder / "evaluator.py").write_text("def evaluate(path):\n    return {'combined_score': 1}\n")
    assert invoke("check", folder).exit_code == 0
    assert not (tmp_path / "started").exists()


def test_an_environment_without_its_python_is_refused(folder):
    program = make_environment(folder, [], ["needed-package"]) / "bin" / "python"
    assert interpreter_of(folder) == str(program)
    program.unlink()
    with pytest.raises(
        ValueError, match=r"has no working Python; remove it, then run costada prepare"
    ):
        load_folder(folder)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("/no/such/python", r"interpreter is '/no/such/python'; .*there is none"),
        ("/bin/false", r"interpreter is '/bin/false'; expected the path of a Python"),
        (3, "interpreter is 3; expected the path of a Python, or None"),
    ],
)
def test_what_is_no_interpreter_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        Problem(
            name="p",
            task="t",
            initial_program="x = 1",
            entry_point="f",
            score=lambda output: output,
            interpreter=given,
        )


def test_a_program_is_run_by_the_interpreter_that_its_problem_names(folder):
    program = make_environment(folder, [], ["needed-package"]) / "bin" / "python"
    problem = Problem(
        name="p",
        task="t",
        initial_program="import sys, needed_module\ndef f():\n    return sys.executable",
        entry_point="f",
        score=lambda output: Evaluation(
            score=float(output == str(program)), objective=1.0, is_valid=True
        ),
        preload=(),
        interpreter=str(program),
    )
    assert problem.judge(problem.start).score == 1.0

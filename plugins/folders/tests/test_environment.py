"""An environment for a problem folder: made by uv from wheels that the tests write themselves."""

import sys

import pytest
from made_wheels import write_wheel

from costada.evaluators.environment import environment_folder, interpreter_of
from costada.evaluators.folders import load_folder
from costada.evaluators.problem import Problem, check_problem
from costada.evaluators.sandbox.interpreter import interpreter_at
from costada.plugins.folders.installation import make_environment
from costada.values.evaluation import Evaluation

pytestmark = pytest.mark.process

if not sys.platform.startswith("linux"):
    pytest.skip("what the sandbox needs differs here", allow_module_level=True)


NAMES = ["evaluator.py", "initial_program.py", "problem.md", "problem.toml"]


@pytest.fixture
def folder(needing_folder):
    return needing_folder


def test_evaluations_run_in_the_environment_of_the_folder(folder):
    with pytest.raises(ValueError, match=r"needs needed_module; no known package"):
        load_folder(folder)
    make_environment(folder, [], ["needed-package==1.0"])
    problem = load_folder(folder)
    verdict = check_problem(problem)
    assert verdict.score == 0.25
    assert verdict.artifacts["prefix"] == str(environment_folder(folder).resolve())
    assert "needed_package==1.0" in interpreter_at(problem.interpreter).packages
    assert sorted(path.name for path in folder.iterdir()) == NAMES


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


@pytest.mark.parametrize("package", ["", " ", "--index-url=http://localhost", "-e."])
def test_what_is_no_package_is_refused_by_the_name_of_the_option(folder, invoke, package):
    refused = invoke("prepare", folder, "--with", package)
    assert refused.exit_code == 2
    assert refused.stderr.startswith(f"costada: --with: got {package!r}, expected a package")
    assert not environment_folder(folder).exists()


@pytest.mark.parametrize("command", ["check", "prepare"])
def test_requirements_that_are_too_long_are_not_read(folder, invoke, command):
    (folder / "requirements.txt").write_text("# more\n" * 200_000)
    refused = invoke(command, folder)
    assert refused.exit_code == 2
    expected = "cannot be read: it has 1,400,000 bytes; expected at most 1,048,576"
    assert expected in refused.stderr + refused.stdout


def test_no_environment_is_made_where_nothing_is_missing(folder, invoke):
    (folder / "evaluator.py").write_text("import json\ndef evaluate(path): return {}\n")
    (folder / "requirements.txt").write_text("pytest  # which runs this\n")
    prepared = invoke("prepare", folder)
    assert (prepared.exit_code, prepared.stderr) == (0, "")
    assert prepared.stdout.startswith("No package is missing, so none is installed.")
    assert not environment_folder(folder).exists()
    (folder / "requirements.txt").write_text("pytest\n-e .\n-r absent.txt\n")
    refused = invoke("prepare", folder)
    assert refused.exit_code == 2
    assert "line 2: '-e .' is an option" in refused.stderr
    assert "'-r absent.txt' cannot be read" in refused.stderr
    assert "not followed" in invoke("check", folder).stdout
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
    assert not environment_folder(folder).exists()
    still = invoke("prepare", folder)
    assert still.exit_code == 2
    assert "still needs needed_module; no known package provides" in still.stderr
    assert invoke("prepare", folder, "--with", "needed-package").exit_code == 0
    assert invoke("prepare", folder, "--with", "no-such-package").exit_code == 2
    assert check_problem(load_folder(folder)).score == 0.75


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


def test_a_program_that_is_not_an_interpreter_is_refused():
    with pytest.raises(ValueError, match="interpreter is '/bin/false'; expected the path of a Py"):
        Problem(
            name="p",
            task="t",
            initial_program="x = 1",
            entry_point="f",
            score=lambda output: output,
            interpreter="/bin/false",
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
    assert problem.evaluate_program(problem.start).score == 1.0

"""Packages that uv has really installed in editable mode, imported by evaluators in each layer."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import costada
from costada.evaluators.sandbox.editable_packages import EditablePackage, ShownPaths

pytestmark = pytest.mark.process

ROOT = Path(costada.__file__).parent
BACKENDS = {
    "setuptools": 'requires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"',
    "uv": 'requires = ["uv_build"]\nbuild-backend = "uv_build"',
}
"""Setuptools lists its packages; uv's backend, like those of hatch and flit, only adds a path."""

FLAT = {
    "setuptools": '[tool.setuptools]\npackages = ["{0}"]\npy-modules = ["{0}_module"]',
    "uv": '[tool.uv.build-backend]\nmodule-root = ""',
}
EVALUATE = """
import subprocess, sys
from importlib import import_module
from pathlib import Path
def evaluate(path):
    for name in {names}:
        import_module(name)
    subprocess.run([sys.executable, path], check=True)
    read = []
    for path in {hidden}:
        try: read.append(Path(path).read_text())
        except OSError: pass
    return {{"combined_score": 1.0, "read": repr(read)}}
"""
RUN = """
import sys
from pathlib import Path
from costada.evaluators.folder_evaluators import FolderEvaluator
from costada.evaluators.folder_files import EvaluatorFile
from costada.evaluators.folder_settings import FolderSettings
from costada.evaluators.sandbox.interpreter import own_interpreter
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
folder, layer, source = Path(sys.argv[1]), Layer(sys.argv[2]), sys.argv[3]
file = EvaluatorFile(folder, folder / "evaluator.py")
limits = Limits(wall_seconds=60, processes=8)
confined = {"limits": limits, "layer": layer}
evaluation = FolderEvaluator(evaluator=file, settings=FolderSettings(), **confined)(source)
print(evaluation.score, evaluation.artifacts.get("read"), evaluation.error)
print(own_interpreter().has_module(sys.argv[4]))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A Python that finds what this one does, and a project for each backend and layout."""
    folder = tmp_path_factory.mktemp("editable")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
    [library] = (folder / "env" / "lib").glob("python*/site-packages")
    (library / "base.pth").write_text(sysconfig.get_path("purelib"))
    for backend in BACKENDS:
        for layout in ("flat", "src"):
            install(folder, backend, layout)
    return folder


def install(folder, backend, layout):
    name = f"{backend}_{layout}"
    project = folder / name
    package = project / ("src" if layout == "src" else "") / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "inner.py").write_text("")
    (package / "deep").mkdir()
    (package / "deep" / "__init__.py").write_text("")
    (package / "deep" / ".env").write_text("KEY")
    (package / ".git").mkdir()
    (package / ".git" / "config").write_text("KEY")
    (project / ".env").write_text("KEY")
    (project / f"{name}_module.py").write_text("")
    more = FLAT[backend].format(name) if layout == "flat" else ""
    (project / "pyproject.toml").write_text(
        f'[project]\nname = "{name}"\nversion = "1.0"\n[build-system]\n{BACKENDS[backend]}\n{more}'
    )
    uv = str(Path(sys.executable).with_name("uv"))
    options = ["--quiet", "--offline", "--no-build-isolation", "--no-deps", "--python"]
    python = folder / "env" / "bin" / "python"
    subprocess.run([uv, "pip", "install", *options, python, "--editable", project], check=True)


def evaluate(environment, layer, place, names, source):
    """What an evaluation in a process of that Python prints, started beside the projects."""
    place.mkdir(exist_ok=True)
    hidden = [str(path) for path in environment.rglob("*") if path.name in (".env", "config")]
    (place / "evaluator.py").write_text(EVALUATE.format(names=names, hidden=hidden))
    return subprocess.run(
        [environment / "env/bin/python", "-c", RUN, place, layer.value, source, names[0]],
        cwd=environment,
        env={**os.environ, "PYTHONPATH": str(ROOT / ".types")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()


def test_evaluators_and_programs_import_what_is_installed_in_editable_mode(environment, confined):
    packages = [f"{backend}_{layout}" for backend in BACKENDS for layout in ("flat", "src")]
    below = [f"{name}.{module}" for name in packages for module in ("inner", "deep")]
    names = [*packages, *below, "setuptools_flat_module"]
    source = f"import {', '.join(names)}"
    said = evaluate(environment, confined, environment / "problem", names, source)
    assert said == ["1.0 [] None", "True"]


@pytest.mark.parametrize("name", ["setuptools_flat", "uv_src"])
def test_a_package_that_holds_the_problem_stays_hidden(environment, confined, name):
    package = environment / name / ("src" if name.endswith("src") else "") / name
    said = evaluate(environment, confined, package / "problem", [name, "uv_flat"], "")
    assert said[0].startswith("0.0 None evaluator.py failed: ")
    assert f"{name} is installed in editable mode" in "".join(said)


def test_a_package_in_the_folder_of_the_problem_stays_hidden(environment, confined):
    said = evaluate(environment, confined, environment / "uv_src", ["uv_src"], "")
    assert "uv_src is installed in editable mode" in "".join(said)


def test_a_module_that_is_only_beside_a_package_is_not_readable(environment, confined):
    said = evaluate(environment, confined, environment / "problem", ["uv_flat_module"], "")
    assert said[0].startswith("0.0 None evaluator.py failed: ")


def test_a_package_without_secrets_is_one_folder_whatever_dotted_names_it_has(tmp_path):
    (tmp_path / "deep").mkdir()
    for name in (".gitkeep", ".flake8", "__init__.py", "deep/.gitignore"):
        (tmp_path / name).touch()
    shown = EditablePackage("package", str(tmp_path)).shown
    assert shown == ShownPaths((str(tmp_path),), ())


def test_files_beside_secrets_are_shown_one_by_one(tmp_path):
    for name in (".env.local", ".gitkeep", ".netrc", "__init__.py"):
        (tmp_path / name).touch()
    for name in (".git", ".ssh", "deep"):
        (tmp_path / name).mkdir()
    readable = tuple(str(tmp_path / name) for name in (".gitkeep", "__init__.py", "deep"))
    shown = EditablePackage("package", str(tmp_path)).shown
    assert shown == ShownPaths(readable, (str(tmp_path),))


def test_a_folder_that_may_not_be_read_does_not_hinder_the_others(tmp_path, monkeypatch):
    (tmp_path / "__init__.py").touch()
    (tmp_path / "closed").mkdir()
    scan = os.scandir

    def refused(path):  # a test may run as root, whom no mode keeps out
        if path == str(tmp_path / "closed"):
            raise PermissionError(path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refused)
    shown = EditablePackage("package", str(tmp_path)).shown
    assert shown == ShownPaths((str(tmp_path),), ())

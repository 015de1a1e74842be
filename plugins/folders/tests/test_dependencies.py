"""What a problem folder needs: found in its texts, without running or guessing anything."""

import sys
from pathlib import Path

import pytest

from costada.evaluators.folders import load_folder, read_folder
from costada.evaluators.problem import check_problem
from costada.evaluators.sandbox.interpreter import Interpreter
from costada.plugins.folders.dependencies import find_needs, installed_as

BARE = Interpreter(sys.executable, sys.version_info[:2], (), ())


def needs(tmp_path, source, requirements=None, **options):
    if requirements is not None:
        (tmp_path / "requirements.txt").write_text(requirements)
    return find_needs([source], [tmp_path], options.pop("python", BARE), **options)


def with_packages(tmp_path, **versions):
    """An interpreter whose folder of packages holds these, each an empty module."""
    library = tmp_path / "environment" / "site-packages"
    for name, version in versions.items():
        about = library / f"{name}-{version}.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        (library / f"{name}.py").write_text("")
    return Interpreter(sys.executable, sys.version_info[:2], (), (str(library),))


def test_imports_that_are_not_installed_are_named_with_the_command_that_installs_them(tmp_path):
    found = needs(tmp_path, "import sympy as sp\nfrom jax.numpy import array\nimport json")
    assert found.missing == ("jax", "sympy")
    assert found.described(Path("p")) == (
        "needs jax and sympy: pip install jax sympy, or costada prepare p"
    )


def test_a_package_is_named_as_it_is_installed(tmp_path):
    found = needs(tmp_path, "import sklearn, bs4, yaml")
    assert found.packages(found.missing) == ("beautifulsoup4", "scikit-learn", "pyyaml")


def test_requirements_say_which_version(tmp_path):
    text = "# numbers\nsympy >= 1.12  # symbols\n-r other.txt\n\nunused\n"
    found = needs(tmp_path, "import sympy", text)
    assert found.unmet == ("sympy >= 1.12", "unused")
    assert found.described(Path("p")) == (
        "needs sympy: pip install 'sympy >= 1.12', or costada prepare p"
    )


def test_the_command_that_is_shown_runs_nothing_of_a_requirement(tmp_path):
    line = 'sympy; python_version != "$(id)"'
    found = needs(tmp_path, "import sympy", line)
    assert f"pip install '{line}', or" in found.described(Path("p"))


def test_no_package_is_guessed_for_an_unknown_module(tmp_path):
    """Anyone may register a package under the name of a private module."""
    found = needs(tmp_path, "import reference_tasks")
    assert installed_as("reference_tasks") is None
    assert found.packages(found.missing) == ()
    assert found.described(Path("p")) == (
        "needs reference_tasks; no known package provides reference_tasks:"
        " costada prepare p --with PACKAGE"
    )


def test_requirements_make_a_module_known(tmp_path):
    found = needs(tmp_path, "import reference_tasks", "Reference.Tasks==2\n")
    assert found.unknown == ()
    assert "pip install Reference.Tasks==2, or" in found.described(Path("p"))


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    import jax\nexcept ImportError:\n    jax = None",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import jax",
        "from . import jax",
        "import (",
        "(" * 100_000,
    ],
    ids=["in try", "for types", "relative", "no Python", "deep"],
)
def test_what_a_program_does_without_is_not_needed(tmp_path, source):
    assert find_needs([source], [tmp_path], BARE).missing == ()


def test_what_a_function_imports_is_needed_later(tmp_path):
    found = needs(tmp_path, "def f():\n    import jax\nclass A:\n    import sympy")
    assert (found.missing, found.later) == (("sympy",), ("jax",))


def test_modules_of_the_folder_and_provided_ones_are_there(tmp_path):
    (tmp_path / "simulator.py").write_text("")
    (tmp_path / "tasks").mkdir()
    found = needs(tmp_path, "import simulator, tasks.one, given, jax", provided=["given"])
    assert found.missing == ("jax",)


def test_installed_packages_are_looked_up_in_the_interpreter_that_will_run(tmp_path):
    python = with_packages(tmp_path, sympy="1.11")
    found = needs(tmp_path, "import sympy, numpy", "sympy>=1.12\nnumpy", python=python)
    assert found.missing == ("numpy",)
    assert found.unmet == ("sympy>=1.12", "numpy")


def test_requirements_of_other_systems_do_not_count(tmp_path):
    text = "mlx; sys_platform == 'nowhere'\nsympy; python_version >= '3'\n"
    assert needs(tmp_path, "", text).unmet == ("sympy; python_version >= '3'",)


def test_a_line_that_is_no_requirement_stays_as_it_is(tmp_path):
    text = "kit @ git+https://example.org/kit.git\nnot a requirement\n"
    found = needs(tmp_path, "", text)
    assert found.unmet == ("kit @ git+https://example.org/kit.git", "not a requirement")


@pytest.mark.process
@pytest.mark.parametrize(
    ("settings", "is_needed"), [("", False), ('run = "python {folder}/src/model.py"\n', True)]
)
def test_a_text_that_nothing_runs_needs_none_of_its_imports(tmp_path, settings, is_needed):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "model.py").write_text("import absent_package\n")
    (tmp_path / "problem.md").write_text("Write it.")
    (tmp_path / "problem.toml").write_text(f'program = ["src/*.py"]\n{settings}')
    (tmp_path / "evaluator.py").write_text(
        "def score(files):\n    return {'combined_score': len(files)}\n"
    )
    assert bool(read_folder(tmp_path).missing.refusal) == is_needed
    if not is_needed:
        assert check_problem(load_folder(tmp_path)).score == 1.0


def folder_with(tmp_path, evaluator, program="x = 1\n", **texts):
    files = {"problem.md": "Do it.", "initial_program.py": program, "evaluator.py": evaluator}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


EVALUATE = "def evaluate(program_path):\n    return {'combined_score': 1}\n"
SCORE = "def score(output):\n    return {'combined_score': 1}\n"
ABSENT = "import absent_module\n"


@pytest.mark.parametrize(
    ("evaluator", "program", "helper"),
    [
        (ABSENT + EVALUATE, "x = 1\n", ""),
        (EVALUATE, ABSENT, ""),
        ("import helper\n" + EVALUATE, "x = 1\n", ABSENT),
        (SCORE, ABSENT, ""),
    ],
    ids=["evaluator", "program", "neighbour", "program of a score"],
)
def test_a_folder_that_lacks_something_is_refused_when_it_is_read(
    tmp_path, evaluator, program, helper
):
    folder = folder_with(tmp_path, evaluator, program, helper=helper)
    (folder / "problem.toml").write_text('entry_point = "f"')
    with pytest.raises(ValueError, match=r"needs absent_module; no known package"):
        load_folder(folder)


def test_modules_of_other_tools_and_of_this_one_are_provided(tmp_path):
    imports = (
        "import openevolve.evaluation_result, shinka.core, skydiscover, costada.values.timing\n"
    )
    load_folder(folder_with(tmp_path, imports + EVALUATE))


@pytest.mark.process
def test_a_module_one_folder_up_is_named_with_the_line_that_makes_it_found(tmp_path):
    (tmp_path / "networkx.py").write_text("VALUE = 0.5\n")
    folder = tmp_path / "problem"
    folder.mkdir()
    evaluator = "from pathlib import Path\nimport sys\nLINE\nimport networkx, absent_module\n"
    folder_with(folder, evaluator + EVALUATE)
    with pytest.raises(ValueError, match="needs absent_module and networkx") as refused:
        load_folder(folder)
    [needs, where] = str(refused.value).split("; networkx is ")
    assert "install" not in needs
    assert where.startswith(f"{tmp_path / 'networkx.py'}, whose folder no code adds to")
    assert f"copy it into {folder}, or begin evaluator.py with sys.path" in where
    line = where.partition(" with ")[2]
    mended = evaluator.replace("LINE", line).replace(", absent_module", "")
    score = EVALUATE.replace("1}", "networkx.VALUE}")
    assert load_folder(folder_with(folder, mended + score)).evaluate("x = 1").score == 0.5


def test_no_command_with_an_address_of_the_folder_is_proposed(tmp_path):
    folder = folder_with(tmp_path, f"import absent_one\n{EVALUATE}")
    (folder / "requirements.txt").write_text("absent-one @ https://example.org/absent.whl\n")
    with pytest.raises(ValueError, match="needs absent_one") as refused:
        load_folder(folder)
    assert "example.org" not in str(refused.value)

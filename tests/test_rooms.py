"""The shape of the project: its packages, its file sizes, and what a user's site-packages gets."""

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = [
    *("agents", "controller", "evaluators", "graph", "models"),
    *("nodes", "prompts", "runs", "store"),
]
SOURCES = [
    path for folder in [*ROOMS, "bench", "tests"] for path in sorted((ROOT / folder).rglob("*.py"))
]


def test_every_package_on_disk_is_listed_for_the_wheel():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    on_disk = [
        ".".join(["costada", *path.parent.relative_to(ROOT).parts])
        for room in ROOMS
        for path in (ROOT / room).rglob("__init__.py")
    ]
    assert sorted(listed) == sorted(["costada", *on_disk])


def test_every_data_file_on_disk_is_listed_for_the_wheel():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    shipped = {
        path
        for package, patterns in settings["package-data"].items()
        for pattern in patterns
        for path in ROOT.joinpath(*package.split(".")[1:]).glob(pattern)
    }
    on_disk = {
        path
        for room in ROOMS
        for path in (ROOT / room).rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"}
    }
    assert on_disk == shipped - {ROOT / "py.typed"}


def test_the_root_holds_no_other_module_and_no_folder_that_hides_the_package():
    assert [path.name for path in ROOT.glob("*.py")] == ["__init__.py"]
    assert not (ROOT / "costada").exists()


def test_files_stay_under_300_lines():
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in SOURCES}
    assert {path: length for path, length in lengths.items() if length >= 300} == {}


def lines_of_code(function):
    """Return how many lines a function has below its signature and docstring."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def functions_of(path):
    """Return the functions of a file with their lines of code."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, lines_of_code(node)


def test_functions_have_at_most_25_lines_of_code():
    lengths = {
        f"{path.relative_to(ROOT)}: {name}": length
        for path in SOURCES
        if "tests" not in path.relative_to(ROOT).parts
        for name, length in functions_of(path)
    }
    assert {name: length for name, length in lengths.items() if length > 25} == {}

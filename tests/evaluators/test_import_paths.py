"""Which folders a module adds to its import path, read from its code."""

from pathlib import Path

import pytest

from costada.evaluators.import_paths import import_folders, imported_modules, module_files


@pytest.mark.parametrize(
    ("code", "folder"),
    [
        ("sys.path.insert(0, os.path.dirname(os.path.dirname(__file__)))", "a/b"),
        ("sys.path.append(str(Path(__file__).resolve().parent.parent))", "a/b"),
        ("sys.path.append(str(Path(__file__).parents[2]))", "a"),
        ("HERE = os.path.dirname(__file__)\nsys.path += [os.path.join(HERE, '..')]", "a/b"),
        ("sys.path.extend([os.path.join(os.path.dirname(__file__), os.pardir, 'lib')])", "a/b/lib"),
        ("for p in [Path(__file__).parent.parent / 'lib']:\n    sys.path.append(p)", "a/b/lib"),
    ],
)
def test_paths_beside_the_file_are_followed(tmp_path, code, folder):
    (tmp_path / "a/b/lib").mkdir(parents=True)
    (tmp_path / "a/b/c").mkdir()
    found = import_folders(code, tmp_path / "a/b/c/evaluator.py")
    assert tmp_path / folder in found


@pytest.mark.parametrize(
    "code",
    [
        "os.path.dirname(os.path.dirname(__file__))",
        "sys.path.append(os.environ['HOME'])",
        "sys.path.append(os.path.expanduser('~'))",
        "x = y\ny = x\nsys.path.append(x)",
        "sys.path.append(f(__file__))",
        "sys.path.append('lib')",
        "sys.path.append(Path(__file__).parent / 'absent')",
        "sys.path.append(",
        "sys.path.append(" + "(" * 3000,
    ],
)
def test_what_the_code_does_not_show_counts_as_none(code):
    assert import_folders(code, Path(__file__).with_name("absent") / "evaluator.py") == []


def test_imports_are_named_with_dots_in_front_if_they_are_relative():
    code = (
        "import a.b, c\nfrom d.e import f\nfrom . import g\nfrom ..h import *\ndef i(): import a.j"
    )
    assert set(imported_modules(code)) == {"a.b", "c", "d.e", "d.e.f", ".", ".g", "..h", "a.j"}
    assert imported_modules("import (") == ()


def test_a_module_is_found_with_its_packages(tmp_path):
    paths = ["a/__init__.py", "a/b/c.py", "a/other.py", "d.py"]
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    found = {
        name: [str(path.relative_to(tmp_path)) for path in module_files(name, tmp_path)]
        for name in ("a.b.c", "a.b.c.f", "d", "d.f", "e", "a.other", "")
    }
    assert found == {
        "a.b.c": ["a/__init__.py", "a/b/c.py"],
        "a.b.c.f": ["a/__init__.py", "a/b/c.py"],
        "d": ["d.py"],
        "d.f": ["d.py"],
        "e": [],
        "a.other": ["a/__init__.py", "a/other.py"],
        "": [],
    }

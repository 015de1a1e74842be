"""The shape of the project: its packages, and what a user's site-packages gets."""

import re
import tomllib
from collections import Counter
from pathlib import Path

import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
ROOMS = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))


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
        if path.is_file() and path.suffix != ".pyc" and "tests" not in path.parts
        if path.suffix != ".py" or not (path.parent / "__init__.py").exists()
    }
    assert on_disk == shipped - {ROOT / "py.typed"}


def test_every_file_below_share_is_installed_where_it_lies():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    placed = {
        (folder, path)
        for folder, patterns in settings["data-files"].items()
        for pattern in patterns
        for path in ROOT.glob(pattern)
    }
    on_disk = [path for path in (ROOT / "share").rglob("*") if path.is_file()]
    assert placed == {(str(path.parent.relative_to(ROOT)), path) for path in on_disk}


CONDA_NAMES = {"matplotlib": "matplotlib-base", "prometheus-client": "prometheus_client"}


def test_the_conda_recipe_has_the_version_and_the_requirements_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    recipe = yaml.safe_load((ROOT / "deploy" / "conda" / "recipe.yaml").read_text())
    _, *listed, by_system = recipe["requirements"]["run"]
    on_linux = [each for each in by_system["then"] if each != "__linux"]
    needed, needed_on_linux = [], []
    for each in map(Requirement, project["project"]["dependencies"]):
        name = CONDA_NAMES.get(each.name, each.name)
        known = needed_on_linux if each.marker else needed
        known.append((name, each.specifier))
    assert recipe["context"]["version"] == project["project"]["version"]
    assert [(each.name, each.specifier) for each in map(Requirement, listed)] == needed
    assert [(each.name, each.specifier) for each in map(Requirement, on_linux)] == needed_on_linux
    assert recipe["requirements"]["host"][-1].split() == [
        *re.split("(?=>)", project["build-system"]["requires"][0])
    ]
    assert recipe["about"]["summary"] == project["project"]["description"]


def test_the_room_of_plugins_lists_each_group_and_the_file_that_reads_it():
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    text = " ".join((ROOT / "plugins" / "__init__.py").read_text().split())
    listed = dict(re.findall(r"- `(costada\.\w+)`: [^(]+\(`([\w/.]+)`\)", text))
    assert sorted(listed) == sorted(known)
    assert all(f'"{group}"' in (ROOT / path).read_text() for group, path in listed.items())


def test_the_name_of_a_module_stands_once_in_the_package():
    names = Counter(
        path.name
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if (path.parent / "__init__.py").exists() and path.name != "__init__.py"
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_the_root_holds_no_other_module_and_no_folder_that_hides_the_package():
    assert {path.name for path in ROOT.glob("*.py")} == {"__init__.py", "__main__.py"}
    assert not (ROOT / "costada").exists()

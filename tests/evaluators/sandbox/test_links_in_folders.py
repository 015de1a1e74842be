"""Links in a problem folder from somebody else lead its evaluator to nothing outside of it."""

import os

import pytest
from sandbox_runs import AMPLE, PRELOAD, run_in

from costada.evaluators.folder_files import EvaluatorFile, shown_files
from costada.evaluators.folders import load_folder
from costada.evaluators.sandbox.candidate_runs import run_evaluator
from costada.evaluators.sandbox.slot import Slot
from costada.evaluators.sandbox.slot_kind import CopiedFile, SlotKind
from costada.values.evaluation import EVALUATOR_FAULT

pytestmark = pytest.mark.process

LINKS = {
    "cases.json": "../home/.aws/credentials",
    "plain.json": "../home/plain.json",
    "chained.json": "first.json",
    "first.json": "second.json",
    "second.json": "../home/plain.json",
    "keys": "../home/.ssh",
    "data/inner": "../../home/.ssh",
    "environment.txt": "/proc/self/environ",
    "upwards.json": "data/../../home/plain.json",
    "around.json": "/proc/self/root{home}/plain.json",
    "dotted.txt": ".env",
    "stolen.py": "../home/.config/settings.py",
    "alias.json": "data/cases.json",
    "same.json": "alias.json",
    "more": "data",
}
INSIDE = ["alias.json", "same.json", "more/cases.json", "data/cases.json"]
OUTSIDE = [
    *("cases.json", "plain.json", "chained.json", "keys/id", "data/inner/id", "environment.txt"),
    *("upwards.json", "around.json", "dotted.txt", "stolen.py"),
]
EVALUATOR = f"""
import os
from pathlib import Path
HERE = Path(__file__).parent
NAMES = {INSIDE + OUTSIDE + ["keys", "data/inner", "more"]}
def read(name):
    try: return (HERE / name).read_text()
    except OSError: return "refused"
def listed(name):
    try: return ",".join(os.listdir(HERE / name))
    except OSError: return "refused"
def evaluate(path):
    try:
        import stolen
        imported = "CANARY"
    except (ImportError, OSError):
        imported = "refused"
    texts = {{name: read(name) for name in NAMES}}
    return {{"combined_score": 1.0, "imported": imported, "listed": listed("keys"), **texts}}
"""


def write(place, files):
    for name, text in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def folder(tmp_path):
    """A folder of somebody else beside the home folder of a user."""
    home = tmp_path / "home"
    secrets = [".aws/credentials", ".ssh/id", ".config/settings.py", "plain.json"]
    write(home, dict.fromkeys(secrets, "CANARY = 1"))
    folder = tmp_path / "problem"
    own = {"evaluator.py": EVALUATOR, "data/cases.json": "own", ".env": "CANARY"}
    write(folder, own | {"initial_program.py": "x = 1", "problem.md": "Do it."})
    for name, target in LINKS.items():
        (folder / name).symlink_to(target.format(home=home))
    return folder


def test_an_evaluator_reads_what_links_inside_lead_to_and_nothing_elsewhere(confined, folder):
    evaluator = EvaluatorFile(folder, folder / "evaluator.py")
    output = run_evaluator("x = 1", evaluator, AMPLE, confined, PRELOAD).output
    found = output["metrics"]
    expected = dict.fromkeys(INSIDE, "own") | dict.fromkeys(OUTSIDE, "refused")
    assert {name: found[name] for name in expected} == expected
    assert (found["imported"], found["listed"]) == ("refused", "refused")
    assert "CANARY" not in f"{output}"


@pytest.mark.parametrize("pattern", ["plain.json", "keys", "keys/*", "data/inner/id", "*.txt"])
def test_settings_declare_no_file_that_a_link_leads_away_to(folder, pattern):
    (folder / "problem.toml").write_text(f'files = ["{pattern}"]')
    with pytest.raises(ValueError, match="or a link that leads to elsewhere"):
        load_folder(folder)


def test_a_folder_of_declared_files_is_shown_without_the_links_in_it(folder):
    evaluator = EvaluatorFile(folder, folder / "evaluator.py", files=("data",))
    assert folder / "data" / "cases.json" in evaluator.shown()
    assert not any("inner" in path.parts for path in evaluator.shown())


def test_links_to_a_folder_around_them_are_not_followed(folder):
    (folder / "data" / "up").symlink_to("..")
    (folder / "lib").mkdir()
    (folder / "lib" / "data").symlink_to("../data")
    (folder / "data" / "lib").symlink_to("../lib")
    (folder / "evaluator.py").write_text(
        "open('data/cases.json')\nopen('data/lib')\nopen('data')\n"
    )
    shown = EvaluatorFile(folder, folder / "evaluator.py").shown()
    assert [*shown] == [folder / "evaluator.py", folder / "data" / "cases.json"]
    with pytest.raises(ValueError, match=r"files has 'data/up'; .* or to a folder around it"):
        shown_files(folder, ["data/up"])


@pytest.mark.parametrize("place", ["../home/.config", "../home", "more/../../home/.config"])
def test_a_folder_on_the_import_path_is_neither_hidden_nor_behind_a_link(folder, place):
    (folder / "lib").symlink_to(place)
    (folder / "evaluator.py").write_text(
        "import os, sys\nHERE = os.path.dirname(os.path.abspath(__file__))\n"
        "sys.path += [os.path.join(HERE, 'lib'), os.path.join(HERE, '..', 'home', '.config')]\n"
        "import settings\n"
    )
    assert list(EvaluatorFile(folder, folder / "evaluator.py").shown()) == [folder / "evaluator.py"]


def test_a_link_that_changes_after_the_check_shows_nothing_else(confined, folder):
    path = folder / "alias.json"
    about = path.stat()
    identity = (about.st_dev, about.st_ino)
    copied = CopiedFile(str(path), "folder/cases.json", identity, about.st_size, 0)
    source = "def f(): return open('folder/cases.json').read()"
    kind = SlotKind(confined, (), (copied,))
    slot = Slot(kind)
    try:
        assert run_in(slot, source).output == "own"
    finally:
        slot.close()
    path.unlink()
    path.symlink_to("../home/plain.json")
    slot = Slot(kind)
    try:
        result = run_in(slot, source)
    finally:
        slot.close()
    assert result.output is None
    assert "FileNotFoundError" in result.error


@pytest.mark.parametrize(
    "name",
    [
        *("problem.md", "problem.toml", "config.yaml", "run_evo.py", "README.md"),
        *("evaluator.py", "initial_program.py"),
    ],
)
@pytest.mark.parametrize("target", ["../home/.aws/credentials", "../home/plain.json", ".env"])
def test_no_text_for_a_model_is_read_through_a_link_that_leads_away(folder, name, target):
    (folder / name).unlink(missing_ok=True)
    if name in ("config.yaml", "run_evo.py", "README.md"):
        (folder / "problem.md").unlink()
    (folder / name).symlink_to(target)
    with pytest.raises(ValueError, match=rf"{name}.* leads to ") as refused:
        load_folder(folder)
    assert "CANARY" not in str(refused.value)


def test_a_folder_of_an_evaluator_or_program_that_is_a_link_elsewhere_is_refused(folder, tmp_path):
    write(tmp_path / "home" / "other", {"evaluator.py": "CANARY", "a.py": "CANARY"})
    (folder / "evaluator.py").rename(folder / "kept.py")
    (folder / "evaluator").symlink_to("../home/other")
    with pytest.raises(ValueError, match=r"evaluator/evaluator\.py leads to .*, outside of"):
        load_folder(folder)
    (folder / "evaluator").unlink()
    (folder / "kept.py").rename(folder / "evaluator.py")
    (folder / "initial_program.py").unlink()
    (folder / "initial_program").symlink_to("../home/other")
    with pytest.raises(ValueError, match=r"program is 'initial_program', which leads to .*outside"):
        load_folder(folder)


def test_an_evaluator_that_fails_at_such_a_link_is_told_why(confined, folder):
    (folder / "problem.toml").write_text(f'sandbox = "{confined.value}"')
    (folder / "evaluator.py").write_text(
        "from pathlib import Path\n"
        "def evaluate(path):\n"
        "    return {'size': len((Path(__file__).parent / 'plain.json').read_text())}\n"
    )
    problem = load_folder(folder)
    said = problem.evaluate_program(problem.start).artifacts[EVALUATOR_FAULT]
    assert "/problem/plain.json leads to " in said
    assert f"outside of {folder}, so it is not shown: copy it into the folder" in said


def test_a_repository_behind_a_link_is_refused(folder, tmp_path):
    write(folder, {"problem.toml": 'repository = "code"\nprogram = "*.json"\ncommand = "true"'})
    (folder / "code").symlink_to("../home")
    with pytest.raises(ValueError, match=r"repository is 'code', a link or behind one, which lea"):
        load_folder(folder)
    (tmp_path / "code").symlink_to("home")
    write(folder, {"problem.toml": 'repository = "../code"\nprogram = "*.json"\ncommand = "true"'})
    with pytest.raises(ValueError, match=r"repository is '\.\./code', a link or behind one"):
        load_folder(folder)
    assert not os.path.lexists(folder / ".costada")

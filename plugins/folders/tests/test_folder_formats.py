"""A package registers a format of problem folders, and what is left without this plug-in."""

import pytest

from costada.evaluators.folders import load_folder
from costada.evaluators.problem import check_problem

MODULE = """
from costada.evaluators.folder_layout import Contract, FolderConfig, FolderFormat, Layout


def layout(folder, evaluator, settings):
    if evaluator.name != "judge.py":
        return None
    config = FolderConfig(task=(folder / "TASK").read_text(), timeout=9.0)
    return Layout(folder, evaluator, evaluator.read_text(), Contract.EVALUATE, config=config)


FORMAT = FolderFormat(layout=layout, evaluators=("judge.py",), own_files=("TASK",))
"""
LENGTH = """
def evaluate(program_path):
    return {"combined_score": float(len(open(program_path).read()))}
"""


@pytest.fixture
def write(tmp_path):
    """Write a problem folder: write({"evaluator.py": text})."""

    def written(files):
        folder = tmp_path / "problem"
        folder.mkdir()
        for name, text in {"initial_program.py": "x = 1", **files}.items():
            (folder / name).write_text(text)
        return folder

    return written


@pytest.fixture
def without_plugin(leave_out):
    leave_out("folders")


def test_a_registered_format_is_read_like_ours(write, tmp_path, monkeypatch):
    package = tmp_path / "package"
    about = package / "judged-1.dist-info"
    about.mkdir(parents=True)
    (package / "judged_format.py").write_text(MODULE)
    (about / "METADATA").write_text("Name: judged\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[costada.folders]\njudged = judged_format:FORMAT\n")
    monkeypatch.syspath_prepend(package)
    problem = load_folder(write({"judge.py": LENGTH, "TASK": "Be long."}))
    assert (problem.task, problem.limits.wall_seconds) == ("Be long.", 9.0)
    assert problem.evaluate_program(problem.start).score == 5.0


@pytest.mark.parametrize("function", ["evaluate(program_path)", "score(files)"])
def test_folders_of_our_own_format_need_no_plugin(write, without_plugin, function):
    text = f"def {function}:\n    return {{'combined_score': 1.0}}\n"
    settings = 'program = ["*.py"]\n' if function.startswith("score") else ""
    problem = load_folder(
        write({"evaluator.py": text, "problem.md": "Do it.", "problem.toml": settings})
    )
    check_problem(problem)


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        ({"evaluator.py": LENGTH}, "problem.md is missing"),
        (
            {"evaluator.py": "x = 1", "problem.md": "Do it."},
            "defines none of score, score_example and evaluate",
        ),
        (
            {"evaluator.py": LENGTH, "problem.md": "Do it.", "problem.toml": "config = 'c.yaml'"},
            "config is 'c.yaml' in problem.toml",
        ),
    ],
)
def test_folders_of_other_tools_are_refused_without_it(write, without_plugin, files, fault):
    expected = f"{fault}; no plug-in that reads such a folder is installed$"
    with pytest.raises(ValueError, match=expected):
        load_folder(write(files))


SCORING = "def score(output):\n    return {'combined_score': 1.0}\n"


@pytest.mark.parametrize(
    ("evaluator", "setting", "fault"),
    [
        (LENGTH, 'examples = "e.jsonl"', r"examples is 'e.jsonl'; expected none beside evaluate"),
        (SCORING, 'config = "a.yaml"', r"config is 'a.yaml'; expected none beside score\(output\)"),
        (
            SCORING,
            'files = ["absent"]',
            r"files is \['absent'\]; expected none without an evaluate",
        ),
    ],
)
def test_what_has_no_effect_beside_an_evaluator_is_refused(write, evaluator, setting, fault):
    files = {"evaluator.py": evaluator, "problem.md": "Do it.", "problem.toml": setting}
    with pytest.raises(ValueError, match=fault):
        load_folder(write(files))


def test_an_evaluator_of_another_name_is_not_found_without_it(write, without_plugin):
    with pytest.raises(ValueError, match=r"^evaluator.py is missing in \S+; expected it\. costada"):
        load_folder(write({"evaluate.py": LENGTH}))

import os

import pytest

from costada.evaluators.folder_settings import FolderSettings
from costada.evaluators.folders import load_folder
from costada.evaluators.initial_program import program_place, read_initial_program
from costada.prompts.changes import read_change
from costada.prompts.whole_texts import Rejection
from costada.values.candidate import Program

EVALUATE = "def evaluate(program_path):\n    return {'combined_score': 1.0}\n"


@pytest.fixture
def write(tmp_path):
    """Write files below a problem folder: write({path: text}) returns the folder."""

    def written(files):
        for path, text in files.items():
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return tmp_path

    return written


def read(folder, **settings):
    found = read_initial_program(folder, FolderSettings(**settings))
    return found.source, found.editable, found.language


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("initial_program.py", "Python"),
        ("initial_program.cpp", "C++"),
        ("initial_program.rs", "Rust"),
        ("initial_program.txt", "text"),
        ("initial_program", "text"),
    ],
)
def test_a_file_named_as_usual_is_one_text_in_the_language_of_its_ending(write, name, language):
    assert read(write({name: "x = 1\n"})) == ("x = 1\n", (), language)


def test_a_setting_names_another_file_and_its_language(write):
    folder = write({"solver.in": "1\n", "initial_program.py": "2\n"})
    assert read(folder, program="solver.in", language="SQL") == ("1\n", (), "SQL")


def test_a_python_file_of_the_usual_name_comes_before_other_endings(write):
    folder = write({"initial_program.py": "x = 1\n", "initial_program.json": "{}"})
    assert read(folder) == ("x = 1\n", (), "Python")


def test_all_files_of_a_folder_are_one_program_whose_files_can_be_added(write):
    folder = write(
        {
            "initial_program/pkg/__init__.py": "",
            "initial_program/pkg/a.py": "x = 1\r\n",
            "initial_program/notes.md": "text",
            "initial_program/.env": "KEY=1",
            "initial_program/pkg/__pycache__/a.pyc": b"\xff",
            "evaluator.py": EVALUATE,
        }
    )
    files = {"notes.md": "text", "pkg/__init__.py": "", "pkg/a.py": "x = 1\r\n"}
    assert read(folder) == (files, ("**",), "Python")
    assert read(folder, program="initial_program/pkg")[0] == {
        "__init__.py": "",
        "a.py": "x = 1\r\n",
    }


def test_files_that_fit_patterns_have_their_paths_in_the_problem_folder(write):
    folder = write(
        {"src/a.py": "a", "src/b.py": "b", "src/c.txt": "c", "prompts/p.md": "p", "x.py": "x"}
    )
    patterns = ("src/*.py", "prompts/*.md")
    files = {"prompts/p.md": "p", "src/a.py": "a", "src/b.py": "b"}
    assert read(folder, program=patterns) == (files, patterns, "Python")
    assert read(folder, program="src/*.py") == (
        {"src/a.py": "a", "src/b.py": "b"},
        ("src/*.py",),
        "Python",
    )


def test_a_program_of_several_files_is_in_the_language_of_most_of_them(write):
    folder = write({"src/a.rs": "a", "src/b.rs": "b", "src/c.md": "c"})
    assert read(folder, program="src")[2] == "Rust"
    assert read(folder, program="src", entry_point="f")[2] == "Python"


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("", "initial_program.cpp and initial_program.rs; expected one of them, or program ="),
        ("missing.py", "missing.py is missing in"),
        ("../elsewhere", "program is '../elsewhere', which is outside of .*; expected a path in"),
        ("link.py", "program is 'link.py', which leads to /etc/hostname, outside of"),
        (["../*.py"], "expected patterns of relative paths"),
        (["/etc/*"], "expected patterns of relative paths"),
        ([".git/*"], "expected patterns of relative paths"),
        (["src//a"], "expected patterns of relative paths"),
        ([""], "expected patterns of 1 to 200 characters"),
        (["src/*.py", "none/*.md"], "holds no file that fits 'none/\\*.md'; expected one"),
        (["src/*.bin"], "data.bin is not UTF-8 text"),
        (["src/*.lnk"], "out.lnk is not a regular file; expected one, links are not followed"),
        (["many/*"], "holds more than 200 files of a program"),
        (["large/*"], "or more than 4,194,304 bytes; expected less"),
        (["huge/*"], r"4,194,305 bytes; expected at most 4,194,304"),
    ],
)
def test_a_program_that_cannot_be_read_is_refused(write, program, expected):
    folder = write(
        {
            "initial_program.cpp": "",
            "initial_program.rs": "",
            "src/a.py": "a",
            "src/data.bin": b"\xff\xfe",
            **({f"many/{n}.txt": "" for n in range(201)} if program == ["many/*"] else {}),
            **({f"large/{n}.txt": "a" * 2**20 for n in range(5)} if program == ["large/*"] else {}),
            **({"huge/a": "a" * (2**22 + 1)} if program == ["huge/*"] else {}),
        }
    )
    for name in ("src/out.lnk", "link.py"):
        (folder / name).symlink_to("/etc/hostname")
    with pytest.raises(ValueError, match=expected):
        read(folder, program=program)


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ("", "initial_program"),
        ('program = "src/"', "src"),
        ('program = "./src/a.py"', "src/a.py"),
        ('program = ["src/*.py"]', ""),
        ('program = "src/*.py"', ""),
    ],
)
def test_the_paths_of_a_program_begin_at_its_place(write, settings, place):
    folder = write({"initial_program/a.py": "", "src/a.py": "", "problem.toml": settings})
    assert program_place(folder) == place


@pytest.mark.parametrize("program", ['["*", "src/*"]', '"."'])
def test_the_own_files_of_a_problem_are_never_part_of_a_candidate(write, program):
    own = ("problem.toml", "evaluate.py", "config.yaml", "requirements.txt", "problem.md")
    folder = write(
        {
            **dict.fromkeys(own, "# x\n"),
            "evaluator.py": EVALUATE,
            "problem.toml": f"program = {program}\n",
            "config.yaml": "max_iterations: 3\n",
            "README.md": "notes",
            "main.py": "x = 1\n",
            "src/lib.py": "y = 1\n",
        }
    )
    problem = load_folder(folder)
    assert set(problem.start) == {"README.md", "main.py", "src/lib.py"}
    for path in (*own, "evaluator.py"):
        assert not problem.form.allows(path), path
        refused = read_change(f"FILE: {path}\n```\nnew\n```\n", problem.start, problem.form)
        assert isinstance(refused, Rejection), path
        assert f"`{path}` belongs to the task" in refused.reason
    assert problem.form.allows("src/evaluator.py")


def test_patterns_that_fit_the_own_files_of_a_problem_alone_are_refused(write):
    folder = write({"problem.md": "Do it.", "evaluator.py": EVALUATE, "main.py": "x = 1\n"})
    write({"problem.toml": 'program = ["*.py", "*.md"]'})
    expected = r"holds no file that fits '\*\.md' besides those of the problem itself; expected one"
    with pytest.raises(ValueError, match=expected):
        load_folder(folder)


def test_a_pipe_among_the_files_is_refused_and_not_waited_for(write):
    folder = write({"src/a.py": "a"})
    os.mkfifo(folder / "src" / "b.py")
    with pytest.raises(ValueError, match=r"b\.py is not a regular file"):
        read(folder, program="src/*.py")


def test_a_problem_folder_of_several_files_becomes_a_problem_of_these(write):
    folder = write(
        {
            "problem.md": "Do it.",
            "evaluator.py": EVALUATE,
            "src/a.py": "x = 1\n",
            "src/b.py": "y = 2\n",
            "problem.toml": 'program = ["src/*.py"]\n',
        }
    )
    problem = load_folder(folder)
    assert problem.start == Program.of({"src/a.py": "x = 1\n", "src/b.py": "y = 2\n"})
    assert problem.form.paths == ("src/a.py", "src/b.py")
    assert [problem.form.allows(path) for path in ("src/c.py", "c.py")] == [True, False]

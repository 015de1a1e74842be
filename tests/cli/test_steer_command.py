import json
import shutil

import pytest

from costada.runs.folder import RunFolder
from costada.runs.folder_lease import hold_lease
from costada.store.run_store import RunStore

pytestmark = pytest.mark.process

IDEA = "try hexagonal rows"
BETTER = "def value():\n    return 0.69\n"


@pytest.fixture
def run(finished, tmp_path):
    """A copy of a finished run of three iterations."""
    return shutil.copytree(finished, tmp_path / "run")


def last_row(invoke, run):
    result = invoke("resume", run, "--max-iterations", 4, "--quiet")
    assert result.exit_code == 0, result.output
    return json.loads(invoke("trace", run, "--json").stdout)[-1]


def test_an_idea_waits_until_the_run_is_resumed_and_its_step_is_marked(invoke, run):
    result = invoke("steer", run, IDEA)
    assert result.exit_code == 0, result.output
    assert " ".join(result.stdout.split()) == (
        f"{run}: idea 1 added; it waits until the run is resumed (the iteration limit is"
        f" reached): costada resume {run} --max-iterations 4"
    )
    row = last_row(invoke, run)
    assert row["steered"] == {"number": 1, "kind": "tactic", "idea": IDEA}
    assert "steered" in invoke("trace", run).stdout


def test_a_program_becomes_the_best_one_without_a_call(invoke, run, tmp_path):
    (tmp_path / "mine.py").write_text(BETTER)
    assert invoke("submit", run, tmp_path / "mine.py").exit_code == 0
    row = last_row(invoke, run)
    assert (row["step_cost"], row["attempts"], row["steered"]["kind"]) == (0.0, 0, "program")
    assert row["best_score"] == pytest.approx(0.99)
    assert RunFolder(run).best_program.read_text() == BETTER


def test_a_running_run_takes_an_idea_with_its_next_step(invoke, run):
    with hold_lease(run):
        assert "the next step that begins takes it" in " ".join(
            invoke("steer", run, IDEA).stdout.split()
        )
        later = " ".join(invoke("steer", run, IDEA).stdout.split())
        assert later.endswith("idea 2 added; a step takes it after 1 other")


def test_the_summary_of_a_resumed_run_says_how_many_inputs_still_wait(invoke, run):
    for _ in range(3):
        invoke("steer", run, IDEA)
    result = invoke("resume", run, "--max-iterations", 4, "--quiet")
    assert "2 ideas and programs; costada resume continues with them" in result.stdout
    result = invoke("resume", run, "--max-iterations", 5, "--quiet", "--json")
    assert json.loads(result.stdout)["waiting_inputs"] == 1


def test_a_full_queue_is_refused_by_the_name_of_the_folder(invoke, run):
    with RunStore(RunFolder(run).database) as store:
        for number in range(100):
            store.inputs.put_idea(store.run_ids()[-1], f"idea {number}")
    result = invoke("steer", run, IDEA)
    assert result.exit_code == 2
    assert f"{run}: 100 ideas and programs wait" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("command", "argument", "expected"),
    [
        ("steer", "  ", "idea: got 0 characters, expected 1 to 2,000 besides blanks"),
        ("steer", "x" * 2001, "idea: got 2,001 characters"),
        ("submit", "empty.py", "program: got an empty one, expected at least one line"),
        ("submit", "binary.py", "binary.py: is not UTF-8 text"),
        ("submit", "none.py", "none.py: No such file or directory"),
        (
            "submit",
            "folder",
            "program: got the folder folder, expected a file, such as folder/a.py",
        ),
        ("submit", ".", "program: got the folder ., expected a file; the programs of the run"),
    ],
)
def test_what_no_step_could_use_is_refused_by_name(
    invoke, run, tmp_path, monkeypatch, command, argument, expected
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.py").write_text(" ")
    (tmp_path / "binary.py").write_bytes(b"\xff")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/a.py").write_text("a = 1")
    result = invoke(command, run, argument)
    assert result.exit_code == 2
    assert expected in " ".join(result.stderr.split())


def test_a_python_file_with_a_syntax_error_is_refused_before_a_step_takes_it(invoke, run, tmp_path):
    (tmp_path / "mine.py").write_text("def value():\n    return 0.69\n\ndef broken(:\n")
    result = invoke("submit", run, tmp_path / "mine.py")
    assert result.exit_code == 2
    assert "program: mine.py: line 4: invalid syntax, expected Python without syntax errors" in (
        " ".join(result.stderr.split())
    )
    (tmp_path / "mine.py").write_text('def value():\n    "\\d"\n    return undefined\n')
    result = invoke("submit", run, tmp_path / "mine.py")
    assert (result.exit_code, result.stderr) == (0, "")
    with RunStore(RunFolder(run).database) as store:
        assert [each.number for each in store.inputs.waiting(store.run_ids()[-1])] == [1]


def test_a_folder_without_a_run_that_has_begun_is_refused(invoke, run, tmp_path):
    RunFolder(run).database.unlink()
    result = invoke("steer", run, IDEA)
    assert result.exit_code == 2
    assert "the run has not started" in " ".join(result.stderr.split())
    with hold_lease(run):
        assert "try again in a moment" in " ".join(invoke("steer", run, IDEA).stderr.split())
    assert invoke("steer", tmp_path / "nowhere", IDEA).exit_code == 2
    assert not (tmp_path / "nowhere").exists()


def test_the_repaired_files_of_a_problem_are_submitted_as_a_folder(invoke, tmp_path):
    problem = tmp_path / "problem"
    (problem / "initial_program").mkdir(parents=True)
    (problem / "initial_program/main.py").write_text("from part import X\n\nvalue = X\n")
    (problem / "initial_program/part.py").write_text("X = 0.1\n")
    (problem / "problem.md").write_text("Raise X.")
    (problem / "evaluator.py").write_text(
        "from pathlib import Path\n\n\ndef evaluate(program_path):\n"
        "    text = (Path(program_path) / 'part.py').read_text()\n"
        "    return {'combined_score': float(text.split('=')[1])}\n"
    )
    run = tmp_path / "run"
    assert invoke("run", problem, "--max-iterations", 1, "--out", run).exit_code == 0
    mine = shutil.copytree(problem / "initial_program", tmp_path / "mine")
    (mine / "part.py").write_text("X = 0.9\n")
    assert invoke("submit", run, mine / "part.py").exit_code == 2
    assert invoke("submit", run, mine).exit_code == 0
    result = invoke("resume", run, "--max-iterations", 2, "--quiet")
    assert result.exit_code == 0, result.output
    row = json.loads(invoke("trace", run, "--json").stdout)[-1]
    assert (row["score"], row["step_cost"]) == (0.9, 0.0)


def test_files_that_the_problem_does_not_allow_are_refused_before_a_step_takes_them(
    invoke, tmp_path
):
    problem = tmp_path / "problem"
    (problem / "src").mkdir(parents=True)
    (problem / "src/main.py").write_text("def value():\n    return 0.1\n")
    (problem / "problem.toml").write_text('program = ["**/*.py"]\nentry_point = "src.main:value"\n')
    (problem / "problem.md").write_text("Raise the value.")
    (problem / "evaluator.py").write_text(
        "def score(output):\n    return {'combined_score': output}\n"
    )
    run = tmp_path / "run"
    started = invoke("run", problem, "--max-iterations", 1, "--out", run)
    assert started.exit_code == 0, started.output
    for path, expected in (
        ("notes.txt", "There is no file `notes.txt`."),
        ("evaluator.py", "`evaluator.py` belongs to the task"),
    ):
        mine = tmp_path / path.replace(".", "-")
        shutil.copytree(problem / "src", mine / "src")
        (mine / path).write_text("x = 1\n")
        result = invoke("submit", run, mine)
        assert result.exit_code == 2
        assert expected in " ".join(result.stderr.split())
    (mine / "src/main.py").unlink()
    (mine / "evaluator.py").rename(mine / "src/other.py")
    assert "needs `src/main.py`" in " ".join(invoke("submit", run, mine).stderr.split())

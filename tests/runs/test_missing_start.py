"""Runs without an initial program: the first attempts write it."""

from itertools import chain, repeat

import pytest
from fakes import ScriptedModel, program, rewrite, toy_folder, toy_problem
from langgraph.checkpoint.memory import InMemorySaver
from toy_graph import THREAD, discovery, resumed, rows_of, run_until, scripted

from costada.evaluators.folders import load_folder
from costada.prompts.changes import Change, read_change
from costada.prompts.whole_texts import Rejection
from costada.runs.discovery import discover
from costada.store.run_store import RunStore
from costada.values.candidate import Program
from costada.values.evaluation import Evaluation

NO_PROGRAM = "There is no program yet. Write the first version of it"
EMPTY = Program.of("")
EDIT = "<<<<<<< SEARCH\nreturn 1\n=======\nreturn 2\n>>>>>>> REPLACE\n"


def answering(*answers):
    """A model that gives these answers in order, and the last one again and again."""
    given = chain(answers, repeat(answers[-1]))
    return scripted(lambda prompt: next(given))


def test_the_first_valid_program_seeds_all_frontiers_after_failures_that_are_told():
    model = answering("I would rather not.", rewrite(2.0), rewrite(0.3), rewrite(0.35))
    store, problem = RunStore(), toy_problem(initial_program=None)
    found = discovery(model, problem=problem, store=store, iterations=2).invoke({}, THREAD)
    assert all(NO_PROGRAM in prompt for prompt in model.prompts[:3])
    assert "Failed attempt" not in model.prompts[0]
    assert "The answer holds no complete program that defines `value`" in model.prompts[1]
    assert "value is 2.0; expected at most 1" in model.prompts[2]
    assert not any("SEARCH" in prompt for prompt in model.prompts[:3])
    first, second = rows_of(store)
    assert (first["frontier"], first["attempts"], first["score"]) == (1, 3, 0.3)
    assert first["local_gain"] == first["global_gain"] == 0.3
    # Frontier 2 was never chosen before, but begins with the program of frontier 1.
    assert second["frontier"] == 2
    assert program(0.3) in model.prompts[3]
    assert NO_PROGRAM not in model.prompts[3]
    assert second["local_gain"] == second["global_gain"] == pytest.approx(0.05)
    assert (found["best_score"], found["best_program"]) == (0.35, program(0.35))


def test_a_run_with_steps_in_flight_is_resumed_before_and_after_its_first_program():
    model = answering("No.", "No.", "No.", "No.", rewrite(0.2), rewrite(0.3), rewrite(0.4))
    store, problem = RunStore(), toy_problem(initial_program=None)
    options = {"problem": problem, "store": store, "iterations": 6, "attempts": 1, "parallel": 2}
    graph = discovery(model, saver=InMemorySaver(), **options)
    assert run_until(graph, THREAD, 1)[-1]["score"] is None
    resumed(graph)
    rows = rows_of(store)
    assert [row["iteration"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert max(row["best_score"] for row in rows) == rows[-1]["best_score"] >= 0.3


def test_a_first_program_is_the_best_one_also_with_score_0():
    store, problem = RunStore(), toy_problem(initial_program=None)
    model = answering(rewrite(0.0))
    found = discovery(model, problem=problem, store=store, iterations=1).invoke({}, THREAD)
    assert (found["best_program"], found["best_objective"]) == (program(0.0), 0.0)


def test_of_a_first_answer_only_a_whole_program_is_read():
    form = toy_problem(initial_program=None).form
    read = read_change(rewrite(0.2), EMPTY, form)
    assert isinstance(read, Change)
    assert read.program == Program.of(program(0.2))
    for reply, reason in (
        (EDIT, "There is no program yet that SEARCH/REPLACE blocks could change."),
        ("```python\nx = 1\n```", "The program does not define `value` at the top level."),
        ("Sorry.", "The answer holds no complete program that defines `value` at the top level."),
    ):
        assert read_change(reply, EMPTY, form) == Rejection(reason)


@pytest.fixture
def startless(tmp_path):
    folder = toy_folder(tmp_path)
    (folder / "initial_program.py").unlink()
    (folder / "problem.toml").write_text('start = "none"\nentry_point = "value"\n')
    return folder


@pytest.mark.process
def test_a_folder_without_a_start_is_checked_run_and_shown(startless, tmp_path, invoke):
    checked = invoke("check", startless)
    assert checked.exit_code == 0, checked.output
    assert "none, the first attempts write it; the evaluator was not tried" in checked.stdout
    out = tmp_path / "run"
    model = ScriptedModel(answer=lambda prompt: rewrite(0.3))
    found = discover(startless, model, budget=1.0, price="1,2", max_iterations=1, out=out)
    assert found.best_score == 0.3
    assert invoke("report", out).exit_code == 0
    patch = invoke("diff", out).stdout
    assert "new file mode 100644\n--- /dev/null\n+++ b/initial_program.py\n" in patch
    assert "@@ -0,0 +1,4 @@\n+# EVOLVE-BLOCK-START\n" in patch


@pytest.mark.process
def test_a_run_that_finds_no_valid_program_says_so(startless, tmp_path, invoke):
    later = invoke("check", startless).stdout.partition("later prompt")[2].splitlines()[0]
    assert later.endswith(" tokens, with 4 other programs")
    result = invoke("run", startless, "--budget", 0.02, "--out", tmp_path / "run")
    reason = "the offline model changes programs and writes none"
    assert result.stderr == f"costada: no valid program was found; {reason}\n"
    assert "best program    no valid one yet" in result.stdout
    assert not [*(tmp_path / "run").glob("best_program*")]
    patch = invoke("diff", tmp_path / "run")
    assert (patch.exit_code, patch.stdout) == (2, "")
    assert "the run has no valid program yet, and no initial one: nothing to apply" in patch.stderr


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("", "nothing says what a program is; expected entry_point, language, or program with"),
        ('program = "src/*.cpp"', "program is 'src/.*'.* expected the name of one file"),
        ('program = ["a.py"]', r"program is \('a.py',\).* expected the name of one file"),
        ('language = "Python"', "entry_point is missing"),
    ],
)
def test_a_folder_says_what_its_first_program_is(startless, settings, message):
    (startless / "problem.toml").write_text(f'start = "none"\n{settings}\n')
    with pytest.raises(ValueError, match=message):
        load_folder(startless)


def test_the_name_of_a_file_gives_language_and_name_of_a_first_program(startless):
    settings = 'start = "none"\nprogram = "main.cpp"\nrun = "{binary}"\nbuild = "g++ {program}"\n'
    (startless / "problem.toml").write_text(settings)
    problem = load_folder(startless)
    assert (problem.language, problem.candidate_name) == ("C++", "main.cpp")
    assert problem.start == EMPTY


@pytest.mark.parametrize(
    ("settings", "file", "ignored"),
    [
        ("", "initial_program.py", "initial_program.py is not read, as problem.toml says"),
        ('program = "value.py"', "value.py", "value.py is not read, as problem.toml says"),
        ("", "helper.py", ""),
    ],
)
def test_a_folder_says_that_its_program_is_not_read(startless, settings, file, ignored):
    (startless / file).write_text("def value():\n    return 0.1\n")
    (startless / "problem.toml").write_text(f'start = "none"\nentry_point = "value"\n{settings}\n')
    problem = load_folder(startless)
    assert problem.start == EMPTY
    assert problem.notes[:1] == ((f'{ignored} start = "none"',) if ignored else ())


def test_a_function_of_texts_needs_no_start():
    def evaluate(text):
        return Evaluation(score=min(1.0, len(text) / 100), objective=len(text), is_valid=True)

    model = ScriptedModel(answer=lambda prompt: "```text\nBe brief and honest.\n```")
    found = discover(
        evaluate=evaluate, task="A rule.", model=model, budget=1.0, price="1,2", max_iterations=1
    )
    assert found.best_program == "Be brief and honest.\n"
    assert NO_PROGRAM in model.prompts[0]

"""A command as the generator: what it is given, what is read of it, and how it ends."""

import os
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path
from threading import Thread

import pytest
from fakes import SEED_PROGRAM, evaluate_value, toy_problem
from file_programs import START, files_problem
from generator_commands import editing, first_doing, python_command
from langgraph.checkpoint.memory import InMemorySaver
from made_repositories import make_repository, problem_of
from toy_graph import THREAD, discovery, rows_of
from waiting import check_in_time, within

from costada.evaluators.sandbox.concurrency import CancellationToken, current_token
from costada.nodes.tools.command_process import run_command
from costada.store.run_store import RunStore
from costada.values.evaluation import GENERATOR_LOG, Evaluation

pytestmark = pytest.mark.process


def run_of(command, store=None, *, iterations=1, **options):
    """The result of a run with a command as its generator."""
    graph = discovery(store=store, iterations=iterations, generator=command, **options)
    return graph.invoke({})


def candidate_of(store, name="1.1"):
    return store.candidates.get(store.run_ids()[-1], name)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_what_a_command_leaves_in_the_file_is_the_candidate():
    with RunStore() as store:
        result = run_of(editing(0.7), store)
        found = candidate_of(store)
        (row,) = rows_of(store)
    assert result["best_program"] == SEED_PROGRAM.replace("0.10", "0.7")
    assert (result["best_score"], result["spent"], row["attempts"]) == (0.7, 0.0, 1)
    assert found.changes == (
        "@@ -2,3 +2,3 @@\n def value():\n-    return 0.10\n+    return 0.7\n # EVOLVE-BLOCK-END"
    )
    assert found.artifacts[GENERATOR_LOG] == "edited candidate.py\n"


def test_it_is_told_to_edit_the_file_and_not_how_answers_are_written(tmp_path):
    run_of(first_doing("exit(3)", tmp_path), attempts=2)
    prompt = (tmp_path / "1.md").read_text()
    assert prompt.startswith("Return a large number, at most 1.\n\n# Task\n")
    assert "The current program is the file `candidate.py` of the working folder." in prompt
    assert "return 0.10" in prompt
    assert "SEARCH" not in prompt
    assert "fence" not in prompt


def test_a_command_that_names_the_file_of_its_prompt_reads_nothing_on_standard_input():
    code = (
        "import sys; from pathlib import Path; print(repr(sys.stdin.read()), sys.argv[2:]);"
        " print(Path(sys.argv[1]).read_text()); Path('candidate.py').write_text('value = min')"
    )
    with RunStore() as store:
        run_of(python_command(code, "{prompt}", "--model=x/{model}", "{{}}"), store)
        log = candidate_of(store).artifacts[GENERATOR_LOG]
    first, _, prompt = log.partition("\n")
    assert first == "'' ['--model=x/scripted', '{}']"
    assert prompt.startswith("Return a large number, at most 1.")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("print('no \\x1b[31mkey\\x1b[0m'); exit(3)", "failed with exit status 3. The end of its"),
        ("print('no \\x1b[31mkey\\x1b[0m'); exit(3)", "output:\nno key\n"),
        ("pass", "The files were left as they are."),
        ("file.unlink()", "The command left no file `candidate.py`."),
        ("file.write_text('x = 1')", "The program no longer defines `value` at the top level."),
        ("file.write_bytes(b'\\xff')", "candidate.py is not UTF-8 text"),
        ("file.unlink(); file.symlink_to('/etc/passwd')", "candidate.py is not a regular file"),
        ("file.unlink(); __import__('os').mkfifo(file)", "candidate.py is not a regular file"),
        ("import os; os.kill(os.getpid(), 9)", "failed with exit status 137."),
    ],
)
def test_why_it_failed_is_told_to_the_next_attempt(tmp_path, code, reason):
    with RunStore() as store:
        result = run_of(first_doing(code, tmp_path), store, attempts=2)
        (row,) = rows_of(store)
    assert reason in (tmp_path / "2.md").read_text()
    assert (result["best_score"], row["attempts"]) == (0.4, 2)


def test_it_is_killed_at_its_time_limit_with_all_that_it_started(tmp_path):
    def check(seconds: float) -> None:
        seen, pid = tmp_path / f"{seconds:g}", tmp_path / f"pid {seconds:g}"
        code = (
            "import subprocess, time; print('slow', flush=True);"
            "child = subprocess.Popen(['sleep', '600'], start_new_session=True);"
            f"open({str(pid)!r}, 'w').write(str(child.pid)); time.sleep(600)"
        )
        seen.mkdir()
        run_of(first_doing(code, seen), attempts=2, generator_timeout=seconds)
        # both commands have to start within the limit, and the first to write its number
        assert (seen / "2.md").exists()
        assert pid.exists()
        assert pid.read_text()
        reason = (
            f"The command was stopped after {seconds:g} seconds. The end of its output:\nslow\n"
        )
        assert reason in (seen / "2.md").read_text()
        assert not is_alive(int(pid.read_text()))

    check_in_time(check, 2, 10, 60)


def test_nothing_that_it_started_outlives_its_end(tmp_path):
    code = (
        "import subprocess, sys; from pathlib import Path;"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True);"
        "Path(sys.argv[1]).write_text(str(child.pid)); Path('candidate.py').write_text('value = 1')"
    )
    run_of(python_command(code, str(tmp_path / "pid")))
    assert not is_alive(int((tmp_path / "pid").read_text()))


def test_keys_of_the_environment_are_not_in_its_own(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")
    monkeypatch.setenv("MY_SECRET", "sk-real")
    code = "import os; print(dict(os.environ)); open('candidate.py', 'w').write('value = 1')"
    with RunStore() as store:
        run_of(python_command(code), store)
        log = candidate_of(store).artifacts[GENERATOR_LOG]
    assert "'PATH': " in log
    assert "sk-real" not in log


def test_files_are_changed_added_and_deleted_where_the_problem_allows_it():
    code = (
        "from pathlib import Path; Path('pkg/part.py').write_text('PART = 0.5\\n');"
        "Path('pkg/more.py').write_text('EXTRA = 0.2\\n'); Path('words/task.md').unlink();"
        "Path('notes.txt').write_text('seen'); Path('.agent').mkdir();"
        "Path('.agent/state.py').write_text('EXTRA = 9')"
    )
    with RunStore() as store:
        result = run_of(python_command(code), store, problem=files_problem())
        changes = candidate_of(store).changes
    assert result["best_score"] == pytest.approx(0.75)
    assert sorted(result["best_files"]) == [
        "pkg/__init__.py",
        "pkg/more.py",
        "pkg/part.py",
        "pkg/value.py",
    ]
    assert "--- /dev/null\n+++ pkg/more.py\n@@ -0,0 +1 @@\n+EXTRA = 0.2" in changes
    assert "--- words/task.md\n+++ /dev/null\n@@ -1 +0,0 @@\n-Add up parts." in changes


def test_no_file_is_deleted_where_the_problem_allows_no_others(tmp_path):
    code = "file = Path('words/task.md'); file.unlink()"
    problem = files_problem(editable=[], initial_program=START)
    run_of(first_doing(code, tmp_path), problem=problem, attempts=2)
    reason = "`words/task.md` cannot be deleted: a program has the files of the start."
    assert reason in (tmp_path / "2.md").read_text()


def test_a_command_sees_the_repository_and_changes_only_what_candidates_may(tmp_path):
    repository = make_repository(
        tmp_path / "repository", {"src/value.py": "VALUE = 1\n", "bench.py": "..."}
    )
    problem = problem_of(repository, tmp_path / "problem", "python -c 'print(2)'")
    code = (
        "from pathlib import Path; print(Path('bench.py').read_text(), Path('.git').exists());"
        "Path('bench.py').write_text('print(9)'); Path('src/value.py').write_text('VALUE = 2\\n')"
    )
    with RunStore() as store:
        run_of(python_command(code), store, problem=problem)
        found = candidate_of(store)
    assert dict(found.program) == {"src/value.py": "VALUE = 2\n"}
    assert found.artifacts[GENERATOR_LOG] == "... False\n"
    assert (repository / "bench.py").read_text() == "..."


@pytest.mark.parametrize("parallel", [1, 2])
def test_an_attempt_that_is_executed_again_does_not_run_its_command_again(tmp_path, parallel):
    """The process dies in the evaluation of what the command has made."""
    store, saver, judged = RunStore(), InMemorySaver(), count(1)

    def evaluate(code: str) -> Evaluation:
        if next(judged) == 2:  # after the initial program
            raise InterruptedError
        return evaluate_value(code)

    graph = discovery(
        store=store,
        saver=saver,
        problem=toy_problem(evaluate=evaluate),
        generator=first_doing("file.write_text('def value():\\n    return 0.6\\n')", tmp_path),
        iterations=1,
        parallel=parallel,
    )
    with pytest.raises(InterruptedError):
        graph.invoke({}, THREAD)
    assert graph.invoke(None, THREAD)["best_score"] == 0.6
    assert [each.name for each in tmp_path.iterdir()] == ["1.md"]


def test_a_run_that_is_asked_to_stop_kills_its_command(tmp_path):
    token, raised = CancellationToken(), []
    pid = tmp_path / "pid"
    code = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)"

    def run() -> None:
        current_token.set(token)
        with pytest.raises(InterruptedError) as error:
            run_command(
                [sys.executable, "-c", code], tmp_path, stdin=None, environment={}, seconds=600
            )
        raised.append(error.value)

    thread = Thread(target=run)
    thread.start()
    number = int(within(60, lambda: pid.exists() and pid.read_text()))
    token.cancel()
    thread.join(60)
    assert raised
    assert not is_alive(number)


RUNNER = """
import sys
from pathlib import Path
from costada.nodes.tools.command_process import run_command
run_command(sys.argv[2:], Path(sys.argv[1]), stdin=None, environment={}, seconds=600)
"""


def test_a_command_ends_with_the_process_of_its_run(tmp_path):
    pid = tmp_path / "pid"
    code = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    words = [sys.executable, "-c", RUNNER, str(tmp_path), sys.executable, "-c", code]
    with subprocess.Popen(words) as process:
        number = int(within(60, lambda: pid.exists() and pid.read_text()))
        os.kill(process.pid, signal.SIGKILL)
    within(60, lambda: not is_alive(number))


def test_a_program_that_is_missing_is_refused_before_the_run():
    with pytest.raises(ValueError, match=r"generator: got 'agnet', expected model, agent or a com"):
        discovery(generator="agnet")

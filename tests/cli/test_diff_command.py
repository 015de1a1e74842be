import shutil
import subprocess

import pytest

from costada.store.run_store import RunStore

pytestmark = pytest.mark.process


def applied(patch, folder):
    command = ["git", "apply", "--unsafe-paths", f"--directory={folder}"]
    subprocess.run(command, input=patch, cwd=folder, check=True, timeout=60)


def printed(invoke, *arguments):
    result = invoke("diff", *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout_bytes


def test_the_patch_of_a_run_makes_its_best_program_of_the_initial_one(
    invoke, near, finished, tmp_path
):
    shutil.copy(near / "initial_program.py", tmp_path)
    applied(printed(invoke, finished), tmp_path)
    best = (finished / "best_program.py").read_bytes()
    assert (tmp_path / "initial_program.py").read_bytes() == best
    assert best != (near / "initial_program.py").read_bytes()


def test_the_paths_of_a_patch_are_those_of_the_problem_folder(invoke, near, tmp_path):
    problem = shutil.copytree(near, tmp_path / "problem")
    (problem / "parts").mkdir()
    (problem / "initial_program.py").rename(problem / "parts/solver.py")
    (problem / "problem.toml").write_text('program = "parts/solver.py"\n')
    run = tmp_path / "run"
    assert invoke("run", problem, "--max-iterations", 3, "--out", run).exit_code == 0
    applied(printed(invoke, run), problem)
    assert (problem / "parts/solver.py").read_bytes() == (run / "best_program.py").read_bytes()
    shutil.rmtree(problem)
    assert b"+++ b/initial_program.py\n" in printed(invoke, run)


def test_a_patch_may_begin_at_any_candidate(invoke, finished, tmp_path):
    with RunStore(finished / "run.sqlite", is_read_only=True) as store:
        (run_id,) = store.run_ids()
        first, best = store.candidates.get(run_id, "1.1"), store.last_improvement(run_id)
    (tmp_path / "initial_program.py").write_text(first.program.text)
    patch = printed(invoke, finished, "--from", "1.1")
    if patch:
        applied(patch, tmp_path)
    assert (tmp_path / "initial_program.py").read_bytes() == (
        finished / "best_program.py"
    ).read_bytes()
    nothing = invoke("diff", finished, "--from", best)
    assert (nothing.exit_code, nothing.stdout) == (0, "")
    assert f"the best program equals candidate {best}: nothing to apply" in nothing.stderr


def test_an_unknown_candidate_or_a_folder_without_a_run_is_refused(invoke, finished, tmp_path):
    unknown = invoke("diff", finished, "--from", "99.1")
    assert unknown.exit_code == 2
    assert (
        "--from: got '99.1', expected start or the id of a candidate, such as 2.1" in unknown.stderr
    )
    empty = invoke("diff", tmp_path)
    assert (empty.exit_code, "holds no run" in empty.stderr) == (2, True)


def test_the_patch_of_a_program_with_carriage_returns_keeps_them(invoke, near, tmp_path):
    problem = shutil.copytree(near, tmp_path / "problem")
    start = problem / "initial_program.py"
    start.write_bytes(start.read_bytes().replace(b"\n", b"\r\n"))
    run = tmp_path / "run"
    assert invoke("run", problem, "--max-iterations", 3, "--out", run).exit_code == 0
    best = (run / "best_program.py").read_bytes()
    assert best.count(b"\r\n") == best.count(b"\n") > 1
    assert best != start.read_bytes()
    applied(printed(invoke, run), problem)
    assert start.read_bytes() == best

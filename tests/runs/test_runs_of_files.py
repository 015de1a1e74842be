"""Runs whose candidates have several files."""

import json
import shutil
import subprocess

import pytest
from fakes import ScriptedModel
from file_programs import START, evaluate_files, files_problem, hashed_files
from langgraph.checkpoint.memory import InMemorySaver

from costada.graph.build import compile_search
from costada.nodes.settings import Settings
from costada.runs.discovery import discover
from costada.runs.folder import RunFolder
from costada.runs.fork import fork_run
from costada.store.run_store import RunStore
from costada.values.usage import Price

pytestmark = pytest.mark.process

OPTIONS = {"seed": 3, "price": "1,2", "keep_history": True}
STEPS = 12


def run(out=None, *, steps=STEPS, **options):
    return discover(
        files_problem(),
        ScriptedModel(answer=hashed_files),
        budget=1.0,
        out=out,
        max_iterations=steps,
        **OPTIONS,
        **options,
    )


def files_below(folder):
    return {
        str(file.relative_to(folder)): file.read_text()
        for file in folder.rglob("*")
        if file.is_file()
    }


def programs_in(folder):
    with RunStore(folder / "run.sqlite", is_read_only=True) as store:
        (run_id,) = store.run_ids()
        return [
            member.program
            for frontier in (0, 1)
            for member in store.candidates.archive(run_id, frontier, 10**9)
        ]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished run, and what it found."""
    folder = tmp_path_factory.mktemp("files") / "run"
    return folder, run(folder)


def test_the_best_program_is_returned_and_written_file_by_file(finished):
    folder, found = finished
    assert evaluate_files(found.best_files).score == found.best_score > 0.1
    assert files_below(folder / "best_program") == found.best_files
    assert list(folder.glob("best_program*")) == [folder / "best_program"]
    assert "==> pkg/part.py <==\n# EVOLVE-BLOCK-START" in found.best_program


def test_candidates_have_added_changed_and_deleted_files_and_none_elsewhere(finished):
    programs = programs_in(finished[0])
    paths = {path for program in programs for path in program}
    assert paths == {*START, "pkg/more.py"}
    assert any("words/task.md" not in program for program in programs)
    assert len({program["pkg/part.py"] for program in programs}) > 2


def test_a_run_in_memory_finds_the_same_files(finished):
    found = run()
    assert (found.best_files, found.spent) == (finished[1].best_files, finished[1].spent)


def test_the_patch_of_a_run_makes_its_best_files_of_the_start(finished, invoke, tmp_path):
    for path, text in START.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    result = invoke("diff", finished[0])
    command = ["git", "apply", "--unsafe-paths", f"--directory={tmp_path}"]
    subprocess.run(command, input=result.stdout_bytes, cwd=tmp_path, check=True, timeout=60)
    assert files_below(tmp_path) == finished[1].best_files


def test_a_fork_writes_the_best_files_of_its_iteration_and_continues_as_the_original(
    finished, tmp_path
):
    folder, found = finished
    early = run(tmp_path / "early", steps=STEPS // 2)
    forked = fork_run(RunFolder(folder), STEPS // 2, RunFolder(tmp_path / "fork"))
    assert files_below(forked.folder.best_program) == early.best_files
    resumed = run(tmp_path / "fork", resume=True)
    assert resumed.best_files == found.best_files
    assert (tmp_path / "fork/steps.jsonl").read_text() == (folder / "steps.jsonl").read_text()


def test_a_resumed_run_writes_the_best_files_again(finished, tmp_path):
    folder = shutil.copytree(finished[0], tmp_path / "run")
    shutil.rmtree(folder / "best_program")
    (folder / "best_program").write_text("not a folder")
    with pytest.raises(FileExistsError, match="is not a folder"):
        run(folder, resume=True)
    (folder / "best_program").unlink()
    (folder / ".best_program.0123.part").mkdir()
    (folder / ".row.json.0123.part").touch()
    assert run(folder, resume=True).best_files == files_below(folder / "best_program")
    assert not list(folder.glob(".*.part"))


@pytest.mark.parametrize("name", ["best_program", "best_program.cpp"])
def test_a_best_program_in_the_way_of_a_new_run_is_named(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(ValueError, match=f"{name}: exists, the run would overwrite it"):
        run(tmp_path)


def test_the_state_of_a_graph_names_its_files_once_and_only_at_the_end():
    saver = InMemorySaver()
    graph = compile_search(
        files_problem(initial_program={**START, "words/long.md": "long " * 10_000}),
        ScriptedModel(answer=hashed_files),
        budget=0.05,
        settings=Settings(price=Price(1, 2)),
        checkpointer=saver,
    )
    thread = {"configurable": {"thread_id": "t"}}
    result = graph.invoke({}, thread)
    assert result["best_files"]["words/long.md"] == "long " * 10_000
    sizes = [
        len(json.dumps(saved.checkpoint["channel_values"], default=str))
        for saved in saver.list(thread)
    ]
    assert max(sizes[1:]) < 5000


def test_a_list_of_files_with_a_path_out_of_the_folder_is_refused_by_all_that_reads_it(
    finished, tmp_path, invoke
):
    folder = shutil.copytree(finished[0], tmp_path / "run")
    with RunStore(folder / "run.sqlite") as store:
        trap = store.put_text("trap")
        name = f"files-{store.put_text(json.dumps({'../../outside.py': trap}))}"
        store._db.write("UPDATE costada_candidate SET code_hash = ?", (name,))
    with pytest.raises(ValueError, match=r"a file '../../outside\.py', expected a relative path"):
        run(folder, resume=True)
    with pytest.raises(ValueError, match=r"a file '../../outside\.py'"):
        fork_run(RunFolder(folder), STEPS, RunFolder(tmp_path / "fork"))
    for command in ("diff", "report"):
        refused = invoke(command, folder)
        assert (refused.exit_code, "'../../outside.py'" in refused.output) == (2, True)
    assert not list(tmp_path.rglob("outside.py"))

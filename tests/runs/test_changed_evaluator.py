"""A run goes on with a changed evaluator only if the programs it builds on keep their scores."""

import logging
import shutil

import pytest
from fakes import toy_problem
from langgraph.checkpoint.memory import InMemorySaver

from costada import OfflineModel, create_discovery_graph, discover
from costada.runs.folder import RunFolder
from costada.store.address import shown_address
from costada.store.run_store import RunStore

pytestmark = pytest.mark.process

CHANGED = "The evaluator has changed since this run started"
WAY_OUT = "costada submit"


@pytest.fixture
def folder(near, tmp_path):
    return shutil.copytree(near, tmp_path / "near")


def change(folder, before="0.7", after="0.6"):
    evaluator = folder / "evaluator.py"
    evaluator.write_text(evaluator.read_text().replace(before, after))


def run(invoke, folder, out, *more):
    began = invoke("run", folder, "--max-iterations", 3, "--quiet", *more, "--out", out)
    assert began.exit_code == 0, began.output


def counted(out):
    with RunStore(out / "run.sqlite", is_read_only=True) as store:
        run_id = store.last_run()
        return store.last_step(run_id), len(list(store.call_log.calls(run_id)))


@pytest.mark.parametrize("method", ["costada", "adaevolve", "evox", "best-of-n", "uniform"])
def test_a_run_is_not_resumed_with_an_evaluator_that_scores_differently(
    invoke, folder, tmp_path, method
):
    out = tmp_path / "out"
    run(invoke, folder, out, "--method", method)
    before = counted(out)
    change(folder)
    resume = ("resume", out, "--max-iterations", 5, "--quiet")
    refused = invoke(*resume)
    assert refused.exit_code == 1
    assert CHANGED in refused.stderr
    assert "evaluator of 'near': program " in refused.stderr
    assert WAY_OUT in refused.stderr
    assert counted(out) == before
    change(folder, "0.6", "0.7")
    resumed = invoke(*resume)
    assert (resumed.exit_code, counted(out)[0]) == (0, 5), resumed.output
    assert CHANGED not in resumed.stderr


def test_a_change_that_keeps_all_scores_is_named_once_also_by_a_quiet_command(
    invoke, folder, tmp_path
):
    out = tmp_path / "out"
    run(invoke, folder, out)
    change(folder, "import runpy", "import runpy\n\nUNUSED = 1")
    first = invoke("resume", out, "--max-iterations", 4, "--quiet")
    assert first.exit_code == 0, first.output
    assert CHANGED in first.stderr
    second = invoke("resume", out, "--max-iterations", 5, "--quiet")
    assert (second.exit_code, counted(out)[0]) == (0, 5), second.output
    assert CHANGED not in second.stderr


@pytest.mark.parametrize("keeps_scores", [True, False])
def test_a_run_in_postgres_goes_on_only_if_its_programs_keep_their_scores(
    invoke, folder, tmp_path, postgres_address, keeps_scores, monkeypatch
):
    monkeypatch.chdir(tmp_path)  # `resume` writes to runs-out/
    store = f"{shown_address(postgres_address)}#{tmp_path.name}"
    run(invoke, folder, tmp_path / "out", "--store", store)
    change(folder, *(("import runpy", "import runpy, os") if keeps_scores else ()))
    resumed = invoke("resume", store, "--max-iterations", 4, "--quiet")
    assert resumed.exit_code == (0 if keeps_scores else 1), resumed.output
    assert CHANGED in resumed.stderr
    assert (WAY_OUT in resumed.stderr) is not keeps_scores
    if keeps_scores:
        again = invoke("resume", store, "--max-iterations", 5, "--quiet")
        assert (again.exit_code, CHANGED in again.stderr) == (0, False), again.output


def test_changed_limits_are_named_by_a_quiet_command(invoke, folder, tmp_path):
    out = tmp_path / "out"
    run(invoke, folder, out)
    settings = folder / "problem.toml"
    text = settings.read_text() if settings.exists() else ""
    settings.write_text(f"{text}\ntimeout = 77\n")
    resumed = invoke("resume", out, "--max-iterations", 4, "--quiet")
    assert resumed.exit_code == 0, resumed.output
    assert "timeout (limits.wall_seconds) was " in resumed.stderr


def test_a_fork_is_not_resumed_with_another_evaluator(invoke, folder, tmp_path):
    out, fork = tmp_path / "out", tmp_path / "fork"
    run(invoke, folder, out)
    assert invoke("fork", out, "--at", 2, "--out", fork).exit_code == 0
    change(folder)
    refused = invoke("resume", fork, "--quiet")
    assert refused.exit_code == 1
    assert WAY_OUT in refused.stderr


def test_a_run_from_python_is_not_resumed_with_another_evaluator(folder, tmp_path):
    given = {"budget": 1.0, "out": tmp_path / "out"}
    discover(folder, OfflineModel(), **given, max_iterations=2)
    change(folder)
    with pytest.raises(ValueError, match=WAY_OUT):
        discover(folder, OfflineModel(), **given, max_iterations=4, resume=True)
    assert RunFolder(tmp_path / "out").load().max_iterations == 4


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_a_thread_of_a_graph_is_not_resumed_with_another_evaluator(factor, caplog):
    def graph(scale):
        def evaluate(source):
            found = toy_problem().evaluate(source)
            return type(found)(
                score=scale * found.score, objective=found.objective, is_valid=found.is_valid
            )

        changed = toy_problem(evaluate=evaluate) if scale else toy_problem()
        return create_discovery_graph(
            changed, OfflineModel(), budget=1.0, max_iterations=4, checkpointer=saver, store=store
        )

    saver, store = InMemorySaver(), RunStore()
    thread = {"configurable": {"thread_id": "1"}}
    for row in graph(0).stream({}, thread, stream_mode="custom"):
        if row["iteration"] == 2:
            break
    with caplog.at_level(logging.WARNING, logger="costada.runs"):
        if factor == 1.0:
            assert graph(factor).invoke(None, thread)["iterations"] == 4
        else:
            with pytest.raises(ValueError, match=WAY_OUT):
                graph(factor).invoke(None, thread)
            assert store.last_step(store.last_run()) == 2
    assert CHANGED in caplog.text

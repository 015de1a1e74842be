"""The engine of the documentation, in a package of its own."""

import sys

import pytest
from doc_blocks import ROOT, blocks_of

pytestmark = pytest.mark.process

PAGE = ROOT / "docs" / "plugins" / "engines.md"


@pytest.fixture(autouse=True)
def _installed(tmp_path, monkeypatch):
    """Put the package on the path of this process and of those that it starts."""
    [module, _] = [block for block in blocks_of(PAGE) if block.file]
    (tmp_path / module.file).write_text(module.text)
    about = tmp_path / "costada_threads-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: costada-threads\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[costada.engines]\nthreads = threads_engine:ThreadsEngine\n"
    )
    monkeypatch.delitem(sys.modules, "threads_engine", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def test_an_own_engine_evaluates_the_programs_of_a_run(near, tmp_path, invoke):
    out = tmp_path / "run"
    given = ("--max-iterations", 2, "--evaluate-on", "threads:2", "--out", out)
    done = invoke("run", near, *given)
    assert done.exit_code == 0, done.stderr
    shown = invoke("export", out, "--to", "csv", "--table", "candidates")
    header, first, *_ = shown.stdout.splitlines()
    worker = first.split(",")[header.split(",").index("worker")]
    assert worker.rpartition(":")[2].isdecimal()


def test_an_own_engine_runs_a_sweep(near, tmp_path, invoke):
    out = tmp_path / "sweep"
    words = ("sweep", "--problems", near, "--methods", "costada", "--seeds", 2, "--out", out)
    done = invoke(*words, "--max-iterations", 2, "--on", "threads:2")
    assert done.exit_code == 0, done.stderr
    assert "Finished 2 of 2 runs" in done.stdout


def test_what_an_own_engine_refuses_is_said(near, tmp_path, invoke):
    refused = invoke("run", near, "--evaluate-on", "threads:two", "--out", tmp_path / "run")
    assert refused.exit_code == 2
    assert "--evaluate-on: threads:two: expected threads:N" in refused.stderr
    words = ("sweep", "--problems", near, "--methods", "costada", "--out", tmp_path / "sweep")
    refused = invoke(*words, "--on", "threads:two")
    assert refused.exit_code == 2
    assert "--on threads:two: expected threads:N" in refused.stderr

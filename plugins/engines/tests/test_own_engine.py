"""The engine of the documentation, in a package of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from doc_blocks import ROOT, blocks_of

pytestmark = pytest.mark.process

PAGE = ROOT / "docs" / "plugins" / "engines.md"
SECONDS = 120


@pytest.fixture
def installed(tmp_path):
    """A folder on the path of modules that holds the package."""
    [module, _] = [block for block in blocks_of(PAGE) if block.file]
    (tmp_path / module.file).write_text(module.text)
    about = tmp_path / "costada_threads-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: costada-threads\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[costada.engines]\nthreads = threads_engine:ThreadsEngine\n"
    )
    return tmp_path


def run(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "costada.cli.entry", *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def test_an_own_engine_evaluates_the_programs_of_a_run(installed, near, tmp_path):
    out = tmp_path / "run"
    given = ("--max-iterations", 2, "--evaluations", "threads:2", "--out", out)
    done = run(installed, "run", near, *given)
    assert done.returncode == 0, done.stderr
    shown = run(installed, "export", out, "--to", "csv", "--table", "candidates")
    header, first, *_ = shown.stdout.splitlines()
    worker = first.split(",")[header.split(",").index("worker")]
    assert worker.rpartition(":")[2].isdecimal()


def test_an_own_engine_runs_a_sweep(installed, near, tmp_path):
    out = tmp_path / "sweep"
    words = ("sweep", "--problems", near, "--methods", "costada", "--seeds", 2, "--out", out)
    done = run(installed, *words, "--max-iterations", 2, "--on", "threads:2")
    assert done.returncode == 0, done.stderr
    assert "Finished 2 of 2 runs" in done.stdout


def test_what_an_own_engine_refuses_is_said(installed, near, tmp_path):
    refused = run(installed, "run", near, "--evaluations", "threads:two", "--out", tmp_path / "run")
    assert refused.returncode == 2
    assert "evaluations: threads:two: expected threads:N" in refused.stderr
    words = ("sweep", "--problems", near, "--methods", "costada", "--out", tmp_path / "sweep")
    refused = run(installed, *words, "--on", "threads:two")
    assert refused.returncode == 2
    assert "--on threads:two: expected threads:N" in refused.stderr

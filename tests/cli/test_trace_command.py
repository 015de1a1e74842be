import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROW_KEYS = {
    "iteration",
    "frontier",
    "action",
    "intensity",
    "step_cost",
    "spent",
    "remaining_ratio",
    "score",
    "local_gain",
    "global_gain",
    "cost_divisor",
    "utility",
    "allocation_reward",
    "stagnation",
    "low_yield_cost",
    "consolidation_left",
    "tactic_uses_left",
    "attempts",
    "events",
    "is_cached",
}


def test_the_json_trace_is_one_array_with_the_promised_keys(invoke, finished):
    rows = json.loads(invoke("trace", finished, "--json").stdout)
    assert [row["iteration"] for row in rows] == [1, 2, 3]
    assert all(row.keys() >= ROW_KEYS for row in rows)
    assert {row["frontier"] for row in rows} <= {1, 2}


def test_the_plain_trace_is_a_table_of_the_same_rows(invoke, finished):
    text = invoke("trace", finished).stdout
    rows = json.loads(invoke("trace", finished, "--json").stdout)
    for row in rows:
        assert f"{row['remaining_ratio']:.4f}" in text


def test_the_graph_is_printed_as_mermaid_with_every_node_and_answer(invoke):
    text = invoke("graph").stdout
    for node in (
        "allocate_frontier",
        "build_context",
        "generate",
        "evaluate",
        "charge_ledger",
        "update_utility",
        "gate_intervention",
        "guide",
    ):
        assert f"\t{node}({node})" in text
    assert "retry" in text


@pytest.mark.parametrize(("format", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_the_graph_is_drawn_into_a_file(invoke, tmp_path, format, start):
    target = tmp_path / f"loop.{format}"
    result = invoke("graph", "--format", format, "--out", target)
    assert result.exit_code == 0, result.output
    assert target.read_bytes().startswith(start)


def test_a_picture_without_a_name_gets_one(invoke, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert invoke("graph", "--format", "svg").stdout == "costada-graph.svg\n"
    assert (tmp_path / "costada-graph.svg").is_file()


def test_the_version_is_that_of_the_package(invoke):
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert invoke("--version").stdout == f"costada {tomllib.loads(text)['project']['version']}\n"


def test_the_help_page_explains_the_exit_codes(invoke):
    for words in (["--help"], ["run", "--help"], ["resume", "--help"]):
        text = " ".join(invoke(*words).output.split())
        assert "Exit codes: 0 done; 1 the run failed, its finished iterations are saved;" in text
        assert "130 interrupted and saved." in text


def test_heavy_libraries_are_loaded_only_where_they_are_needed(near, finished, tmp_path):
    commands = [
        ["--help"],
        ["list"],
        ["trace", str(finished)],
        ["init", str(tmp_path / "mine")],
        ["evaluate", str(near), str(near / "initial_program.py")],
    ]
    script = (
        "import sys\n"
        "from costada.cli.main import app\n"
        "heavy = {'langchain_core', 'langgraph', 'openai', 'matplotlib', 'genai_prices', 'scipy'}\n"
        f"for words in {commands}:\n"
        "    try:\n        app(words)\n"
        "    except SystemExit as end:\n        assert not end.code, (words, end.code)\n"
        "    assert heavy.isdisjoint(sys.modules), (words, heavy.intersection(sys.modules))\n"
    )
    # A table of help texts that no other process rewrites; the first command stores it.
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    storing = "from costada.cli.main import app; app(['--help'])"
    for code in (storing, script):
        result = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True
        )
        assert result.returncode == 0, result.stderr

"""`python -OO`, or PYTHONOPTIMIZE=2, drops docstrings and assertions."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

TEXTS = """
import asyncio
from types import SimpleNamespace

from typer.testing import CliRunner

from costada.agents.mcp import mcp_server
from costada.cli.main import COMMANDS, app
from costada.nodes.settings import Settings
from costada.runs.choices import Choices, context_schema

for words in ([], *([name] for name in COMMANDS)):
    result = CliRunner().invoke(app, [*words, "--help"])
    assert result.exit_code == 0, result.output
    print(result.output)
service = SimpleNamespace(problems={}, purse=SimpleNamespace(budget=1), settings=Settings())
print([tool.description for tool in asyncio.run(mcp_server(service).list_tools())])
print(context_schema(Choices(max_budget=1), {}, {}).model_json_schema())
"""


def optimized(*words: object) -> str:
    """What `python -OO` prints, without a traceback."""
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        env={**os.environ, "PYTHONOPTIMIZE": "2"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_help_texts_are_there_without_docstrings(capsys):
    exec(TEXTS, {})
    assert optimized("-c", TEXTS) == capsys.readouterr().out


def test_a_run_without_docstrings_and_assertions_is_the_same(near, finished, tmp_path):
    out = tmp_path / "run"
    words = ("run", near, "--max-iterations", 3, "--out", out, "--quiet")
    optimized("-m", "costada.cli.entry", *words)
    for name in ("steps.jsonl", "best_program.py"):
        assert (out / name).read_text() == (finished / name).read_text()

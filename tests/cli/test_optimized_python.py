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


RUN = """
import sys

sys.exit(CliRunner().invoke(app, sys.argv[1:]).exit_code)
"""


def test_help_texts_and_runs_are_the_same_without_docstrings_and_assertions(
    near, finished, tmp_path, capsys
):
    exec(TEXTS, {})
    out = tmp_path / "run"
    words = ("run", near, "--max-iterations", 3, "--out", out, "--quiet")
    done = subprocess.run(
        [sys.executable, "-c", TEXTS + RUN, *map(str, words)],
        env={**os.environ, "PYTHONOPTIMIZE": "2"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, capsys.readouterr().out), done.stderr
    for name in ("steps.jsonl", "best_program.py"):
        assert (out / name).read_text() == (finished / name).read_text()

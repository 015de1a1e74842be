"""The generating model with tools in a repository: it looks at files, and runs tests."""

import json
import os
import signal
import subprocess
import sys

import pytest
from agent_answers import calling, tool_results
from billing_server import Reply, Silence
from made_repositories import make_repository, problem_of
from toy_graph import billed, calls_of, client, discovery, spent_by
from waiting import within

from costada.store.run_store import RunStore

pytestmark = pytest.mark.process

FILES = {
    "bench.py": "from solver import answer\n\nprint(answer())\n",
    "src/solver.py": "def answer():\n    return 0.5\n",
    "tests/test_solver.py": "import time, solver\nprint(time.time_ns())\nassert solver.answer()<1",
}
TEST = 'test = "python tests/test_solver.py"\n'


def changed(value: float) -> str:
    return f"FILE: src/solver.py\n```python\ndef answer():\n    return {value}\n```\n"


@pytest.fixture
def problem(tmp_path):
    repository = make_repository(tmp_path / "repository", FILES)
    return problem_of(repository, tmp_path / "problem", settings=TEST)


def graph_on(server, problem, store=None, **options):
    return discovery(
        client(server), problem=problem, iterations=1, store=store, generator="agent", **options
    )


def test_it_looks_tests_and_submits_its_draft(server, problem):
    store = RunStore()
    server.script(
        calling("outline", path="src/solver.py"),
        calling("grep", pattern="answer", glob="tests/*"),
        calling("run_tests", changes=changed(2)),
        calling("run_tests", changes=changed(0.75)),
        calling("read", path="src/solver.py", lines="2", base="draft.2"),
        calling("submit", candidate="draft.2"),
    )
    result = graph_on(server, problem, store).invoke({})
    outline, found, failing, passing, line = tool_results(server.requests[-1])
    assert outline.startswith("1-2: def answer\n")
    assert found.startswith("tests/test_solver.py:3: assert solver.answer()<1\n")
    assert failing.startswith("Draft draft.1\n\ntest: exit status 1\n")
    assert "AssertionError" in failing
    assert passing.startswith("Draft draft.2\n\ntest: exit status 0\n")
    assert line.startswith("src/solver.py, lines 2-2 of 2:\n2:     return 0.75\n")
    assert result["best_score"] == 0.75
    assert spent_by(store) == billed(server)
    assert [call.attempt for call in calls_of(store)] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("call", "reply"),
    [
        (calling("read"), "read needs the argument 'path'"),
        (calling("read", path="nowhere.py"), "There is no file 'nowhere.py'"),
        (calling("read", path="bench.py", base="7"), "There is no program '7'"),
        (calling("run_tests", tests="--pdb"), "tests has the option '--pdb'"),
        (calling("run_tests", changes="no"), "holds no change of a file"),
        (calling("grep", pattern="[", glob="*"), "expected a regular expression"),
    ],
)
def test_what_is_wrong_with_a_call_is_an_answer(server, problem, call, reply):
    server.script(call, Reply(changed(0.75)))
    result = graph_on(server, problem).invoke({})
    assert reply in tool_results(server.requests[-1])[0]
    assert result["best_score"] == 0.75


def test_without_a_test_command_no_tests_can_be_run(server, tmp_path):
    repository = make_repository(tmp_path / "repository", FILES)
    server.script(calling("run_tests"), Reply(changed(0.75)))
    graph_on(server, problem_of(repository, tmp_path / "problem")).invoke({})
    assert "There is no tool 'run_tests'" in tool_results(server.requests[-1])[0]
    assert "run_tests" not in json.dumps(server.requests[0])


def test_a_step_ends_at_its_cap(server, problem):
    store = RunStore()
    server.default = calling("read", path="bench.py")
    graph_on(server, problem, store, step_cap=0.0005).invoke({})
    # 100 input tokens at 1 dollar and 50 output tokens at 2 dollars per million: 0.0002 each
    assert len(server.requests) == 3
    assert spent_by(store) == billed(server)


def test_the_time_of_tests_is_charged(server, problem):
    store = RunStore()
    server.script(calling("run_tests"), Reply(changed(0.75)))
    graph_on(server, problem, store, compute_price=3.6).invoke({})
    charged = [call for call in calls_of(store) if call.role == "compute" and call.ticket > 0]
    assert len(charged) == 2  # the tests, and the evaluation
    assert all(call.cost > 0 for call in charged)


RUNNER = """
import sys
from costada import Price, discover
from costada.models.chat_models import chat_model

url, folder, out, *resumes = sys.argv[1:]
model = chat_model("openai:stand-in", base_url=url, retry_wait=0)
found = discover(
    folder, model, budget=1.0, price=Price("1", "2"), max_iterations=1, generator="agent",
    guides="never", out=out, resume=bool(resumes),
)
print(found.best_score)
"""


def test_a_killed_run_repeats_neither_tests_nor_calls(server, problem, tmp_path, monkeypatch):
    """It is killed while the second request waits, which holds the time that the tests printed."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    server.script(calling("run_tests", changes=changed(0.75)), Silence())
    words = [sys.executable, "-c", RUNNER, server.url, tmp_path / "problem", tmp_path / "run"]
    with subprocess.Popen(words) as process:
        within(60, lambda: len(server.requests) == 2)
        os.kill(process.pid, signal.SIGKILL)
    server.script(calling("submit", candidate="draft.1"))
    done = subprocess.run([*words, "resume"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0.75"
    first, before, after = server.requests
    assert tool_results(first) == []
    assert tool_results(before) == tool_results(after)
    assert tool_results(after)[0].startswith("Draft draft.1\n\ntest: exit status 0\n1")

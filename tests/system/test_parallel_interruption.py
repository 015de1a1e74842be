"""Signals while eight calls are in flight: the first lets them finish, the second leaves them."""

import json
import os
import signal
import time
from collections import Counter
from itertools import count
from threading import Lock

import pytest
from begun_commands import BegunCommand
from billing_server import BillingServer, Reply, Silence
from fakes import ScriptedModel, hashed_answer, toy_problem
from langgraph.runtime import RunControl

from costada.reports.progress import Progress
from costada.runs.config import RunConfig
from costada.runs.folder import RunFolder
from costada.runs.interruption import STOPPING, draining_on_signal
from costada.runs.plan import plan_run
from costada.runs.runner import execute_run
from costada.runs.search_request import SearchRequest
from costada.store.rows import CallStatus
from costada.store.run_store import RunStore

pytestmark = pytest.mark.process

PARALLEL, ITERATIONS = 8, 40
CONFIG = RunConfig(
    problem="object:toy",
    model="object:ScriptedModel",
    price="1,2",
    budget=1.0,
    max_iterations=ITERATIONS,
    parallel=PARALLEL,
)
PROGRAM = "# EVOLVE-BLOCK-START\ndef value():\n    return {}\n# EVOLVE-BLOCK-END\n"


def calls_in(folder):
    with RunStore(folder / "run.sqlite", is_read_only=True) as store:
        return list(store.call_log.calls(store.run_ids()[-1]))


def steps_in(folder):
    return [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]


class SignalledModel:
    """A model whose twelfth call sends a signal to its process, and goes on after its notice.

    Attributes:
        num_begun: How many calls have begun.
        num_ended: How many have ended.
        most: How many had begun at the notice, and might have been launched before it.
    """

    def __init__(self, number, notices):
        self._number, self._notices = number, notices
        self._numbers, self._lock = count(1), Lock()
        self.num_begun, self.num_ended, self.most = 0, 0, 0

    def __call__(self, prompt):
        with self._lock:
            number = next(self._numbers)
            self.num_begun += 1
        time.sleep(0.05 + 0.01 * (number % 7))
        if number == 12:
            os.kill(os.getpid(), self._number)
            while not self._notices:
                time.sleep(0.001)
            with self._lock:
                in_flight = self.num_begun - self.num_ended
                self.most = self.num_begun + PARALLEL - in_flight
            time.sleep(0.2)
        with self._lock:
            self.num_ended += 1
        return hashed_answer(prompt)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_stops_launching_and_what_is_in_flight_is_finished(tmp_path, number):
    folder, notices = RunFolder(tmp_path / "run"), []
    model = SignalledModel(number, notices)

    def go():
        control = RunControl()
        scripted = ScriptedModel(answer=model)
        plan = plan_run(SearchRequest(CONFIG, problem=toy_problem(), model=scripted))
        if not folder.settings.exists():
            folder.claim(CONFIG)
        with draining_on_signal(control, notices.append, ""):
            return execute_run(plan, folder, Progress(), control)

    assert go().stop_reason == "interrupted"
    assert notices == [STOPPING]
    assert 12 <= model.num_begun == model.num_ended <= model.most
    calls = calls_in(folder.path)
    assert [call.status for call in calls] == [CallStatus.DONE] * model.num_ended
    assert len(steps_in(folder.path)) < ITERATIONS

    assert go().stop_reason == "iterations"
    calls = calls_in(folder.path)
    assert [call.status for call in calls] == [CallStatus.DONE] * model.num_ended
    keys = Counter((call.ticket, call.role, call.attempt) for call in calls)
    assert max(keys.values()) == 1
    assert sorted(step["ticket"] for step in steps_in(folder.path)) == list(
        range(1, ITERATIONS + 1)
    )


@pytest.fixture
def server(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with BillingServer() as running:
        yield running


def test_lost_requests_that_used_up_the_budget_end_the_run_without_a_failure(
    near, invoke, server, tmp_path
):
    server.default = Silence(is_billed=True)
    out = tmp_path / "run"
    provider = ["--model", "openai:stand-in", "--base-url", server.url, "--no-gateway"]
    money = ["--price", "1,2", "--max-tokens", 2000, "--budget", 0.005]
    limits = ["--parallel", 2, "--out", out]
    command = BegunCommand(tmp_path / "output", "run", near, *provider, *money, *limits)
    while len(server.requests) < 2:
        time.sleep(0.01)
    command.send_signal(signal.SIGKILL)
    command.exit_code(within=20)

    result = invoke("resume", out)
    assert result.exit_code == 0, result.output
    assert "the budget is used up" in result.output
    assert "the bill of" in result.output
    assert len(server.requests) == 2


def test_a_second_signal_leaves_the_calls_in_flight_flagged_and_they_count(
    near, invoke, server, tmp_path
):
    numbers = count(1)

    def good(body):
        value = next(numbers) / 1000
        return Reply(f"```python\n{PROGRAM.format(value)}```", input_tokens=700, output_tokens=300)

    def answer(body):
        return good(body) if len(server.requests) <= 4 else Silence(is_billed=True)

    server.default = answer
    out = tmp_path / "run"
    provider = ["--model", "openai:stand-in", "--base-url", server.url, "--no-gateway"]
    money = ["--price", "1,2", "--max-tokens", 2000]
    limits = ["--max-iterations", 16, "--parallel", PARALLEL, "--out", out]
    command = BegunCommand(tmp_path / "output", "run", near, *provider, *money, *limits)
    while len(server.requests) < 4 + PARALLEL:
        time.sleep(0.01)
    command.send_signal(signal.SIGINT)
    command.wait_for(STOPPING)
    assert command.exit_code(within=0.5) is None
    command.send_signal(signal.SIGINT)
    assert command.exit_code() == 130, command.said
    left = [call.status for call in calls_in(out)]
    assert Counter(left) == {CallStatus.DONE: 4, CallStatus.STARTED: PARALLEL}

    server.default = good
    assert invoke("resume", out).exit_code == 0
    calls = calls_in(out)
    lost = [call for call in calls if call.status is CallStatus.LOST]
    done = [call for call in calls if call.status is CallStatus.DONE]
    assert len(lost) == PARALLEL
    assert all(call.bound > call.cost == 0 for call in lost)
    assert len(done) + len(lost) == len(server.requests)
    assert len(steps_in(out)) == 16
    billed = sum(entry.input_tokens + 2 * entry.output_tokens for entry in server.bill) / 1e6
    assert steps_in(out)[-1]["spent"] >= billed

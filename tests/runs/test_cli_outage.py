"""The command line when a provider does not answer, or not as one."""

import json
import signal
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from begun_commands import BegunCommand
from billing_server import BillingServer, Drip, HangUp, Page, Refusal, Reply

Invoke = Callable[..., Any]
PROGRAM = "# EVOLVE-BLOCK-START\ndef value():\n    return {}\n# EVOLVE-BLOCK-END\n"
VALUES = count(1)


def good(body):
    return Reply(f"```python\n{PROGRAM.format(next(VALUES) / 1000)}```")


DOUBT = 0.064
"""Dollars that one unanswered request may have cost: 32,000 tokens at $2 a million."""


@pytest.fixture
def server(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with BillingServer(default=good) as running:
        yield running


def words(near, server, out, *more):
    provider = ["--model", "openai:stand-in", "--base-url", server.url]
    prices = ["--price-in", 1, "--price-out", 2, "--retry-wait", 0.01]
    return ["run", near, *provider, *prices, "--out", out, *more]


@pytest.mark.parametrize(
    ("answer", "requests", "reason"),
    [
        (Page(), 1, "check the model's name and base_url"),
        (HangUp(), 3, "none of the 3 requests so far was answered usably"),
        (Refusal(429, code="insufficient_quota"), 1, "is used up: add credit"),
        (Refusal(429, headers={"Retry-After": "3600"}), 1, "asks to wait 3600 s"),
    ],
    ids=str,
)
def test_a_run_that_gets_no_usable_answer_fails_at_once_with_the_reason(
    invoke, near, server, tmp_path, answer, requests, reason
):
    server.default = answer
    ended = invoke(*words(near, server, tmp_path / "run", "--budget", DOUBT))
    assert ended.exit_code == 1
    assert reason in ended.stderr
    assert f"Resume with: costada resume {tmp_path / 'run'}" in ended.stderr
    assert len(server.requests) == requests


@pytest.mark.parametrize("is_quiet", [False, True])
def test_a_run_waits_for_its_provider_and_says_so(invoke, near, server, tmp_path, is_quiet, capfd):
    server.script(good, *[Refusal(503, "down for repair")] * 6)
    quiet = ["--quiet"] if is_quiet else []
    ended = invoke(*words(near, server, tmp_path / "run", "--max-iterations", 3, *quiet))
    assert ended.exit_code == 0, ended.output
    said = ended.stderr + capfd.readouterr().err
    assert said.count("Paused: the provider does not answer (") == 4
    assert "down for repair" in said
    assert said.count("The provider answers again after 0 s; the run continues") == 1
    assert "Finished after 3 iterations: the iteration limit is reached" in ended.stdout


def test_ctrl_c_ends_a_paused_run_saved_and_it_is_resumed(invoke, near, server, tmp_path):
    server.script(good)
    server.default = Refusal(503, "down")
    out = tmp_path / "run"
    waits = ("--max-iterations", 3, "--longest-wait", 600, "--longest-pause", 600)
    given = [*words(near, server, out, *waits)]
    given[given.index("--retry-wait") + 1] = 0.4
    command = BegunCommand(tmp_path / "output", *given)
    command.wait_for("Paused")
    command.send_signal(signal.SIGINT)
    assert command.exit_code() == 130, command.said
    assert f"Resume with: costada resume {out}" in command.said
    server.default = good
    assert invoke("resume", out).exit_code == 0
    steps = [json.loads(line) for line in (out / "steps.jsonl").read_text().splitlines()]
    assert [step["attempts"] for step in steps] == [1, 1, 1]


def test_a_pause_has_an_end_after_which_the_run_has_failed_saved(invoke, near, server, tmp_path):
    server.script(good)
    server.default = Refusal(503, "down")
    given = words(near, server, tmp_path / "run", "--max-iterations", 2, "--longest-pause", 0.2)
    ended = invoke(*given)
    assert ended.exit_code == 1
    assert "has not answered for longest_pause (0.2 s)" in ended.stderr
    server.default = good
    assert invoke("resume", tmp_path / "run").exit_code == 0


@pytest.mark.parametrize("gateway", [[], ["--gateway"]], ids=["direct", "gateway"])
def test_a_body_that_drips_ends_with_the_call_and_so_does_its_connection(
    invoke, near, server, tmp_path, gateway
):
    drip = Drip()
    server.default = drip
    given = words(near, server, tmp_path / "run", "--call-timeout", 0.5, *gateway)
    ended = invoke(*given)
    assert ended.exit_code == 1
    assert "none of the 3 requests so far was answered usably" in ended.stderr
    assert drip.was_hung_up.wait(20)
    assert len(server.requests) == 3

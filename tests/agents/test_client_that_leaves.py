"""A client of `costada mcp` that leaves while a call takes longer than the server waits."""

import json
import subprocess
import sys
import time
from pathlib import Path
from threading import Event

import pytest
from billing_server import BillingServer, Reply
from fakes import rewrite, toy_folder

from costada.cli.mcp_command import SAVE_SECONDS
from costada.runs.folder import RunFolder
from costada.store.rows import CallStatus
from costada.store.run_store import RunStore

pytestmark = pytest.mark.process

COSTADA = str(Path(sys.executable).with_name("costada"))

HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


def send(server, **message):
    """Send a server a message over its standard input."""
    server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    server.stdin.flush()


def test_a_call_that_ends_after_the_wait_for_runs_is_saved_without_a_traceback(tmp_path):
    """With calls in threads of their own the ending interpreter waits for them."""
    toy, late = toy_folder(tmp_path), Event()

    def answer(body):
        number = len(provider.requests)
        if number > 2:
            late.set()
            time.sleep(SAVE_SECONDS + 1)
        return Reply(rewrite(0.2 + number / 50), input_tokens=1000, output_tokens=500)

    with BillingServer() as provider:
        provider.default = answer
        model = ["--model", "openai:stand-in", "--base-url", provider.url, "--price", "1,2"]
        offered = ["--problems", str(toy), "--out", str(tmp_path / "runs"), "--parallel", "2"]
        server = subprocess.Popen(
            [COSTADA, "mcp", "--max-budget", "1", *model, *offered],
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        send(server, id=1, method="initialize", params=HELLO)
        assert server.stdout.readline()
        send(server, method="notifications/initialized")
        order = {"name": "discover", "arguments": {"problem": "toy", "budget": 0.5}}
        send(server, id=2, method="tools/call", params=order)
        assert late.wait(60)
        _, errors = server.communicate(timeout=60)  # closes its standard input
        assert (server.returncode, "Traceback" in errors) == (0, False), errors
        billed = len(provider.bill)
    with RunStore.at(RunFolder(tmp_path / "runs" / "toy-1").database, is_read_only=True) as store:
        calls = list(store.call_log.calls(store.last_run()))
    charged = [call for call in calls if call.cost + call.bound]
    assert [call.status for call in charged] == [CallStatus.DONE] * billed
    # a connection may fail on a busy machine, and is tried again
    failed = [call for call in calls if call not in charged]
    assert {call.status for call in failed} <= {CallStatus.ERROR}, failed
    assert billed > 2

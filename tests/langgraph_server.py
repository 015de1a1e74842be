"""A real `langgraph dev` in a process of its own, and requests to it."""

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
from ports import free_port

ROOT = Path(__file__).parents[1]
CLI = Path(sys.executable).with_name("langgraph")
START_SECONDS = 120

needs_langgraph_cli = pytest.mark.skipif(
    not CLI.exists(), reason="langgraph is not installed: pip install 'langgraph-cli[inmem]'"
)


@contextmanager
def served(folder, config=ROOT / "langgraph.json", at_once=10, **environment):
    """Serve the graphs of a configuration from a folder of the test's own; yields the address.

    So many runs are executed at once.
    """
    with server_of(folder, config, at_once, **environment) as (_, address):
        yield address


@contextmanager
def server_of(folder, config=ROOT / "langgraph.json", at_once=10, **environment):
    """Do what `served` does, and yield the process too, which a test may kill."""
    port = free_port()
    options = ["--no-browser", "--no-reload", "--n-jobs-per-worker", str(at_once)]
    with open(folder / "log", "wb") as log:
        server = subprocess.Popen(
            [CLI, "dev", *options, "--config", config, "--port", str(port)],
            cwd=folder,
            env={**os.environ, **environment},
            stdout=log,
            stderr=log,
        )
        try:
            address = f"http://127.0.0.1:{port}"
            _wait_for(address, server)
            yield server, address
        finally:
            server.terminate()
            server.wait(START_SECONDS)


def answer(address, path, body=None):
    """What the server answers; raises `HTTPError` for what it refuses."""
    headers = {"Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(f"{address}/{path}", data, headers), timeout=START_SECONDS) as response:
        return json.loads(response.read() or "null")


def refusal(address, path, body):
    """Why the server refuses a request, or the run that it asks for."""
    try:
        found = answer(address, path, body)
    except HTTPError as error:
        return error.read().decode()
    assert "__error__" in found, found
    return json.dumps(found)


def _wait_for(address, server):
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            return answer(address, "ok")
        except (URLError, ConnectionError):
            if server.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.1)

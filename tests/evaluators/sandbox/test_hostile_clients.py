"""Programs that misuse their channel to the real endpoint, while another one is served."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from sandbox_runs import AMPLE, LAYERS, PATIENCE_SECONDS, becomes_true, why_absent

from costada.evaluators.sandbox.candidate_runs import run_calls
from costada.evaluators.sandbox.limits import Limits
from costada.models.endpoint.exchange import ClientResponse
from costada.models.endpoint.http_server import ClientLimits, Endpoint

pytestmark = pytest.mark.process

ASK = """
import json, os, socket, urllib.request
URL = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
QUESTION = json.dumps({"model": "agent", "messages": [{"role": "user", "content": "x"}]}).encode()
HEAD = b"POST /v1/chat/completions HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: %d\\r\\n"
def ask(body=QUESTION, **headers):
    request = urllib.request.Request(URL, body, headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)["token"]
def connected():
    return socket.create_connection(("127.0.0.1", 9), timeout=60)
"""

HONEST = f"{ASK}def f(): return [ask() for _ in range(20)]"


class Served:
    """An endpoint that answers with the token, and notes who has asked."""

    def __init__(self):
        self.asked, self.known = [], {"hostile", "honest"}
        limits = ClientLimits(read_seconds=5.0)
        self.endpoint = Endpoint(self._answer, self.known.__contains__, limits)
        self.url = self.endpoint.start()

    async def _answer(self, token, request):
        self.asked.append(token)
        if len(self.asked) % 100 == 0:
            await asyncio.sleep(0)
        return ClientResponse(200, "application/json", json.dumps({"token": token}).encode())

    def run(self, source, layer, token, limits=AMPLE):
        connect = partial(self.endpoint.adopt, token=token)
        return run_calls(source, "f", [{}], limits, layer, preload=(), connect=connect)[0]


@pytest.fixture
def served():
    made = Served()
    yield made
    made.endpoint.close()


@pytest.fixture(params=LAYERS)
def each_layer(request):
    """Each layer of this machine that needs no container."""
    if reason := why_absent(request.param):
        pytest.skip(reason)
    return request.param


FLOOD = """
def f():
    line = HEAD % len(QUESTION) + b"\\r\\n" + QUESTION
    found = 0
    with connected() as one:
        for _ in range(100):
            one.sendall(line * 100)
            seen = 0
            while seen < 100:
                seen += one.recv(1 << 20).count(b"HTTP/1.1 200")
            found += seen
    return found
"""

LARGE = """
import httpx
def f():
    bodies = (b" " * 100_000_000, b" " * 20_000_000)
    return [*(httpx.post(URL, content=each, timeout=60).status_code for each in bodies), ask()]
"""

SLOW = """
def f():
    held = [connected() for _ in range(60)]
    for number, one in enumerate(held):
        one.sendall(HEAD % 100 if number % 2 else (HEAD + b"\\r\\n{") % 100)
    answers = [ask() for _ in range(5)]
    ends = [one.recv(100) for one in held]
    return [answers, len(ends)]
"""

FORGED = """
def f():
    keys = ["honest", "", "sandbox", "x" * 1000]
    shown = [ask(Authorization="Bearer " + key) for key in keys]
    return shown + [ask(**{"x-api-key": "honest", "X-Forwarded-For": "10.0.0.1"})]
"""

ATTACKS = {
    "ten thousand requests": (FLOOD, 10_000),
    "bodies of a hundred megabytes": (LARGE, [413, 413, "hostile"]),
    "half requests on sixty connections": (SLOW, [["hostile"] * 5, 60]),
    "tokens of others": (FORGED, ["hostile"] * 5),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_hostile_program_is_served_as_itself_and_keeps_no_other_waiting(served, each_layer, name):
    attack, expected = ATTACKS[name]
    with ThreadPoolExecutor(1) as pool:
        hostile = pool.submit(served.run, ASK + attack, each_layer, "hostile")
        honest = served.run(HONEST, each_layer, "honest")
        found = hostile.result()
    assert (honest.error, honest.output) == (None, ["honest"] * 20)
    assert (found.error, found.output) == (None, expected)
    assert served.asked.count("honest") == 20
    assert becomes_true(lambda: not served.endpoint._tasks)


LATE = """
def f():
    ask()
    if os.fork() == 0:
        os.setsid()
        while True:
            try:
                ask()
            except OSError:
                pass
    waiting = connected()
    waiting.sendall(HEAD % len(QUESTION) + b"\\r\\n" + QUESTION[:-1])
    globals()["kept"] = waiting
    return 1
"""


def test_nothing_of_a_program_asks_after_its_evaluation(served, each_layer):
    limits = Limits(wall_seconds=60, processes=4)
    found = served.run(ASK + LATE, each_layer, "hostile", limits)
    assert (found.error, found.output) == (None, 1)
    assert becomes_true(lambda: not served.endpoint._tasks, PATIENCE_SECONDS)
    before = served.asked.count("hostile")
    assert served.run(HONEST, each_layer, "honest").output == ["honest"] * 20
    assert served.asked.count("hostile") == before

"""Programs under test that misuse the models of a run: what they get, and what it costs."""

from decimal import Decimal

import pytest
from billing_server import BillingServer
from judged_problems import PRICES, Providers, judged_folder

from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import Layer
from costada.models.chat_models import chat_model
from costada.runs.discovery import discover
from costada.runs.folder import RunFolder
from costada.store.run_store import RunStore
from costada.values.usage import Price

pytestmark = pytest.mark.process

KEY = "sk-real-key-of-the-user"

HOSTILE = """
import glob, json, os, sys, urllib.error, urllib.request

def ask(model, text="x", key="sandbox", path="chat/completions"):
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": text}]}).encode()
    url = f"{os.environ['OPENAI_BASE_URL']}/{path}"
    request = urllib.request.Request(url, body, {"Authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(request) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code

def readable(path):
    try:
        with open(path, "rb") as file:
            return file.read(1_000_000)
    except OSError:
        return b""

def value():
    places = glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline")
    seen = b"".join(map(readable, places)) + repr((os.environ, sys.argv)).encode()
    print("keys:", seen.count(b"sk-real"))
    print("others:", {ask(name) for name in ("judge", "judge-large", "writer", "openai:writer")})
    print("paths:", {ask("agent", path=path) for path in ("../admin", "files", "batches")})
    statuses = [ask("agent", f"number {n}", key="stolen") for n in range(500)]
    print("asked:", sorted(set(statuses)), "refused:", statuses.count(402) > 300)
    # EVOLVE-BLOCK-START
    return 0.10
    # EVOLVE-BLOCK-END
"""


@pytest.fixture(params=[Layer.LANDLOCK, Layer.BUBBLEWRAP])
def sandbox(request):
    """Each layer of this machine that keeps programs from the rest of it, without containers."""
    try:
        chosen_layer(request.param)
    except ValueError as reason:
        pytest.skip(str(reason))
    return request.param


def test_a_hostile_program_gets_its_own_models_for_its_allowance_and_no_key(
    tmp_path, monkeypatch, sandbox
):
    """A request to the agent may cost some $0.00041: $0.004 pay for a few dozen of them."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    providers = Providers()
    with BillingServer(default=providers.answer) as server:
        scored = "def score(output):\n    return {'combined_score': output}\n"
        limit = "evaluation_dollars = 0.004"
        folder = judged_folder(tmp_path / "judged", server.url, scored, settings=limit)
        (folder / "initial_program.py").write_text(HOSTILE)
        price_in, price_out = PRICES["judge-small"]
        with (folder / "problem.toml").open("a") as file:
            file.write(
                "[candidate_models.agent]\nmodel = 'openai:judge-small'\n"
                f"base_url = '{server.url}'\nprice = '{price_in},{price_out}'\nmax_tokens = 1000\n"
            )
        discover(
            folder,
            chat_model("openai:writer", base_url=server.url, retry_wait=0, max_tokens=1000),
            out=tmp_path / "run",
            price=Price(*PRICES["writer"]),
            sandbox=sandbox,
            budget=0.05,
            max_iterations=1,
            timeout=120.0,
        )
        assert set(server.authorizations) == {f"Bearer {KEY}"}
    with RunStore(RunFolder(tmp_path / "run").database) as store:
        run_id = store.last_run()
        seed = store.candidates.get(run_id, "0.1")
        calls = [call for call in store.call_log.calls(run_id) if call.role == "candidate"]
    assert seed.score == 0.1
    said = seed.artifacts["log"].splitlines()
    assert said[:3] == ["keys: 0", "others: {404}", "paths: {404}"]
    assert said[3] == "asked: [200, 402] refused: True"
    spent = sum(call.cost for call in calls)
    assert spent == providers.bill["judge-small"] <= Decimal("0.004")
    assert set(providers.bill) == {"judge-small", "writer"}

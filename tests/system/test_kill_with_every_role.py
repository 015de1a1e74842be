"""Runs in which everyone asks models are killed at random: the bill is the ledger, whoever asked.

`soak.py --roles` kills such runs a hundred times.
"""

from decimal import Decimal

import pytest
from billing_server import BillingServer
from crash_runs import LATENCY, kill_often
from metered_runs import ROLES, EveryProvider, compare, metered_folder, run_metered

from costada.plugins.gateway.gateway_of_run import stop_gateways
from costada.runs.folder import RunFolder

pytestmark = pytest.mark.process

BUDGETS = {"crossing": 0.08, "hard": 0.12}


@pytest.fixture
def providers():
    return EveryProvider(LATENCY)


@pytest.fixture
def server(providers, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real-key-of-the-user")
    with BillingServer(default=providers.answer) as server:
        yield server


@pytest.fixture
def folder(tmp_path, server):
    """The folder of a run, whose gateway ends with the test."""
    metered_folder(tmp_path / "metered", server.url)
    yield tmp_path / "run"
    stop_gateways(RunFolder(tmp_path / "run"))


@pytest.mark.parametrize("policy", BUDGETS)
@pytest.mark.parametrize("gateway", [True, False], ids=["gateway", "no gateway"])
@pytest.mark.parametrize("parallel", [1, 8])
def test_the_bill_of_a_killed_run_is_its_ledger_whoever_asked(
    folder, server, providers, parallel, gateway, policy
):
    options = {"parallel": parallel, "gateway": gateway, "budget_policy": policy}
    options["budget"] = BUDGETS[policy]
    draw = 2 * parallel + gateway
    assert kill_often(folder, server, providers, draw, 3, options, run=run_metered)
    found = compare(folder, providers)
    assert found.roles >= ROLES - {"retry", "guide"}
    assert found.step_gap == found.num_repeated == 0
    if gateway:
        assert found.known == found.spent == found.bill
        assert found.num_lost == 0
    else:
        assert found.known <= found.bill <= found.spent
    if policy == "hard":
        assert found.spent <= Decimal(str(BUDGETS[policy]))

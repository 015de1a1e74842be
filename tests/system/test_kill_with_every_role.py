"""Runs in which everyone asks models are killed at random: the bill is the ledger, whoever asked.

`soak.py --roles` kills such runs a hundred times.
"""

from decimal import Decimal

import pytest
from crash_runs import LATENCY, kill_often
from metered_runs import ROLES, EveryProvider, compare, metered_folder, run_metered

from costada.plugins.gateway.gateway_of_run import stop_gateways
from costada.runs.folder import RunFolder

pytestmark = pytest.mark.process

HARD, CROSSING = {"budget_policy": "hard", "budget": 0.14}, {"budget": 0.05}
"""The hard budget leaves the $0.06 that an evaluation may cost, also after kills at the start."""


@pytest.fixture
def providers():
    return EveryProvider(LATENCY)


@pytest.fixture
def folder(tmp_path, server):
    """The folder of a run, whose gateway ends with the test."""
    metered_folder(tmp_path / "metered", server.url)
    yield tmp_path / "run"
    stop_gateways(RunFolder(tmp_path / "run"))


@pytest.mark.parametrize(
    "options",
    [
        {"parallel": 1, "gateway": True, **HARD},
        {"parallel": 1, "gateway": False, **CROSSING},
        {"parallel": 8, "gateway": True, **CROSSING},
        {"parallel": 8, "gateway": False, **HARD},
    ],
    ids=["gateway, hard", "crossing", "8 at once, gateway, crossing", "8 at once, hard"],
)
def test_the_bill_of_a_killed_run_is_its_ledger_whoever_asked(folder, server, providers, options):
    assert kill_often(folder, server, providers, 1, 2, options, run=run_metered)
    found = compare(folder, providers)
    assert found.roles >= ROLES - {"retry", "guide"}
    assert found.step_gap == found.num_repeated == 0
    if options["gateway"]:
        assert found.known == found.spent == found.bill
        assert found.num_lost == 0
    else:
        assert found.known <= found.bill <= found.spent
    if "budget_policy" in options:
        assert found.spent <= Decimal(str(options["budget"]))

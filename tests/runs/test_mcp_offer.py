"""What `costada mcp` offers: a purse that was there before, and a package that may be missing."""

import sys

from costada.agents.mcp import SearchService
from costada.runs.config import RunConfig
from costada.runs.lease import hold_lease
from costada.store.purse import Purse


def offer_over(purse, parent):
    return SearchService({}, RunConfig(problem="circle_packing"), purse, parent)


def test_money_of_runs_that_nobody_carries_on_comes_back_but_what_they_spent(tmp_path):
    path = tmp_path / "purse.sqlite"
    with Purse(1, path=path) as purse:
        (tmp_path / "dead").mkdir()
        purse.child(str(tmp_path / "dead"), 0.25).put("call", cost=0.125)
        purse.child(str(tmp_path / "removed"), 0.25).put("call", cost=0.0625)
        assert float(purse.remaining) == 0.5
    with Purse(1, path=path) as purse:
        offer_over(purse, tmp_path).reclaim()
        assert float(purse.spent) == 0.1875
        assert float(purse.remaining) == 0.8125


def test_money_of_a_run_at_work_stays_with_it(tmp_path):
    with Purse(1) as purse:
        purse.child(str(tmp_path), 0.25)
        with hold_lease(tmp_path):
            offer_over(purse, tmp_path).reclaim()
        assert float(purse.remaining) == 0.75


def test_without_its_package_the_command_says_what_to_install(invoke, monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    result = invoke("mcp", "--max-budget", 1)
    assert result.exit_code == 2
    assert 'run `pip install "costada[mcp]"`' in result.output

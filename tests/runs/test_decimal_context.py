"""A program that works with few decimal digits gets the ledger of one that does not."""

from decimal import ROUND_DOWN, localcontext

import pytest

from costada import discover
from costada.runs.folder import RunFolder
from costada.store.purse import Purse
from costada.store.run_store import RunStore

pytestmark = pytest.mark.process


def ledger(near, folder, **settings):
    purse = Purse(1, policy="hard", path=folder.with_suffix(".purse"))
    discover(near, "offline", budget=1.0, max_iterations=4, out=folder, purse=purse, **settings)
    with RunStore(RunFolder(folder).database, is_read_only=True) as store:
        (run_id,) = store.run_ids()
        calls = [(call.cost, call.bound) for call in store.call_log.calls(run_id)]
        spent = store.ledger.spent(run_id, 4)
    steps = (folder / "steps.jsonl").read_text()
    with purse:
        return calls, spent, steps, purse.spent, purse.remaining


@pytest.mark.parametrize("parallel", [1, 2])
def test_the_ledger_is_exact_in_whatever_decimal_context_the_caller_works(near, tmp_path, parallel):
    settings = {"budget_policy": "hard", "parallel": parallel, "order": "launch"}
    plain = ledger(near, tmp_path / "plain", **settings)
    with localcontext(prec=2, rounding=ROUND_DOWN):
        rounded = ledger(near, tmp_path / "rounded", **settings)
    assert rounded == plain
    calls, spent, _, paid, left = plain
    assert spent == paid == sum(cost for cost, _ in calls) == 1 - left

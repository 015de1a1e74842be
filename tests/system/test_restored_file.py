"""A run folder whose file was replaced by an older copy: what its trace shows is not forgotten."""

from decimal import Decimal
from math import inf

import pytest
from billed_runs import TimedProvider, export, reconcile
from billing_server import BillingServer
from crash_runs import PRICE_IN, PRICE_OUT, SEED, cost_of, record_of
from fakes import toy_problem
from waiting import within
from warm import PROCESSES

from costada.models.chat_models import chat_model
from costada.runs.discovery import discover
from costada.runs.folder import RunFolder
from costada.runs.resume import LOST_STEPS
from costada.store.run_copy import copy_file
from costada.values.usage import Price

pytestmark = pytest.mark.process

COPIED, KILLED, ITERATIONS = 4, 24, 28
LIMIT = 60_000
"""Tokens of an answer at most: the bound of one request is more than what twenty cost."""


@pytest.fixture
def provider():
    return TimedProvider()


@pytest.fixture
def url(provider):
    with BillingServer(default=provider.answer) as server:
        yield server.url


def run(folder, url, options):
    """Begin or resume the run in a folder, in this process, to its end."""
    return discover(
        toy_problem(),
        chat_model("openai:stand-in", base_url=url, retry_wait=0, max_tokens=LIMIT),
        out=folder,
        resume=(folder / "settings.json").exists(),
        price=Price(PRICE_IN, PRICE_OUT),
        **{"seed": SEED, "budget": 5.0, "max_iterations": ITERATIONS, "guides": "never", **options},
    )


def started(folder, url, options):
    process = PROCESSES.Process(target=run, args=(folder.path, url, options))
    process.start()
    return process


def kill_at(process, provider, number):
    """Kill a run when it waits for the answer to its next request after a number of them."""
    provider.last_answered = number
    within(60, lambda: provider.billed.total() > number)
    process.kill()
    process.join()
    provider.last_answered = inf


def put_back(folder, copy):
    for file in folder.path.glob("run.sqlite*"):
        file.unlink()
    copy_file(copy, folder.database)


@pytest.fixture
def restored(provider, url, tmp_path, request):
    """A run that was killed, with a copy of its file in place that lacks most requests."""
    folder, copy = RunFolder(tmp_path / "hex"), tmp_path / "copy.sqlite"
    provider.last_answered = COPIED
    process = started(folder, url, request.param)
    within(60, lambda: provider.billed.total() > COPIED)
    copy_file(folder.database, copy)
    kill_at(process, provider, KILLED)
    put_back(folder, copy)
    return folder, request.param


@pytest.mark.parametrize(
    "restored",
    [{"parallel": parallel, "gateway": False} for parallel in (1, 4)],
    indirect=True,
)
def test_no_bill_is_forgotten_when_an_older_file_is_restored(restored, provider, url, tmp_path):
    folder, options = restored
    bill = provider.bill
    # Neither the file nor the trace knows what was in flight at the kill.
    unseen = options["parallel"] * max(cost_of(prompt, LIMIT) for prompt, _ in provider.times)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"run\.sqlite has lost iterations \d+ to ") as told:
            run(folder.path, url, options)
        assert "--accept-loss" in str(told.value)
        assert "answers are stored" not in str(told.value)
    assert provider.bill == bill

    # Killed once more after the loss was accepted: it counts once.
    process = started(folder, url, {**options, "accept_loss": True})
    kill_at(process, provider, KILLED + 6)
    assert record_of(folder.path).bill_at_most >= provider.bill - unseen
    assert provider.bill > bill
    run(folder.path, url, options)
    record = record_of(folder.path)
    assert record.spent == record.bill_at_most >= provider.bill - unseen
    (lost,) = [each for each in record.calls if each.role == LOST_STEPS]
    in_flight = options["parallel"] * Decimal(LIMIT) * PRICE_OUT / 1_000_000
    assert 0 < lost.cost < bill

    file = tmp_path / "bill.csv"
    billed = export(file, record, provider, bills_lost=True, limit=LIMIT)
    done = reconcile(folder.path, "--bill", file)
    assert "lost, for which its bound may stand" in done.output
    settled = record_of(folder.path)
    assert settled.spent == settled.bill_at_most >= billed - unseen
    assert billed == provider.bill
    # Bounds stay of what was in flight at the copy; those of the second kill are settled.
    assert record.spent - in_flight < settled.spent < record.spent

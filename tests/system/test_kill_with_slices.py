"""Runs with slices of a purse that are killed: the slice counts until who resumes settles it."""

import json
import os
from contextlib import ExitStack, suppress
from decimal import Decimal
from math import inf
from random import Random
from time import time

import psycopg
import pytest
from billing_server import BillingServer
from crash_runs import CAP, PRICE_IN, PRICE_OUT, Provider, slow_evaluation
from fakes import toy_problem
from typer.testing import CliRunner
from waiting import within
from warm import PROCESSES

from costada.agents.paid_runs import PaidRuns
from costada.cli.main import app
from costada.models.chat_models import chat_model
from costada.nodes.calls.purse_slice import SLICE
from costada.runs.discovery import discover
from costada.runs.stored_run import run_at
from costada.store.accounts import OverBudget
from costada.store.address import shown_address
from costada.store.purse import Purse
from costada.store.run_store import RunStore
from costada.values.usage import Price

pytestmark = pytest.mark.process

PURSE, BUDGET = Decimal("0.6"), Decimal("0.25")
NUM_KILLS = 3


def opened(folder, options):
    """The purse of a run in its database, or in a file beside its folder."""
    dsn = options.get("store")
    place = {"dsn": dsn} if dsn else {"path": folder.parent / "purse.sqlite"}
    return Purse(PURSE, policy="hard", **place)


def place_of(folder, options):
    return run_at(f"{options['store']}#{folder.name}") if "store" in options else run_at(folder)


def run_with_slices(folder, url, options):
    """Begin or resume a run in this process."""
    place = place_of(folder, options)
    with opened(folder, options) as purse:
        discover(
            toy_problem(evaluate=slow_evaluation),
            chat_model("openai:stand-in", base_url=url, retry_wait=0, max_tokens=CAP),
            out=folder,
            resume=place.claimed_at is not None,
            price=Price(PRICE_IN, PRICE_OUT),
            purse=purse,
            budget_policy="hard",
            budget=float(BUDGET),
            gateway=False,
            max_iterations=24,
            **{"purse_slice": 0.04, **options},
        )


def ledger_of(folder, options):
    """Dollars of all requests of a run, at their bounds where these are unknown."""
    with RunStore.at(place_of(folder, options).database, is_read_only=True) as store:
        costs = store.ledger.step_costs(store.last_run()).values()
    return sum((cost + bound for cost, bound in costs), Decimal(0))


@pytest.mark.parametrize("place", ["file", "postgres"])
@pytest.mark.parametrize("parallel", [1, 8])
def test_the_slice_of_a_killed_run_counts_and_the_resumed_run_is_exact(
    tmp_path, request, place, parallel
):
    provider, options, rng = Provider(), {"parallel": parallel}, Random(parallel)
    if place == "postgres":
        options["store"] = shown_address(request.getfixturevalue("postgres_address"))
    folder = tmp_path / "run"
    with BillingServer(default=provider.answer) as server:
        given = (folder, server.url, options)
        for _ in range(NUM_KILLS):
            wanted = provider.billed.total() + rng.randint(1, 2 + parallel)
            provider.last_answered = wanted + 2  # so that it does not end before
            process = PROCESSES.Process(target=run_with_slices, args=given)
            process.start()
            within(60, lambda wanted=wanted: provider.billed.total() >= wanted)
            process.join(rng.uniform(0, 0.05))
            process.kill()
            process.join()
            with opened(folder, options) as purse:
                assert provider.bill <= purse.spent <= BUDGET
                assert [each.bound for each in purse.calls() if each.key == SLICE] > [0]
        provider.last_answered = inf
        run_with_slices(*given)
    with opened(folder, options) as purse:
        assert provider.bill <= purse.spent == ledger_of(folder, options)
        assert purse.remaining == PURSE - purse.spent


def run_of_server(folder, url, options):
    with Purse(PURSE, path=folder.parent / "purse.sqlite") as purse:
        discover(
            toy_problem(evaluate=slow_evaluation),
            chat_model("openai:stand-in", base_url=url, retry_wait=0, max_tokens=CAP),
            out=folder,
            price=Price(PRICE_IN, PRICE_OUT),
            purse=purse.child(str(folder.resolve()), BUDGET),
            budget=float(BUDGET),
            gateway=False,
            **options,
        )


@pytest.fixture
def killed(tmp_path):
    """The folder of a run that was killed with a slice of an account with the folder's name."""
    provider, folder = Provider(last_answered=4), tmp_path / "run"
    with BillingServer(default=provider.answer) as server:
        given = (folder, server.url, {"purse_slice": 0.1})
        process = PROCESSES.Process(target=run_of_server, args=given)
        process.start()
        within(60, lambda: provider.billed.total() > 4)
        process.kill()
        process.join()
        provider.last_answered = inf
        yield folder


def test_a_server_that_returns_the_money_of_a_killed_run_settles_its_slice(killed):
    with Purse(PURSE, path=killed.parent / "purse.sqlite") as purse:
        assert purse.spent > ledger_of(killed, {}) > 0
        PaidRuns(purse, killed.parent, None, "", lambda _: None).reclaim()
        assert purse.spent == ledger_of(killed, {})
        assert purse.remaining == PURSE - purse.spent


def test_what_the_file_of_a_killed_run_has_lost_stays_reserved_until_it_is_resumed(killed):
    row = {"iteration": 99, "spent": 0.2}
    (killed / "steps.jsonl").write_text(f"{json.dumps(row)}\n")
    with Purse(PURSE, path=killed.parent / "purse.sqlite") as purse:
        before = purse.spent
        PaidRuns(purse, killed.parent, None, "", lambda _: None).reclaim()
        assert purse.spent == before


def test_a_bill_settles_the_slice_of_a_killed_run_as_well(killed):
    bill = killed.parent / "bill.csv"
    bill.write_text(
        "generation_id,created_at,cost_total,tokens_prompt,tokens_completion,model_permaslug\n"
        "gen-1,1000,0.1,1,1,stand-in\n"
    )
    now = time()
    os.utime(bill, (now + 7200,) * 2)
    span = ("--since", f"{now - 3600:.0f}", "--until", f"{now + 7200:.0f}")
    purse = f"{killed.parent / 'purse.sqlite'}#purse"
    words = ["reconcile", str(killed), "--bill", str(bill), "--purse", purse, *span]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    with Purse(PURSE, path=killed.parent / "purse.sqlite") as opened:
        assert opened.spent == ledger_of(killed, {})


def spend(folder, url, options):
    with suppress(OverBudget):
        run_with_slices(folder, url, options)


SNAPSHOT = """
SELECT budget::numeric, spent::numeric, committed::numeric FROM costada.costada_account
"""


def test_processes_that_are_killed_and_replaced_never_overdraw_a_hard_purse(
    tmp_path, postgres_address
):
    """Five runs ask a purse that has enough for two; all processes are killed once."""
    provider = Provider()
    options = {"store": shown_address(postgres_address), "parallel": 4}
    folders = [tmp_path / f"run-{number}" for number in range(5)]

    def started(folder, seed):
        given = (folder, server.url, {**options, "seed": seed})
        process = PROCESSES.Process(target=spend, args=given)
        process.start()
        return process

    def look():
        rows = connection.execute(SNAPSHOT).fetchall()
        assert all(spent <= committed <= budget for budget, spent, committed in rows)
        return rows

    with ExitStack() as stack:
        server = stack.enter_context(BillingServer(default=provider.answer))
        with Purse(PURSE, policy="hard", dsn=postgres_address):
            pass
        connection = stack.enter_context(psycopg.connect(postgres_address, autocommit=True))
        running = [started(folder, seed) for seed, folder in enumerate(folders)]
        within(120, lambda: look() and provider.billed.total() >= 24)
        for each in running:
            each.kill()
            each.join()
        look()
        running = [started(folder, seed) for seed, folder in enumerate(folders)]
        within(120, lambda: look() and not any(each.is_alive() for each in running))
        assert provider.bill <= PURSE
        ((spent,),) = connection.execute(
            "SELECT spent::numeric FROM costada.costada_account WHERE parent = 0"
        ).fetchall()
        ledger = "SELECT sum(cost::numeric + bound::numeric) FROM costada.costada_call"
        ((known,),) = connection.execute(ledger).fetchall()
        assert provider.bill <= known == spent <= PURSE

"""Runs over several models that are killed at random instants and resumed."""

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest
from billing_server import BillingServer, Refusal, Reply
from crash_runs import Provider, kill_often, record_of, slow_evaluation
from fakes import toy_problem
from menu_provider import CAP, DOLLARS, answer

from costada.models.chat_models import chat_model
from costada.models.menu import MenuModel
from costada.runs.discovery import discover
from costada.store.rows import CallStatus
from costada.values.usage import Price

pytestmark = pytest.mark.process

NUM_KILLS = 3
IN_ORDER = {"lost_calls": "ignore", "order": "launch"}
"""Two runs can be compared: calls land as they were launched, and lost ones cost nothing."""


class MenuProvider(Provider):
    """Answers by prompt and model, sums the bill itself, and has one answer of the model `dead`."""

    of_dead: Reply | Refusal = Refusal(402)

    def answer(self, body) -> Reply | Refusal:
        if body["model"] == "dead":
            self.take_time(self.billed.total())
            return self.of_dead
        reply = answer(body)
        with self._lock:
            self.billed[f"{body['model']} {body['messages'][-1]['content']}"] += 1
            tokens = reply.input_tokens + 4 * reply.output_tokens
            self.bill += DOLLARS[body["model"]] * tokens / 1_000_000
            number = self.billed.total()
        self.take_time(number)
        return reply


def run_menu(folder: Path, url: str, options: dict[str, object]) -> None:
    """Start or resume a run over four models, one of which refuses, in this process."""
    names = ("dead", *DOLLARS)
    given = {"base_url": url, "retry_wait": 0, "max_tokens": CAP}
    discover(
        toy_problem(evaluate=slow_evaluation),
        models=[
            MenuModel(name, chat_model(f"openai:{name}", **given), price_of(name)) for name in names
        ],
        out=folder,
        resume=(folder / "settings.json").exists(),
        **{"seed": 2, "budget": 0.2, "max_iterations": 18, **options},
    )


def price_of(name: str) -> Price:
    dollars = DOLLARS.get(name, Decimal("0.01"))
    return Price(str(dollars), str(4 * dollars))


@pytest.fixture
def provided():
    """A billing server that answers for a provider, and the provider."""
    provider = MenuProvider()
    with BillingServer(default=provider.answer) as server:
        yield server, provider


OPTIONS = {
    "alone": {},
    "tools": {"generator": "agent", "max_iterations": 9},
    "in flight": {"parallel": 4, "gateway": False},
}


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_killed_run_over_several_models_ends_as_an_uninterrupted_one(tmp_path, provided, kind):
    server, provider = provided
    options = {**IN_ORDER, **OPTIONS[kind]}
    run_menu(tmp_path / "whole", server.url, options)
    bill_of_whole = provider.bill
    provider.forget()
    hits = kill_often(tmp_path / "killed", server, provider, 1, NUM_KILLS, options, run_menu)
    whole, killed = record_of(tmp_path / "whole", ()), record_of(tmp_path / "killed", ())
    assert hits >= NUM_KILLS // 2
    assert killed.result == whole.result
    assert killed.spent == bill_of_whole == sum(call.cost for call in killed.done)
    assert [row["name"] for row in last_row(killed)["router"] if row["is_disabled"]] == ["dead"]
    keys = Counter((call.ticket, call.role, call.attempt) for call in killed.done)
    assert max(keys.values()) == 1


def test_a_killed_run_disables_a_model_without_token_counts_as_an_uninterrupted_one(
    tmp_path, provided
):
    server, provider = provided
    provider.of_dead = Reply("no program", reports_usage=False)
    run_menu(tmp_path / "whole", server.url, IN_ORDER)
    provider.forget()
    hits = kill_often(tmp_path / "killed", server, provider, 1, NUM_KILLS, IN_ORDER, run_menu)
    whole, killed = record_of(tmp_path / "whole", ()), record_of(tmp_path / "killed", ())
    assert hits >= NUM_KILLS // 2
    assert (killed.result, killed.spent) == (whole.result, whole.spent)
    assert [row["name"] for row in last_row(killed)["router"] if row["is_disabled"]] == ["dead"]
    for record in (whole, killed):
        uncounted = [call for call in record.calls if call.status is CallStatus.UNCOUNTED]
        assert [call.entry for call in uncounted] == ["dead"]


@pytest.mark.parametrize("parallel", [1, 4])
def test_the_router_is_told_of_lost_calls_what_the_ledger_says(tmp_path, provided, parallel):
    options = {"parallel": parallel, "gateway": False}
    kill_often(tmp_path, *provided, 3, NUM_KILLS, options, run_menu)
    record = record_of(tmp_path, ())
    attempts: dict[str, Decimal] = dict.fromkeys(("dead", *DOLLARS), Decimal(0))
    for call in record.calls:
        if call.role != "guide":
            attempts[call.entry] += call.cost + call.bound
    assert record.lost
    assert record.spent == record.bill_at_most >= provided[1].bill
    told = {row["name"]: row["dollars"] for row in last_row(record)["router"]}
    assert told == {name: float(cost) for name, cost in attempts.items()}


def last_row(record):
    return json.loads(record.steps.splitlines()[-1])

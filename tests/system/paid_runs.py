"""Runs in a database that a purse there pays for, and what their ledger has."""

from decimal import Decimal

import psycopg
from crash_runs import CAP, PRICE_IN, PRICE_OUT, SEED
from fakes import toy_problem

from costada.models.chat_models import chat_model
from costada.runs.discovery import discover
from costada.store.purse import Purse
from costada.values.usage import Price

PURSE = 1000


def run_paid(folder, url, database, **options):
    """Begin or resume a run in this process; what it has found.

    It is kept in the database of its purse, and with `store=None` in its folder.
    """
    with Purse(PURSE, dsn=database) as purse:
        return discover(
            toy_problem(),
            chat_model("openai:stand-in", base_url=url, retry_wait=0, max_tokens=CAP),
            out=folder,
            purse=purse,
            price=Price(PRICE_IN, PRICE_OUT),
            seed=SEED,
            **{"budget": 5.0, "store": database, **options},
        )


def spent_from(database):
    """Dollars that the purse of a database has paid."""
    with Purse(PURSE, dsn=database) as purse:
        return purse.spent


def ledger_in(database):
    """Dollars of all requests that a database knows, and their roles."""
    with psycopg.connect(database) as connection:
        rows = "SELECT cost, bound, role FROM costada.costada_call"
        calls = connection.execute(rows).fetchall()
    ledger = sum(Decimal(cost) + Decimal(bound) for cost, bound, _ in calls)
    return ledger, [role for *_, role in calls]

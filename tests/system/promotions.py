"""Promote a standby again and again in the middle of one run, and compare its ledger with the bill.

.ci/postgres python tests/system/promotions.py [--promotions 100] [--parallel 8] [--seed 0]

Each time the server is killed, and its standby takes over. With an asynchronous one, half of them
have missed what was written since a random instant. The killed server becomes the next standby.
With a synchronous standby or a gateway, the ledger must be equal to the bill at the end.
"""

import argparse
import os
import sys
import tempfile
from decimal import Decimal
from pathlib import Path
from random import Random
from time import sleep

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import psycopg  # noqa: E402
from billing_server import BillingServer  # noqa: E402
from crash_runs import Provider  # noqa: E402
from paid_runs import ledger_in, run_paid, spent_from  # noqa: E402
from postgres_server import Server, placed_server, started_server  # noqa: E402
from test_promoted_standby import address_of_both  # noqa: E402
from waiting import within  # noqa: E402
from warm import PROCESSES  # noqa: E402

from costada.runs.resume import LOST_STEPS  # noqa: E402

LONGEST_LAG = 1.0
REQUESTS = 10
"""Answers that a run gets after each promotion, at least."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--promotions", type=int, default=100)
    parser.add_argument("--parallel", type=int, default=8, help="calls in flight", metavar="K")
    parser.add_argument("--seed", type=int, default=0, help="of the instants")
    parser.add_argument("--synchronous", action="store_true", help="commits wait for the standby")
    parser.add_argument("--gateway", action="store_true", help="with a gateway, in launch order")
    given = parser.parse_args()
    random, provider = Random(given.seed), Provider()
    print("promotions  behind  requests  lost writes      bill    ledger  purse", flush=True)
    with (
        tempfile.TemporaryDirectory() as work,
        BillingServer(default=provider.answer) as billing,
        started_server() as primary,
        placed_server() as standby,
    ):
        if given.synchronous:
            primary.wait_for_standbys()  # first: a standby copies this setting
        standby.begin_as_standby_of(primary)
        database = address_of_both(primary, standby)
        words = Path(work, "run"), billing.url, database
        own = {"parallel": given.parallel, "gateway": given.gateway, "budget": 500.0}
        if given.gateway:
            own["order"] = "launch"
        own["max_iterations"] = 1_000_000
        process = PROCESSES.Process(target=run_paid, args=words, kwargs=own, daemon=True)
        process.start()
        num_behind = 0
        for number in range(1, 1 + given.promotions):
            answered = provider.billed.total()
            within(300, lambda least=answered + REQUESTS: has_answered(provider, process, least))
            compare(primary, provider, database, number - 1, num_behind)
            is_behind = not given.synchronous and random.random() < 0.5
            num_behind += is_behind
            promote(primary, standby, random, is_behind=is_behind)
            primary, standby = standby, primary
        answered = provider.billed.total()
        within(300, lambda: has_answered(provider, process, answered + REQUESTS))
        compare(primary, provider, database, given.promotions, num_behind)
        if given.synchronous or given.gateway:
            check_exact(primary, provider)
        process.kill()


def check_exact(server: Server, provider: Provider) -> None:
    """Wait until all requests but those in flight are settled at what was billed for them."""
    last = provider.billed.total() + 2 * REQUESTS  # none after these has been answered yet
    provider.last_answered = last
    within(60, lambda: provider.billed.total() >= last)
    billed = provider.bills[last - 1]
    within(60, lambda: settled_in(server.address) == billed)
    print(f"all {last} answers are on the ledger at the bill: ${billed}")


def settled_in(database: str) -> Decimal:
    with psycopg.connect(database) as connection:
        calls = connection.execute("SELECT cost FROM costada.costada_call").fetchall()
    return sum((Decimal(cost) for (cost,) in calls), Decimal(0))


def has_answered(provider: Provider, process: object, least: int) -> bool:
    """Whether so many requests were answered; raises if the run has ended."""
    if process.exitcode is not None:
        sys.exit(f"the run has ended with code {process.exitcode}")
    return provider.billed.total() >= least


def promote(primary: Server, standby: Server, random: Random, *, is_behind: bool) -> None:
    """Kill a server, let its standby take over, and make it the standby of that one."""
    if is_behind:
        standby.control("stop")
        sleep(random.random() * LONGEST_LAG)
    else:
        within(60, lambda: has_caught_up(primary))
    primary.control("stop", "--mode=immediate")
    if is_behind:
        standby.control("start")
    standby.control("promote")
    primary.begin_as_standby_of(standby)


def has_caught_up(primary: Server) -> bool:
    query = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn = pg_current_wal_lsn()"
    with psycopg.connect(primary.address) as connection:
        return connection.execute(query).fetchone() == (1,)


def compare(
    server: Server, provider: Provider, database: str, promotions: int, num_behind: int
) -> None:
    """Print what was billed and what the ledger and the purse count; ends where that is less."""
    bill: Decimal = provider.bill  # first: the ledger grows before the bill does
    ledger, roles = ledger_in(server.address)
    spent = spent_from(database)
    lost = roles.count(LOST_STEPS)
    line = f"{promotions:10}  {num_behind:6}  {provider.billed.total():8}  {lost:11}"
    print(f"{line}  {bill:8.4f}  {ledger:8.4f}  {spent:.4f}", flush=True)
    if ledger < bill:
        sys.exit("the ledger has less than the bill")


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", os.pathsep.join(sys.path[:2]))
    main()

"""32 clients in eight processes empty one purse while some are killed; `bench/purse.py` does it."""

import os
import subprocess
import sys
from decimal import Decimal

import psycopg
import pytest

pytestmark = pytest.mark.process

DRAWS, KILLS = 1_500, 5
"""10,000 and 12 in `bench/purse.py` without arguments, which takes too long here."""

BOUND = Decimal("0.003")
BUDGET = DRAWS * Decimal("0.0021") + KILLS * 4 * BOUND

AUDIT = """
SELECT count(*), sum(dollars), sum(bound) FILTER (WHERE cost = 0), max(so_far),
    (SELECT spent::numeric FROM costada_account WHERE parent = 0)
FROM (
    SELECT cost::numeric, bound::numeric, cost::numeric + bound::numeric AS dollars,
        sum(cost::numeric + bound::numeric) OVER (ORDER BY rowid) AS so_far
    FROM costada_entry
) AS entry
"""


def emptied(address):
    command = [sys.executable, "bench/purse.py", "--draws", DRAWS, "--kills", KILLS, "--keep"]
    return subprocess.run(
        [*map(str, command), "--clients"],
        env={**os.environ, "COSTADA_POSTGRES": address},
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_clients_that_are_killed_never_make_a_hard_purse_spend_more_than_it_holds(postgres_address):
    finished = emptied(postgres_address)
    assert "never overdrawn, nothing lost, all sums exact" in finished.stdout, finished.stderr
    assert (finished.returncode, finished.stderr) == (0, "")
    with psycopg.connect(postgres_address, options="-c search_path=costada") as connection:
        ((num, total, kept, highest, spent),) = connection.execute(AUDIT).fetchall()
    assert num >= DRAWS
    assert spent == total == highest <= BUDGET
    assert BUDGET - total < BOUND * 5  # each of the five accounts is empty
    assert kept is None or kept <= KILLS * 4 * BOUND

"""Two replicas and one Postgres, killed at random; `replicas.py` does the same for hours."""

import pytest
from pgbouncer import started_pgbouncer
from replicas import HEAD, kill_replicas

from costada.store.address import shown_address

pytestmark = pytest.mark.process

NUM_KILLS = 8


def test_runs_of_killed_replicas_end_as_undisturbed_ones(postgres_address, tmp_path):
    head, *lines, verdict = kill_replicas(
        tmp_path, shown_address(postgres_address), seeds=(0, 4), kills=NUM_KILLS, budget=0.1
    )
    assert head == HEAD
    assert [line.split()[-1] for line in lines] == ["yes", "yes"]
    assert int(verdict.split()[0]) >= NUM_KILLS // 2


def test_runs_of_killed_replicas_behind_pgbouncer_end_as_undisturbed_ones(
    postgres_address, tmp_path
):
    with started_pgbouncer(postgres_address) as pooler:
        _, line, verdict = kill_replicas(
            tmp_path, shown_address(pooler.address), seeds=(0,), kills=NUM_KILLS // 2, budget=0.1
        )
    assert line.split()[-1] == "yes"
    assert int(verdict.split()[0]) >= NUM_KILLS // 4

"""What a step cost changes nothing that a cost-blind method decides or remembers."""

from itertools import groupby
from random import Random

import pytest
from controller_samples import bill, random_scores, records
from hypothesis import given, settings
from hypothesis import strategies as st
from needed_plugins import needs_plugin

from costada.controller.constants import Constants

STEPS = 150
SCORES = random_scores(5, STEPS)
EVOX = pytest.param("evox", marks=needs_plugin("evox"))
PEERS = [
    pytest.param(name, marks=needs_plugin("peers"))
    for name in ("gepa", "openevolve", "shinkaevolve")
]
BLIND = ["adaevolve", EVOX, *PEERS, "uniform", "best-of-n"]
ROOMY = Constants(archive_size=150)


@pytest.mark.parametrize("method", BLIND)
def test_permuted_and_scaled_costs_give_the_same_records(method: str) -> None:
    costs = [Random(8).uniform(0.001, 0.1) * (1 + step % 7) for step in range(STEPS)]
    permuted = Random(9).sample(costs, STEPS)
    plain = records(method, SCORES, [(cost, sum(costs[: i + 1])) for i, cost in enumerate(costs)])
    swapped = [(cost, sum(permuted[: i + 1])) for i, cost in enumerate(permuted)]
    scaled = [(1000 * cost, 1000 * spent) for cost, spent in swapped]
    assert len(set(plain)) == STEPS
    assert records(method, SCORES, swapped) == plain
    assert records(method, SCORES, scaled, budget=3.5) == plain
    assert records(method, SCORES, bill(STEPS, 0.0), budget=1e9) == plain


@pytest.mark.parametrize("method", BLIND)
@given(st.lists(st.tuples(*[st.floats(0, 1e9)] * 2), min_size=40, max_size=40))
@settings(max_examples=15)
def test_a_ledger_that_makes_no_sense_gives_the_same_records(
    method: str, bills: list[tuple[float, float]]
) -> None:
    assert records(method, SCORES[:40], bills) == records(method, SCORES[:40], bill(40))


@needs_plugin("evox")
def test_the_scripted_run_of_evox_adopts_keeps_and_loses_strategies() -> None:
    run = records("evox", SCORES, bill(STEPS))
    names = [name for name, _ in groupby(each.strategy for each in run)]
    assert names[:5] == ["", "no. 2", "no. 3", "no. 2", "no. 5"]
    assert "no. 4" not in names
    assert len(run[-1].scored) == 3


def test_the_scripted_run_reaches_guides_migrations_and_spawns() -> None:
    barren = [None if score is None else min(score, 0.45) for score in SCORES]
    run = records("adaevolve", barren, bill(STEPS), constants=ROOMY)
    assert {each.pending for each in run} == {None, "breakthrough"}
    assert any(each.cycle for each in run)
    assert run[-1].frontiers[-1].preset
    assert records("adaevolve", barren, bill(STEPS, 7.0), constants=ROOMY) == run

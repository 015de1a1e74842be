"""Runs with noisy scores and two objectives that are killed and resumed."""

import time
from collections import Counter

import pytest
from crash_runs import (
    CAP,
    EVALUATION,
    PRICE_IN,
    PRICE_OUT,
    SEED,
    kill_often,
    record_of,
    serve,
)
from fakes import evaluate_value, toy_problem

from costada.models.chat_models import chat_model
from costada.runs.discovery import discover
from costada.store.run_store import RunStore
from costada.values.evaluation import Evaluation
from costada.values.usage import Price

pytestmark = pytest.mark.process

NUM_KILLS = 3
LUCK = (0.02, 0.0, -0.01, 0.03, -0.05, 0.01)
OPTIONS = {"parallel": 4, "order": "launch", "lost_calls": "ignore", "budget": 0.05}


class Noisy:
    """Other luck in each measurement of a program; the second objective is its third decimal."""

    def __init__(self) -> None:
        self.measured = Counter[str]()

    def __call__(self, code: str) -> Evaluation:
        time.sleep(EVALUATION)
        found = evaluate_value(code)
        if not found.is_valid:
            return found
        luck = LUCK[self.measured[code] % len(LUCK)]
        self.measured[code] += 1
        metrics = {"value": found.score + luck, "size": float(int(1000 * found.score) % 10)}
        return Evaluation(score=0.5, objective=0.5, is_valid=True, metrics=metrics)


def run_noisy(folder, url, options):
    problem = toy_problem(
        evaluate=Noisy(),
        repeats=3,
        objectives=["value:max", "size:min"],
        weights={"value": 1.0, "size": 0.01},
    )
    discover(
        problem,
        chat_model("openai:stand-in", base_url=url, retry_wait=0, max_tokens=CAP),
        out=folder,
        resume=(folder / "settings.json").exists(),
        price=Price(PRICE_IN, PRICE_OUT),
        **{"seed": SEED, **options},
    )


def front_of(folder):
    with RunStore(folder / "run.sqlite", is_read_only=True) as store:
        front = store.candidates.front(store.run_ids()[-1], 10**9)
    return [(each.id, each.measurements, each.confirmation) for each in front]


def pareto_files(folder):
    paths = sorted((folder / "pareto").iterdir())
    return {path.name: path.read_text() for path in paths}


def test_a_killed_run_measures_and_keeps_the_front_as_an_uninterrupted_one(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    server, _ = serve()
    with server:
        run_noisy(whole, server.url, OPTIONS)
    server, provider = serve()
    with server:
        hits = kill_often(killed, server, provider, 1, NUM_KILLS, OPTIONS, run_noisy)
    assert hits >= NUM_KILLS // 2
    assert record_of(killed).result == record_of(whole).result
    assert front_of(killed) == front_of(whole)
    assert pareto_files(killed) == pareto_files(whole)
    names = {f"{name}.py" for name, _, _ in front_of(whole)}
    assert set(pareto_files(whole)) == {*names, "front.json"}
    assert len(names) > 1

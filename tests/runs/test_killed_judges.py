"""Runs whose evaluators ask models are killed at random: no completed call is paid twice."""

import json
from collections import Counter
from decimal import Decimal

import pytest
from crash_runs import LATENCY, kill_often, record_of
from judged_problems import ASKING, PRICES, Providers, cost_of, judged_folder

from costada.models.chat_models import chat_model
from costada.runs.discovery import discover
from costada.store.rows import CallStatus
from costada.values.usage import Price

CAP = 1000

JUDGING = f"""{ASKING}

def score(output):
    large, is_round = (ask("judge", f"Is it {{what}}? {{output}}") for what in ("large", "round"))
    return {{"combined_score": output * large * is_round}}
"""


@pytest.fixture
def providers():
    return Providers(LATENCY)


def run_to_end(folder, url, options):
    """Start or resume the run in a folder, in this process, to its end."""
    discover(
        folder.parent / "judged",
        chat_model("openai:writer", base_url=url, retry_wait=0, max_tokens=CAP),
        out=folder,
        resume=(folder / "settings.json").exists(),
        price=Price(*PRICES["writer"]),
        **{"seed": 2, "budget": 1.0, "gateway": False, **options},
    )


def asked(call):
    """The model that a call went to, and its prompt."""
    if call.role != "evaluation":
        return "writer", call.prompt
    return "judge-large", json.loads(call.prompt)["messages"][-1]["content"]


def check_against_bill(record, providers):
    """Check that completed calls are on the ledger once, exactly, and all others at their bound."""
    done = Counter(asked(call) for call in record.done)
    lost = Counter(asked(call) for call in record.lost)
    assert done.total() + lost.total() == len(record.calls)
    for request, times in providers.billed.items():
        assert done[request] <= times <= done[request] + lost[request]
    for call in record.done:
        usage = call.usage
        assert call.cost == cost_of(asked(call)[0], usage.input_tokens, usage.output_tokens)
    assert all(call.bound > 0 for call in record.lost)
    spent = sum((call.cost for call in record.done), Decimal(0))
    assert spent <= providers.total <= record.bill_at_most


@pytest.mark.parametrize(
    ("draw", "num_kills", "options"),
    [
        (0, 4, {"max_iterations": 6, "parallel": 1}),
        (1, 4, {"max_iterations": 6, "parallel": 8}),
        # Once, as its workers take their time to start; while a judge answers.
        (1, 1, {"max_iterations": 2, "parallel": 2, "evaluate_on": "local:2"}),
    ],
    ids=["1", "8", "workers"],
)
def test_a_killed_run_repeats_no_call_that_was_completed(
    tmp_path, server, providers, draw, num_kills, options
):
    judged_folder(tmp_path / "judged", server.url, JUDGING)
    options = {"order": "launch", **options}
    num_hits = kill_often(
        tmp_path / "run", server, providers, draw, num_kills, options, run=run_to_end
    )
    assert num_hits
    record = record_of(tmp_path / "run")
    check_against_bill(record, providers)
    assert record.spent == record.bill_at_most
    # Of each request of a step, one at most was answered: none was paid for and asked again.
    judged = Counter(
        (each.ticket, each.prompt) for each in record.done if each.role == "evaluation"
    )
    assert max(judged.values()) == 1
    steps = [json.loads(line) for line in record.steps.splitlines()]
    start = sum((call.cost + call.bound for call in record.calls if not call.ticket), Decimal(0))
    charged = float(start) + sum(step["step_cost"] for step in steps)
    assert charged == pytest.approx(float(record.spent), rel=1e-12)


def test_a_killed_run_finds_what_an_uninterrupted_one_finds(tmp_path, server, providers):
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
        judged_folder(tmp_path / name / "judged", server.url, JUDGING)
    options = {"max_iterations": 6, "lost_calls": "ignore"}
    run_to_end(tmp_path / "whole" / "run", server.url, options)
    kill_often(tmp_path / "killed" / "run", server, providers, 3, 4, options, run=run_to_end)
    whole, killed = (record_of(tmp_path / name / "run") for name in ("whole", "killed"))
    assert whole.best_program == killed.best_program
    assert [row["score"] for row in map(json.loads, whole.steps.splitlines())] == [
        row["score"] for row in map(json.loads, killed.steps.splitlines())
    ]
    assert not [call for call in whole.calls if call.status is CallStatus.LOST]

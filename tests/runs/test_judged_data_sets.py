"""Data sets whose `score_example` asks a model: every answer is on the ledger, also after kills."""

import json
from collections import Counter
from decimal import Decimal

import pytest
from crash_runs import LATENCY, kill_often, record_of
from judged_problems import ASKING, PRICES, Providers, judged_folder

from costada.models.chat_models import chat_model
from costada.runs.discovery import discover
from costada.values.usage import Price

pytestmark = pytest.mark.process

NUM_EXAMPLES = 24
SETTINGS = 'examples = "train.jsonl"\nvalidation = "validation.jsonl"\n'
JUDGING = f"""{ASKING}

def score_example(output, example):
    return min(1.0, output * ask("judge", f"{{example['question']}} {{output}}"))
"""


@pytest.fixture
def providers():
    return Providers(LATENCY)


def data_set(folder, url, settings=SETTINGS):
    judged_folder(folder, url, JUDGING, settings)
    for name, number in {"train": NUM_EXAMPLES, "validation": 6}.items():
        rows = [{"inputs": {}, "question": f"{name} {each}?"} for each in range(number)]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))


def run_to_end(folder, url, options):
    discover(
        folder.parent / "judged",
        chat_model("openai:writer", base_url=url, retry_wait=0, max_tokens=1000),
        out=folder,
        resume=(folder / "settings.json").exists(),
        price=Price(*PRICES["writer"]),
        **{"seed": 2, "budget": 5.0, "gateway": False, "method": "uniform", **options},
    )


def judgements(record):
    return [call for call in record.calls if call.role == "evaluation"]


@pytest.mark.parametrize("parallel", [1, 4])
def test_what_judges_of_examples_cost_is_on_the_ledger(tmp_path, server, providers, parallel):
    data_set(tmp_path / "judged", server.url)
    options = {"max_iterations": 8, "parallel": parallel, "order": "launch"}
    run_to_end(tmp_path / "run", server.url, options)
    record = record_of(tmp_path / "run")
    assert record.spent == providers.total
    rows = [json.loads(line) for line in record.steps.splitlines()]
    fresh = [row for row in rows if row["examples"] and not row["is_cached"]]
    # a secret of the run orders the examples, so races may reject nobody
    assert fresh
    assert all(0 < row["examples"] <= NUM_EXAMPLES for row in fresh)
    asked = Counter(
        (call.ticket, json.loads(call.prompt)["messages"][-1]["content"])
        for call in judgements(record)
    )
    assert max(asked.values()) == 1
    assert sum(ticket == 0 for ticket, _ in asked) == NUM_EXAMPLES + 6
    on_examples = sum(prompt.startswith("train") for _, prompt in asked)
    assert on_examples == NUM_EXAMPLES + sum(row["examples"] for row in fresh)


def test_a_killed_run_pays_for_no_example_twice(tmp_path, server, providers):
    data_set(tmp_path / "judged", server.url)
    options = {"max_iterations": 5, "parallel": 2, "order": "launch"}
    num_hits = kill_often(tmp_path / "run", server, providers, 0, 4, options, run=run_to_end)
    assert num_hits
    record = record_of(tmp_path / "run")
    done = Counter((call.ticket, call.prompt) for call in judgements(record) if call in record.done)
    assert max(done.values()) == 1
    spent = sum((call.cost for call in record.done), Decimal(0))
    assert spent <= providers.total <= record.bill_at_most

"""Programs that a hard budget could not evaluate in full: a run with more money goes on with them.

A judge is asked five questions about each program, two of them twice. An answer of 100 tokens to a
question of 100 costs (100 x 3 + 100 x 15) / 10^6 = $0.0018, one of the writer (100 x 0.6 + 100 x
1.92) / 10^6 = $0.000252. A question is sent while $0.004 are left, the most that 256 tokens of an
answer cost, and not with $0.003.
"""

import os
from collections import Counter
from decimal import Decimal

import pytest
from billing_server import BillingServer, Reply
from crash_runs import record_of, run_with
from fakes import rewrite
from judged_problems import PRICES, cost_of, judged_folder
from warm import PATIENCE_SECONDS, PROCESSES

from costada.models.chat_models import chat_model
from costada.runs.discovery import discover
from costada.runs.folder import RunFolder
from costada.runs.fork import fork_run
from costada.store.run_store import RunStore
from costada.values.usage import Price

QUESTION, PROPOSAL = Decimal("0.0018"), Decimal("0.000252")

JUDGING = """
import time
from pathlib import Path

from openai import OpenAI

CLIENT, HOLD, HELD = OpenAI(max_retries=0), Path({hold!r}), Path({held!r})


def score(output):
    grades = []
    for number, question in enumerate(("large", "large", "round", "large", "round"), 1):
        asked = f"Is it {{question}}? {{output}}"
        answer = CLIENT.chat.completions.create(
            model="judge", messages=[{{"role": "user", "content": asked}}]
        )
        grades.append(float(answer.choices[0].message.content))
        while output != 0.1 and HOLD.exists() and HOLD.read_text() == str(number):
            HELD.touch()
            time.sleep(0.001)
    return {{"combined_score": output * min(grades)}}
"""
"""An evaluator that waits after the question whose number is in a file, while that is there."""


class Provider:
    """Proposes 0.5, then 0.6, and so on, and keeps the bill."""

    def __init__(self):
        self.bill, self.asked, self.num_proposed = Decimal(0), Counter(), 0

    def answer(self, body):
        model = body["model"]
        self.bill += cost_of(model, 100, 100)
        if model == "writer":
            self.num_proposed += 1
            text = rewrite(0.4 + 0.1 * self.num_proposed)
        else:
            self.asked[body["messages"][-1]["content"]] += 1
            text = "1.0"
        return Reply(text, input_tokens=100, output_tokens=100)


@pytest.fixture
def provider():
    return Provider()


@pytest.fixture
def server(provider, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real-key-of-the-user")
    with BillingServer(default=provider.answer) as server:
        yield server


@pytest.fixture
def hold(tmp_path, server):
    """What evaluations wait for, and what they leave while they do; the problem is there."""
    hold, held = tmp_path / "hold", tmp_path / "held"
    judging = JUDGING.format(hold=str(hold), held=str(held))
    judged_folder(tmp_path / "judged", server.url, judging)
    return hold, held


def run(folder, url, options):
    """Start or resume the run in a folder, in this process, to its end."""
    return discover(
        folder.parent / "judged",
        chat_model("openai:writer", base_url=url, retry_wait=0, max_tokens=1000),
        out=folder,
        resume=(folder / "settings.json").exists(),
        price=Price(*PRICES["writer"]),
        **{
            "budget_policy": "hard",
            "gateway": False,
            "method": "best-of-n",
            "seed": 2,
            "max_iterations": 3,
            **options,
            "budget": float(options["budget"]),
        },
    )


def kill_when_held(folder, server, hold, options):
    """Kill a run in a process of its own while its evaluator waits; no request is in flight."""
    hold, held = hold
    given = (dict(os.environ), run, folder, server.url, options)
    process = PROCESSES.Process(target=run_with, args=given)
    process.start()
    while process.is_alive() and not held.exists():
        process.join(0.001)
    assert held.exists()
    process.kill()
    process.join(PATIENCE_SECONDS)
    hold.unlink()
    held.unlink()


def budget_for(questions, proposals):
    """Dollars that pay for so many requests, and leave $0.003."""
    return questions * QUESTION + proposals * PROPOSAL + Decimal("0.003")


def check_ledger(folder, provider):
    """Check that the ledger is the bill, and that steps are charged all of it."""
    record = record_of(folder, frontiers=[0])
    assert all(call.bound == 0 for call in record.calls)
    assert sum(call.cost for call in record.calls) == record.spent == provider.bill


def asked_of(provider, output):
    """How often each question about a program was answered."""
    return {each: n for each, n in provider.asked.items() if each.endswith(f" {output}")}


WHOLE = {"Is it large? 0.6": 3, "Is it round? 0.6": 2}


def candidates_of(folder):
    with RunStore(RunFolder(folder).database) as store:
        return {each.id: each for each in store.candidates.originals(store.run_ids()[-1])}


def events_of(folder):
    with RunStore(RunFolder(folder).database) as store:
        return [set(row["events"]) for row in store.steps(store.run_ids()[-1])]


def test_what_a_judge_has_answered_is_not_bought_again_with_more_money(
    tmp_path, server, provider, hold
):
    out = tmp_path / "run"
    # The start, the first program, and three of five questions about the second.
    run(out, server.url, {"budget": budget_for(13, 2)})
    assert asked_of(provider, 0.6) == {"Is it large? 0.6": 2, "Is it round? 0.6": 1}
    assert events_of(out)[-1] == {"out_of_money", "unjudged"}
    run(out, server.url, {"budget": 1})
    assert asked_of(provider, 0.6) == WHOLE
    judged = candidates_of(out)["3.1"]
    assert (judged.score, judged.is_valid) == (0.6, True)
    # As at first, and not the best one: best-of-n changes the initial program.
    assert judged.parent_id == "0.1"
    assert events_of(out)[2] == {"judged_later"}
    check_ledger(out, provider)


@pytest.mark.parametrize("parallel", [1, 4])
def test_a_run_that_is_killed_between_its_budgets_buys_no_answer_twice(
    tmp_path, server, provider, hold, parallel
):
    out = tmp_path / "run"
    hold[0].write_text("2")
    kill_when_held(out, server, hold, {"budget": budget_for(8, 1), "max_iterations": 2})
    # Nothing new can be bought after the third question.
    run(out, server.url, {"budget": budget_for(8, 1), "max_iterations": 2})
    assert asked_of(provider, 0.5) == {"Is it large? 0.5": 2, "Is it round? 0.5": 1}
    # One more question, and none after that.
    run(out, server.url, {"budget": budget_for(9, 1), "max_iterations": 3})
    assert asked_of(provider, 0.5) == {"Is it large? 0.5": 3, "Is it round? 0.5": 1}
    hold[0].write_text("4")
    later = {"budget": budget_for(20, 3), "max_iterations": 3, "parallel": parallel}
    kill_when_held(out, server, hold, later)
    assert asked_of(provider, 0.5) == {"Is it large? 0.5": 3, "Is it round? 0.5": 1}
    run(out, server.url, later)
    assert asked_of(provider, 0.5) == {"Is it large? 0.5": 3, "Is it round? 0.5": 2}
    unpaid = {"out_of_money", "unjudged"}
    assert events_of(out) == [unpaid, {*unpaid, "judged_later"}, {"judged_later"}]
    assert candidates_of(out)["3.1"].score == 0.5
    assert provider.num_proposed == 1
    check_ledger(out, provider)


def test_no_program_is_bought_whose_evaluation_may_cost_more_than_is_left(
    tmp_path, server, provider, hold
):
    settings = tmp_path / "judged" / "problem.toml"
    settings.write_text(f"evaluation_dollars = 0.012\n{settings.read_text()}")
    out = tmp_path / "run"
    # After two programs $0.0075 are left: enough for a third one, and for two questions about it.
    budget = budget_for(15, 2) + Decimal("0.0045")
    found = run(out, server.url, {"budget": budget, "max_iterations": 9})
    assert found.stop_reason == "budget"
    assert provider.num_proposed == 2
    assert provider.asked.keys() == {
        f"Is it {question}? {output}"
        for question in ("large", "round")
        for output in (0.1, 0.5, 0.6)
    }
    assert provider.asked.total() == 15
    assert events_of(out) == [set(), set(), {"out_of_money"}]
    check_ledger(out, provider)


def test_a_hard_budget_that_pays_for_no_evaluation_is_refused(tmp_path, server, provider, hold):
    settings = tmp_path / "judged" / "problem.toml"
    settings.write_text(f"evaluation_dollars = 0.5\n{settings.read_text()}")
    expected = r"budget: got \$0.5 under a hard budget, .* \$0.500000 for an evaluation that"
    with pytest.raises(ValueError, match=expected):
        run(tmp_path / "run", server.url, {"budget": 0.5})
    assert server.requests == []


def test_a_fork_with_more_money_goes_on_where_the_original_could_not(
    tmp_path, server, provider, hold
):
    out, copy = tmp_path / "run", tmp_path / "copy"
    run(out, server.url, {"budget": budget_for(13, 2)})
    fork_run(RunFolder(out), 2, RunFolder(copy), budget=1)
    run(copy, server.url, {"budget": 1})
    assert asked_of(provider, 0.6) == WHOLE
    assert candidates_of(copy)["3.1"].score == 0.6
    check_ledger(copy, provider)

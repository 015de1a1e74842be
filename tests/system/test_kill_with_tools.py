"""A run whose model works with tools, killed at random instants, in the middle of attempts too."""

import time
from collections import Counter
from decimal import Decimal
from threading import Lock

from agent_answers import agent_answer, hashed
from billing_server import BillingServer, Reply
from crash_runs import LATENCY, PRICE_IN, PRICE_OUT, go_on, kill_often, record_of

NUM_KILLS = 6
OPTIONS = {"generator": "agent", "step_cap": 0.012, "lost_calls": "ignore", "budget": 0.08}


class ToolProvider:
    """Answers by the conversation alone, takes its time, and remembers what it billed."""

    def __init__(self) -> None:
        self.billed: Counter[bytes] = Counter()
        self.bill = Decimal(0)
        self._lock = Lock()

    def answer(self, body) -> Reply:
        reply = agent_answer(body)
        with self._lock:
            self.billed[hashed(body)] += 1
            self.bill += (reply.input_tokens * PRICE_IN + reply.output_tokens * PRICE_OUT) / 10**6
        time.sleep(LATENCY)
        return reply


def test_it_repeats_no_answered_call_and_ends_as_an_undisturbed_run(tmp_path):
    provider = ToolProvider()
    with BillingServer(default=provider.answer) as server:
        go_on(tmp_path / "whole", server.url, OPTIONS)
        bill_of_whole = provider.bill
        provider.billed.clear()
        hits = kill_often(tmp_path / "killed", server, provider, 1, NUM_KILLS, OPTIONS)
    whole, killed = record_of(tmp_path / "whole"), record_of(tmp_path / "killed")
    assert hits >= NUM_KILLS // 2
    assert any(call.attempt > 1 for call in killed.done if call.role == "generation")
    assert killed.steps == whole.steps
    assert killed.best_program == whole.best_program
    assert killed.archives == whole.archives
    assert [call.prompt for call in killed.done] == [call.prompt for call in whole.done]
    keys = Counter((call.iteration, call.role, call.attempt) for call in killed.done)
    assert max(keys.values()) == 1
    assert killed.spent == whole.spent == bill_of_whole == sum(call.cost for call in killed.done)
    repeated = provider.billed.total() - len(killed.done)
    assert 0 <= repeated <= len(killed.lost)

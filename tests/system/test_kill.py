import json
import shutil
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path
from random import Random
from threading import Lock

import pytest
from agent_answers import agent_answer, hashed
from billing_server import BillingServer, Reply
from crash_runs import (
    BUDGET,
    EVALUATION,
    LATENCY,
    PRICE_IN,
    PRICE_OUT,
    PROCESSES,
    Provider,
    check_against_bill,
    go_on,
    kill_often,
    record_of,
    serve,
)
from power_loss import GO_ON, begun, cut_log, kill_often

from costada.models.gateway.protocol import address_file, is_held
from costada.runs.folder import RunFolder
from costada.runs.gateway import gateway_journal, stop_gateway
from costada.runs.resume import LOST_STEPS
from costada.store.purse import Purse

NUM_KILLS = 6


@pytest.mark.parametrize("draw", [1, 2, 3])
def test_a_run_that_is_killed_ends_as_an_undisturbed_one(tmp_path, whole, draw):
    server, provider = serve()
    with server:
        options = {"lost_calls": "ignore"}
        hits = kill_often(tmp_path / "killed", server, provider, draw, NUM_KILLS, options)
    killed = record_of(tmp_path / "killed")
    assert hits >= NUM_KILLS // 2
    check_against_bill(killed, provider)
    assert killed.steps == whole.steps
    assert killed.best_program == whole.best_program
    assert killed.archives == whole.archives
    assert killed.spent == whole.spent == sum(call.cost for call in killed.done)


def test_calls_lost_in_a_kill_count_at_their_bound_so_that_no_bill_exceeds_what_is_reported(
    tmp_path,
):
    server, provider = serve()
    with server:
        kill_often(tmp_path / "killed", server, provider, 4, NUM_KILLS, {})
    record = record_of(tmp_path / "killed")
    check_against_bill(record, provider)
    assert record.lost
    assert record.spent == sum(call.cost + call.bound for call in record.calls)
    assert record.spent >= provider.bill
    before = [json.loads(line)["spent"] for line in record.steps.splitlines()][:-1]
    assert all(spent < BUDGET for spent in before)


NUM_KILLS = 6


def go_on_with_purse(folder: Path, purse: Path, url: str) -> None:
    with Purse(0.25, path=purse, policy="hard") as paying:
        go_on(folder, url, {"purse": paying, "budget_policy": "hard", "budget": 0.1})


def test_the_purse_holds_what_the_run_holds_however_often_it_is_killed(tmp_path):
    rng, num_hits = Random(5), 0
    folder, file = tmp_path / "run", tmp_path / "purse.sqlite"
    server, provider = serve()
    with server:
        for kill in range(NUM_KILLS + 1):
            process = PROCESSES.Process(target=go_on_with_purse, args=(folder, file, server.url))
            num_calls = provider.billed.total() + rng.randint(1, 3)
            process.start()
            if kill < NUM_KILLS:
                while process.is_alive() and provider.billed.total() < num_calls:
                    process.join(0.001)
                process.join(rng.uniform(0, 2 * (LATENCY + EVALUATION)))
                num_hits += process.is_alive()
                process.kill()
            process.join()
    assert process.exitcode == 0
    assert num_hits >= NUM_KILLS // 2
    record = record_of(folder)
    with Purse(0.25, path=file, policy="hard") as purse:
        (account,) = purse.accounts()[1:]
        assert account.is_closed
        assert purse.spent == account.spent == record.spent
        assert purse.spent == sum(call.cost + call.bound for call in record.calls)
        assert provider.bill <= purse.spent <= Decimal("0.1")
        assert purse.remaining == Decimal("0.25") - purse.spent


NUM_KILLS = 6


def test_with_a_gateway_the_ledger_is_the_bill_however_often_the_run_is_killed(tmp_path, whole):
    options = {"gateway": True}
    server, provider = serve()
    with server:
        try:
            hits = kill_often(tmp_path / "killed", server, provider, 1, NUM_KILLS, options)
            assert not is_held(address_file(gateway_journal(RunFolder(tmp_path / "killed"))))
        finally:
            stop_gateway(RunFolder(tmp_path / "killed"))
    killed = record_of(tmp_path / "killed")
    assert hits >= NUM_KILLS // 2
    assert killed.calls
    assert killed.done == list(killed.calls)
    assert sum(call.cost for call in killed.calls) == killed.spent == provider.bill
    assert killed.spent == whole.spent
    assert killed.steps == whole.steps
    assert killed.archives == whole.archives


def test_with_a_gateway_steps_that_the_run_file_has_lost_are_made_again_for_nothing(tmp_path):
    folder = RunFolder(tmp_path / "run")
    server, provider = serve()
    with server:
        try:
            for iterations in (3, 6):
                options = {"gateway": True, "max_iterations": iterations}
                go_on(folder.path, server.url, options)
                shutil.copy(folder.database, tmp_path / f"{iterations}.sqlite")
            steps, billed = folder.steps.read_text(), provider.bill
            shutil.copy(tmp_path / "3.sqlite", folder.database)
            go_on(folder.path, server.url, options)
        finally:
            stop_gateway(folder)
    assert provider.bill == billed == record_of(folder.path).spent
    assert folder.steps.read_text() == steps


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


def test_a_run_that_is_killed_while_its_clock_is_set_back_ends_as_an_undisturbed_one(
    tmp_path, whole
):
    server, provider = serve()
    with server:
        options = {"lost_calls": "ignore"}
        clocks = [0, -120, -240, -60]
        hits = kill_often(tmp_path / "killed", server.url, provider, clocks, options)
        go_on(tmp_path / "killed", server.url, options)
    killed = record_of(tmp_path / "killed")
    assert hits >= 2
    check_against_bill(killed, provider)
    assert (killed.steps, killed.archives) == (whole.steps, whole.archives)
    assert killed.spent == whole.spent


def test_no_bill_exceeds_what_is_reported_when_the_power_fails(tmp_path):
    server, provider = serve()
    with server:
        folder, disk = tmp_path / "killed", tmp_path / "disk"
        hits = kill_often(folder, server.url, provider, [0, 0, 0], {}, disk)
        go_on(folder, server.url, {})
    record = record_of(folder)
    assert hits >= 2
    check_against_bill(record, provider)
    assert record.spent == sum(call.cost + call.bound for call in record.calls)
    assert record.spent >= provider.bill


def killed_before_step(iteration: int, folder: Path) -> Provider:
    """Kill a run when it asks for the first time in an iteration, before that is billed."""
    server, provider = serve()
    ask = provider.answer
    steps = folder / "steps.jsonl"

    def answer(body: dict[str, object]) -> Reply:
        if steps.exists() and len(steps.read_text().splitlines()) == iteration - 1:
            process.kill()
            return Reply("nobody hears this")
        return ask(body)

    server.default = answer
    with server, begun(GO_ON, folder, server.url, "{}") as process:
        pass
    return provider


def test_steps_that_a_cut_log_has_lost_are_told_counted_and_accepted(tmp_path):
    folder = RunFolder(tmp_path / "killed")
    provider = killed_before_step(12, folder.path)
    billed, known = provider.bill, folder.steps.read_text().splitlines()
    cut_log(folder.path, 0.5)
    server, again = serve()
    with server:
        with pytest.raises(ValueError, match=r"has lost iterations \d+ to 11, which") as refused:
            go_on(folder.path, server.url, {})
        assert f"{folder.resume_command} --accept-loss" in str(refused.value)
        assert again.bill == 0
        assert folder.steps.read_text().splitlines() == known
        go_on(folder.path, server.url, {"accept_loss": True})
    record = record_of(folder.path)
    assert any(call.role == LOST_STEPS for call in record.calls)
    assert record.spent == sum(call.cost + call.bound for call in record.calls)
    assert float(record.spent) == pytest.approx(float(billed + again.bill), abs=1e-9)

import json
import shutil
from decimal import Decimal

import power_loss
import pytest
from agent_answers import agent_answer, hashed
from billing_server import BillingServer, Reply
from crash_runs import (
    BUDGET,
    PRICE_IN,
    PRICE_OUT,
    Provider,
    check_against_bill,
    kill_often,
    record_of,
    run_to_end,
    serve,
)
from warm import PROCESSES

from costada.plugins.gateway.gateway_of_run import gateway_journal, stop_gateways
from costada.plugins.gateway.gateway_protocol import address_file, is_held
from costada.runs.discovery import discover
from costada.runs.folder import RunFolder
from costada.runs.resume import LOST_STEPS
from costada.store.purse import Purse

pytestmark = pytest.mark.process

NUM_KILLS = 4


@pytest.fixture
def provided():
    """A billing server that answers for a provider, and the provider."""
    server, provider = serve()
    with server:
        yield server, provider


@pytest.mark.parametrize("draw", [1, 2])
def test_a_killed_run_ends_as_an_uninterrupted_one(tmp_path, whole, provided, draw):
    hits = kill_often(tmp_path, *provided, draw, NUM_KILLS, {"lost_calls": "ignore"})
    killed = record_of(tmp_path)
    assert hits >= NUM_KILLS // 2
    check_against_bill(killed, provided[1])
    assert killed.result == whole.result
    assert killed.spent == sum(call.cost for call in killed.done)


def test_no_bill_exceeds_the_reported_dollars_as_lost_calls_count_at_their_bound(
    tmp_path, provided
):
    kill_often(tmp_path, *provided, 4, NUM_KILLS, {})
    record = record_of(tmp_path)
    check_against_bill(record, provided[1])
    assert record.lost
    assert record.spent == record.bill_at_most >= provided[1].bill
    before = [json.loads(line)["spent"] for line in record.steps.splitlines()][:-1]
    assert all(spent < BUDGET for spent in before)


def run_with_purse(folder, url, options):
    with Purse(0.25, path=folder.parent / "purse.sqlite", policy="hard") as purse:
        run_to_end(folder, url, {**options, "purse": purse})


def test_the_purse_holds_what_the_run_holds_however_often_it_is_killed(tmp_path, provided):
    options = {"budget_policy": "hard", "budget": 0.1}
    folder = tmp_path / "run"
    hits = kill_often(folder, *provided, 5, NUM_KILLS, options, run_with_purse)
    assert hits >= NUM_KILLS // 2
    record = record_of(folder)
    with Purse(0.25, path=tmp_path / "purse.sqlite", policy="hard") as purse:
        (account,) = purse.accounts()[1:]
        assert account.is_closed
        assert purse.spent == account.spent == record.spent == record.bill_at_most
        assert provided[1].bill <= purse.spent <= Decimal("0.1")
        assert purse.remaining == Decimal("0.25") - purse.spent


@pytest.fixture
def gateway_run(tmp_path):
    """The folder of a run whose gateway is stopped in the end."""
    folder = RunFolder(tmp_path / "run")
    yield folder
    stop_gateways(folder)


def test_with_a_gateway_the_ledger_is_the_bill_however_often_the_run_is_killed(
    gateway_run, whole, provided
):
    hits = kill_often(gateway_run.path, *provided, 1, NUM_KILLS, {"gateway": True})
    assert not is_held(address_file(gateway_journal(gateway_run)))
    killed = record_of(gateway_run.path)
    assert hits >= NUM_KILLS // 2
    assert killed.calls
    assert killed.done == list(killed.calls)
    assert sum(call.cost for call in killed.calls) == killed.spent == provided[1].bill
    assert killed.result == whole.result


PARALLEL = {"parallel": 8, "budget": 0.2, "gateway": False}
IN_ORDER = {**PARALLEL, "order": "launch", "lost_calls": "ignore"}
"""Lands calls as they were launched, so that two runs can be compared."""


@pytest.fixture(scope="module")
def parallel_whole(tmp_path_factory):
    """What an uninterrupted run with eight calls in flight leaves behind."""
    folder = tmp_path_factory.mktemp("parallel") / "run"
    server, _ = serve()
    with server:
        run_to_end(folder, server.url, IN_ORDER)
    return record_of(folder)


def test_a_run_killed_with_eight_calls_in_flight_repeats_none_that_was_answered(tmp_path, provided):
    hits = kill_often(tmp_path, *provided, 1, NUM_KILLS, PARALLEL)
    record = record_of(tmp_path)
    assert hits >= NUM_KILLS // 2
    check_against_bill(record, provided[1])
    assert record.lost
    assert record.spent == record.bill_at_most >= provided[1].bill


def test_a_run_killed_with_eight_calls_in_flight_ends_as_an_uninterrupted_one(
    tmp_path, parallel_whole, provided
):
    hits = kill_often(tmp_path, *provided, 2, NUM_KILLS, IN_ORDER)
    killed = record_of(tmp_path)
    assert hits >= NUM_KILLS // 2
    check_against_bill(killed, provided[1])
    assert killed.result == parallel_whole.result
    assert killed.spent == sum(call.cost for call in killed.done)


def run_with_another_number(folder, url, options):
    """Start or resume a run with 8, 1, 4, 16 and 2 steps in flight."""
    starts = folder.parent / "starts"
    starts.write_text(starts.read_text() + "." if starts.exists() else "")
    number = (8, 1, 4, 16, 2)[len(starts.read_text())]
    run_to_end(folder, url, {**options, "parallel": number})


@pytest.mark.parametrize("method", ["costada", "evox"])
def test_a_killed_run_continues_with_another_number_of_calls_in_flight(tmp_path, provided, method):
    options = {**PARALLEL, "method": method}
    folder = tmp_path / "run"
    kill_often(folder, *provided, 4, NUM_KILLS, options, run_with_another_number)
    record = record_of(folder, frontiers=())
    check_against_bill(record, provided[1])
    assert record.spent == record.bill_at_most >= provided[1].bill


def evolve(folder, is_resumed):
    """Start or resume a run of EvoX that buys a strategy when the step of the first ticket ends."""
    options = {"method": "evox", "max_iterations": 10, "parallel": 8, "order": "launch", "seed": 3}
    discover(
        "landscape",
        "simulated",
        budget=5.0,
        out=folder,
        resume=is_resumed,
        lost_calls="ignore",
        **options,
    )


def test_a_killed_run_of_evox_with_eight_calls_in_flight_ends_as_an_uninterrupted_one(tmp_path):
    whole, killed = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "killed")
    evolve(whole.path, is_resumed=False)
    for kill, num_steps in enumerate((2, 8)):
        process = PROCESSES.Process(target=evolve, args=(killed.path, kill > 0))
        process.start()
        while process.is_alive() and num_lines(killed.steps) < num_steps:
            process.join(0.001)
        process.kill()
        process.join()
    evolve(killed.path, is_resumed=True)
    assert killed.steps.read_text() == whole.steps.read_text()
    calls = [record_of(each.path, frontiers=()).calls for each in (whole, killed)]
    paid = [{(call.ticket, call.role, call.prompt) for call in each} for each in calls]
    assert paid[0] == paid[1]
    assert [call.attempt for call in calls[0] if call.ticket == 1 and call.role == "guide"] == [
        *(1, 2, 3)
    ]


def num_lines(path):
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.mark.parametrize("order", ["landing", "launch"])
def test_with_a_gateway_and_eight_calls_in_flight_the_ledger_is_the_bill(
    gateway_run, parallel_whole, provided, order
):
    options = {**PARALLEL, "gateway": True, "order": order}
    hits = kill_often(gateway_run.path, *provided, 3, NUM_KILLS, options)
    killed = record_of(gateway_run.path)
    assert hits >= NUM_KILLS // 2
    assert killed.done == list(killed.calls)
    assert sum(call.cost for call in killed.calls) == killed.spent == provided[1].bill
    if order == "launch":
        assert killed.result == parallel_whole.result


def test_with_a_gateway_lost_steps_are_repeated_for_nothing(gateway_run, tmp_path, provided):
    server, provider = provided
    for iterations in (3, 6):
        options = {"gateway": True, "max_iterations": iterations}
        run_to_end(gateway_run.path, server.url, options)
        shutil.copy(gateway_run.database, tmp_path / f"{iterations}.sqlite")
    steps, billed = gateway_run.steps.read_text(), provider.bill
    shutil.copy(tmp_path / "3.sqlite", gateway_run.database)
    run_to_end(gateway_run.path, server.url, options)
    assert provider.bill == billed == record_of(gateway_run.path).spent
    assert gateway_run.steps.read_text() == steps


class ToolProvider(Provider):
    """Answers by the whole conversation, with tool calls."""

    def answer(self, body):
        reply = agent_answer(body)
        with self._lock:
            self.billed[hashed(body)] += 1
            self.bill += (reply.input_tokens * PRICE_IN + reply.output_tokens * PRICE_OUT) / 10**6
            number = self.billed.total()
        self.take_time(number)
        return reply


def test_a_killed_run_with_tools_repeats_no_answered_call_and_ends_as_an_uninterrupted_one(
    tmp_path,
):
    provider = ToolProvider()
    options = {"generator": "agent", "step_cap": 0.012, "lost_calls": "ignore", "budget": 0.08}
    with BillingServer(default=provider.answer) as server:
        run_to_end(tmp_path / "whole", server.url, options)
        bill_of_whole = provider.bill
        provider.forget()
        hits = kill_often(tmp_path / "killed", server, provider, 1, NUM_KILLS, options)
    whole, killed = record_of(tmp_path / "whole"), record_of(tmp_path / "killed")
    assert hits >= NUM_KILLS // 2
    assert any(call.attempt > 1 for call in killed.done if call.role == "generation")
    assert killed.result == whole.result
    assert [call.prompt for call in killed.done] == [call.prompt for call in whole.done]
    keys = {(call.ticket, call.role, call.attempt) for call in killed.done}
    assert len(keys) == len(killed.done)
    assert killed.spent == bill_of_whole == sum(call.cost for call in killed.done)
    repeated = provider.billed.total() - len(killed.done)
    assert 0 <= repeated <= len(killed.lost)


def test_a_run_that_is_killed_while_its_clock_is_set_back_ends_as_an_uninterrupted_one(
    tmp_path, whole, provided
):
    server, provider = provided
    options = {"lost_calls": "ignore"}
    hits = power_loss.kill_often(tmp_path, server.url, provider, [0, -120, -240, -60], options)
    run_to_end(tmp_path, server.url, options)
    killed = record_of(tmp_path)
    assert hits >= 2
    check_against_bill(killed, provider)
    assert killed.result == whole.result


def test_no_bill_exceeds_the_reported_dollars_when_the_power_fails(tmp_path, provided):
    server, provider = provided
    folder, disk = tmp_path / "killed", tmp_path / "disk"
    hits = power_loss.kill_often(folder, server.url, provider, [0, 0, 0], {}, disk)
    run_to_end(folder, server.url, {})
    record = record_of(folder)
    assert hits >= 2
    check_against_bill(record, provider)
    assert record.spent == record.bill_at_most >= provider.bill


def killed_before_step(iteration, folder):
    """Kill a run at the first request of an iteration, before it is billed."""
    server, provider = serve()
    steps = folder / "steps.jsonl"

    def answer(body):
        if steps.exists() and len(steps.read_text().splitlines()) == iteration - 1:
            process.kill()
            return Reply("not received")
        return provider.answer(body)

    server.default = answer
    with server, power_loss.started(folder, server.url, {}) as process:
        pass
    return provider


def test_steps_lost_in_a_cut_log_are_reported_counted_and_accepted(tmp_path, provided):
    folder, (server, again) = RunFolder(tmp_path / "killed"), provided
    provider = killed_before_step(12, folder.path)
    billed, known = provider.bill, folder.steps.read_text().splitlines()
    power_loss.cut_log(folder.path, 0.5)
    with pytest.raises(ValueError, match=r"has lost iterations \d+ to 11, which") as refused:
        run_to_end(folder.path, server.url, {})
    assert f"{folder.resume_command} --accept-loss" in str(refused.value)
    assert again.bill == 0
    assert folder.steps.read_text().splitlines() == known
    run_to_end(folder.path, server.url, {"accept_loss": True})
    record = record_of(folder.path)
    assert any(call.role == LOST_STEPS for call in record.calls)
    assert record.spent == record.bill_at_most
    assert float(record.spent) == pytest.approx(float(billed + again.bill), abs=1e-9)

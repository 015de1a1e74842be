"""Runs that are killed while their clock is wrong, or whose machine loses its power."""

from pathlib import Path

import pytest
from billing_server import Reply
from crash_runs import Provider, check_against_bill, go_on, record_of, serve
from power_loss import GO_ON, begun, cut_log, kill_often

from costada.runs.folder import RunFolder
from costada.runs.resume import LOST_STEPS


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

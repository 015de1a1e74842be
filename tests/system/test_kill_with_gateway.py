"""Runs that are killed again and again while a gateway keeps their answers."""

import shutil

from crash_runs import go_on, kill_often, record_of, serve

from costada.models.gateway.protocol import address_file, is_held
from costada.runs.folder import RunFolder
from costada.runs.gateway import gateway_journal, stop_gateway

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

"""A run file that is older than the trace beside it: nothing is paid twice without a word."""

import json
import shutil
from contextlib import closing
from decimal import Decimal
from itertools import count
from threading import Event

import pytest
from fakes import ScriptedModel, hashed_answer, toy_problem
from langgraph.runtime import RunControl

from costada.nodes.calls.purse_slice import SLICE
from costada.reports.progress import Progress
from costada.runs.config import checked_config
from costada.runs.discovery import discover
from costada.runs.folder import THREAD, RunFolder
from costada.runs.plan import plan_run
from costada.runs.runner import execute_run
from costada.runs.search_request import SearchRequest
from costada.store.checkpoints import RunSaver
from costada.store.purse import Purse
from costada.store.run_copy import copy_file
from costada.store.run_store import RunStore

KEPT, MADE = 3, 6
CALL = Decimal("0.002")
"""What a call of the scripted model costs."""


def carry_on(folder, iterations, **options):
    """Return what a run has spent, and how many calls were made for it now."""
    model = ScriptedModel(answer=hashed_answer)
    settings = {"price": "1,2", "budget": 1.0, **options}
    resume = (folder / "settings.json").exists()
    found = discover(
        toy_problem(), model, out=folder, max_iterations=iterations, resume=resume, **settings
    )
    return found.spent, len(model.prompts)


@pytest.fixture
def older(tmp_path):
    """The folder of a run of six iterations whose file was replaced by a copy after three."""
    folder = RunFolder(tmp_path / "run")
    carry_on(folder.path, KEPT)
    shutil.copy(folder.database, tmp_path / "copy.sqlite")
    carry_on(folder.path, MADE)
    shutil.copy(tmp_path / "copy.sqlite", folder.database)
    return folder


def test_nothing_is_paid_again_before_the_loss_is_accepted(older):
    lost = spent_after(older, MADE) - spent_after(older, KEPT)
    found = (
        rf"run\.sqlite has lost iterations 4 to 6, which steps\.jsonl still has, and"
        rf" \${lost:.6f} that their calls cost"
    )
    for _ in range(2):
        with pytest.raises(ValueError, match=found):
            carry_on(older.path, MADE + 1)
        assert len(older.steps.read_text().splitlines()) == MADE


def spent_after(folder, iteration):
    rows = map(json.loads, folder.steps.read_text().splitlines())
    return next(float(row["spent"]) for row in rows if row["iteration"] == iteration)


def test_what_the_lost_steps_cost_counts_once_it_is_accepted(older):
    before = spent_after(older, MADE)
    spent, calls = carry_on(older.path, MADE + 1, accept_loss=True)
    assert calls > 0
    assert spent == pytest.approx(before + float(calls * CALL))
    with RunStore(older.database) as store:
        (run_id,) = store.run_ids()
        rows = list(store.call_log.calls(run_id))
    assert float(sum(row.cost for row in rows)) == pytest.approx(spent)
    assert carry_on(older.path, MADE + 1) == (spent, 0)


class Copier(Progress):
    """Copies a run file after an iteration."""

    def __init__(self, folder, target):
        self._folder, self._target = folder, target
        self.has_copied = Event()

    def step(self, row):
        if row["iteration"] == KEPT:
            copy_file(self._folder.database, self._target)
            self.has_copied.set()


def test_the_loss_is_charged_where_the_first_ticket_is_still_in_flight(tmp_path):
    folder, copy = RunFolder(tmp_path / "run"), tmp_path / "copy.sqlite"
    calls, copier = count(), Copier(folder, copy)

    def straggling(prompt):
        if next(calls) == 0:
            assert copier.has_copied.wait(30)
        return hashed_answer(prompt)

    def carried_out(model, iterations, progress, **options):
        config = checked_config({**settings, "max_iterations": iterations})
        plan = plan_run(SearchRequest(config, problem=toy_problem(), model=model), purse=purse)
        if not folder.settings.exists():
            folder.claim(config)
        return execute_run(plan, folder, progress, RunControl(), **options)

    settings = {"problem": "object:toy", "model": "object:scripted", "parallel": 4, "budget": 1.0}
    settings |= {"price": "1,2", "lost_calls": "ignore"}
    with Purse(2.0) as purse:
        carried_out(ScriptedModel(answer=straggling), 2 * MADE, copier)
        rows = [json.loads(line) for line in folder.steps.read_text().splitlines()]
        assert 1 not in [row["ticket"] for row in rows[:KEPT]]
        shutil.copy(copy, folder.database)
        again = ScriptedModel(answer=hashed_answer)
        found = carried_out(again, 2 * MADE + 1, Progress(), accepts_loss=True)
        assert found.iterations == 2 * MADE + 1
        assert found.spent == pytest.approx(rows[-1]["spent"] + float(len(again.prompts) * CALL))
        assert float(purse.spent) == pytest.approx(found.spent)


def test_a_loss_that_uses_up_the_budget_needs_a_higher_one(older):
    settings = json.loads(older.settings.read_text())
    spent = spent_after(older, MADE)
    older.settings.write_text(json.dumps({**settings, "budget": spent}))
    with pytest.raises(ValueError, match=r"of the budget of .* are spent. Resume with a higher"):
        carry_on(older.path, MADE + 1, accept_loss=True, budget=spent)
    assert carry_on(older.path, MADE + 1, accept_loss=True, budget=1.0)[0] > spent


@pytest.mark.parametrize("purse_slice", [None, 0.5])
def test_a_purse_holds_what_the_run_holds_after_a_loss(tmp_path, purse_slice):
    folder = RunFolder(tmp_path / "run")
    with Purse(1.0) as purse:
        options = {"purse": purse, "purse_slice": purse_slice}
        carry_on(folder.path, KEPT, **options)
        shutil.copy(folder.database, tmp_path / "copy.sqlite")
        carry_on(folder.path, MADE, **options)
        shutil.copy(tmp_path / "copy.sqlite", folder.database)
        if purse_slice:  # as if the process had been killed
            with RunStore(folder.database) as store:
                account = purse.below(store.last_run())
            purse.child(account.name)
            account.put_and_reserve({}, SLICE, purse_slice)
            assert purse.spent > Decimal("0.5")
        spent, _ = carry_on(folder.path, MADE + 1, **options, accept_loss=True)
        assert float(purse.spent) == pytest.approx(spent)


def test_the_command_tells_the_loss_and_the_way_on(invoke, near, tmp_path, capfd):
    folder = RunFolder(tmp_path / "run")
    options = ("--budget", 1, "--max-iterations", KEPT, "--out", folder.path)
    assert invoke("run", near, *options).exit_code == 0
    shutil.copy(folder.database, tmp_path / "copy.sqlite")
    assert invoke("resume", folder.path, "--max-iterations", MADE).exit_code == 0
    shutil.copy(tmp_path / "copy.sqlite", folder.database)
    before = spent_after(folder, MADE)
    refused = invoke("resume", folder.path, "--max-iterations", MADE + 1)
    assert refused.exit_code == 2
    assert "has lost iterations 4 to 6" in refused.output
    assert f"{folder.resume_command} --accept-loss" in refused.output.replace("\n", "")
    way = ("--max-iterations", MADE + 1, "--accept-loss")
    accepted = invoke("resume", folder.path, *way)
    assert accepted.exit_code == 0
    assert "these dollars count as spent in iteration 4" in capfd.readouterr().err
    facts = json.loads(invoke("resume", folder.path, "--json").stdout)
    assert facts["spent"] > before
    sums = sum(role["dollars"] for role in facts["ledger"].values())
    assert sums == pytest.approx(facts["spent"])


def test_steps_whose_answers_are_all_there_are_made_again_for_nothing(tmp_path):
    folder = RunFolder(tmp_path / "run")
    spent, _ = carry_on(folder.path, MADE)
    rows = folder.steps.read_text()
    with closing(RunSaver(folder.database)) as saver:
        later = [
            (saved.checkpoint["id"],)
            for saved in saver.list(THREAD)
            if saved.checkpoint["channel_values"].get("iterations", 0) > KEPT
        ]
        with saver.cursor() as cursor:
            cursor.executemany("DELETE FROM checkpoints WHERE checkpoint_id = ?", later)
            cursor.execute("DELETE FROM costada_step WHERE iteration > ?", (KEPT,))
            cursor.execute("DELETE FROM costada_charge WHERE iteration > ?", (KEPT,))
    assert carry_on(folder.path, MADE) == (spent, 0)
    assert folder.steps.read_text() == rows

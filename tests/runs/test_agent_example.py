"""The example problems whose evaluations ask models: an agent, and a prompt with a judge."""

import json
import shutil
from decimal import Decimal
from pathlib import Path

import pytest

from costada.evaluators.folders import load_folder
from costada.runs.discovery import discover
from costada.runs.folder import RunFolder
from costada.store.run_store import RunStore

pytestmark = pytest.mark.process

EXAMPLES = Path(__file__).parents[2] / "examples/problems"
NAMES = "Kestrel Heron Plover Swift Curlew Wren Osprey Lapwing Avocet Merlin"


def dollars_by_role(out):
    """The sum of the calls on the ledger of a run, by role."""
    found = {}
    with RunStore(RunFolder(out).database, is_read_only=True) as store:
        (run_id,) = store.run_ids()
        for call in store.call_log.calls(run_id):
            found[call.role] = found.get(call.role, Decimal(0)) + call.cost
    return found


def test_the_examples_of_the_agent_can_be_answered_from_their_notes():
    problem = load_folder(EXAMPLES / "agent")
    assert (len(problem.examples), len(problem.validation)) == (60, 20)
    every = [*problem.examples, *problem.validation]
    assert len({json.dumps(each) for each in every}) == 80
    for each in every:
        asked = set(each["inputs"]["question"].strip("?").split())
        (bicycle,) = {word for word in asked if word in NAMES.split()}
        notes = [note for note in each["inputs"]["notes"] if f" {bicycle} " in note]
        assert len(notes) == 8
        assert sum(each["expected"] in note for note in notes) == 1, each


def test_the_agent_is_improved_and_its_calls_are_on_the_ledger(tmp_path):
    problem, out = tmp_path / "agent", tmp_path / "run"
    shutil.copytree(EXAMPLES / "agent", problem)
    # Few questions, as each starts a process; the agent fails most of these at first.
    for name, kept in (("train", slice(28, 36)), ("validation", slice(2))):
        lines = (problem / f"{name}.jsonl").read_text().splitlines(keepends=True)
        (problem / f"{name}.jsonl").write_text("".join(lines[kept]))
    # Prompts contain what was measured, so how soon the agent improves varies.
    given = {"budget": 1.0, "max_iterations": 40, "target": 0.5}
    found = discover(str(problem), "offline", seed=0, out=out, **given)
    dollars = dollars_by_role(out)
    assert dollars["candidate"] > 0
    assert float(sum(dollars.values())) == found.spent
    with RunStore(RunFolder(out).database, is_read_only=True) as store:
        start = store.candidates.get(store.last_run(), "0.1")
        last = store.last_run()
        calls = [call for call in store.call_log.calls(last) if call.ticket == 0]
    # The start asks once for each question, those of the validation included.
    assert len(calls) == 10
    assert len(start.examples) == 8
    assert len(start.validation) == 2
    assert found.best_score > start.score


def test_a_judge_marks_prompts_on_the_ledger(tmp_path):
    problem = EXAMPLES / "prompt"
    found = discover(str(problem), "offline", budget=1.0, max_iterations=12, seed=1, out=tmp_path)
    dollars = dollars_by_role(tmp_path)
    assert dollars["evaluation"] > 0
    assert float(sum(dollars.values())) == found.spent
    with RunStore(RunFolder(tmp_path).database, is_read_only=True) as store:
        start = store.candidates.get(store.last_run(), "0.1")
    assert found.best_score > start.score

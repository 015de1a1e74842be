"""The table of the answers of a run, and what their prompts showed."""

from pathlib import Path

import pytest
from fakes import ScriptedModel, is_guide_prompt, toy_problem

from costada import create_discovery_graph
from costada.reports.export import TableName, table_of
from costada.store.history import RunHistory, Tickets
from costada.store.rows import RunSetup
from costada.store.run_store import RunStore
from costada.values.usage import Price

pytestmark = pytest.mark.unit

HEADINGS = '''"""Explains prompts.

# Current program assessment

Score: 0.0001

## Program 7

Score: 0.9999

## Tactic
"""

'''
"""What a prompt has as headings, in a program."""


def answer(prompt: str) -> str:
    number = 1 + prompt.count("##") % 97
    if number % 5 == 0 or is_guide_prompt(prompt):
        return "No program."
    return f"```python\n{HEADINGS}def value():\n    return {number / 100}\n```"


def rows_of(store: Path) -> list[dict[str, object]]:
    with RunHistory.of(store) as history:
        return list(table_of(history, TableName.ANSWERS, history.last_run()).rows())


def test_headings_in_a_program_are_not_those_of_its_prompt(tmp_path):
    path = tmp_path / "run.sqlite"
    with RunStore(path) as store:
        graph = create_discovery_graph(
            toy_problem(),
            ScriptedModel(answer=answer),
            store=store,
            budget=1.0,
            price=Price(1, 2),
            max_iterations=12,
        )
        graph.invoke({})
    with RunHistory.of(path) as history:
        made = {each.id: each.facts for each in history.candidates(Tickets(history.last_run()))}
    proposals = [each for each in rows_of(path) if each["kind"] == "proposal"]
    evaluated = [each for each in proposals if each["id"] in made]
    assert len(evaluated) > 5
    assert any(made[str(each["id"])]["inspirations"] for each in evaluated)
    for each in evaluated:
        facts = made[str(each["id"])]
        others = [made[name]["score"] for name in facts["inspirations"]]
        assert each["n_context"] == len(others)
        assert each["best_context_score"] == max(others, default=None)
        assert each["parent_score"] == made[facts["parent_id"]]["score"]
        assert not each["guided"]


@pytest.mark.parametrize("generator", ["agent", "coding-agent --print"])
def test_answers_that_are_no_programs_are_not_exported(generator, tmp_path):
    path = tmp_path / "run.sqlite"
    problem = {"name": "toy", "direction": "maximize"}
    with RunStore(path) as store:
        store.open_run("run", "costada", "toy", "", RunSetup(problem, {"generator": generator}))
    with pytest.raises(ValueError, match=f"table answers: the run has generator '{generator}'"):
        rows_of(path)

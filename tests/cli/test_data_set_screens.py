"""What commands show of a data set."""

import json
from decimal import Decimal

import pytest
from fakes import ScriptedModel

from costada import discover
from costada.cli.run_summary import saved_dollars, summary_json, summary_text
from costada.runs.folder import RunFolder
from costada.store.history import UsedCalls
from costada.store.run_store import RunStore
from costada.values.example_score import JudgedExamples
from costada.values.usage import Price

EVALUATOR = """
def score_example(text, example):
    return {"combined_score": example["word"] in text, "feedback": "say " + example["word"]}
"""


@pytest.fixture
def folder(tmp_path):
    files = {
        "problem.toml": 'program = "prompt.md"\nexamples = "train.jsonl"\nvalidation = "v.jsonl"\n',
        "problem.md": "Say all words.",
        "prompt.md": " ".join(f"w{number:02}" for number in range(30)),
        "train.jsonl": "\n".join(json.dumps({"word": f"w{number:02}"}) for number in range(40)),
        "v.jsonl": '{"word": "w00"}\n{"word": "w99"}\n',
        "evaluator.py": EVALUATOR,
    }
    place = tmp_path / "words"
    place.mkdir()
    for name, text in files.items():
        (place / name).write_text(text)
    return place


def test_evaluate_shows_the_worst_examples_and_the_validation(folder, invoke):
    shown = invoke("evaluate", folder, folder / "prompt.md").stdout
    assert "score      0.75\n" in shown
    assert "examples   40, the worst of them:\n" in shown
    assert "validation 0.5 on 2 examples" in shown
    (worst, *_) = [line for line in shown.splitlines() if line.startswith("  [3")]
    assert " 0 say w3" in worst


def test_check_counts_the_examples(folder, invoke):
    shown = invoke("check", folder).stdout
    assert "contract      score_example(output, example)" in shown
    assert "maximises     the mean score over the examples" in shown
    assert "examples      40, 2 to validate; score 0 on 10, as on [3" in shown


def test_the_saving_is_what_spared_examples_would_have_cost_at_the_mean():
    sums = {
        "generation": UsedCalls("generation", "", dollars=Decimal(5)),
        "evaluation": UsedCalls("evaluation", "", dollars=Decimal(2)),
        "compute": UsedCalls("compute", "", dollars=Decimal(1)),
    }
    assert saved_dollars(JudgedExamples(300, 100), sums) == pytest.approx(1.0)
    assert saved_dollars(JudgedExamples(0, 0), sums) == 0.0


def test_the_summary_says_what_was_judged_and_how_validation_differs(folder, tmp_path):
    model = ScriptedModel(answer=lambda prompt: "```markdown\nnothing\n```", prompts=[])
    out = tmp_path / "run"
    settings = {"price": Price("1", "2"), "max_iterations": 2, "method": "uniform"}
    found = discover(folder, model, budget=1.0, out=out, **settings)
    assert found.validation_score == 0.5
    run = RunFolder(out)
    with RunStore(out / "run.sqlite") as store:
        examples = store.judged_examples(store.run_ids()[-1])
    shown = summary_text(found, run.load(), run, {}, 0, [], "", 0, examples)
    assert "  validation      0.500000, 0.250000 below the score on the examples\n" in shown
    total = examples.judged + examples.spared
    assert f"  examples        candidates were judged on {examples.judged} of {total} (" in shown
    said = json.loads(summary_json(found, run.load(), run, {}, 0, [], 0, examples))
    assert said["examples"]["validation_score"] == 0.5
    assert said["examples"]["judged"] == examples.judged

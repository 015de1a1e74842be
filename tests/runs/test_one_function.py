"""Searches that begin with one Python function and a text."""

from contextvars import copy_context
from pathlib import Path
from threading import Thread

import pytest
from fakes import ScriptedModel
from toy_graph import PRICE

import costada
from costada.evaluators.plain_function import function_problem
from costada.runs.discovery import discover
from costada.store.run_store import RunStore
from costada.values.evaluation import Evaluation

pytestmark = pytest.mark.process

RULES = ("language", "honest", "complain")
TASK = "Instructions for a support agent."
MONEY = {"price": PRICE, "budget": 1.0}


def share_of_rules(text):
    missing = [rule for rule in RULES if rule not in text]
    for rule in missing:
        costada.log("missing:", rule)
    if "never" in text:
        raise ValueError("it forbids something")
    return 1 - len(missing) / len(RULES)


def writer(*texts):
    """A model that answers with whole texts, one after the other, and keeps its prompts."""
    rest = list(texts)

    def answer(prompt):
        text = rest.pop(0) if rest else "Be kind and honest."
        return f"Here it is.\n```text\n{text}\n```\n"

    return ScriptedModel(answer=answer, prompts=[])


def search(model, evaluate=share_of_rules, **options):
    given = {"start": "Be kind.\n", "task": TASK, "method": "uniform", "max_iterations": 3}
    return discover(evaluate=evaluate, model=model, **{**given, **MONEY, **options})


def test_a_text_is_improved_by_a_function_and_its_feedback_is_shown():
    model = writer("Be honest.", "Be honest, in their language.", "An honest language: complain.")
    found = search(model)
    assert found.best_score == 1.0
    assert found.best_program.strip() == "An honest language: complain."
    assert "missing: honest" in model.prompts[0]
    later = "\n".join(model.prompts[1:])
    assert "missing: language" in later
    assert "missing: complain" in later


def test_a_text_that_the_function_rejects_is_tried_again_with_its_reason():
    model = writer("never say no", "honest language, complain")
    found = search(model, max_iterations=1)
    assert found.best_score == 1.0
    assert "it forbids something" in model.prompts[1]


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        (0.5, 0.5),
        (1, 1.0),
        ({"combined_score": 0.25, "words": 3}, 0.25),
        (Evaluation(score=0.75, objective=7.5, is_valid=True), 0.75),
    ],
)
def test_a_function_returns_a_number_a_dict_or_an_evaluation(answer, score):
    problem = function_problem(lambda text: answer, "a text", TASK)
    found = problem.evaluate_program(problem.start)
    assert (found.is_valid, found.score) == (True, score)


@pytest.mark.parametrize("answer", [None, "0.5", (0.5, "good")])
def test_any_other_answer_is_a_fault_of_the_function(answer):
    expected = (
        r"evaluate returned \w+; expected a number, .*, \(score, side_info\), or an Evaluation"
    )
    with pytest.raises(ValueError, match=expected):
        search(writer(), lambda text: answer)


def test_an_error_of_the_function_itself_is_refused_before_the_first_request():
    model = writer()
    with pytest.raises(ValueError, match=r"ZeroDivisionError"):
        search(model, lambda text: 1 / 0)
    assert model.prompts == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"start": "def f():\n    return 1\n"}, r"start: got a program in Python, .* sandbox"),
        ({"start": 3}, r"start: got 3, expected a text that nothing runs"),
        ({"start": " "}, r"initial_program is ' '"),
        ({"start": Path("/no/such/file")}, r"start: got /no/such/file, expected a text file"),
        ({"task": ""}, r"task: got '', expected what the text is for"),
        ({"problem": "circle_packing"}, r"evaluate: got a function and a problem, expected only"),
        ({"evaluate": None}, r"start and task: got them without evaluate"),
        ({"evaluate": None, "start": None, "task": ""}, r"problem: got None, expected a name"),
        ({"evaluate": 3}, r"evaluate: got 3, expected a function"),
    ],
)
def test_what_is_no_function_and_text_is_refused_with_what_is_expected(given, message):
    with pytest.raises(ValueError, match=message):
        search(writer(), **{"evaluate": share_of_rules, **given})


@pytest.mark.parametrize(("name", "is_text"), [("a.md", True), ("a.sql", True), ("a.cpp", False)])
def test_a_file_is_begun_with_unless_it_holds_a_program(tmp_path, name, is_text):
    (tmp_path / name).write_text("honest")
    if is_text:
        problem = function_problem(share_of_rules, tmp_path / name, TASK)
        assert problem.start.text == "honest"
        assert problem.form.entry_point is None
    else:
        with pytest.raises(ValueError, match=r"start: got a program in C\+\+, .* sandbox"):
            function_problem(share_of_rules, tmp_path / name, TASK)
    with pytest.raises(ValueError, match=r"the name of a file; expected Path\("):
        function_problem(share_of_rules, str(tmp_path / name), TASK)


def test_a_run_in_a_folder_is_resumed_with_the_same_function(tmp_path):
    folder = tmp_path / "run"
    first = search(writer("Be honest."), out=folder, max_iterations=1)
    assert first.best_score == pytest.approx(1 / 3)
    again = search(writer("honest language, complain"), out=folder, resume=True, max_iterations=2)
    assert (again.iterations, again.best_score) == (2, 1.0)

    def changed(text):
        return share_of_rules(text) / 2

    changed.__name__ = share_of_rules.__name__
    with pytest.raises(ValueError, match=r"program \S+ scores 0\.5, expected 1, as when the run"):
        search(writer(), changed, out=folder, resume=True, max_iterations=3)


def test_several_texts_are_judged_at_once_and_keep_their_feedback_apart(tmp_path):
    def evaluate(text):
        costada.log("heard", text.strip())
        thread = Thread(target=copy_context().run, args=(costada.log, "and", text.strip()))
        thread.start()
        thread.join()
        return len(text) / 100

    texts = [f"text number {number}" for number in range(8)]
    search(writer(*texts), evaluate, out=tmp_path / "run", parallel=8, max_iterations=8)
    with RunStore(tmp_path / "run" / "run.sqlite", is_read_only=True) as store:
        candidates = store.candidates.originals(store.run_ids()[-1])
    assert len(candidates) > 4
    for each in candidates:
        text = each.program.text.strip()
        assert each.artifacts["feedback"] == f"heard {text}\nand {text}"


def test_outside_of_an_evaluation_feedback_is_printed(capsys):
    assert share_of_rules("honest") == pytest.approx(1 / 3)
    assert capsys.readouterr().out == "missing: language\nmissing: complain\n"

import os
import socket
from decimal import Decimal
from typing import Any

import pytest
from fakes import ScriptedModel, hashed_answer, toy_problem
from langchain_core.messages import AIMessage
from page_runs import call, candidate, settings, step, write_steps

from costada.controller.constants import Constants
from costada.graph.build import create_discovery_graph
from costada.models.replies import message_to_text
from costada.nodes.settings import Settings
from costada.reports.page.failures import Failure, failures_of, kind_of
from costada.reports.page.feed import Averages, Feed
from costada.runs.discovery import discover
from costada.runs.folder import RunFolder
from costada.runs.lease import hold_lease
from costada.store.history import PastCall, PastCandidate, PastFailure
from costada.store.rows import CallStatus, OutcomeKind
from costada.store.run_store import RunStore
from costada.values.prices import Price
from costada.values.program import Program


def column(figures: Any, table: str, name: str) -> list[Any]:
    place = figures[table]["columns"].index(name)
    return [row[place] for row in figures[table]["rows"]]


def test_figures_hold_every_step_request_and_candidate(tmp_path):
    run = settings(tmp_path / "run")
    write_steps(run, [step(1), step(2)])
    figures = Feed(run).figures()
    assert column(figures, "steps", "iteration") == [1, 2]
    assert column(figures, "calls", "cost") == [0.002, 0.002]
    assert column(figures, "candidates", "id") == ["0.1", "1.1", "2.1"]
    assert figures["run_id"] == "run"


def test_figures_after_an_iteration_hold_only_what_came_then(tmp_path):
    run = settings(tmp_path / "run")
    write_steps(run, [step(1), step(2)])
    feed = Feed(run)
    feed.figures()
    write_steps(run, [step(3)])
    write_steps(run, [], calls=[call(4)], candidates=[])
    figures = feed.figures(2)
    assert column(figures, "steps", "iteration") == [3]
    assert column(figures, "calls", "iteration") == [3, 4]
    assert column(figures, "candidates", "id") == ["3.1"]


def test_a_folder_whose_run_has_not_begun_has_a_heading_and_nothing_else(tmp_path):
    figures: Any = Feed(settings(tmp_path / "run")).figures()
    assert figures["run_id"] == ""
    assert figures["steps"]["rows"] == []
    assert figures["heading"]["problem"] == "toy"
    assert figures["standing"] == {"state": "waiting", "words": "No iteration is finished yet"}


def test_another_run_in_the_same_file_takes_the_place_of_the_first(tmp_path):
    run = settings(tmp_path / "run")
    write_steps(run, [step(1), step(2)])
    feed = Feed(run)
    feed.figures()
    with RunStore(run.database) as store:
        store.open_run("later", "costada", "toy")
        store.put_step("later", 1, step(1, objective=0.75))
    figures = feed.figures()
    assert figures["run_id"] == "later"
    assert column(figures, "steps", "objective") == [0.75]


def test_the_heading_tells_the_problem_as_it_was_when_the_run_began(tmp_path):
    problem = toy_problem(name="cost", direction="minimize", reference=2.5)
    given = {"price_in": "1", "price_out": "2", "max_iterations": 1}
    model = ScriptedModel(answer=hashed_answer)
    discover(problem, model, budget=1.0, out=tmp_path / "run", **given)
    told: Any = Feed(RunFolder(tmp_path / "run")).figures()["heading"]
    assert (told["problem"], told["direction"], told["reference"]) == ("cost", "minimize", 2.5)


@pytest.mark.parametrize(
    ("last", "state", "words"),
    [
        (step(3), "stopped", "Stopped; resume with costada resume "),
        (step(3, spent=1.0), "finished", "Finished: the budget is used up"),
        (step(3, events=["out_of_money"]), "finished", "Finished: the budget is used up"),
        (step(10), "finished", "Finished: the iteration limit is reached"),
    ],
)
def test_the_last_step_tells_how_a_run_stands(tmp_path, last, state, words):
    run = settings(tmp_path / "run")
    write_steps(run, [last])
    standing: Any = Feed(run).figures()["standing"]
    assert (standing["state"], standing["words"][: len(words)]) == (state, words)


LEFT = (
    '{"pid": %(pid)d, "host": "%(host)s"}',
    '{"pid": 1, "host": "%(host)s"}',
    '{"pid": %(pid)d, "host": "elsewhere"}',
    "",
    "[]",
)


@pytest.mark.parametrize("lease", LEFT)
def test_a_lease_that_somebody_left_makes_no_run_a_running_one(tmp_path, lease):
    run = settings(tmp_path / "run")
    write_steps(run, [step(1)])
    named = lease % {"pid": os.getpid(), "host": socket.gethostname()} if "%" in lease else lease
    (run.path / "run.lease").write_text(named)
    standing: Any = Feed(run).figures()["standing"]
    assert standing["state"] == "stopped"


def test_a_run_is_running_while_a_process_holds_its_lease(tmp_path):
    run = settings(tmp_path / "run")
    write_steps(run, [step(1)])
    with hold_lease(run.path):
        standing: Any = Feed(run).figures()["standing"]
        assert standing["state"] == "running"
    standing = Feed(run).figures()["standing"]
    assert standing["state"] == "stopped"


def test_texts_of_an_iteration_hold_prompt_answer_and_program(tmp_path):
    run = settings(tmp_path / "run")
    asked = call(2, prompt="please", answer="done")
    found = candidate(2, program=Program.of("x = 2\n"))
    write_steps(run, [step(1), step(2)], calls=[asked], candidates=[found])
    (texts,) = Feed(run).texts(2, 2)
    (told,) = texts["calls"]  # type: ignore[misc]
    (judged,) = texts["candidates"]  # type: ignore[misc]
    assert (told["prompt"], told["answer"], told["cost"]) == ("please", "done", "0.002")
    assert (judged["id"], judged["code"]) == ("2.1", "x = 2\n")


def test_an_answer_that_called_tools_is_told_as_people_read_it(tmp_path):
    run = settings(tmp_path / "run")
    asked = {"name": "submit", "args": {"candidate": "1.1.2"}, "id": "call-1"}
    answer = message_to_text(AIMessage("The second is better.", tool_calls=[asked]))
    write_steps(run, [step(1)], calls=[call(1, answer=answer)])
    (texts,) = Feed(run).texts(1, 1)
    (told,) = texts["calls"]  # type: ignore[misc]
    assert told["answer"] == "The second is better.\n\n[tool call] submit\ncandidate: 1.1.2"


def test_averages_keep_nine_tenths_of_the_old_value():
    averages = Averages("costada", Constants())
    earned = {"utility": 0.2, "allocation_reward": 0.1}
    assert averages.after(step(1, frontier=1, **earned)) == pytest.approx((0.02, 0.01))
    assert averages.after(step(2, frontier=2)) == (0.0, 0.0)
    assert averages.after(step(3, frontier=1)) == pytest.approx((0.018, 0.009))


def test_a_method_without_these_averages_has_none():
    assert Averages("adaevolve", Constants()).after(step(1)) == (None, None)


def test_averages_of_a_real_run_are_those_of_its_controller(tmp_path):
    run = settings(tmp_path / "run", max_iterations=12)
    with RunStore(run.database) as store:
        graph = create_discovery_graph(
            toy_problem(),
            ScriptedModel(answer=hashed_answer),
            budget=0.03,
            settings=Settings(price=Price(Decimal(1), Decimal(2))),
            store=store,
        )
        *_, last = graph.stream({"seed": 3}, stream_mode="values")
    figures = Feed(RunFolder(run.path)).figures()
    number = column(figures, "steps", "frontier")
    known = dict(zip(number, column(figures, "steps", "smoothed_utility"), strict=True))
    estimates = dict(zip(number, column(figures, "steps", "allocation_estimate"), strict=True))
    frontiers = last["controller"].frontiers
    assert {k: frontiers[k - 1].smoothed_utility for k in known} == known
    assert {k: frontiers[k - 1].allocation_estimate for k in known} == estimates
    assert max(known.values()) > 0


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("timeout: the program exceeded 5 s", "ran out of time"),
        ("the program held more than 512 MB of memory", "ran out of memory"),
        ("MemoryError", "ran out of memory"),
        ("the program was killed by SIGSEGV before it returned", "was killed"),
        ("the program ended its process (exit status 1) before it returned", "ended its process"),
        ("malformed answer: it is incomplete; ...", "gave no answer"),
        (
            'File "candidate.py", line 3\n    f(\n     ^\nSyntaxError: expected',
            "raised SyntaxError",
        ),
        ("Traceback\nKeyError: 1\n\nThe above\nTypeError: no", "raised TypeError"),
        ("centers has shape (25, 2); expected (26, 2)", "refused by the evaluator"),
        ("<script>alert(1)</script>Error: boo", "refused by the evaluator"),
        ("MyOwnError: boo", "refused by the evaluator"),
        ("", "refused by the evaluator"),
    ],
)
def test_a_failed_program_is_sorted_by_what_its_error_says(error, kind):
    assert kind_of(error) == kind


def test_marks_of_the_sandbox_and_the_evaluator_come_before_the_error():
    assert kind_of("TypeError: no", ["sandbox_fault"]) == "the sandbox broke down"
    assert kind_of("TypeError: no", ["evaluator_fault", "log"]) == "the evaluator failed"


def past_call(iteration: int, status: CallStatus, error: str | None) -> PastCall:
    none: Any = 0
    return PastCall(iteration, "generation", 1, 1, status, none, none, "", "", {"error": error})


def past_candidate(name: str, **facts: Any) -> PastCandidate:
    return PastCandidate(name, int(name.split(".")[0]), "", {"is_valid": True, **facts})


def test_every_failure_is_told_once_with_its_place_and_iteration():
    found = failures_of(
        calls=[past_call(1, CallStatus.ERROR, "RateLimitError"), past_call(3, CallStatus.DONE, "")],
        candidates=[
            past_candidate("2.1", is_valid=False, error="TypeError: no"),
            past_candidate("2.2"),
            past_candidate("2.1>1@15", is_valid=False, error="TypeError: no", is_copy=True),
        ],
        outcomes=[
            PastFailure(1, "generation", 1, OutcomeKind.FAILURE, "RateLimitError"),
            PastFailure(4, "generation", 1, OutcomeKind.REFUSAL, "status 400"),
        ],
        tactics=[(4, {"tactics": []}), (5, {"tactics": [{}]})],
        steps=[
            step(1, failure="RateLimitError"),
            step(2, attempts=2),
            step(3, attempts=1, failure="The answer is empty."),
            step(4, failure="status 400"),
        ],
    )
    assert found == [
        Failure(1, 1, "Model", "request failed", "RateLimitError"),
        Failure(2, 1, "Program", "raised TypeError", "TypeError: no"),
        Failure(3, 1, "Answer", "no program in the answer", "The answer is empty."),
        Failure(4, 0, "Answer", "no tactic in the guide's answer", ""),
        Failure(4, 1, "Model", "request refused", "status 400"),
    ]


def test_the_reason_of_an_earlier_attempt_without_a_program_is_not_known():
    found = failures_of([], [past_candidate("1.2")], [], [], [step(1, attempts=2)])
    assert found == [Failure(1, 1, "Answer", "no program in the answer", "")]


def test_a_long_reason_is_told_by_its_beginning():
    found = failures_of([], [past_candidate("1.1", is_valid=False, error="x" * 900)], [], [], [])
    assert found[0].text == "x" * 300

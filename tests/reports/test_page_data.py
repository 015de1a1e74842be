import json
import os
import socket
import sqlite3
from contextlib import closing
from decimal import Decimal
from typing import Any

import pytest
from fakes import ScriptedModel, hashed_answer, toy_problem
from langchain_core.messages import AIMessage
from page_runs import MENU, call, candidate, front_run, menu_run, settings, step, write_steps

from costada.controller.constants import Constants
from costada.graph.build import compile_search
from costada.models.reply_content import message_to_text
from costada.nodes.settings import Settings
from costada.reports.page.failures import Failure, failures_of, kind_of
from costada.reports.page.feed import Averages, Feed
from costada.reports.patch import MAX_DIFF, diff_rows
from costada.runs.discovery import discover
from costada.runs.folder import RunFolder
from costada.runs.folder_lease import hold_lease
from costada.store.history import PastCall, PastCandidate, PastFailure
from costada.store.rows import CallStatus, OutcomeKind
from costada.store.run_store import RunStore
from costada.values.candidate import Program
from costada.values.usage import Price, Usage

pytestmark = pytest.mark.process


def column(figures: Any, table: str, name: str) -> list[Any]:
    place = figures[table]["columns"].index(name)
    return [row[place] for row in figures[table]["rows"]]


@pytest.fixture
def run(tmp_path):
    """A run that has not started."""
    return settings(tmp_path / "run")


def state_of(run):
    return Feed(run).figures()["standing"]["state"]


def test_figures_hold_every_step_request_and_candidate_after_an_iteration(run):
    write_steps(run, [step(1), step(2)])
    feed = Feed(run)
    figures = feed.figures()
    assert column(figures, "steps", "iteration") == [1, 2]
    assert column(figures, "calls", "cost") == [0.002, 0.002]
    assert column(figures, "candidates", "id") == ["0.1", "1.1", "2.1"]
    assert figures["run_id"] == "run"
    write_steps(run, [step(3)])
    write_steps(run, [], calls=[call(4)], candidates=[])
    figures = feed.figures(2)
    assert column(figures, "steps", "iteration") == [3]
    assert column(figures, "calls", "iteration") == [3, 4]
    assert column(figures, "candidates", "id") == ["3.1"]


def test_models_are_told_in_the_iterations_that_changed_them(tmp_path):
    run = menu_run(tmp_path / "run", 20, disabled=15)
    with RunStore(run.database, is_read_only=True) as store:
        rows = {row["iteration"]: row for row in store.steps("run")}
    feed = Feed(run)
    columns, changes = (feed.figures()["models"][key] for key in ("columns", "rows"))
    assert [row[:2] for row in changes[:3]] == [[1, name] for name in MENU]
    for iteration, row in rows.items():
        known = {change[1]: change[2:] for change in changes if change[0] <= iteration}
        assert [[known[each["name"]][place] for place in range(6)] for each in row["router"]] == [
            [each[name] for name in columns[2:]] for each in row["router"]
        ]
    assert len(changes) < 2 * len(rows) + 3
    assert feed.figures(10)["models"]["rows"] == [row for row in changes if row[0] > 10]


def test_a_run_with_one_model_tells_none(run):
    write_steps(run, [step(1)])
    assert Feed(run).figures()["models"]["rows"] == []


@pytest.mark.parametrize("router", [7, [7], [{}], [{"name": []}]])
def test_damaged_rows_of_models_are_refused(run, router):
    write_steps(run, [step(1, router=router)])
    with pytest.raises(ValueError, match="a row in it is damaged"):
        Feed(run).figures()


@pytest.mark.parametrize("objectives", [7, ["speed:max"], "speed:max"])
def test_damaged_rows_of_objectives_are_refused(run, objectives):
    write_steps(run, [step(1, objectives=objectives)])
    with pytest.raises(ValueError, match="a row in it is damaged"):
        Feed(run).figures()


def test_figures_say_what_a_prompt_cache_saved_on_each_request(run):
    read = call(
        1, usage=Usage(1000, 10, 600), cost=Decimal("0.00102"), price_in="2", price_out="10"
    )
    write_steps(run, [step(1)], calls=[read, call(1, role="guide")])
    assert column(Feed(run).figures(), "calls", "saved") == [pytest.approx(0.00108), 0.0]


def landed(figures, table):
    """Iteration and ticket of each row of a table; a candidate's ticket is in its id."""
    columns, rows = figures[table]["columns"], figures[table]["rows"]
    places = [columns.index(name) for name in ("iteration", "ticket") if name in columns]
    return sorted(tuple(row[place] for place in places) for row in rows)


def in_flight(ticket, **changes):
    """The row of a request that has not ended."""
    return call(ticket, status=CallStatus.STARTED, cost=Decimal(0), **changes)


def test_calls_and_candidates_belong_to_the_iteration_as_which_their_ticket_ended(run):
    feed = Feed(run)
    write_steps(run, [step(1, ticket=2), step(2, ticket=4)])
    write_steps(run, [], calls=[in_flight(1), call(3), in_flight(5)], candidates=[candidate(3)])
    figures = feed.figures()
    assert landed(figures, "calls") == [(1, 2), (2, 4), (3, 1), (3, 3), (3, 5)]
    assert column(figures, "candidates", "iteration") == [0, 1, 2, 3]
    assert column(figures, "candidates", "id") == ["0.1", "2.1", "4.1", "3.1"]

    write_steps(run, [step(3, ticket=3)], calls=[], candidates=[])
    write_steps(run, [], calls=[in_flight(6)], candidates=[])
    figures = feed.figures(2)
    assert column(figures, "steps", "ticket") == [3]
    assert landed(figures, "calls") == [(3, 3), (4, 1), (4, 5), (4, 6)]
    assert column(figures, "candidates", "id") == ["3.1"]


def test_a_copy_belongs_to_the_iteration_in_which_it_migrated(run):
    """Ticket 2 lands first and ticket 1 last; a copy of 2.1 migrates in iteration 3."""
    feed = Feed(run)
    tickets = {1: 2, 2: 3, 3: 4, 4: 1}
    write_steps(run, [step(i, ticket=t) for i, t in tickets.items()])
    copy = candidate(2, id="2.1>1@3", parent_id="2.1", migrated_in=3)
    write_steps(run, [], calls=[], candidates=[copy])
    figures = feed.figures()
    assert column(figures, "candidates", "id") == ["0.1", "2.1", "3.1", "4.1", "2.1>1@3", "1.1"]
    assert column(figures, "candidates", "iteration") == [0, 1, 2, 3, 3, 4]
    assert column(figures, "candidates", "is_copy") == [False] * 4 + [True, False]
    assert column(feed.figures(2), "candidates", "id") == ["4.1", "2.1>1@3", "1.1"]
    (texts,) = feed.texts(3, 3)
    assert [each["id"] for each in texts["candidates"]] == ["4.1", "2.1>1@3"]


def test_a_ticket_that_ends_last_is_told_when_it_ends(run):
    feed = Feed(run)
    write_steps(run, [], calls=[in_flight(1)], candidates=[])
    write_steps(run, [step(number - 1, ticket=number) for number in range(2, 12)])
    assert landed(feed.figures(10), "calls") == [(11, 1)]
    write_steps(run, [step(11, ticket=1)], calls=[], candidates=[candidate(1)])
    assert landed(feed.figures(10), "calls") == [(11, 1)]
    assert column(feed.figures(10), "candidates", "id") == ["1.1"]
    assert feed.figures(11)["calls"]["rows"] == []


def test_texts_of_an_iteration_are_those_of_its_ticket(run):
    write_steps(run, [step(1, ticket=3), step(2, ticket=1)])
    write_steps(run, [], calls=[call(2)], candidates=[])
    feed = Feed(run)
    assert [[each["iteration"] for each in found] for _, found in feed.rest(0, 2)] == [
        [0, 1],
        [2, 3],
    ]
    texts = feed.texts(1, 3)
    assert [each["iteration"] for each in texts] == [1, 2, 3]
    assert [each["calls"][0]["prompt"][-12:] for each in texts] == [
        *("iteration 3.", "iteration 1.", "iteration 2.")
    ]
    assert [[one["id"] for one in each["candidates"]] for each in texts] == [["3.1"], ["1.1"], []]
    assert [each["iteration"] for each in feed.texts(0, 1)] == [0, 1]


@pytest.mark.parametrize(("parallel", "shown"), [(1, [2]), (4, [4])])
def test_tactics_are_shown_with_the_iteration_that_paid_for_their_guide(tmp_path, parallel, shown):
    run = settings(tmp_path / "run", parallel=parallel)
    write_steps(run, [step(1), step(2), step(3), step(4, events=["guide_charged"]), step(5)])
    with RunStore(run.database) as store:
        store.put_tactics("run", 2, {"tactics": [{"idea": "rows"}], "mode": "refinement"})
    feed = Feed(run)
    assert [each["iteration"] for each in feed.texts(0, 5) if each["tactics"]] == shown
    for iteration in shown:
        (texts,) = feed.texts(iteration, iteration)
        assert (texts["tactics"], texts["mode"]) == ([{"idea": "rows"}], "refinement")


def test_a_failure_is_listed_with_the_iteration_as_which_its_ticket_ended(run):
    broken = candidate(3, id="3.1", is_valid=False, error="TypeError: no")
    steps = [step(1, ticket=3, attempts=2, failure="no program"), step(2, ticket=1)]
    failed = call(1, status=CallStatus.ERROR, error="RateLimitError")
    write_steps(run, steps, calls=[failed, call(3)], candidates=[broken])
    figures = Feed(run).figures()
    found = [column(figures, "faults", name) for name in ("iteration", "attempt", "kind")]
    assert list(zip(*found, strict=True)) == [
        (1, 1, "raised TypeError"),
        (1, 2, "no program in the answer"),
        (2, 1, "request failed"),
    ]


def test_a_run_that_has_not_begun_has_a_heading_and_nothing_else(run):
    figures = Feed(run).figures()
    assert figures["run_id"] == ""
    assert figures["steps"]["rows"] == []
    assert figures["heading"]["problem"] == "toy"
    words = "No iteration is finished yet"
    assert figures["standing"] == {"state": "waiting", "words": words, "over": ""}


def test_another_run_in_the_same_file_replaces_the_first(run):
    write_steps(run, [step(1), step(2)])
    feed = Feed(run)
    feed.figures()
    with RunStore(run.database) as store:
        store.open_run("later", "costada", "toy")
        store.put_step("later", 1, step(1, objective=0.75))
    figures = feed.figures()
    assert figures["run_id"] == "later"
    assert column(figures, "steps", "objective") == [0.75]


def test_the_heading_describes_the_problem_as_it_was_when_the_run_began(tmp_path):
    problem = toy_problem(name="cost", direction="minimize", reference=2.5)
    given = {"price": "1,2", "max_iterations": 1, "out": tmp_path / "run"}
    discover(problem, ScriptedModel(answer=hashed_answer), budget=1.0, **given)
    heading = Feed(RunFolder(tmp_path / "run")).figures()["heading"]
    assert [heading[key] for key in ("problem", "direction", "reference")] == [
        "cost",
        "minimize",
        2.5,
    ]


@pytest.mark.parametrize(
    ("last", "state", "words"),
    [
        (step(3), "stopped", "Stopped; resume with costada resume "),
        (step(3, spent=1.0), "finished", "Finished: the budget is used up"),
        (step(3, events=["out_of_money"]), "finished", "Finished: no further call fits the budget"),
        (step(10), "finished", "Finished: the iteration limit is reached"),
    ],
)
def test_the_last_step_decides_the_state_of_a_run(run, last, state, words):
    write_steps(run, [last])
    standing = Feed(run).figures()["standing"]
    assert (standing["state"], standing["words"][: len(words)]) == (state, words)


@pytest.mark.parametrize(
    "lease",
    [
        {"pid": os.getpid(), "host": socket.gethostname()},
        {"pid": 1, "host": socket.gethostname()},
        {"pid": os.getpid(), "host": "elsewhere"},
        None,
        [],
    ],
)
def test_a_run_is_running_only_while_a_process_holds_its_lease(run, lease):
    write_steps(run, [step(1)])
    (run.path / "run.lease").write_text("" if lease is None else json.dumps(lease))
    assert state_of(run) == "stopped"
    with hold_lease(run.path):
        assert state_of(run) == "running"
    assert state_of(run) == "stopped"


def test_texts_of_an_iteration_hold_prompt_answer_and_program(run):
    tool_call = {"name": "submit", "args": {"candidate": "1.1.2"}, "id": "call-1"}
    answer = message_to_text(AIMessage("The second is better.", tool_calls=[tool_call]))
    calls = [call(1, answer=answer), call(2, prompt="please", answer="done")]
    found = candidate(2, program=Program.of("x = 2\n"))
    write_steps(run, [step(1), step(2)], calls=calls, candidates=[found])
    first, second = Feed(run).texts(1, 2)
    assert [second["calls"][0][key] for key in ("prompt", "answer", "cost")] == [
        *("please", "done", "0.002")
    ]
    assert [second["candidates"][0][key] for key in ("id", "code")] == ["2.1", "x = 2\n"]
    shown = "The second is better.\n\n[tool call] submit\ncandidate: 1.1.2"
    assert first["calls"][0]["answer"] == shown


def test_averages_keep_nine_tenths_of_the_old_value_if_the_method_has_them():
    averages = Averages("costada", Constants())
    earned = {"utility": 0.2, "allocation_reward": 0.1}
    assert averages.after(step(1, frontier=1, **earned)) == pytest.approx((0.02, 0.01))
    assert averages.after(step(2, frontier=2)) == (0.0, 0.0)
    assert averages.after(step(3, frontier=1)) == pytest.approx((0.018, 0.009))
    assert Averages("adaevolve", Constants()).after(step(1)) == (None, None)
    utility, estimate = Averages("costada-thompson", Constants()).after(step(1))
    assert (utility, estimate) == (Averages("costada", Constants()).after(step(1))[0], None)


def test_averages_of_a_run_are_those_of_its_controller(tmp_path):
    run = settings(tmp_path / "run", max_iterations=12)
    with RunStore(run.database) as store:
        graph = compile_search(
            toy_problem(),
            ScriptedModel(answer=hashed_answer),
            budget=0.03,
            settings=Settings(price=Price(Decimal(1), Decimal(2))),
            store=store,
        )
        *_, last = graph.stream({"seed": 3}, stream_mode="values")
    figures, frontiers = Feed(RunFolder(run.path)).figures(), last["controller"].frontiers
    number = column(figures, "steps", "frontier")
    for name in ("smoothed_utility", "allocation_estimate"):
        shown = dict(zip(number, column(figures, "steps", name), strict=True))
        assert {k: getattr(frontiers[k - 1], name) for k in shown} == shown
        assert max(shown.values()) > 0


@pytest.mark.parametrize(
    ("before", "after", "rows"),
    [
        ("a\nb\n", "a\nb\n", []),
        ("a\nb\nc", "a\nx\nc", [("same", "a"), ("removed", "b"), ("added", "x"), ("same", "c")]),
        (
            "1\n2\n3\n4\n5\n6",
            "1\n2\n3\n4\n5\n7",
            [("gap", ""), *(("same", line) for line in "345"), ("removed", "6"), ("added", "7")],
        ),
        ("", "new", [("added", "new")]),
        (
            "h\n" * 300 + "x\n" + "t\n" * 300,
            "h\n" * 300 + "y\n" + "t\n" * 300,
            [
                ("gap", ""),
                *[("same", "h")] * 3,
                *(("removed", "x"), ("added", "y")),
                *[("same", "t")] * 3,
            ],
        ),
        ("a\n" * 9, "a\n" * 8, [("gap", ""), *[("same", "a")] * 3, ("removed", "a")]),
        ("a\n" * MAX_DIFF, "a\n", [*[("removed", "a")] * MAX_DIFF, ("added", "a")]),
    ],
)
def test_a_diff_shows_changed_lines_with_three_around_them_or_long_programs_whole(
    before, after, rows
):
    assert diff_rows(before, after) == rows


def test_a_candidate_of_several_files_shows_what_it_changed_file_by_file(run):
    start = Program.of({"a.py": "x = 1\n", "b.py": "y = 2\n", "pkg/c.md": "text\n"})
    changed = Program.of({"b.py": "y = 2\n", "new.py": "z = 3\n", "pkg/c.md": "other\n"})
    write_steps(
        run,
        [step(1)],
        candidates=[candidate(0, program=start), candidate(1, program=changed)],
    )
    (first,), (second,) = (each["candidates"] for each in Feed(run).texts(0, 1))
    assert (first["files"], first["unchanged"], first["diff"]) == (dict(start), [], None)
    assert second["files"] == {"new.py": "z = 3\n", "pkg/c.md": "other\n"}
    assert second["unchanged"] == ["b.py"]
    assert second["diff"] == [
        *(("file", "a.py (deleted)"), ("removed", "x = 1")),
        *(("file", "new.py (added)"), ("added", "z = 3")),
        *(("file", "pkg/c.md"), ("removed", "text"), ("added", "other")),
    ]


def test_a_page_holds_a_file_that_many_candidates_leave_alone_once(run):
    large = "a" * 2**20
    start = Program.of({"large.txt": large, "a.py": ""})
    found = [
        candidate(number, program=Program.of({"large.txt": large, "a.py": f"x = {number}\n"}))
        for number in range(1, 20)
    ]
    steps = [step(number) for number in range(1, 20)]
    write_steps(run, steps, candidates=[candidate(0, program=start), *found])
    texts = json.dumps(Feed(run).texts(0, 19))
    assert texts.count(large) == 1
    assert "x = 19" in texts


SYNTAX_ERROR = 'File "candidate.py", line 3\n    f(\n     ^\nSyntaxError: expected'


@pytest.mark.parametrize(
    ("error", "marks", "kind"),
    [
        ("timeout: the program exceeded 5 s", [], "ran out of time"),
        ("the program held more than 512 MB of memory", [], "ran out of memory"),
        ("MemoryError", [], "ran out of memory"),
        ("the program was killed by SIGSEGV before it returned", [], "was killed"),
        ("the program ended its process (exit status 1) before it", [], "ended its process"),
        ("malformed answer: it is incomplete; ...", [], "gave no answer"),
        (SYNTAX_ERROR, [], "raised SyntaxError"),
        ("Traceback\nKeyError: 1\n\nThe above\nTypeError: no", [], "raised TypeError"),
        ("centers has shape (25, 2); expected (26, 2)", [], "refused by the evaluator"),
        ("<script>alert(1)</script>Error: boo", [], "refused by the evaluator"),
        ("MyOwnError: boo", [], "refused by the evaluator"),
        ("", [], "refused by the evaluator"),
        ("TypeError: no", ["sandbox_fault"], "the sandbox failed"),
        ("TypeError: no", ["evaluator_fault", "log"], "the evaluator failed"),
    ],
)
def test_failed_programs_are_classified_by_marks_and_error(error, marks, kind):
    assert kind_of(error, marks) == kind


def past_call(iteration: int, status: CallStatus, error: str | None) -> PastCall:
    none: Any = 0
    return PastCall(iteration, "generation", 1, 1, status, none, none, "", "", {"error": error})


def past_candidate(name: str, **facts: Any) -> PastCandidate:
    migrated_in = int(name.partition("@")[2]) if "@" in name else None
    return PastCandidate(
        name, int(name.split(".")[0]), "", {"is_valid": True, **facts}, migrated_in
    )


def test_every_failure_is_listed_once_with_its_source_and_iteration():
    error = {"is_valid": False, "error": "TypeError: no"}
    found = failures_of(
        calls=[past_call(1, CallStatus.ERROR, "RateLimitError"), past_call(3, CallStatus.DONE, "")],
        candidates=[
            past_candidate("2.1", **error),
            past_candidate("2.2"),
            past_candidate("2.1>1@15", **error),
        ],
        outcomes=[
            PastFailure(1, "generation", 1, OutcomeKind.FAILURE, "RateLimitError"),
            PastFailure(4, "generation", 1, OutcomeKind.REFUSAL, "status 400"),
        ],
        tactics=[(4, {"tactics": []}), (5, {"tactics": [{}]})],
        iteration_of=int,
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


def test_a_reason_may_be_unknown_and_a_long_one_is_cut():
    found = failures_of([], [past_candidate("1.2")], [], [], [step(1, attempts=2)], int)
    assert found == [Failure(1, 1, "Answer", "no program in the answer", "")]
    failed = past_candidate("1.1", is_valid=False, error="x" * 900)
    found = failures_of([], [failed], [], [], [], int)
    assert found[0].text == "x" * 300


def test_figures_hold_the_values_of_objectives_the_front_and_what_was_measured(tmp_path):
    goals = {"speed:max": [1.0, 2.0, 3.0], "peak: memory:min": [5.0, 7.0, 6.0]}
    found = Feed(front_run(tmp_path / "run", goals, [0, 2])).figures()
    assert found["objectives"] == [*goals]
    assert found["front"] == ["0.1", "2.1"]
    assert column(found, "candidates", "id") == ["0.1", "1.1", "2.1"]
    assert column(found, "candidates", "values") == [[1.0, 5.0], [2.0, 7.0], [3.0, 6.0]]
    assert column(found, "steps", "measurements") == [[0.5, 0.25]] * 2
    assert column(found, "steps", "confirmation") == [[0.75, 0.5], []]


def test_a_run_of_one_objective_has_no_front_and_no_further_columns(run):
    write_steps(run, [step(1)])
    found = Feed(run).figures()
    assert (found["objectives"], found["front"]) == ([], [])
    assert "values" not in found["candidates"]["columns"]
    assert "measurements" not in found["steps"]["columns"]


@pytest.mark.parametrize(("members", "reason"), [("{", "Expecting"), ("3", r"run\.sqlite")])
def test_a_damaged_front_is_refused(tmp_path, members, reason):
    run = front_run(tmp_path / "run", {"a:max": [1.0, 2.0], "b:max": [2.0, 1.0]}, [0, 1])
    with RunStore(run.database) as store:
        store._db.write("UPDATE costada_archive SET members = ?", (members,))
    with pytest.raises(ValueError, match=reason):
        Feed(run).figures()


def test_a_submitted_program_of_a_wrong_form_is_a_failure_of_its_iteration(run):
    failed = step(1, attempts=0, failure="There is no file `a.py`.", candidate_id=None)
    write_steps(run, [failed], calls=[], candidates=[])
    assert Feed(run).figures()["faults"]["rows"] == [
        [1, 0, "Program", "submitted in an invalid form", "There is no file `a.py`."]
    ]


@pytest.mark.parametrize("field", ["ticket", "attempts"])
def test_a_number_that_no_run_reaches_costs_no_memory(tmp_path, field):
    made = settings(tmp_path / "run")
    write_steps(made, [step(1)], calls=[], candidates=[])
    write_steps(made, [step(2) | {field: 2**40}], calls=[], candidates=[])
    feed = Feed(made)
    if field == "attempts":
        with pytest.raises(ValueError, match="attempts up to iteration 2: got 1099511627777"):
            feed.figures()
    else:
        assert feed.figures(2)["steps"]["rows"] == []


def test_bytes_in_place_of_a_text_are_refused(run):
    write_steps(run, [step(1)])
    with closing(sqlite3.connect(run.database)) as connection, connection:
        connection.execute("UPDATE costada_candidate SET id = x'ff' WHERE ticket = 1")
    with pytest.raises(ValueError, match="a row of candidates holds bytes"):
        Feed(run).figures()


@pytest.mark.parametrize("odd", [{"failure": 5}, {"events": 5}, {"utility": "much"}])
def test_texts_of_a_run_with_odd_rows_are_refused(run, odd):
    write_steps(run, [step(1) | odd])
    with pytest.raises(ValueError, match="a row in it is damaged"):
        Feed(run).texts(1, 1)

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from billing_server import BillingServer, HangUp
from compared_runs import outcome
from fakes import ScriptedModel, hashed_answer, toy_problem

from costada.experiments.comparison.metrics import Point, crossing
from costada.experiments.comparison.outcomes import append_outcomes, find_outcomes
from costada.models.chat_models import chat_model
from costada.reports.trace import stored_rows
from costada.runs.discovery import discover
from costada.store.run_store import RunStore


def test_a_run_folder_becomes_an_outcome(finished, near):
    (found,) = find_outcomes(finished.parent).outcomes
    with RunStore(finished / "run.sqlite", is_read_only=True) as store:
        rows = stored_rows(store, store.run_ids()[-1])
    assert (found.problem, found.method, found.model) == ("near", "costada", "offline")
    assert (found.seed, found.budget, found.is_minimized) == (0, 1.0, False)
    assert [point.spent for point in found.points] == [row["spent"] for row in rows]
    assert found.points[-1].best_objective == rows[-1]["best_objective"]
    assert found.seed_score == found.seed_objective == pytest.approx(0.6)
    assert sum(found.dollars_by_role.values()) == pytest.approx(rows[-1]["spent"])


def test_name_and_direction_are_those_that_the_problem_had_when_the_run_began(
    near, invoke, tmp_path
):
    folder = shutil.copytree(near, tmp_path / "problem")
    (folder / "problem.toml").write_text(
        'name = "nearest"\ndirection = "minimize"\nreference = 1.0\n'
    )
    result = invoke("run", folder, "--max-iterations", 1, "--out", tmp_path / "runs" / "one")
    assert result.exit_code == 0, result.output
    shutil.rmtree(folder)
    (found,) = find_outcomes(tmp_path / "runs").outcomes
    assert (found.problem, found.is_minimized) == ("nearest", True)


def test_a_run_file_that_does_not_say_what_decided_its_run_is_left_out(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "one")
    for setup, reason in {
        "": "does not say what decided its result",
        '{"problem": {"name": "near"}, "settings": {}}': "setup of the run is",
        '{"problem": {"name": "near", "direction": "minimize"}, "settings": [1]}': "setup of the",
        "{": "Expecting",
    }.items():
        with closing(sqlite3.connect(tmp_path / "one" / "run.sqlite")) as connection, connection:
            connection.execute("UPDATE costada_run SET setup = ?", (setup,))
        (left_out,) = find_outcomes(tmp_path).left_out
        assert left_out.reason.startswith(reason)


def test_what_is_not_finished_is_left_out_with_the_reason(finished, tmp_path):
    for name in ("a-longer", "b-empty", "c-broken", "d-odd"):
        shutil.copytree(finished, tmp_path / name)
    settings = tmp_path / "a-longer" / "settings.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "max_iterations": 9}))
    (tmp_path / "b-empty" / "run.sqlite").unlink()
    (tmp_path / "c-broken" / "run.sqlite").write_bytes(b"no database" * 100)
    (tmp_path / "d-odd" / "settings.json").write_text("{")
    found = find_outcomes(tmp_path)
    reasons = {Path(each.place).name: each.reason for each in found.left_out}
    assert found.outcomes == ()
    assert reasons["a-longer"].startswith("not finished: 3 iterations, $0.")
    assert reasons["b-empty"] == "has not begun"
    assert "not a database" in reasons["c-broken"]
    assert "Invalid JSON" in reasons["d-odd"]


def discovered(out: Path, answer: Callable[[str], str], **options: Any) -> Any:
    prices = {"price_in": "1", "price_out": "2"}
    model = ScriptedModel(answer=answer)
    return discover(toy_problem(), model, budget=0.02, max_failures=4, out=out, **prices, **options)


@pytest.mark.parametrize("row", ["1.5", "{}", '{"iteration": 1}', '{"spent": "x"}'])
def test_a_run_whose_rows_are_none_of_a_run_is_left_out(finished, tmp_path, row):
    odd = shutil.copytree(finished, tmp_path / "odd")
    shutil.copytree(finished, tmp_path / "sound")
    with closing(sqlite3.connect(odd / "run.sqlite")) as connection, connection:
        connection.execute("UPDATE costada_step SET row = ?", (row,))
    found = find_outcomes(tmp_path)
    assert [each.place for each in found.outcomes] == [str(tmp_path / "sound")]
    assert [each.place for each in found.left_out] == [str(odd)]


def test_a_run_that_failures_ended_counts_with_its_last_iteration(tmp_path):
    ended = discovered(tmp_path / "run", lambda prompt: "I would rather not.")
    found = find_outcomes(tmp_path)
    (run,) = found.outcomes
    assert (ended.stop_reason, found.left_out) == ("failures", ())
    assert (run.has_given_up, [point.iteration for point in run.points]) == (True, [1, 2])
    assert crossing(run) == run.points[-1] == Point(2, ended.spent, 0.1, 1.0)


def test_a_run_without_one_usable_answer_is_left_out(tmp_path):
    with BillingServer(default=HangUp()) as server:
        model = chat_model("openai:stand-in", base_url=server.url, retry_wait=0)
        ended = discover(
            toy_problem(),
            model,
            budget=0.064,
            budget_policy="hard",
            price_in="1",
            price_out="2",
            out=tmp_path / "run",
        )
    assert (ended.stop_reason, ended.iterations) == ("failures", 1)
    (left_out,) = find_outcomes(tmp_path).left_out
    assert left_out.reason == "none of its requests was ever answered usably"


def test_a_run_gone_on_with_after_failures_counts_them_anew(tmp_path):
    out = tmp_path / "run"
    discovered(out, lambda prompt: "I would rather not.")
    ended = discovered(out, hashed_answer, resume=True)
    (run,) = find_outcomes(tmp_path).outcomes
    assert (ended.stop_reason, run.has_given_up) == ("budget", False)
    assert run.points[-1].iteration == ended.iterations > 2


def test_fewer_failures_than_the_limit_after_going_on_are_no_end(tmp_path):
    out = tmp_path / "run"
    discovered(out, lambda prompt: "I would rather not.")
    answers = iter(range(3))

    def stopping(prompt: str) -> str:
        if next(answers, None) is None:
            raise KeyboardInterrupt
        return "I would rather not."

    with pytest.raises(KeyboardInterrupt):
        discovered(out, stopping, resume=True)
    (left_out,) = find_outcomes(tmp_path).left_out
    assert left_out.reason.startswith("not finished: 3 iterations, $0.")


def test_outcomes_come_back_from_a_curves_file_as_they_were(tmp_path):
    one = outcome([(0.1, 0.4), (1.2, 1 / 3 + 0.3)], seed=1)
    two = replace(outcome([], seed=2), seed_objective=None, is_minimized=True)
    (tmp_path / "deep").mkdir()
    append_outcomes(tmp_path / "deep" / "simulated.curves.jsonl", [one])
    append_outcomes(tmp_path / "deep" / "simulated.curves.jsonl", [two])
    assert find_outcomes(tmp_path).outcomes == (one, two)


def test_the_same_run_twice_counts_once(tmp_path):
    run = outcome([(1.0, 0.5)])
    append_outcomes(tmp_path / "a.curves.jsonl", [run, run, replace(run, seed=1)])
    found = find_outcomes(tmp_path)
    assert [each.seed for each in found.outcomes] == [0, 1]
    assert [(each.place, each.reason) for each in found.left_out] == [
        (f"{tmp_path}/a.curves.jsonl:2", f"the same run as {tmp_path}/a.curves.jsonl:1")
    ]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"budget": inf}, "budget: got inf, expected a finite number"),
        ({"budget": 0.0}, "budget: got 0.0, expected more than 0"),
        ({"seed_score": nan}, "best_score: got nan"),
        ({"dollars_by_role": {"guide": nan}}, "dollars_by_role: got nan"),
        ({"points": (Point(1, 0.1, 0.5, inf),)}, "best_objective: got inf"),
        ({"points": (Point(1, 0.1, 0.3, None),)}, "best_score: got 0.3 after 0.4"),
        (
            {"points": (Point(1, 0.2, 0.4, None), Point(2, 0.1, 0.4, None))},
            "spent: got 0.1 after 0.2, expected it never to fall",
        ),
    ],
)
def test_an_outcome_that_contradicts_itself_is_neither_written_nor_read(tmp_path, change, fault):
    odd = replace(outcome([]), **change)
    with pytest.raises(ValueError, match=fault):
        append_outcomes(tmp_path / "odd.curves.jsonl", [odd])
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "odd.curves.jsonl").write_text(json.dumps(asdict(odd)) + "\n")
    (left_out,) = find_outcomes(tmp_path).left_out
    assert fault in left_out.reason


def test_a_torn_line_is_left_out_and_the_others_are_read(tmp_path):
    file = tmp_path / "torn.curves.jsonl"
    append_outcomes(file, [outcome([(1.0, 0.5)])])
    with file.open("a") as lines:
        lines.write('{"problem": "to')
    found = find_outcomes(tmp_path)
    assert len(found.outcomes) == 1
    assert found.left_out[0].place == f"{file}:2"


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="nowhere: is no folder, expected one with runs below it"):
        find_outcomes(tmp_path / "nowhere")

"""Runs whose scores are noisy, and runs with several objectives."""

from collections import Counter
from functools import partial
from itertools import pairwise
from sqlite3 import connect
from threading import Lock

import pytest
from agent_answers import submitting, trying
from fakes import SEED_PROGRAM, evaluate_value, hashed_answer, rewrite, toy_problem
from langgraph.checkpoint.memory import InMemorySaver
from toy_graph import THREAD, client, discovery, events_of, resumed, rows_of, run_until, scripted

from costada.store.run_store import RunStore
from costada.values.candidate import Candidate
from costada.values.evaluation import Evaluation, failed


class Luck:
    """An evaluator with other luck in each measurement of a program."""

    def __init__(self, *luck: float) -> None:
        self.luck, self._lock = luck, Lock()
        # Not in attributes, which would make it another evaluator after each measurement.
        self._records = connect(":memory:", check_same_thread=False)
        self._records.execute("CREATE TABLE measured (code TEXT)")

    @property
    def measured(self) -> Counter[str]:
        """How often each program was measured."""
        with self._lock:
            return Counter(code for (code,) in self._records.execute("SELECT code FROM measured"))

    def __call__(self, code: str) -> Evaluation:
        found = evaluate_value(code)
        with self._lock:
            known = "SELECT count(*) FROM measured WHERE code = ?"
            ((number,),) = self._records.execute(known, (code,))
            self._records.execute("INSERT INTO measured VALUES (?)", (code,))
        if not found.is_valid:
            return found
        value = found.score + self.luck[number % len(self.luck)]
        return Evaluation(score=value, objective=10 * value, is_valid=True)


def run_of(evaluate, answer=hashed_answer, **options):
    """A finished run of noisy scores: its store and its rows."""
    store = RunStore()
    fields = {name: options.pop(name) for name in ("objectives", "weights") if name in options}
    problem = toy_problem(evaluate=evaluate, **{"repeats": 3, **fields})
    discovery(scripted(answer), problem=problem, store=store, **options).invoke({}, THREAD)
    return store, rows_of(store)


def test_luck_makes_no_incumbent():
    evaluate = Luck(0.5, 0.5, 0.5, -0.5, -0.5, -0.5)
    store, rows = run_of(evaluate, lambda _: rewrite(0.05), iterations=2)
    first, second = rows
    assert first["measurements"] == pytest.approx([5.5] * 3)
    assert first["confirmation"] == pytest.approx([-4.5] * 3)
    assert (first["score"], first["objective"]) == pytest.approx((0.05, 0.5))
    assert (first["best_score"], first["global_gain"]) == (pytest.approx(0.1), 0.0)
    assert first["events"] == ["measured_again"]
    assert (second["is_cached"], second["events"]) == (True, [])
    assert second["measurements"] == first["measurements"]
    assert sorted(evaluate.measured.values()) == [6, 6]
    assert store.candidates.get(store.run_ids()[-1], "2.1").measurements == tuple(
        first["measurements"]
    )


def test_a_better_program_is_confirmed_and_then_the_incumbent():
    evaluate = Luck(0.01, -0.01, 0.0)
    _, rows = run_of(evaluate, lambda _: rewrite(0.4), iterations=1)
    (row,) = rows
    assert row["measurements"] == row["confirmation"] == pytest.approx([4.1, 3.9, 4.0])
    assert (row["events"], row["best_score"]) == (["confirmed"], pytest.approx(0.4))


def test_a_program_that_a_tool_has_tried_keeps_what_was_measured_then(server):
    evaluate, store = Luck(0.01, -0.01, 0.0), RunStore()
    server.script(trying(0.2), trying(0.7), submitting("1.1.2"))
    problem = toy_problem(evaluate=evaluate, repeats=3)
    options = {"store": store, "iterations": 1, "generator": "agent"}
    discovery(client(server), problem=problem, **options).invoke({})
    (row,) = rows_of(store)
    assert row["measurements"] == row["confirmation"] == pytest.approx([7.1, 6.9, 7.0])
    assert (row["is_cached"], row["events"]) == (True, ["confirmed"])
    assert sorted(evaluate.measured.values()) == [6, 6, 6]  # each was the best when it was tried


def complaining(code: str, excess: float = 4.0) -> Evaluation:
    """An evaluator that says in an artifact and a metric what is wrong with an invalid program."""
    found = evaluate_value(code)
    if found.is_valid:
        return found
    return failed(
        "the evaluator says validity 0",
        metrics={"excess": excess, "combined_score": 0.0, "eval_time": 1.5},
        artifacts={"reason": "circle 25 is outside", "rejected_at": "line 3", "log": "printed"},
    )


@pytest.mark.parametrize("parallel", [1, 2])
def test_a_retry_reads_all_that_the_evaluator_says_of_an_invalid_program(parallel):
    model = scripted(lambda prompt: rewrite(0.5 if "# Failed attempt" in prompt else 5.0))
    problem = toy_problem(evaluate=complaining)
    discovery(model, problem=problem, iterations=1, parallel=parallel).invoke({}, THREAD)
    first, retry = model.prompts[0], next(each for each in model.prompts if "circle 25" in each)
    report = retry.split("The evaluator reported:")[1]
    assert "- excess: 4.0000\n- combined_score: 0.0000\n" in report
    assert "`reason`:\n\n```text\ncircle 25 is outside\n```" in report
    assert "`log`:\n\n```text\nprinted\n```" in report
    assert not any(word in report for word in ("rejected_at", "eval_time"))
    assert "The evaluator reported:" not in first


def test_zeros_of_a_failed_program_are_not_repeated_in_the_retry():
    model = scripted(lambda prompt: rewrite(0.5 if "# Failed attempt" in prompt else 5.0))
    problem = toy_problem(evaluate=partial(complaining, excess=0.0))
    discovery(model, problem=problem, iterations=1).invoke({}, THREAD)
    report = model.prompts[1].split("The evaluator reported:")[1]
    assert "circle 25" in report
    assert "excess" not in report


def test_a_problem_without_noise_has_no_measurements_on_its_trace():
    store = RunStore()
    discovery(problem=toy_problem(), store=store, iterations=2).invoke({}, THREAD)
    known = {"measurements", "confirmation", "objectives", "front"}
    assert not known & {name for row in rows_of(store) for name in row}


def test_a_program_that_is_judged_anew_after_a_stop_keeps_what_was_measured():
    evaluate, saver, store = Luck(0.02, 0.0, -0.01, 0.03, -0.05, 0.01), InMemorySaver(), RunStore()
    options = {"saver": saver, "store": store, "iterations": 8}
    problem = toy_problem(evaluate=evaluate, repeats=3)
    graph = discovery(problem=problem, **options)
    run_until(graph, THREAD, 3)
    before = rows_of(store)
    resumed(discovery(problem=problem, **options))
    assert rows_of(store)[:3] == before
    whole = Luck(*evaluate.luck)
    assert run_of(whole, iterations=8)[1] == rows_of(store)
    assert whole.measured == evaluate.measured
    measured = [number for code, number in whole.measured.items() if "return 0.1000" not in code]
    assert {3, 6} <= {*measured} <= {1, 3, 6}  # an invalid program is measured once


def test_several_steps_in_flight_measure_what_one_after_the_other_would():
    luck = (0.02, 0.0, -0.01, 0.03, -0.05, 0.01)
    options = {"parallel": 4, "order": "launch", "iterations": 12}
    (_, first), (_, second) = (run_of(Luck(*luck), **options) for _ in range(2))
    assert first == second
    assert any(row["confirmation"] for row in first)
    for before, row in pairwise(first):
        is_new = row["best_score"] > before["best_score"]
        assert is_new == ("confirmed" in row["events"])
        assert not is_new or len(row["confirmation"]) == 3


def traded(code: str) -> Evaluation:
    """Two objectives at odds: the value, and a size that mostly rises with it."""
    found = evaluate_value(code)
    if not found.is_valid:
        return found
    thousands = int(1000 * found.score)
    size = float(thousands // 10 + 7 * (thousands % 10))
    metrics = {"value": found.score, "size": size}
    return Evaluation(score=found.score, objective=found.score, is_valid=True, metrics=metrics)


def is_beaten(one: Candidate, other: Candidate) -> bool:
    """Whether another candidate is as large in value, as small in size, and not the same."""
    mine, theirs = ((c.metrics["value"], c.metrics["size"]) for c in (one, other))
    return mine != theirs and theirs[0] >= mine[0] and theirs[1] <= mine[1]


@pytest.mark.parametrize("options", [{}, {"parallel": 4}], ids=["one in flight", "four in flight"])
def test_the_front_holds_all_landed_candidates_that_none_beats(options):
    goals = ["value:max", "size:min"]
    weights = {"value": 1.0, "size": 0.001}
    store, rows = run_of(traded, objectives=goals, weights=weights, iterations=25, **options)
    run_id, landed = store.run_ids()[-1], ["0.1"]
    for row in rows:
        if row["failure"] is None:
            landed.append(row["candidate_id"])
        known = store.candidates.get_many(run_id, landed)
        best = {
            (each.metrics["value"], each.metrics["size"])
            for each in known
            if not any(is_beaten(each, other) for other in known)
        }
        front = store.candidates.front(run_id, row["iteration"])
        assert {(each.metrics["value"], each.metrics["size"]) for each in front} == best
        assert row["front"] == len(front) == len(best)
        entered = row["candidate_id"] in [each.id for each in front]
        assert ("pareto_front" in row["events"]) == entered
        own = known[-1].metrics if row["failure"] is None else {}
        assert row["objectives"] == {
            "value:max": own.get("value"),
            "size:min": own.get("size"),
        }
    assert rows[-1]["front"] > 2
    assert rows[-1]["best_score"] == max(
        each.metrics["value"] - 0.001 * each.metrics["size"] for each in known
    )


def test_a_start_that_is_invalid_is_on_no_front():
    store = RunStore()
    problem = toy_problem(
        evaluate=traded,
        objectives=["value:max", "size:min"],
        initial_program=SEED_PROGRAM.replace("0.10", "2.0"),
        allow_invalid_start=True,
    )
    answers = {"problem": problem, "store": store, "iterations": 1}
    discovery(scripted(lambda _: rewrite(0.3)), **answers).invoke({}, THREAD)
    front = store.candidates.front(store.run_ids()[-1], 10**9)
    assert [each.id for each in front] == ["1.1"]
    assert events_of(store) == ["pareto_front"]

"""Evaluations that cost money: their time is on the ledger, and bounded before it is spent."""

import time
from collections import Counter
from copy import deepcopy
from dataclasses import replace
from decimal import Decimal
from threading import Barrier, Lock

import pytest
from fakes import (
    SEED_PROGRAM,
    ScriptedModel,
    evaluate_value,
    hashed_answer,
    program,
    rewrite,
    toy_problem,
)
from impatience import PATIENCE
from langgraph.checkpoint.memory import InMemorySaver
from toy_graph import (
    CALL_COST,
    THREAD,
    calls_of,
    discovery,
    events_of,
    rows_of,
    run_until,
    scripted,
    spent_by,
)
from waiting import within

from costada.evaluators.sandbox.limits import Limits
from costada.nodes.calls.bounds import compute_cost, evaluation_bound
from costada.nodes.settings import Settings
from costada.store.rows import CallStatus
from costada.store.run_store import RunStore
from costada.values.candidate import Program
from costada.values.usage import Price

PER_SECOND, PER_HOUR = Decimal("0.01"), 36.0


class Timed:
    """Evaluates programs in a given time, and adds up what each evaluation has taken."""

    def __init__(self, seconds: float = 0.01) -> None:
        self.seconds, self.num_judged, self.taken = seconds, 0, 0.0
        self._lock = Lock()

    def __call__(self, code: str):
        began = time.perf_counter()
        time.sleep(self.seconds)
        found = evaluate_value(code)
        with self._lock:
            self.num_judged += 1
            self.taken += time.perf_counter() - began
        return found


def by_role(store: RunStore) -> Counter[str]:
    dollars = Counter[str]()
    for call in calls_of(store):
        dollars[call.role] += call.cost + call.bound
    return dollars


@pytest.mark.parametrize("parallel", [1, 8])
def test_a_step_costs_its_calls_and_the_time_of_its_evaluations(parallel):
    store, evaluate = RunStore(), Timed()
    graph = discovery(
        problem=toy_problem(evaluate=evaluate),
        store=store,
        iterations=12,
        parallel=parallel,
        compute_price=PER_HOUR,
    )
    result = graph.invoke({})
    calls = calls_of(store)
    computed = [call for call in calls if call.role == "compute"]
    assert len(computed) == evaluate.num_judged
    assert all(call.status is CallStatus.DONE and call.bound == 0 for call in computed)
    # As an independent clock has it, and what the wrapper around the evaluator adds.
    total = sum(call.cost for call in computed)
    assert PER_SECOND * Decimal(str(evaluate.taken)) <= total
    assert total <= PER_SECOND * Decimal(str(sum(call.seconds for call in computed) + 1e-6))
    asked = sum(call.cost for call in calls if call.role != "compute")
    assert asked == CALL_COST * sum(call.role != "compute" for call in calls)
    assert spent_by(store) == asked + total == sum(by_role(store).values())
    start, *rest = sorted(computed, key=lambda call: call.ticket)
    assert start.ticket == 0
    assert rest
    rows = rows_of(store)
    for row in rows:
        own = sum(call.cost for call in calls if call.ticket == row["ticket"])
        assert row["step_cost"] >= float(own)  # a guide's ticket may be charged with it
    assert result["spent"] == pytest.approx(float(start.cost) + sum(r["step_cost"] for r in rows))


def test_a_program_that_is_known_costs_no_time():
    store, evaluate = RunStore(), Timed()
    graph = discovery(
        scripted(lambda prompt: rewrite(0.3)),
        problem=toy_problem(evaluate=evaluate),
        store=store,
        iterations=4,
        method="uniform",
        compute_price=PER_HOUR,
    )
    graph.invoke({})
    assert evaluate.num_judged == 2  # the start, and the only program
    assert [call.ticket for call in calls_of(store) if call.role == "compute"] == [0, 1]
    assert any(row["is_cached"] for row in rows_of(store))


def test_without_a_price_evaluations_are_not_on_the_ledger():
    store = RunStore()
    discovery(store=store, iterations=3).invoke({})
    assert "compute" not in by_role(store)
    assert spent_by(store) == CALL_COST * len(calls_of(store))


def test_the_price_is_per_gpu_where_there_are_some():
    problem = toy_problem(limits=Limits(wall_seconds=90))
    settings = Settings(compute_price=2.5)
    assert compute_cost(3600, problem, settings) == Decimal("2.5")
    assert compute_cost(3600, replace(problem, gpus=4.0), settings) == 10
    assert compute_cost(3600, replace(problem, gpus=0.5), settings) == Decimal("1.25")
    assert evaluation_bound(problem, settings) == Decimal("0.0625")
    # measured 3 times, and a new best 3 times more
    assert evaluation_bound(replace(problem, repeats=3), settings) == Decimal("0.375")
    assert evaluation_bound(problem, Settings()) == 0


def test_an_evaluation_that_is_cancelled_costs_its_time_so_far():
    store, seconds = RunStore(), 0.05
    judged = []

    def evaluate(code):
        judged.append(code)
        if len(judged) == 2:
            time.sleep(seconds)
            raise InterruptedError("asked to stop")
        return evaluate_value(code)

    graph = discovery(
        problem=toy_problem(evaluate=evaluate),
        store=store,
        iterations=2,
        saver=InMemorySaver(),
        compute_price=PER_HOUR,
    )
    with pytest.raises(InterruptedError):
        graph.invoke({}, THREAD)
    cancelled = calls_of(store)[-1]
    assert (cancelled.role, cancelled.status) == ("compute", CallStatus.ERROR)
    assert cancelled.cost >= PER_SECOND * Decimal(str(seconds))
    graph.invoke(None, THREAD)
    assert spent_by(store) == sum(call.cost for call in calls_of(store))


STOPPED_AT_START = (
    r"budget: got \$0\.0001, expected more than the \$0\.00\d+ that the evaluation of the initial"
    " program has cost: these dollars are spent, and the run stops before its first iteration"
)


def test_a_start_that_costs_the_whole_budget_is_refused():
    problem = toy_problem(evaluate=Timed(0.05))
    graph = discovery(problem=problem, budget=1e-4, compute_price=PER_HOUR)
    with pytest.raises(ValueError, match=STOPPED_AT_START):
        graph.invoke({})


def test_a_hard_budget_pays_for_a_request_and_its_evaluation_or_is_refused():
    problem = toy_problem(limits=Limits(wall_seconds=100))
    expected = r"budget: got \$1 under a hard budget, .*\$1\.000000 for an evaluation"
    with pytest.raises(ValueError, match=expected):
        discovery(problem=problem, budget_policy="hard", compute_price=PER_HOUR)


@pytest.mark.parametrize("parallel", [1, 8])
@pytest.mark.parametrize("seconds", [0.001, 0.02])
def test_a_hard_budget_is_never_crossed_whatever_evaluations_take(parallel, seconds):
    """Also by evaluations that take longer than the limits of the problem, which are 10 ms."""
    store, budget = RunStore(), 0.06
    problem = toy_problem(evaluate=Timed(seconds), limits=Limits(wall_seconds=0.01))
    graph = discovery(
        ScriptedModel(answer=hashed_answer, output_tokens=200),  # fewer than any limit
        problem=problem,
        store=store,
        budget=budget,
        parallel=parallel,
        budget_policy="hard",
        compute_price=360.0,  # a dollar for ten seconds
    )
    result = graph.invoke({})
    assert result["stop_reason"] == "budget"
    assert spent_by(store) == sum(by_role(store).values()) <= Decimal(str(budget))
    assert by_role(store)["compute"] > 0


def test_an_evaluation_that_waits_for_another_has_no_bound():
    """Or the models of the one that it waits for would wait for what it may leave."""
    store, started = RunStore(), []

    def evaluate(code):
        if code != SEED_PROGRAM and not started:
            within(PATIENCE, lambda: problem.turns._waiting)
            started.extend(call for call in calls_of(store) if call.status is CallStatus.STARTED)
        return evaluate_value(code)

    problem = toy_problem(evaluate=evaluate, evaluations_at_once=1, limits=Limits(wall_seconds=1))
    both_sent = Barrier(2)
    values = iter((0.2, 0.4))

    def answer(prompt):
        both_sent.wait(PATIENCE)
        return rewrite(next(values))

    discovery(
        scripted(answer),
        problem=problem,
        store=store,
        iterations=2,
        parallel=2,
        method="uniform",
        budget_policy="hard",
        compute_price=PER_HOUR,
    ).invoke({})
    assert [(call.role, call.bound) for call in started] == [("compute", PER_SECOND)]
    computed = [call for call in calls_of(store) if call.role == "compute" and call.ticket]
    assert [call.status for call in computed] == [CallStatus.DONE] * 2


def evaluate_slowly(code):
    time.sleep(0.2)
    return evaluate_value(code)


def half_paid(answer, budget, **options):
    """A graph each of whose evaluations costs $0.1."""
    return discovery(
        scripted(answer),
        problem=toy_problem(
            evaluate=evaluate_slowly,
            limits=Limits(wall_seconds=0.2),
            seed_evaluation=evaluate_value(SEED_PROGRAM),
        ),
        budget=budget,
        iterations=3,
        method="uniform",
        price=Price("0", "2"),
        budget_policy="hard",
        compute_price=0.1 / 0.2 * 3600,
        **options,
    )


def test_of_steps_in_flight_one_whose_program_could_not_be_judged_asks_for_none():
    """Two steps have money for both programs, and for one evaluation and a half."""
    store, prompts = RunStore(), []

    def answer(prompt):
        prompts.append(prompt)
        return rewrite(0.2)

    result = half_paid(answer, 0.153, parallel=2, store=store).invoke({})
    assert result["stop_reason"] == "budget"
    assert len(prompts) == 1
    assert [call.role for call in calls_of(store) if call.ticket] == ["generation", "compute"]
    assert "unjudged" not in events_of(store)


def test_a_step_that_is_judged_after_its_checkpoint_was_lost_leaves_nothing_to_judge():
    store, saver, prompts = RunStore(), InMemorySaver(), []

    def answer(prompt):
        prompts.append(prompt)
        return rewrite(0.2 + 0.1 * len(prompts))

    def graph(budget):
        return half_paid(answer, budget, store=store, saver=saver)

    first = graph(0.153)
    run_until(first, THREAD, 1)
    saved = deepcopy(saver.storage)
    store.inputs.put_program(store.run_ids()[0], program(0.4))
    first.invoke(None, THREAD)
    assert "unjudged" in events_of(store)
    saver.storage = saved
    graph(1.0).invoke(None, THREAD)
    assert [row["events"] for row in rows_of(store)] == [[], ["submitted"], []]
    assert len(prompts) == 2
    assert store.inputs.all_unjudged(store.run_ids()[0]) == []


@pytest.mark.parametrize("is_named_only", [False, True])
def test_a_program_that_cannot_be_judged_is_judged_first_with_more_money(is_named_only):
    """A step leaves money for half an evaluation, and a user submits a program then.

    Some run files of the format name the program, and say nothing more of it.
    """
    store, saver, prompts = RunStore(), InMemorySaver(), []

    def answer(prompt):
        prompts.append(prompt)
        return rewrite(0.2)

    def graph(budget):
        return half_paid(answer, budget, store=store, saver=saver)

    first = graph(0.153)
    run_until(first, THREAD, 1)
    store.inputs.put_program(store.run_ids()[0], program(0.4))
    assert first.invoke(None, THREAD)["stop_reason"] == "budget"
    assert len(prompts) == 1
    unjudged = rows_of(store)[-1]
    assert "unjudged" in unjudged["events"]
    assert unjudged["failure"].startswith("not evaluated: not asked: it may cost $0.100000")
    assert unjudged["score"] is None
    assert [call for call in calls_of(store) if call.ticket == unjudged["ticket"]] == []
    if is_named_only:
        name = store.put_program(Program.of(program(0.4)))
        (waiting,) = store.inputs.all_unjudged(store.run_ids()[0])
        store.inputs._db.write(
            "UPDATE costada_input SET text_hash = ? WHERE number = ?", (name, waiting.number)
        )
    result = graph(1.0).invoke(None, THREAD)
    third = rows_of(store)[2]
    assert third["events"] == ["judged_later"]
    assert third["attempts"] == 0
    assert third["score"] is not None
    assert [call.role for call in calls_of(store) if call.ticket == third["ticket"]] == ["compute"]
    assert len(prompts) == 1
    assert [row["score"] for row in rows_of(store)] == [0.2, None, 0.4]
    assert result["stop_reason"] == "iterations"
    assert spent_by(store) == sum(by_role(store).values())

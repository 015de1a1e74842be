from collections import Counter
from dataclasses import replace

import pytest

from costada.evaluators.sandbox.layers import Layer
from costada.plugins.evox.strategies import (
    MAX_STRATEGY_CHARACTERS,
    STRATEGY_LIMITS,
    Selection,
    StrategyFailure,
    StrategyRecord,
    check_strategy,
    initial_strategy,
    select_context,
)


def record(name: str, iteration: int, score: float = 0.5, **changes: object) -> StrategyRecord:
    return StrategyRecord(
        id=name,
        code=f"def run():\n    return '{name} \\'\"\\n\ud800'\n",
        score=score,
        metrics={"objective": score},
        error=None,
        parent_id=None,
        iteration=iteration,
        generation=0,
    ) | StrategyRecord(**changes)


RECORDS = [record(f"{number}.1", number, 0.1 * number) for number in range(8)]
FIRST = "        return self.ids[0], '', self.ids[1 : 1 + n_context]\n"


def strategy(body: str = FIRST, add: str = "self.ids.append(record['id'])", head: str = "") -> str:
    return (
        f"{head}\nclass Strategy:\n    def __init__(self):\n        self.ids = []\n"
        f"    def add(self, record):\n        {add}\n"
        f"    def select(self, n_context, rng):\n{body}"
    )


def select(source, count=4, seed=0, records=RECORDS, limits=STRATEGY_LIMITS):
    return select_context(source, records, count, seed, Layer.PROCESS, limits)


def check(source: str) -> str | None:
    return check_strategy(source, Layer.PROCESS)


def test_the_initial_strategy_is_valid():
    assert check(initial_strategy()) is None


def test_the_initial_strategy_chooses_any_parent_and_others_as_context():
    selections = [select(initial_strategy(), 4, seed) for seed in range(40)]
    assert all(isinstance(each, Selection) and each.label == "" for each in selections)
    assert len(Counter(each.parent_id for each in selections)) == 8
    assert {len(each.context_ids) for each in selections} == {4}
    assert all(each.parent_id not in each.context_ids for each in selections)


def test_the_initial_strategy_begins_with_a_single_candidate():
    assert select(initial_strategy(), records=RECORDS[:1]) == Selection("0.1", "", ())


def test_the_same_seed_leads_to_the_same_choice_and_another_to_another():
    twice = [select(initial_strategy(), seed=7) for _ in range(2)]
    assert twice[0] == twice[1]
    assert len({select(initial_strategy(), seed=seed) for seed in range(10)}) > 1


def test_the_label_and_the_order_of_the_context_come_back():
    source = strategy("        return '3.1', 'diverge', ['7.1', '0.1']\n")
    assert select(source) == Selection("3.1", "diverge", ("7.1", "0.1"))


def test_records_are_added_in_the_order_of_their_iterations():
    assert select(strategy(), records=RECORDS[::-1]) == Selection(
        "0.1", "", ("1.1", "2.1", "3.1", "4.1")
    )


def test_a_strategy_sees_every_field_of_a_record():
    shown = record("9.1", 9, 0.7, error="too slow", parent_id="3.1", generation=4)
    source = strategy(
        "        if self.ids == [EXPECTED]:\n            return '9.1', 'refine', []\n",
        "self.ids.append(record)",
        f"EXPECTED = {dict(shown)!r}\n",
    )
    assert select(source, records=[shown]) == Selection("9.1", "refine", ())


def test_a_long_run_of_long_programs_reaches_the_strategy():
    records = [record(f"{k}.1", k, code="x" * 60_000) for k in range(100)]
    source = strategy(add="self.ids.append(record['id'] * (len(record['code']) == 60000))")
    assert select(source, records=records).parent_id == "0.1"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("        return 'x.1', '', []\n", "select chose the parent 'x.1', which is not an id"),
        ("        return '0.1', 'bold', []\n", "select gave the label 'bold'; expected"),
        ("        return '0.1', None, []\n", "select must return a tuple"),
        ("        return self.ids[0], '', self.ids[1:]\n", "select gave 7 context ids; expected"),
        ("        return '0.1', '', ['x.1']\n", "select put 'x.1' into the context"),
        ("        return '0.1', '', [7]\n", "select put 7 into the context"),
        ("        return '0.1', '', ['0.1']\n", "select put the parent '0.1' into the context"),
        ("        return '0.1', '', ['1.1', '1.1']\n", "the same id into the context twice"),
        ("        return '0.1'\n", "select returned str; expected (parent id, label"),
        ("        pass\n", "select returned NoneType; expected (parent id, label"),
        ("        return '0.1', '', 7\n", "TypeError: 'int' object is not iterable"),
        ("        return '0.1', '', [object()]\n", "a value of type object cannot be returned"),
        (
            "        return '0.1', '', ['x' * 525_000 * len(self.ids)]\n",
            "plain values take 4200064",
        ),
        ("        return rng.no_such_draw()\n", "AttributeError: 'Random' object has no"),
        ("        import os\n        os._exit(0)\n", "ended its process (exit status 0)"),
        ("        raise SystemExit\n", "SystemExit: the program called exit"),
        ("        return [0] * 10**9\n", "MemoryError: out of memory"),
    ],
)
def test_a_strategy_that_misbehaves_is_a_failure_with_a_reason(body, reason):
    failure = select(strategy(body))
    assert isinstance(failure, StrategyFailure)
    assert reason in failure.reason
    assert check(strategy(body)) is not None


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("", "defines no class Strategy"),
        ("class Search: pass\n", "defines no class Strategy"),
        ("Strategy = 3\n", "defines no class Strategy"),
        ("class Strategy:\n    pass\n", "has no attribute 'add'"),
        ("class Strategy\n    pass\n", "SyntaxError: expected ':'"),
        (strategy(head='NOTE = """'), "SyntaxError: unterminated"),
        (strategy(head="raise ValueError('no')"), "ValueError: no"),
        (strategy(head="import no_such_module"), "No module named 'no_such_module'"),
        (strategy(add="raise KeyError('x')"), "KeyError: 'x'"),
        (f"{strategy()}\n    def __init__(self, size):\n        pass\n", "missing 1 required"),
        ("#" * (MAX_STRATEGY_CHARACTERS + 1), "has 60001 characters; expected at most 60000"),
    ],
)
def test_a_program_that_is_no_strategy_is_refused(source, reason):
    assert reason in check(source)
    failure = select(source)
    assert isinstance(failure, StrategyFailure)
    assert reason in failure.reason


def test_a_failure_tells_the_line_of_the_strategy_and_nothing_of_what_calls_it():
    failure = select(strategy("        return 1 / 0\n"))
    assert failure.reason == (
        "ZeroDivisionError: division by zero\n"
        '  File "candidate.py", line 8, in select\n'
        "    return 1 / 0"
    )


def test_a_strategy_without_an_end_is_stopped():
    limits = replace(STRATEGY_LIMITS, wall_seconds=0.3)
    source = strategy("        while True:\n            pass\n")
    reason = "timeout: the program exceeded 0.3 s"
    assert select(source, limits=limits) == StrategyFailure(reason)
    assert check_strategy(source, Layer.PROCESS, limits) == reason


def test_printing_does_no_harm():
    source = strategy(f"        print('x' * 10**6)\n{FIRST}", head="print('loaded')")
    assert select(source).parent_id == "0.1"
    assert check(source) is None


def test_a_strategy_that_needs_a_second_candidate_is_refused():
    source = strategy("        return self.ids[1], '', []\n")
    assert check(source).startswith("IndexError: list index out of range")


def test_a_strategy_that_breaks_the_context_limit_is_refused():
    source = strategy("        return self.ids[0], '', self.ids[1:5]\n")
    assert check(source) == (
        "with another context size: select gave 4 context ids; expected at most n_context = 0"
    )


def test_a_strategy_that_cannot_take_a_refused_candidate_is_refused():
    source = strategy(add="self.ids.append(record['id']) if record['error'] is None else 1 / 0")
    assert check(source).startswith("ZeroDivisionError")


def test_a_strategy_that_cannot_take_the_same_program_twice_is_refused():
    add = "assert record['code'] not in self.ids; self.ids.append(record['code'])"
    assert check(strategy("        return 'trial-0', '', []\n", add)).startswith("AssertionError")


@pytest.mark.parametrize("change", ["record['metrics'].clear()", "record['score'] = 1.0"])
def test_a_strategy_that_changes_a_record_is_refused(change):
    source = strategy(add=f"self.ids.append(record['id']); {change}")
    assert "the strategy changed a record" in check(source)


def test_a_program_that_answers_in_the_place_of_the_driver_is_judged_all_the_same():
    add = "self.ids.append(record['id']); globals()['_costada_selection'] = lambda *given: GIVEN"
    for given in ("7", "['x.1', '', []]"):
        source = strategy(add=add, head=f"GIVEN = {given}\n")
        assert check(source).startswith("after one record: select ")
        assert isinstance(select(source), StrategyFailure)


def test_without_records_there_is_nothing_to_choose_from():
    with pytest.raises(ValueError, match="records: got none"):
        select(initial_strategy(), records=[])

"""Runs over a data set: what is kept of each candidate, and which one is the result."""

import re
from itertools import count

import httpx
import openai
import pytest
from fakes import IDEAS, is_guide_prompt
from langgraph.checkpoint.memory import InMemorySaver
from needed_plugins import needs_plugin
from toy_graph import THREAD, discovery, rows_of, run_until, scripted, trace

from costada.evaluators.problem import Problem
from costada.models.providers import RetryPolicy
from costada.nodes.context import is_estimated
from costada.nodes.evaluate import rival_scores
from costada.nodes.state import Run
from costada.store.run_store import RunStore
from costada.values.evaluation import EVALUATOR_FAULT

WORDS = [{"word": f"w{number:02}"} for number in range(40)]
TRUE_WORDS = [{"word": f"w{number:02}"} for number in range(20)]
"""Validation examples: the second half of the words only matters in training."""


def score_example(text, example):
    return {"combined_score": example["word"] in text, "feedback": f"say {example['word']}"}


def words(**changes):
    # Without races by default: they may reject a better candidate, if rarely.
    fields = {
        "name": "words",
        "task": "Say all words.",
        "initial_program": "Say w00",
        "language": "Markdown",
        "score_example": score_example,
        "examples": WORDS,
        "validation": TRUE_WORDS,
        "racing_error": 0.0,
    }
    return Problem(**(fields | changes))


def prompts_with(*texts):
    """A model that proposes these texts, one after the other, and then the last one."""
    left = list(texts)

    def answer(prompt):
        if is_guide_prompt(prompt):
            return IDEAS
        text = left.pop(0) if len(left) > 1 else left[0]
        return f"Here:\n```markdown\n{text}\n```\n"

    return scripted(answer)


def said(*numbers):
    return " ".join(f"w{number:02}" for number in numbers)


LOSING = "nothing at all"
VALID = said(*range(12))
OVERFITTED = said(*range(8), *range(20, 40))
"""28 of 40 words, but 8 of the 20 that validation asks for, against 12."""


def run_of(*texts, problem=None, method="uniform", **options):
    store = RunStore()
    graph = discovery(
        prompts_with(*texts),
        problem=problem or words(),
        store=store,
        iterations=len(texts),
        method=method,
        **options,
    )
    return graph, store


def test_the_result_is_the_incumbent_that_is_best_on_validation():
    graph, store = run_of(VALID, OVERFITTED)
    found = graph.invoke({})
    first, second = rows_of(store)
    assert (first["score"], first["validation"], first["is_result"]) == (12 / 40, 12 / 20, True)
    assert (second["score"], second["validation"], second["is_result"]) == (28 / 40, 8 / 20, False)
    # The search goes on from the best on the examples, the run returns the best on validation.
    assert second["best_score"] == 28 / 40
    assert found["best_program"].strip() == VALID
    assert found["best_score"] == 12 / 40
    assert store.last_improvement(store.run_ids()[-1]) == first["candidate_id"]


def test_a_tie_on_validation_goes_to_the_better_one_on_the_examples():
    graph, _ = run_of(said(*range(5)), said(*range(5), *range(20, 40)))
    assert graph.invoke({})["best_score"] == 25 / 40


def test_without_validation_the_incumbent_is_the_result():
    graph, store = run_of(VALID, OVERFITTED, problem=words(validation=()))
    found = graph.invoke({})
    assert found["best_program"].strip() == OVERFITTED
    assert all("is_result" not in row and "validation" not in row for row in rows_of(store))


def test_no_prompt_shows_a_validation_example():
    problem = words(validation=[{"word": "secret-word"}])
    graph, store = run_of(VALID, OVERFITTED, LOSING, problem=problem)
    graph.invoke({})
    run_id = store.run_ids()[-1]
    prompts = [call.prompt for call in store.call_log.calls(run_id)]
    assert len(prompts) == 3
    assert not any("secret" in prompt for prompt in prompts)


def failing_on_validation(is_failing):
    """A problem whose evaluator fails on its validation example for some of the prompts."""

    def score(text, example):
        if example["word"] == "secret-word" and is_failing(text):
            print("asked for", example["word"])
            raise KeyError(example["word"])
        return score_example(text, example)

    return words(validation=[{"word": "secret-word"}], score_example=score)


def test_a_program_that_makes_the_evaluator_fail_on_a_validation_example_is_told_no_more():
    problem = failing_on_validation(lambda text: text.strip() == VALID)
    graph, store = run_of(VALID, OVERFITTED, problem=problem)
    assert graph.invoke({})["best_program"].strip() == OVERFITTED
    run_id = store.run_ids()[-1]
    prompts = "".join(call.prompt for call in store.call_log.calls(run_id))
    assert "could not be evaluated on a validation example" in prompts
    assert "secret-word" not in prompts
    # The user sees what has failed.
    assert "secret-word" in store.candidates.get(run_id, "1.1").artifacts[EVALUATOR_FAULT]


def test_an_evaluator_that_fails_on_a_validation_example_of_the_incumbent_too_ends_the_run():
    validated = count()
    problem = failing_on_validation(lambda text: next(validated) > 0)  # not for the seed
    graph, _ = run_of(VALID, problem=problem)
    with pytest.raises(ValueError, match=r"fails on the best program, .*secret-word"):
        graph.invoke({})


def test_an_outage_during_validation_blames_no_program(caplog):
    request = httpx.Request("POST", "http://127.0.0.1/v1")
    validated = count()

    def score(text, example):
        # The seed is validated once. Then the judge is out of reach for five examples.
        if example["word"] == "secret-word" and 1 <= next(validated) <= 5:
            answer = httpx.Response(429, request=request)
            raise openai.RateLimitError("secret-word: slow down", response=answer, body=None)
        return score_example(text, example)

    problem = words(validation=[{"word": "secret-word"}], score_example=score)
    policy = RetryPolicy(retry_wait=0.001, longest_wait=0.02, longest_pause=60)
    graph, store = run_of(VALID, problem=problem, retry_policy=policy, attempts=1)
    assert graph.invoke({})["best_program"].strip() == VALID
    (row,) = rows_of(store)
    assert (row["failure"], row["validation"]) == (None, 0.0)
    assert "slow down" in caplog.text


def test_scores_of_each_example_are_stored_and_read_back():
    graph, store = run_of(VALID)
    graph.invoke({})
    (row,) = rows_of(store)
    store.candidates.forget()
    candidate = store.candidates.get(store.run_ids()[-1], row["candidate_id"])
    assert row["examples"] == len(candidate.examples) == 40
    assert {each.place for each in candidate.examples if each.score == 1} == set(range(12))
    assert all(each.feedback == f"say w{each.place:02}" for each in candidate.examples)
    assert candidate.validation == (1.0,) * 12 + (0.0,) * 8


def test_a_loser_is_judged_on_few_examples_and_never_becomes_the_incumbent():
    problem = words(batch=4, racing_error=0.1, initial_program=said(*range(30)))
    graph, store = run_of(LOSING, LOSING + "!", said(*range(31)), problem=problem)
    graph.invoke({})
    *losers, last = rows_of(store)
    for row in losers:
        assert row["examples"] < 40
        assert row["best_score"] == 30 / 40
        assert row["validation"] is None
    # A child of the seed or of a loser: both race the seed, which was judged on all.
    assert (last["examples"], last["score"], last["best_score"]) == (40, 31 / 40, 31 / 40)


def test_a_child_of_a_rejected_parent_races_the_ancestor_that_was_judged_on_all():
    problem = words(batch=4, racing_error=0.1, initial_program=said(*range(30)))
    graph, store = run_of(LOSING, problem=problem)
    graph.invoke({})
    run_id = store.run_ids()[-1]
    state = {"run": Run(run_id, 0, "key")}
    (row,) = rows_of(store)
    loser = store.candidates.get(run_id, row["candidate_id"])
    assert is_estimated(loser, problem)
    assert rival_scores(loser, state, graph.search) == (1.0,) * 30 + (0.0,) * 10


def test_a_run_that_was_stopped_goes_on_with_the_same_result():
    whole, _ = run_of(VALID, OVERFITTED, said(*range(9)), saver=InMemorySaver())
    expected = trace(whole, config=THREAD)
    graph, store = run_of(VALID, OVERFITTED, said(*range(9)), saver=InMemorySaver())
    run_until(graph, THREAD, 1)
    state = graph.get_state(THREAD).values
    assert state["result"] == state["best"]
    graph.invoke(None, THREAD)
    rows = rows_of(store)
    assert [re.sub(r"\s", "", row["candidate_id"]) for row in rows] == [
        row["candidate_id"] for row in expected
    ]
    assert [row["is_result"] for row in rows] == [row["is_result"] for row in expected]
    assert graph.get_state(THREAD).values["best_program"].strip() == VALID


def test_the_prompt_shows_the_worst_examples_of_the_parent_with_their_feedback():
    graph, store = run_of(VALID, problem=words(initial_program=said(*range(38))))
    graph.invoke({})
    ((prompt,),) = [[call.prompt for call in store.call_log.calls(store.run_ids()[-1])]]
    section = prompt[prompt.index("It did worst on these examples:") :]
    assert section.count("Example with score 0.0000:") == 2
    for place in (38, 39):
        assert f'{{"word": "w{place}"}}' in section
        assert f"say w{place}" in section


def test_what_a_prompt_shows_of_examples_is_bounded():
    long = [{"word": f"{number:02}" + "x" * 100_000} for number in range(20)]
    problem = words(
        examples=long,
        validation=(),
        score_example=lambda text, example: {"combined_score": 0, "feedback": "y" * 100_000},
    )
    graph, store = run_of(VALID, problem=problem)
    graph.invoke({})
    ((prompt,),) = [[call.prompt for call in store.call_log.calls(store.run_ids()[-1])]]
    assert prompt.count("Example with score") == 3
    assert len(prompt) < 15_000


def test_parents_come_from_the_front_over_the_examples():
    # Each proposal solves half of the examples, the seed none of either half.
    halves = said(*range(20)), said(*range(20, 40))
    for method in ("best-of-n", "uniform", "costada"):
        graph, store = run_of(*halves, *[LOSING] * 12, method=method, parents="pareto")
        graph.invoke({})
        run_id, rows = store.run_ids()[-1], rows_of(store)
        ids = [row["candidate_id"] for row in rows]
        later = [store.candidates.get(run_id, each).parent_id for each in ids[2:]]
        assert set(later) == set(ids[:2]), method


@needs_plugin("peers")
def test_gepa_draws_parents_from_what_leads_on_some_example():
    # The seed solves no example, so the halves lead on theirs as soon as they are accepted.
    halves = said(*range(20)), said(*range(20, 40))
    graph, store = run_of(*halves * 4, *[LOSING] * 12, method="gepa")
    graph.invoke({})
    run_id = store.run_ids()[-1]
    ids = [row["candidate_id"] for row in rows_of(store)]
    made = [store.candidates.get(run_id, each) for each in ids if each]
    texts = {each.id: each.program.text.strip() for each in made}
    assert {texts.get(each.parent_id) for each in made[-12:]} == set(halves)


def test_best_of_n_starts_from_the_initial_program_by_itself():
    graph, store = run_of(VALID, LOSING, LOSING + "!", method="best-of-n")
    graph.invoke({})
    run_id = store.run_ids()[-1]
    ids = [row["candidate_id"] for row in rows_of(store)]
    assert {store.candidates.get(run_id, each).parent_id for each in ids} == {"0.1"}


def test_parents_from_examples_are_refused_without_examples():
    with pytest.raises(ValueError, match="parents: got 'pareto' for problem 'toy', which has no"):
        discovery(parents="pareto")


@needs_plugin("evox")
def test_parents_from_examples_are_refused_where_the_method_chooses_them():
    with pytest.raises(ValueError, match="method 'evox', which chooses parents itself"):
        run_of(VALID, method="evox", parents="pareto")


def test_the_examples_that_races_have_spared_are_counted():
    problem = words(batch=4, racing_error=0.1, initial_program=said(*range(30)))
    graph, store = run_of(LOSING, said(*range(31)), LOSING, problem=problem)
    graph.invoke({})
    losing, winning, repeated = rows_of(store)
    # The third candidate is the first one again: its evaluation is not repeated.
    assert repeated["is_cached"]
    judged = losing["examples"] + winning["examples"]
    assert store.judged_examples(store.run_ids()[-1]) == (judged, 80 - judged)
    assert judged < 80


def score_without_feedback(text, example):
    return 1.0 if example["word"] in text else 0.0


def resumed_with(**changes):
    """A run of a rejected candidate, resumed for an iteration with another problem."""
    store, saver = RunStore(), InMemorySaver()
    fields = {"initial_program": said(*range(30)), "racing_error": 0.1, "batch": 4}
    for iterations, given in ((1, fields), (2, fields | changes)):
        graph = discovery(
            prompts_with(LOSING, said(*range(31))),
            problem=words(**given),
            store=store,
            saver=saver,
            iterations=iterations,
            method="uniform",
        )
        graph.invoke({} if iterations == 1 else None, THREAD)
    return rows_of(store)


def test_estimates_are_not_compared_when_a_run_is_resumed_with_another_evaluator():
    first, second = resumed_with(score_example=score_without_feedback)
    assert 0 < first["examples"] < 40
    assert second["iteration"] == 2


def test_a_run_is_not_resumed_with_another_number_of_examples():
    with pytest.raises(ValueError, match="got 39 examples, expected 40, as when the run started"):
        resumed_with(examples=WORDS[:39])
    with pytest.raises(ValueError, match=r"scores 0\.725, expected 0\.75"):
        resumed_with(examples=[*WORDS[1:], {"word": "w99"}])


def test_a_run_is_not_resumed_without_its_examples():
    problem = {"examples": (), "validation": (), "score_example": None}
    with pytest.raises(ValueError, match="got 0 examples, expected 40"):
        resumed_with(**problem, score=lambda text: {"combined_score": 0.75})

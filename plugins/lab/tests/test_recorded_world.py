from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from costada.controller.methods import METHODS
from costada.plugins.lab.landscape.landscape import Wording
from costada.plugins.lab.landscape.landscape_answers import Request
from costada.plugins.lab.landscape.simulation import simulate_run
from costada.plugins.lab.recorded.build_table import packaged_texts
from costada.plugins.lab.recorded.table import (
    ENTRY_POINT_MISSING,
    FOLDER,
    Transition,
    guides_text,
    recorded_guides,
    recorded_transitions,
    transitions_text,
)
from costada.plugins.lab.recorded.world import (
    EDGES,
    SEED_SCORE,
    RecordedAnswers,
    evaluate,
    program_text,
    recorded_problem,
    recorded_world,
    resampled_score,
    survivor_weights,
    world_of,
)
from costada.values.candidate import Candidate, Program
from costada.values.usage import Usage

RECORDINGS = Path(__file__).parents[3].parent / "shared" / "recordings"
GUIDE = Usage(6000, 3000)
CALL = Usage(3000, 4000)


def transition(parent_score, score, *, run="adaevolve/1", is_guided=False, **known):
    facts = {"is_capped": False, "is_logged": False, "is_stored": True, "tokens": None}
    facts |= {"best_shown_score": None, **known}
    failure = "" if score is not None else facts.pop("failure", "runtime_error")
    return Transition(
        run,
        1,
        is_guided=is_guided,
        parent_score=parent_score,
        score=score,
        failure=failure,
        **facts,
    )


def in_every_bin(*transitions):
    """The transitions, and a valid one with recorded tokens in each bin."""
    parents = {guided: (0.4, *(edge + 0.001 for edge in edges)) for guided, edges in EDGES.items()}
    others = [
        transition(score, score, is_guided=guided, tokens=CALL, run="other/1")
        for guided, scores in parents.items()
        for score in scores
    ]
    return [*transitions, *others]


def unguided_in_every_bin():
    return [each for each in in_every_bin() if not each.is_guided]


@pytest.mark.parametrize(
    ("shown", "score", "exceeds"),
    [(None, 0.6, True), (0.7, 0.6, False), (0.6, 0.60004, False), (0.6, 0.6002, True)],
)
def test_a_program_exceeds_those_of_its_prompt_by_more_than_rounding(shown, score, exceeds):
    assert transition(0.5, score, best_shown_score=shown).exceeds_shown is exceeds


@pytest.mark.skipif(not RECORDINGS.is_dir(), reason=f"needs the recordings in {RECORDINGS}")
def test_the_packaged_table_is_what_the_recordings_give():
    for name, text in packaged_texts(RECORDINGS).items():
        assert FOLDER.joinpath(name).read_text(encoding="utf-8") == text


def test_the_packaged_table_survives_reading_and_writing():
    written = {
        "transitions.csv": transitions_text(recorded_transitions()),
        "guides.csv": guides_text(recorded_guides()),
    }
    for name, text in written.items():
        assert FOLDER.joinpath(name).read_text(encoding="utf-8") == text


def test_the_packaged_table_has_no_duplicates_and_only_possible_numbers():
    table = recorded_transitions()
    full = [each for each in table if not each.is_capped]
    assert (len(table), len(full), len(recorded_guides())) == (984, 664, 32)
    assert len({(each.run, each.iteration) for each in table}) == len(table)
    assert sum(each.failure == ENTRY_POINT_MISSING for each in full) == 122
    assert all((each.score is None) is bool(each.failure) for each in table)
    assert all(each.parent_score is None or 0 < each.parent_score <= 1.000373 for each in table)
    assert all(each.is_stored or each.is_logged for each in table)
    unknown = [each for each in table if each.parent_score is None]
    assert len(unknown) == 9
    assert not any(each.is_guided for each in unknown)


def test_every_bin_holds_ten_attempts_of_known_failure_rate():
    for bins in recorded_world().bins.values():
        for each in bins:
            known = [x for x in each.programs if x.transition.method != "evox"]
            assert len(each.failures) + len(each.programs) >= 10
            assert each.failures
            assert known


def test_an_attempt_stands_for_those_that_were_not_kept():
    logged = {"run": "costada/1", "is_logged": True, "is_guided": True}
    table = [
        *[transition(0.9, None, **logged)],
        *[transition(0.9, None, **logged, is_stored=False)] * 3,
        *[transition(0.9, 0.8, **logged)] * 2,
        *[transition(0.9, 0.8, **logged, is_stored=False)],
        *[transition(0.9, 0.95, **logged)],
    ]
    unguided = {"run": "costada/1", "is_logged": True}
    table += [transition(0.9, None, **unguided)]
    table += [transition(None, None, **unguided, is_stored=False)]
    weights = survivor_weights(table)
    assert weights[False, True, "failed"] == 4.0  # 4 in all, 1 kept
    assert weights[False, True, "valid"] == 1.5  # 3 in all, 2 kept
    assert weights[False, True, "improved"] == 1.0
    assert weights[True, True, "failed"] == 1.0  # all parents known
    assert weights[True, False, "failed"] == 2.0  # 2 in all, 1 with a known parent
    assert weights[False, False, "failed"] == 2.0


def test_the_failure_rate_counts_weights_and_leaves_evox_and_repaired_failures_out():
    table = in_every_bin(
        transition(0.6, None),
        transition(0.6, None, failure=ENTRY_POINT_MISSING),
        transition(0.6, 0.7),
        transition(0.6, 0.7, run="evox/1"),
    )
    others = 1  # one more valid attempt in the bin
    failure_rate = {
        repairs: world_of(table, [GUIDE], repairs_entry_points=repairs)
        .bin_of(0.6, is_guided=False)
        .failure_rate
        for repairs in (True, False)
    }
    assert failure_rate[True] == pytest.approx(1 / (1 + 1 + others))
    assert failure_rate[False] == pytest.approx(2 / (2 + 1 + others))
    with_capped = world_of([*table, transition(0.6, None, is_capped=True)], [GUIDE])
    assert with_capped.bin_of(0.6, is_guided=False).failure_rate == failure_rate[True]
    with_evox, without = (
        len(world_of(table, [GUIDE], uses_evox=uses).bin_of(0.6, is_guided=False).programs)
        for uses in (True, False)
    )
    assert (with_evox, without) == (3, 2)


def test_a_bin_without_attempts_is_refused():
    with pytest.raises(ValueError, match="got none in bin 0 with a tactic"):
        world_of([transition(0.6, 0.7), *unguided_in_every_bin()], [GUIDE])


@pytest.mark.parametrize(
    ("parent", "drawn", "expected"),
    [
        (0.5, transition(0.6, 0.8), 0.75),  # half of the gap of 0.4, half of that of 0.5
        (0.5, transition(0.8, 0.6), 0.375),  # three quarters of the score are kept
        (0.5, transition(0.6, 0.6), 0.5),
        (1.0, transition(0.6, 0.8), 1.0),  # no gap is left
        (0.5, transition(0.6, None), None),
    ],
)
def test_an_outcome_is_carried_to_another_parent(parent, drawn, expected):
    assert resampled_score(parent, drawn, best=1.0) == pytest.approx(expected)


@given(st.floats(0.001, 1.000373), st.integers(0, 983))
@example(0.05078125, 220)  # a score that equals its parent's
def test_a_resampled_score_keeps_its_side_of_the_parent(parent, number):
    drawn = recorded_transitions()[number]
    best = recorded_world().best_score
    assert best == 1.000373
    if drawn.parent_score is None:
        return
    score = resampled_score(parent, drawn, best)
    if drawn.outcome == "failed":
        assert score is None
    elif drawn.outcome == "improved":
        assert parent - 1e-12 <= score <= best + 1e-12
    else:
        assert 0 < score <= parent


def request(score, wording):
    program = Program.of(program_text(score, 1))
    return Request(Candidate(id="1.1", program=program, score=score), (score,) * 4, wording)


@pytest.mark.parametrize("wording", [Wording.BALANCED, Wording.BREAKTHROUGH, Wording.REFINEMENT])
def test_failures_are_as_frequent_as_recorded_and_tokens_are_recorded_ones(wording):
    world, rng = recorded_world(), Random(5)
    answers = RecordedAnswers(world)
    is_guided = wording is not Wording.BALANCED
    drawn = [answers.attempt(request(0.993, wording), rng) for _ in range(4000)]
    failure_rate = world.bin_of(0.993, is_guided=is_guided).failure_rate
    failures = sum(not evaluate(code).is_valid for code, _ in drawn)
    assert failures / 4000 == pytest.approx(failure_rate, abs=0.04)  # five standard errors
    known = {each.tokens for each in recorded_transitions() if each.is_guided is is_guided}
    assert {tokens for _, tokens in drawn} <= known


def test_a_guide_brings_three_tactics_at_a_recorded_price():
    answers = RecordedAnswers(recorded_world())
    best = request(0.9, Wording.BALANCED).parent
    advice = answers.advise("breakthrough", best, Random(1))
    assert advice.named == (None, None, None)
    assert advice.tokens in recorded_guides()


def test_programs_name_their_score_and_nothing_else_is_valid():
    assert evaluate(program_text(0.9, 3)).score == 0.9
    assert not evaluate(program_text(None, 3)).is_valid
    assert not evaluate("recorded(score=2)").is_valid
    problem = recorded_problem()
    assert problem.evaluate(problem.initial_program).score == SEED_SCORE
    code = RecordedAnswers(recorded_world()).with_score(program_text(0.9, 3), 0.25, Random(1))
    assert evaluate(code).score == 0.25


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_reproducibly_in_the_recorded_world(method):
    outcome = simulate_run(method, 5, 0.3, world="recorded")
    spent = [point.spent for point in outcome.points]
    assert spent[-1] >= 0.3 > spent[-2]
    assert outcome.seed_score == SEED_SCORE
    assert outcome.problem == "recorded"
    assert SEED_SCORE <= outcome.points[-1].best_score <= 1.000373
    assert simulate_run(method, 5, 0.3, world="recorded") == outcome


def test_an_unknown_world_is_refused():
    with pytest.raises(ValueError, match="Did you mean 'recorded'"):
        simulate_run("costada", 1, 0.1, world="recordings")


def test_the_command_takes_a_world(invoke):
    words = ("--methods", "costada,uniform", "--seeds", "2", "--budget", "0.1", "--jobs", "1")
    result = invoke("simulate", "--world", "recorded", *words)
    assert result.exit_code == 0
    assert "recorded ones of one model on one problem" in " ".join(result.stdout.split())
    refused = invoke("simulate", "--world", "record", *words)
    assert refused.exit_code == 2
    assert "Did you mean 'recorded'" in refused.stderr

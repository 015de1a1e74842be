"""The family of recorded worlds: what they draw, and how they are scored."""

from collections import Counter
from math import exp, inf, isclose, log
from random import Random

import pytest

from costada.controller.constants import Constants
from costada.controller.methods import METHODS
from costada.plugins.lab.landscape.landscape import Wording
from costada.plugins.lab.landscape.landscape_answers import Request
from costada.plugins.lab.landscape.simulation import SimulatedRun, simulate_run
from costada.plugins.lab.landscape.worlds import WORLDS
from costada.plugins.lab.recorded.family import (
    BINS,
    CONTEXT,
    FAMILY,
    FILLED,
    PARENT,
    FamilyAnswers,
    Pool,
    World,
)
from costada.plugins.lab.recorded.table import Transition
from costada.plugins.lab.recorded.world import SEED_SCORE, Weighted, evaluate, program_text
from costada.plugins.lab.recorded.world_scores import (
    WorldScore,
    class_of,
    is_credible,
    printed_cutoffs,
    probability_of_class,
    probability_of_cost,
    weights,
)
from costada.values.candidate import Candidate, Program
from costada.values.usage import Usage


def attempt(parent, score, shown=None, *, run="adaevolve/1", is_guided=False, tokens=None):
    failure = "" if score is not None else "runtime_error"
    facts = (run, 1, False, False, True, is_guided, parent, shown, score, failure, tokens)
    return Transition(*facts)


def pool_of(*attempts):
    return Pool([Weighted(each, 1.0) for each in attempts])


def outcomes(pool, matching, parent, shown=-inf, **options):
    """The probability of each score."""
    found = Counter()
    options = {"is_guided": False, **options}
    for score, share, _ in pool.outcomes(matching, parent, shown, **options):
        found[None if score is None else round(score, 6)] += share
    return found


BEST = attempt(0.99, 1.0, is_guided=True)
"""Sets the best recorded score."""


def test_every_combination_is_a_world_with_a_name_of_its_own():
    assert len(FAMILY) == 3 * 2 * 2 * 2
    assert len({each.name for each in FAMILY}) == 24
    assert {"bins", "parent+runs", "context+runs+prior+costs"} <= {each.name for each in FAMILY}
    assert {each.name for each in FAMILY} <= set(WORLDS)


def test_a_copy_brings_no_more_than_what_the_prompt_shows():
    # a copy of .96: the whole way from .6 to what was shown
    pool = pool_of(BEST, attempt(0.6, 0.96, 0.96))
    assert outcomes(pool, CONTEXT, 0.6, 0.96) == {0.96: 1.0}
    assert outcomes(pool, CONTEXT, 0.6, 0.8) == {0.8: 1.0}
    assert outcomes(pool, CONTEXT, 0.6, 0.5) == {0.6: 1.0}
    assert outcomes(pool, CONTEXT, 0.6) == {0.6: 1.0}
    # without the prompt it closes nine tenths of the gap to the best, whatever is shown
    assert outcomes(pool, PARENT, 0.5) == {0.95: 1.0}


def test_what_an_attempt_brings_does_not_depend_on_similar_parents_before():
    pool = pool_of(BEST, attempt(0.6, 0.6))
    assert outcomes(pool, PARENT, 0.61234) == {0.61234: 1.0}
    assert outcomes(pool, PARENT, 0.61231) == {0.61231: 1.0}


def test_a_program_better_than_its_prompt_closes_a_share_of_the_gap_above_it():
    pool = pool_of(BEST, attempt(0.6, 0.9, 0.8))  # half the gap from .8 to 1
    assert outcomes(pool, CONTEXT, 0.6, 0.9) == {0.95: 1.0}
    assert outcomes(pool, CONTEXT, 0.7, 0.2) == {0.85: 1.0}


def test_the_nearest_prompts_decide_where_the_context_counts_and_only_there():
    alone = [attempt(0.6, 0.6) for _ in range(10)]
    shown = [attempt(0.6, 0.96, 0.96) for _ in range(10)]
    pool = pool_of(BEST, *alone, *shown)
    assert outcomes(pool, CONTEXT, 0.6) == pytest.approx({0.6: 1.0})
    assert outcomes(pool, CONTEXT, 0.6, 0.96) == pytest.approx({0.96: 1.0})
    assert outcomes(pool, PARENT, 0.6, 0.96) == pytest.approx({0.6: 0.5, 0.96: 0.5})


def test_an_attempt_with_nothing_shown_may_draw_as_one_beside_an_equal_program():
    alone = [attempt(0.6, 0.96) for _ in range(10)]
    beside_equal = [attempt(0.6, 0.6, 0.6) for _ in range(10)]
    pool = pool_of(BEST, *alone, *beside_equal)
    pool._tokens[False, None] = (Usage(1, 1),)
    candidate = Candidate(id="1.1", program=Program.of(program_text(0.6, 1)), score=0.6)
    scores = {}
    for world in (World(CONTEXT), FILLED[World(CONTEXT)]):
        answers = FamilyAnswers(world, pool, None, 1.0)
        code, _ = answers.attempt(Request(candidate, (), Wording.BALANCED), Random(1))
        scores[world.name] = evaluate(code).score
    assert scores == {"context": 0.96, "context+alone": 0.6}


def test_half_of_a_runs_attempts_come_from_one_recorded_run_in_a_world_with_dependence():
    lucky = [attempt(0.6, 0.96, run="adaevolve/lucky") for _ in range(5)]
    stuck = [attempt(0.6, 0.6, run="adaevolve/stuck") for _ in range(15)]
    pool = pool_of(BEST, *lucky, *stuck)
    assert outcomes(pool, BINS, 0.6, run="adaevolve/lucky") == pytest.approx({0.96: 1.0})
    world = World(BINS, depends_on_run=True)
    answers = FamilyAnswers(world, pool, "adaevolve/lucky", 1.0)
    candidate = Candidate(id="1.1", program=Program.of(program_text(0.6, 1)), score=0.6)
    rng, scores = Random(1), Counter()
    asked = Request(candidate, (), Wording.BALANCED)
    # without recorded tokens of unguided attempts there is nothing to charge
    pool._tokens[False, None] = (Usage(1, 1),)
    for _ in range(4000):
        code, _ = answers.attempt(asked, rng)
        scores[evaluate(code).score] += 1
    assert scores[0.96] / 4000 == pytest.approx(0.5 + 0.5 * 5 / 20, abs=0.03)


def test_what_a_class_of_scores_is_given_mixes_effect_run_and_a_constant():
    guided = [attempt(0.6, 0.96, is_guided=True) for _ in range(10)]
    plain = [attempt(0.6, None) for _ in range(5)] + [attempt(0.6, 0.6) for _ in range(5)]
    pool = pool_of(BEST, *guided, *plain)
    world = World(BINS, has_prior=True)
    failure = attempt(0.6, None, is_guided=True)
    # with effect .5 half of the attempts are like plain ones, of which half fail
    found = probability_of_class(world, pool, failure, None, 0.5)
    assert found == pytest.approx(0.9 * 0.25 + 0.1 / 10)
    total = sum(
        probability_of_class(world, pool, attempt(0.6, score, is_guided=True), None, 0.5)
        for score in (None, 0.1, 0.55, 0.65, 0.75, 0.85, 0.92, 0.96, 0.98, 0.995)
    )
    assert isclose(total, 1.0)


def test_classes_of_scores_have_the_stated_edges():
    assert [class_of(each) for each in (None, 0.0, 0.5, 0.969, 0.97, 1.0)] == [0, 1, 2, 7, 8, 9]


def test_a_cost_is_predicted_from_its_outcome_where_both_go_together():
    dear = [attempt(0.6, None, tokens=Usage(10, 900)) for _ in range(6)]
    cheap = [attempt(0.6, 0.6, tokens=Usage(10, 100)) for _ in range(12)]
    pool = pool_of(BEST, *dear, *cheap)
    asked = attempt(0.6, None, tokens=Usage(10, 950))
    # thirds end at 100 and 900, so that no call is in the first; one is added to each third
    independent = probability_of_cost(World(BINS), pool, asked)
    together = probability_of_cost(World(BINS, has_costs=True), pool, asked)
    assert independent == pytest.approx((6 + 1) / (18 + 3))
    assert together == pytest.approx((6 + 1) / (6 + 3))


def test_weights_follow_from_losses_and_the_paper():
    runs = ("a", "b")

    def scored(loss, z):
        return WorldScore(World(BINS), dict.fromkeys(runs, loss), {}, dict.fromkeys((0.25, 1), z))

    found = weights([scored(2.0, 0.0), scored(2.0 + log(3) / 2, 0.0), scored(2.0, 2.0)])
    shares = [1.0, 1 / 3, exp(-2.0)]
    assert found == pytest.approx([each / sum(shares) for each in shares])
    assert [is_credible(each, [0.5, 0.025, 0.024]) for each in (0.5, 0.025, 0.024)] == [
        True,
        True,
        False,
    ]


def test_the_printed_cutoffs_are_those_of_the_paper():
    found = [(each.cutoff, round(each.mean * 2.635, 4)) for each in printed_cutoffs()]
    assert found == [(0.25, 1.8225), (0.5, 2.4690), (1.0, 2.5617)]


@pytest.mark.parametrize("name", ["bins", "context+runs+prior+costs"])
def test_a_run_in_a_world_of_the_family_can_be_repeated(name):
    assert simulate_run("costada", 4, 0.2, world=name) == simulate_run(
        "costada", 4, 0.2, world=name
    )


def test_the_command_refuses_to_score_worlds_with_other_options(invoke):
    result = invoke("simulate", "--worlds", "--menu", "random")
    assert result.exit_code == 2
    assert "--worlds: got it with further options" in " ".join(result.stderr.split())


def test_every_kind_of_method_tells_a_world_which_scores_its_prompts_show():
    """Methods draw their prompts from archives, from a strategy, from a memory, or show nothing."""

    class Noted:
        """The answers of a world, and the best score shown in each request."""

        def __init__(self):
            self.answers, self.shown = WORLDS["context"](3), []

        def __getattr__(self, name):
            return getattr(self.answers, name)

        def attempt(self, request, rng):
            self.shown.append(request.best_other)
            return self.answers.attempt(request, rng)

    for method in METHODS:
        noted = Noted()
        for _ in SimulatedRun(method, 3, 0.3, Constants(), noted).steps():
            pass
        has_context = method not in ("best-of-n", "gepa")
        assert (max(noted.shown) > SEED_SCORE) is has_context, method

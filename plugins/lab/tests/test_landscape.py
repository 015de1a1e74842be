from decimal import Decimal
from hashlib import sha256
from random import Random
from statistics import fmean, median

import pytest
from langchain_core.messages import HumanMessage
from toy_graph import discovery, spent_by

from costada.evaluators.registry import is_built_in, problem, problem_names
from costada.models.chat_models import chat_model
from costada.models.prices import OFFLINE_PRICE, price_book
from costada.nodes.calls.paid_calls import Conversation
from costada.plugins.evox.prompts import Labels, label_text
from costada.plugins.lab.landscape.landscape import (
    NUM_APPROACHES,
    STRATEGY_FAILURE_RATE,
    Approach,
    Attempt,
    Landscape,
    Outcome,
    Wording,
    draw_outcome,
    drawn_landscape,
    failure_probability,
    generation_tokens,
    improvement_probability,
)
from costada.plugins.lab.landscape.landscape_problem import (
    SeenProgram,
    evaluate,
    landscape,
    program_text,
    read_program,
    with_outcome,
)
from costada.plugins.lab.landscape.simulated_model import (
    SimulatedModel,
    answer_prompt,
    attempt_of,
    named_approach,
    named_approaches,
)
from costada.plugins.offline.answers import FAILURE_RATE
from costada.prompts.changes import read_change
from costada.prompts.render import generation_prompt, guide_prompt
from costada.prompts.requests import (
    GenerationRequest,
    GuideRequest,
    ProgramView,
    PromptData,
    prompt_data,
)
from costada.prompts.tactics import Tactic, parse_tactics
from costada.store.run_store import RunStore
from costada.values.candidate import Program
from costada.values.program_form import ProgramForm
from costada.values.usage import Usage, call_cost

DRAWS = 4000
SOLUTION = ProgramForm(entry_point="solution")


def flat(failure_rate=0.2, ceilings=(0.8,) * 4):
    approaches = tuple(Approach(ceiling, 0.2, failure_rate, 1.0) for ceiling in ceilings)
    return Landscape(approaches, landing_mean=0.8)


def outcomes(wording, parent=0.5, landscape=None, **changes):
    rng, attempt = Random(7), Attempt(0, parent, wording, **changes)
    return [draw_outcome(attempt, landscape or flat(), rng) for _ in range(DRAWS)]


def test_drawn_approaches_depend_on_the_seed_stay_within_bounds_and_cost_1_on_average():
    assert drawn_landscape(1) == drawn_landscape(1) != drawn_landscape(2)
    approaches = [each for seed in range(200) for each in drawn_landscape(seed).approaches]
    assert len(approaches) == 200 * NUM_APPROACHES
    assert all(0.6 <= each.ceiling <= 1.0 for each in approaches)
    assert all(0.1 <= each.failure_rate <= 0.4 for each in approaches)
    assert fmean(each.cost_factor for each in approaches) == pytest.approx(1.0, abs=0.05)


def test_failures_follow_the_approach_and_rise_with_guidance():
    assert failure_probability(0.25, Wording.BALANCED) == pytest.approx(0.25)
    # odds 1/3 times 2.7 = 0.9, so 0.9 / 1.9
    assert failure_probability(0.25, Wording.REFINEMENT) == pytest.approx(0.9 / 1.9)
    found = outcomes(Wording.BALANCED, landscape=flat(failure_rate=0.3))
    assert fmean(each.quality is None for each in found) == pytest.approx(0.3, abs=0.03)


@pytest.mark.parametrize(
    ("wording", "probability"),
    [(Wording.EXPLORATION, 0.30), (Wording.BALANCED, 0.22), (Wording.EXPLOITATION, 0.15)],
)
def test_the_wording_decides_how_often_the_approach_changes(wording, probability):
    changes = [each.approach != 0 for each in outcomes(wording)]
    assert fmean(changes) == pytest.approx(probability, abs=0.03)


def test_improvements_become_rarer_towards_the_ceiling():
    assert improvement_probability(0.0, 0.8) == 0.95
    assert improvement_probability(0.4, 0.8) == pytest.approx(1.08 - 0.335)
    assert improvement_probability(0.8, 0.8) == pytest.approx(0.41)


def test_no_program_scores_above_the_ceiling_of_its_approach():
    landscape = flat(ceilings=(0.7, 0.6, 1.0, 0.9))
    for each in outcomes(Wording.EXPLORATION, 0.65, landscape):
        ceiling = min(0.9999, landscape.approaches[each.approach].ceiling)
        assert each.quality is None or 0 <= each.quality <= ceiling


def test_a_refinement_tactic_stays_and_gains_more_on_average():
    def gain(wording):
        found = outcomes(wording, 0.4, flat(0.0))
        scores = [each.quality for each in found if each.approach == 0]
        return fmean(score - 0.4 for score in scores if score > 0.4)

    assert {each.approach for each in outcomes(Wording.REFINEMENT, 0.4)} == {0}
    assert gain(Wording.REFINEMENT) > 1.1 * gain(Wording.EXPLOITATION)


def test_a_breakthrough_tactic_leads_to_its_approach_and_lands_where_the_landscape_says():
    found = outcomes(Wording.BREAKTHROUGH, 0.2, flat(0.0), named=2)
    assert {each.approach for each in found} == {2}
    assert fmean(each.quality for each in found) == pytest.approx(0.8 * 0.8, abs=0.02)


def test_a_guide_names_three_other_approaches_and_promising_ones_more_often():
    landscape = flat(ceilings=(0.7, 0.6, 0.6, 0.6, 0.9, 0.9, 0.9))
    rng = Random(1)
    named = [named_approaches(landscape, 0, 0.65, rng) for _ in range(DRAWS)]
    assert all(len(set(each)) == 3 and 0 not in each for each in named)
    good = fmean(number >= 4 for each in named for number in each)
    assert 0.55 < good < 0.67


def test_tokens_grow_with_the_programs_shown_and_the_answers_with_the_approach():
    def typical(num_others, factor):
        rng = Random(3)
        drawn = [generation_tokens(num_others, factor, rng) for _ in range(DRAWS)]
        return median(each.input_tokens for each in drawn), median(
            each.output_tokens for each in drawn
        )

    # 1,360 + 4 * 1,640 = 7,920 and 4,400 times the factor
    assert typical(4, 1.0) == (pytest.approx(7920, rel=0.02), pytest.approx(4400, rel=0.04))
    assert typical(0, 2.0) == (pytest.approx(1360, rel=0.02), pytest.approx(8800, rel=0.04))


def test_a_strategy_is_refused_as_often_as_the_offline_model_spoils_one():
    assert STRATEGY_FAILURE_RATE == FAILURE_RATE


SEED = problem("landscape").initial_program


def test_the_landscape_is_a_problem_but_no_benchmark():
    assert problem("landscape").name == "landscape"
    assert is_built_in("landscape")
    assert "landscape" not in problem_names()


def test_the_quality_is_the_score():
    evaluation = evaluate(program_text(3, "0.7125", 99))
    assert evaluation.is_valid
    assert evaluation.score == evaluation.objective == 0.7125
    assert evaluate(SEED).score == 0.3642


FORM = "program: expected the initial one"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        *(
            (program_text(3, quality, 1), f"quality: got {quality!r}, expected 0.0000 to 0.9999")
            for quality in ("broken", "1.0000", "0.5", "-0.5000", "0.12345", "1e-1")
        ),
        ("", FORM),
        (SEED + "import os\n", FORM),
        (SEED.replace("search()", "os.remove('x')"), FORM),
        (SEED.replace("variant=0", "variant=x"), FORM),
        (SEED.replace("approach_0", "approach_100"), FORM),
        (SEED.replace("variant=0)", "variant=0) + 1"), FORM),
        (with_outcome(SEED, Outcome(5, None), 77), "quality: got 'broken'"),
    ],
)
def test_a_program_of_another_form_fails(code, error):
    evaluation = evaluate(code)
    assert (evaluation.is_valid, evaluation.score) == (False, 0)
    assert evaluation.error.startswith(error)


def test_the_model_reads_and_writes_what_the_evaluator_accepts():
    code = with_outcome(SEED, Outcome(5, 0.8), 77)
    assert code == program_text(5, "0.8000", 77)
    assert read_program(code) == SeenProgram(5, 0.8)
    assert read_program("def solution():\n    return 0\n") is None
    reply = f"Simulated answer.\n\n```python\n{code}```\n"
    assert read_change(reply, Program.of(SEED), SOLUTION).program.text == code


PROBLEM = problem("landscape")
PARENT = program_text(2, "0.5000", 11)


def shown(code):
    return ProgramView(code, 0.5, {}, {})


def prompt(action="balanced", **options):
    request = GenerationRequest(
        task=PROBLEM.task,
        current=shown(PARENT),
        action=action,
        others=(shown(program_text(1, "0.4000", 5)), shown(program_text(3, "0.3000", 6))),
        timeout=360.0,
        entry_point="solution",
        **options,
    )
    return Conversation(generation_prompt(request)).messages


def tactic(mode):
    idea = Tactic(idea="Take it.", description="Do.", approach_type="landscape.approach_6")
    return {"tactic": idea, "tactic_mode": mode}


def guide(mode):
    request = GuideRequest(
        task=PROBLEM.task,
        evaluator_source=PROBLEM.evaluator_source,
        best=shown(PARENT),
        mode=mode,
        tried=(),
        timeout=360.0,
        count=3,
    )
    return Conversation(guide_prompt(request)).messages


LABELS = Labels(diverge="- Other approaches.", refine="- Polish.")


def label(name):
    return {"label": label_text(name, LABELS), "label_name": name}


@pytest.mark.parametrize(
    ("options", "wording", "named"),
    [
        ({"action": "exploration"}, Wording.EXPLORATION, None),
        ({"action": "balanced"}, Wording.BALANCED, None),
        ({"action": "exploitation"}, Wording.EXPLOITATION, None),
        ({"action": "exploitation", **tactic("breakthrough")}, Wording.BREAKTHROUGH, 6),
        ({"action": "exploration", **tactic("refinement")}, Wording.REFINEMENT, None),
        (label("diverge"), Wording.EXPLORATION, None),
        (label("refine"), Wording.EXPLOITATION, None),
    ],
)
def test_the_wording_is_read_from_the_data_of_a_prompt(options, wording, named):
    data = prompt_data(prompt(**options)[1].additional_kwargs)
    assert attempt_of(data) == Attempt(2, 0.5, wording, named)


def test_the_answer_is_a_program_that_parses():
    answer = SimulatedModel(seed=1).invoke(prompt())
    assert (
        "landscape.approach_" in read_change(answer.text, Program.of(PARENT), SOLUTION).program.text
    )


@pytest.mark.parametrize("mode", ["breakthrough", "refinement"])
def test_only_a_breakthrough_guide_names_approaches_three_different_other_ones(mode):
    tactics = parse_tactics(SimulatedModel(seed=1).invoke(guide(mode)).text, 3)
    named = [named_approach(each.approach_type) for each in tactics]
    if mode == "refinement":
        assert named == [None] * 3
    else:
        assert len(set(named)) == 3
        assert not {None, 2} & set(named)


def test_an_answer_depends_on_seed_messages_and_iteration_only():
    model = SimulatedModel(seed=4)
    first, again = (model.invoke(prompt()) for _ in range(2))
    assert (first.text, first.usage_metadata) == (again.text, again.usage_metadata)
    assert SimulatedModel(seed=5).invoke(prompt()).text != first.text
    second = model.invoke(prompt(), {"metadata": {"costada_ticket": 2}})
    third = model.invoke(prompt(), {"metadata": {"costada_ticket": 3}})
    assert second.text != third.text


def test_usage_comes_with_every_answer_and_is_priced_as_glm_5():
    model = chat_model("simulated", seed=1)
    usage = model.invoke(prompt()).usage_metadata
    quote = price_book([(model, None)], {}).prices["simulated"]
    counts = usage["input_tokens"], usage["output_tokens"]
    assert quote.cost(Usage(*counts)) == call_cost(Usage(*counts), OFFLINE_PRICE)


def test_another_problem_gets_an_answer_without_a_program():
    answer = SimulatedModel().invoke([HumanMessage("Improve this: def f(): pass")])
    assert read_program(answer.text) is None
    assert answer.usage_metadata["output_tokens"] > 0


def test_of_an_answer_longer_than_its_limit_nothing_is_left():
    whole = SimulatedModel().invoke(prompt())
    given = whole.usage_metadata["output_tokens"]
    for limit, text in ((given, whole.text), (given - 1, "")):
        cut = SimulatedModel().bind(max_tokens=limit).invoke(prompt())
        assert (cut.text, cut.usage_metadata["output_tokens"]) == (text, limit)


@pytest.mark.parametrize("parallel", [1, 8])
def test_a_hard_budget_is_never_exceeded(parallel):
    for seed in range(6):
        store = RunStore()
        given = {"budget": 0.1, "budget_policy": "hard", "parallel": parallel, "price": None}
        graph = discovery(SimulatedModel(seed=seed), problem=landscape(), store=store, **given)
        found = graph.invoke({"seed": seed})
        assert (found["stop_reason"], found["iterations"] > 2) == ("budget", True)
        assert spent_by(store) <= Decimal("0.1")


def test_guides_are_shown_the_evaluator_of_the_recorded_runs():
    """Its text is part of a prompt: other words lead to other traces."""
    source = problem("landscape").evaluator_source
    assert sha256(source.encode()).hexdigest()[:12] == "7843eb2bfbd3"


def test_questions_about_candidates_need_the_offline_model(leave_out):
    asked = PromptData(kind="labels", program="", score=0.5)
    leave_out("offline")
    with pytest.raises(ValueError, match=r"^model offline is not installed; simulated needs it"):
        answer_prompt(asked, 3, Random(1))

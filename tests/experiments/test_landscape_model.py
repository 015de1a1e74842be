"""The chat model of the simulated landscape, asked with the real prompts."""

import pytest
from langchain_core.messages import HumanMessage

from costada.evaluators.registry import problem
from costada.experiments.landscape.landscape import Attempt, Wording
from costada.experiments.landscape.model import SimulatedModel, attempt_of, named_approach
from costada.experiments.landscape.problem import program_text, read_program
from costada.models.chat_models import chat_model
from costada.models.prices import OFFLINE_PRICE, price_book
from costada.nodes.calls.asking import Conversation
from costada.prompts.evox import Labels, label_text
from costada.prompts.render import generation_prompt, guide_prompt
from costada.prompts.replies import parse_program
from costada.prompts.requests import GenerationRequest, GuideRequest, ShownProgram
from costada.prompts.tactics import Tactic, parse_tactics
from costada.values.prices import call_cost
from costada.values.prompt_data import prompt_data
from costada.values.usage import Usage

PROBLEM = problem("landscape")
PARENT = program_text(2, "0.5000", 11)


def shown(code):
    return ShownProgram(code, 0.5, {}, {})


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
def test_the_wording_of_a_prompt_is_understood(options, wording, named):
    data = prompt_data(prompt(**options)[1].additional_kwargs)
    assert attempt_of(data) == Attempt(2, 0.5, wording, named)


def test_the_answer_is_a_program_that_parses():
    answer = SimulatedModel(seed=1).invoke(prompt())
    read = parse_program(answer.text, PARENT, "solution")
    assert "landscape.approach_" in read.code


def test_a_guide_names_three_different_other_approaches():
    answer = SimulatedModel(seed=1).invoke(guide("breakthrough"))
    named = [named_approach(each.approach_type) for each in parse_tactics(answer.text, 3)]
    assert len(set(named)) == 3
    assert not {None, 2} & set(named)


def test_a_refining_guide_names_no_approach():
    tactics = parse_tactics(SimulatedModel(seed=1).invoke(guide("refinement")).text, 3)
    assert [named_approach(each.approach_type) for each in tactics] == [None] * 3


def test_the_same_seed_and_messages_get_the_same_answer():
    first, again = (SimulatedModel(seed=4).invoke(prompt()) for _ in range(2))
    assert (first.text, first.usage_metadata) == (again.text, again.usage_metadata)
    assert SimulatedModel(seed=5).invoke(prompt()).text != first.text


def test_equal_messages_of_different_iterations_get_different_answers():
    model = SimulatedModel(seed=4)
    first, second = (
        model.invoke(prompt(), {"metadata": {"costada_iteration": iteration}})
        for iteration in (1, 2)
    )
    assert first.text != second.text


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

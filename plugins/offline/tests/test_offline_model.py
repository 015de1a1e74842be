"""The offline model as a chat model: answers, streams, tokens, tools, and runs with it."""

import asyncio
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.runnables import RunnableConfig
from offline_programs import AREA, PACKING, SPREAD, generation, guide, messages, result, shown

from costada.controller.constants import Constants
from costada.evaluators.problem import Problem
from costada.evaluators.registry import problem
from costada.graph.build import compile_search
from costada.models.reply_content import message_from_text
from costada.nodes.settings import Settings
from costada.plugins.offline import OfflineModel
from costada.plugins.offline.offline_model import MAX_REASONING, MIN_REASONING, estimated_tokens
from costada.store.run_store import RunStore
from costada.values.evaluation import Evaluation, failed

PROMPT = messages(generation())


def test_the_same_seed_and_prompt_get_the_same_answer_in_any_order_and_others_another():
    prompts = [PROMPT, messages(guide()), messages(generation(action="exploration"))]
    forward = [OfflineModel(seed=3).invoke(each) for each in prompts]
    model = OfflineModel(seed=3)
    backward = [model.invoke(each) for each in reversed(prompts)][::-1]
    assert [each.content for each in forward] == [each.content for each in backward]
    assert [each.usage_metadata for each in forward] == [each.usage_metadata for each in backward]
    answers = {OfflineModel(seed=seed).invoke(PROMPT).text for seed in range(8)}
    other = OfflineModel().invoke(messages(generation(action="exploitation"))).text
    assert len(answers) > 4
    assert other != OfflineModel().invoke(PROMPT).text


def test_the_run_time_of_a_program_makes_no_difference():
    slow = generation(current=shown(PACKING, seconds=7.5))
    assert OfflineModel().invoke(messages(slow)).text == OfflineModel().invoke(PROMPT).text


def test_a_stream_is_the_answer_in_parts_with_the_usage_on_the_last():
    whole = OfflineModel(seed=1).invoke(PROMPT)
    chunks = list(OfflineModel(seed=1).stream(PROMPT))
    assert len(chunks) > 2
    assert "".join(chunk.text for chunk in chunks) == whole.text
    assert [chunk.usage_metadata for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].usage_metadata == whole.usage_metadata
    assert chunks[-1].response_metadata["model_name"] == "offline"


def test_an_answer_keeps_to_a_limit_and_a_long_one_is_cut_after_its_reasoning():
    whole = OfflineModel(seed=1).invoke(PROMPT)
    given = whole.usage_metadata["output_tokens"]
    reasoning = whole.usage_metadata["output_token_details"]["reasoning"]
    same, cut, lost = (
        OfflineModel(seed=1).bind(max_tokens=limit).invoke(PROMPT)
        for limit in (given, reasoning + 5, 300)
    )
    assert (same.text, same.response_metadata["finish_reason"]) == (whole.text, "stop")
    assert (cut.text, lost.text) == (whole.text[:20], "")
    assert cut.usage_metadata["output_tokens"] == reasoning + 5
    assert lost.usage_metadata["output_tokens"] == 300
    assert cut.response_metadata["finish_reason"] == "length"


def test_every_way_of_asking_gets_the_same_answer_for_an_iteration():
    model, first, second = OfflineModel(seed=2), at(1), at(2)
    expected, without = model.invoke(PROMPT, first).text, model.invoke(PROMPT).text

    async def streamed() -> str:
        return "".join([chunk.text async for chunk in model.astream(PROMPT)])

    assert asyncio.run(model.ainvoke(PROMPT, first)).text == expected
    assert asyncio.run(model.ainvoke(PROMPT, first, stream=True)).text == expected
    assert asyncio.run(streamed()) == without
    assert [each.text for each in model.batch([PROMPT, PROMPT], first)] == [expected] * 2
    other = model.invoke(PROMPT, second).text
    assert model.invoke(PROMPT, second, stream=True).text == other
    assert len({expected, other, without}) == 3


def at(iteration: int) -> RunnableConfig:
    return {"metadata": {"costada_ticket": iteration}}


def test_tokens_are_a_quarter_of_the_characters_rounded_up_plus_the_reasoning():
    answer = OfflineModel(seed=5).invoke(PROMPT)
    usage = answer.usage_metadata
    reasoning = usage["output_token_details"]["reasoning"]
    prompt = "\n\n".join(each.text for each in PROMPT)
    assert usage["input_tokens"] == -(-len(prompt) // 4)
    assert usage["output_tokens"] == -(-len(answer.text) // 4) + reasoning
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert MIN_REASONING <= reasoning <= MAX_REASONING
    assert [estimated_tokens(text) for text in ("", "a", "abcd", "abcde")] == [0, 1, 1, 2]


def test_a_call_costs_what_one_of_a_real_model_does():
    prompt = messages(generation(others=tuple(shown(PACKING) for _ in range(4))))
    costs = []
    for seed in range(40):
        usage = OfflineModel(seed=seed).invoke(prompt).usage_metadata
        costs.append((0.60 * usage["input_tokens"] + 1.92 * usage["output_tokens"]) / 1e6)
    assert 0.008 < sum(costs) / len(costs) < 0.015


def test_callbacks_see_the_name_and_the_usage():
    handler = UsageMetadataCallbackHandler()
    answer = OfflineModel().invoke(PROMPT, config={"callbacks": [handler]})
    assert handler.usage_metadata == {"offline": answer.usage_metadata}


def test_an_answer_ends_before_a_stop_word():
    whole = OfflineModel().invoke(PROMPT).text
    assert OfflineModel().invoke(PROMPT, stop=["no language"]).text == whole.split("no language")[0]


@cache
def evaluate(code: str) -> Evaluation:
    """Run a program the offline model wrote in this process; its searches are short."""
    try:
        value = float(result(code)[-1])
    except (ArithmeticError, IndexError, NameError, SyntaxError, TypeError, ValueError) as error:
        return failed(repr(error))
    return Evaluation(score=value, objective=value, is_valid=True)


def in_process_problem(text: str) -> Problem:
    return Problem(
        name="toy",
        task="Raise the number.",
        initial_program=text.replace("run_packing", "run"),
        evaluate=evaluate,
        entry_point="run",
        evaluator_source="the number the program reports",
    )


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::SyntaxWarning")
@pytest.mark.parametrize(
    ("program", "target"),
    [(PACKING, 1.4), (AREA, 0.01), (SPREAD, 0.15)],
    ids=["packing", "area", "spread"],
)
def test_a_short_run_improves_programs_of_different_kinds(program, target):
    toy, settings = in_process_problem(program), Settings(seed=3)
    assert evaluate(toy.initial_program).score < target
    graph = compile_search(toy, OfflineModel(seed=3), budget=0.13, settings=settings)
    rows = list(graph.stream({}, stream_mode="custom"))
    bests = [row["best_objective"] for row in rows if "best_objective" in row]
    assert bests[-1] > target
    assert len(set(bests)) > 3


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::SyntaxWarning")
@pytest.mark.parametrize("generator", ["model", "agent"])
def test_a_run_is_the_same_however_it_is_streamed(generator):
    settings = Settings(seed=1, generator=generator, constants=Constants(max_iterations=4))

    def account(how: Any) -> list[object]:
        """Everything of a run that does not depend on the clock."""
        toy, store = in_process_problem(PACKING), RunStore()
        model = OfflineModel(seed=1)
        how(compile_search(toy, model, budget=0.5, settings=settings, store=store))
        (run_id,) = store.run_ids()
        calls = store.call_log.calls(run_id)
        clockless = (replace(each, provider_id=None, ended_at=0.0, seconds=0.0) for each in calls)
        return [*store.steps(run_id), *clockless]

    async def read(graph: Any) -> None:
        assert [part async for part in graph.astream({}, stream_mode="messages")]

    plain = account(lambda graph: graph.invoke({}))
    assert len(plain) >= 4 + 4
    for modes in ("messages", ["messages", "custom"]):
        streamed = account(lambda graph, modes=modes: list(graph.stream({}, stream_mode=modes)))
        assert streamed == plain
    assert account(lambda graph: asyncio.run(read(graph))) == plain


@pytest.mark.parametrize("mode", ["custom", "messages"])
def test_with_tools_each_step_submits_the_better_of_what_was_tried(mode):
    store = RunStore()
    settings = Settings(
        generator="agent", tool_evaluations=2, constants=Constants(max_iterations=3)
    )
    graph = compile_search(
        problem("circle_packing"), OfflineModel(), budget=1.0, settings=settings, store=store
    )
    list(graph.stream({}, stream_mode=mode))
    (run_id,) = store.run_ids()
    for step in store.steps(run_id):
        ids = [f"{step['iteration']}.{step['attempts']}.{n}" for n in (1, 2)]
        tried = [each for name in ids if (each := store.candidates.find(run_id, name))]
        assert tried
        assert all(each.is_trial for each in tried)
        assert step["score"] == max(each.score for each in tried)
    calls = list(store.call_log.calls(run_id))
    assert {call.finish_reason for call in calls} == {"tool_calls"}
    assert all(call.usage.output_tokens > 2400 for call in calls)
    used = {message_from_text(call.answer).tool_calls[0]["name"] for call in calls}
    assert used >= {"evaluate_candidate", "submit"}

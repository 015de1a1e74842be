import asyncio
import gc
import time
from typing import TypedDict

import pytest
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.messages import AIMessageChunk
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from offline_programs import PACKING, generation, guide, messages, shown

from costada.models.offline import OfflineModel
from costada.models.offline.model import MAX_REASONING, MIN_REASONING, estimated_tokens

PROMPT = messages(generation())


def test_the_same_seed_and_prompt_get_the_same_answer_in_any_order():
    prompts = [PROMPT, messages(guide()), messages(generation(action="exploration"))]
    forward = [OfflineModel(seed=3).invoke(each) for each in prompts]
    model = OfflineModel(seed=3)
    backward = [model.invoke(each) for each in reversed(prompts)][::-1]
    assert [each.content for each in forward] == [each.content for each in backward]
    assert [each.usage_metadata for each in forward] == [each.usage_metadata for each in backward]


def test_another_seed_or_another_prompt_gets_another_answer():
    answers = {OfflineModel(seed=seed).invoke(PROMPT).text for seed in range(8)}
    assert len(answers) == 8
    other = messages(generation(action="exploitation"))
    assert OfflineModel().invoke(other).text != OfflineModel().invoke(PROMPT).text


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


def test_asynchronous_calls_and_batches_give_the_same_answers():
    model = OfflineModel(seed=2)
    expected = model.invoke(PROMPT)

    async def ask() -> tuple[str, str]:
        invoked = await model.ainvoke(PROMPT)
        streamed = [chunk.text async for chunk in model.astream(PROMPT)]
        return invoked.text, "".join(streamed)

    assert asyncio.run(ask()) == (expected.text, expected.text)
    assert [each.text for each in model.batch([PROMPT, PROMPT])] == [expected.text] * 2


@pytest.fixture
def restless_threads():
    """Have threads take turns in the midst of each other's work, at each garbage collection."""

    def let_others_run(phase: str, info: dict[str, int]) -> None:
        time.sleep(1e-5)

    threshold = gc.get_threshold()
    gc.callbacks.append(let_others_run)
    gc.set_threshold(50)
    yield
    gc.set_threshold(*threshold)
    gc.callbacks.remove(let_others_run)


def test_threads_do_not_disturb_each_other(restless_threads):
    model = OfflineModel(seed=2)
    assert len({each.text for each in model.batch([PROMPT] * 60)}) == 1


def test_a_graph_that_streams_messages_sees_answer_and_usage():
    class State(TypedDict):
        reply: str

    model = OfflineModel(seed=4)
    graph = StateGraph(State)
    graph.add_node("ask", lambda state: {"reply": model.invoke(PROMPT).text})
    graph.add_edge(START, "ask")
    graph.add_edge("ask", END)
    seen = list(graph.compile().stream({"reply": ""}, stream_mode=["messages", "values"]))
    chunks = [part[0] for mode, part in seen if mode == "messages"]
    assert all(isinstance(chunk, AIMessageChunk) for chunk in chunks)
    assert "".join(chunk.text for chunk in chunks) == seen[-1][1]["reply"]
    assert sum(chunk.usage_metadata is not None for chunk in chunks) == 1


def test_the_iteration_of_a_call_tells_apart_equal_prompts_also_where_it_is_streamed():
    def config(iteration: int) -> RunnableConfig:
        return {"metadata": {"costada_iteration": iteration}}

    model = OfflineModel(seed=2)
    first, second = (model.invoke(PROMPT, config(each)).text for each in (1, 2))
    assert len({first, second, model.invoke(PROMPT).text}) == 3
    assert asyncio.run(model.ainvoke(PROMPT, config(1))).text == first
    assert asyncio.run(model.ainvoke(PROMPT, config(1), stream=True)).text == first
    assert model.invoke(PROMPT, config(2), stream=True).text == second


def test_tokens_are_a_quarter_of_the_characters_rounded_up_plus_the_reasoning():
    answer = OfflineModel(seed=5).invoke(PROMPT)
    usage = answer.usage_metadata
    reasoning = usage["output_token_details"]["reasoning"]
    prompt = "\n\n".join(each.text for each in PROMPT)
    assert usage["input_tokens"] == -(-len(prompt) // 4)
    assert usage["output_tokens"] == -(-len(answer.text) // 4) + reasoning
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert MIN_REASONING <= reasoning <= MAX_REASONING


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2)])
def test_a_started_token_counts(text, tokens):
    assert estimated_tokens(text) == tokens


def test_a_call_costs_what_one_of_a_real_model_does():
    prompt = messages(generation(others=tuple(shown(PACKING) for _ in range(4))))
    costs = []
    for seed in range(40):
        usage = OfflineModel(seed=seed).invoke(prompt).usage_metadata
        costs.append((0.60 * usage["input_tokens"] + 1.92 * usage["output_tokens"]) / 1e6)
    assert 0.008 < sum(costs) / len(costs) < 0.015


def test_callbacks_see_the_model_name_and_the_usage():
    handler = UsageMetadataCallbackHandler()
    answer = OfflineModel().invoke(PROMPT, config={"callbacks": [handler]})
    assert handler.usage_metadata == {"offline": answer.usage_metadata}


def test_traces_name_the_model_and_its_provider():
    params = OfflineModel()._get_ls_params()
    assert (params["ls_provider"], params["ls_model_name"]) == ("costada", "offline")


def test_an_answer_ends_before_a_stop_word():
    whole = OfflineModel().invoke(PROMPT).text
    assert OfflineModel().invoke(PROMPT, stop=["no language"]).text == whole.split("no language")[0]


def test_a_prompt_without_a_program_is_answered_in_prose_that_says_what_answers():
    reply = OfflineModel().invoke("Hello!").text
    assert reply.startswith("Offline model: rule-based edits for demos and tests")
    assert "no Python program" in reply

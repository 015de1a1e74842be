import pytest
from hypothesis import given
from hypothesis import strategies as st

from costada.models.replies import estimated_usage, usage_from_metadata, usage_from_record
from costada.values.usage import Usage


def test_langchain_metadata_is_read_with_its_details() -> None:
    usage = {
        "input_tokens": 100,
        "output_tokens": 40,
        "total_tokens": 140,
        "input_token_details": {"cache_read": 60, "audio": 1},
        "output_token_details": {"reasoning": 30},
    }
    assert usage_from_metadata(usage) == Usage(100, 40, 60, 30)


def test_details_under_a_service_tier_are_found() -> None:
    usage = {
        "input_tokens": 100,
        "output_tokens": 40,
        "input_token_details": {"flex_cache_read": 60, "flex": 40},
        "output_token_details": {"flex_reasoning": 30, "flex": 10},
    }
    assert usage_from_metadata(usage) == Usage(100, 40, 60, 30)


@pytest.mark.parametrize(
    "written",
    [
        {"cache_creation": 50},
        {"flex_cache_creation": 50},
        {"cache_creation": 50, "ephemeral_5m_input_tokens": 30, "ephemeral_1h_input_tokens": 20},
        {"cache_creation": 0, "ephemeral_5m_input_tokens": 30, "ephemeral_1h_input_tokens": 20},
    ],
    ids=["one number", "under a service tier", "both ways", "by how long it is kept"],
)
def test_what_was_written_to_the_cache_is_read_once(written: dict[str, int]) -> None:
    usage = {
        "input_tokens": 100,
        "output_tokens": 40,
        "total_tokens": 140,
        "input_token_details": {"cache_read": 10, **written},
    }
    for_an_hour = written.get("ephemeral_1h_input_tokens", 0)
    assert usage_from_metadata(usage) == Usage(100, 40, 10, 0, 50, for_an_hour)


ANTHROPIC = {
    "input_tokens": 10,
    "output_tokens": 5,
    "cache_creation_input_tokens": 7,
    "cache_read_input_tokens": 3,
    "cache_creation": {"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": 2},
}
LITELLM = {
    "prompt_tokens": 20,
    "completion_tokens": 5,
    "total_tokens": 25,
    "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 7},
    "cache_creation_input_tokens": 7,
    "cache_read_input_tokens": 3,
}
OPENAI = {
    "prompt_tokens": 20,
    "completion_tokens": 5,
    "total_tokens": 25,
    "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 7},
}


@pytest.mark.parametrize(
    ("usage", "for_an_hour"),
    [(ANTHROPIC, 2), (LITELLM, 0), (OPENAI, 0)],
    ids=["Anthropic", "LiteLLM", "OpenAI"],
)
def test_records_tell_what_was_written_to_the_cache(
    usage: dict[str, object], for_an_hour: int
) -> None:
    assert usage_from_record(usage) == Usage(20, 5, 3, 0, 7, for_an_hour)


def test_cached_input_that_only_the_total_holds_is_input() -> None:
    usage = {
        "input_tokens": 100,
        "output_tokens": 40,
        "total_tokens": 230,
        "input_token_details": {"cache_read": 60, "cache_creation": 30},
    }
    assert usage_from_metadata(usage) == Usage(190, 40, 60, 0, 30)


def test_what_the_total_holds_beyond_both_counts_is_output() -> None:
    record = {"prompt_tokens": 1000, "total_tokens": 5000}
    metadata = {"input_tokens": 1000, "output_tokens": 0, "total_tokens": 5000}
    assert usage_from_record(record) == Usage(1000, 4000)
    assert usage_from_metadata(metadata) == Usage(1000, 4000)


def test_reasoning_beside_the_output_is_not_added_twice() -> None:
    usage = {
        "prompt_tokens": 7,
        "completion_tokens": 5,
        "total_tokens": 42,
        "completion_tokens_details": {"reasoning_tokens": 30},
    }
    assert usage_from_record(usage) == Usage(7, 35, 0, 30)


@pytest.mark.parametrize(
    "usage",
    [
        {
            "prompt_tokens": 7,
            "completion_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 3},
            "completion_tokens_details": {"reasoning_tokens": 2},
        },
        {
            "input_tokens": 7,
            "output_tokens": 5,
            "input_tokens_details": {"cached_tokens": 3},
            "output_tokens_details": {"reasoning_tokens": 2},
        },
    ],
    ids=["chat completions", "responses"],
)
def test_both_forms_of_a_raw_record_are_read(usage: dict[str, object]) -> None:
    assert usage_from_record(usage) == Usage(7, 5, 3, 2)


@pytest.mark.parametrize(
    "usage",
    [
        None,
        "7",
        [7, 5],
        {},
        {"prompt_tokens": 7},
        {"prompt_tokens": 7, "total_tokens": 7},
        {"prompt_tokens": 7, "completion_tokens": None},
        {"prompt_tokens": "7", "completion_tokens": 5},
        {"prompt_tokens": -7, "completion_tokens": 5},
        {"prompt_tokens": True, "completion_tokens": 5},
        {"prompt_tokens": 0, "completion_tokens": 0},
    ],
)
def test_a_record_that_does_not_say_both_counts_says_nothing(usage: object) -> None:
    assert usage_from_record(usage) is None


def test_metadata_of_zeros_says_nothing() -> None:
    assert usage_from_metadata({"input_tokens": 0, "output_tokens": 0}) is None


def test_an_answer_of_no_tokens_is_counted() -> None:
    assert usage_from_record({"prompt_tokens": 7, "completion_tokens": 0}) == Usage(7, 0)


def test_an_estimate_is_a_third_of_the_bytes_rounded_up() -> None:
    assert estimated_usage(["abc", "d"], "ä") == Usage(2, 1)
    assert estimated_usage([], "") == Usage(0, 0)


@given(st.lists(st.text(st.characters()), max_size=4), st.text())
def test_an_estimate_exists_for_any_text(prompts: list[str], answer: str) -> None:
    counts = estimated_usage(prompts, answer)
    assert 3 * counts.output_tokens >= len(answer)
    assert 3 * counts.input_tokens >= sum(map(len, prompts))

"""The offline model as the model of an agent or a judge: it answers from what it was told."""

import pytest
from langchain_core.messages import HumanMessage, SystemMessage

from costada.plugins.offline import OfflineModel

NOTES = """Reply from the notes.
The Heron costs 1390 euros.
The Heron weighs 12.3 kg. It is red.
The Wren weighs 9 kg."""


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("How much does the Heron weigh?", "The Heron weighs 12.3 kg."),
        ("What do I pay, what does the Heron cost?", "The Heron costs 1390 euros."),
        ("And the Wren, how heavy?", "The Wren weighs 9 kg."),
        ("Who are you?", "I find nothing about that."),
    ],
)
def test_a_question_is_answered_by_the_sentence_that_shares_most_words_with_it(question, expected):
    asked = OfflineModel().invoke(f"{NOTES}\n\n{question}")
    told = OfflineModel(seed=4).invoke([SystemMessage(NOTES), HumanMessage(question)])
    assert (asked.text, told.text) == (expected, expected)


def test_a_judge_gets_the_share_of_its_words_as_a_number_between_those_it_names():
    # Of `name`, `opening` and `hours`, the letters names two.
    letters = "Open daily. Come at any hour, ask for Ann."
    asked = f"{letters}\n\nOpening hours, names? Reply with a number from 2 to 8."
    assert OfflineModel().invoke(asked).text == "6.00"
    assert OfflineModel().invoke(f"...\n\n{asked.split(chr(10))[-1]}").text == "2.00"


def test_a_conversation_costs_its_words_and_no_reasoning():
    answer = OfflineModel().invoke(f"{NOTES}\n\nHow much does the Wren weigh?")
    assert answer.usage_metadata["output_tokens"] == 6  # a quarter of 21 letters, rounded up
    assert answer.usage_metadata["output_token_details"]["reasoning"] == 0


def test_a_message_without_words_finds_nothing():
    assert OfflineModel().invoke("").text == "I find nothing about that."

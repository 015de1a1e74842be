"""Tools reach each chat model inside a runnable, or the runnable is refused."""

import pytest
from fakes import ScriptedModel, hashed_answer
from langchain_core.runnables import RunnableLambda

from costada.models.chat_models import chat_model
from costada.models.offline import OfflineModel
from costada.models.requests import with_tools
from costada.models.runnable_tree import returns_raw_answers, underlying_models
from costada.prompts.tools import TOOLS


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")


def test_a_retried_model_and_its_fallback_both_get_the_tools():
    model = chat_model("openai:one").with_fallbacks([chat_model("openai:two")])
    changed = with_tools(model, TOOLS)
    assert [each.model_name for each in underlying_models(changed)] == ["one", "two"]
    assert returns_raw_answers(changed)
    for part in (changed.runnable, *changed.fallbacks):
        bound = part.bound.kwargs["tools"]
        assert [tool["function"]["name"] for tool in bound] == [
            "evaluate_candidate",
            "read_program",
            "search_archive",
            "submit",
        ]


def test_the_given_model_stays_as_it_is():
    model = OfflineModel()
    assert with_tools(model, TOOLS) is not model
    assert model == OfflineModel()


def test_a_model_without_tools_is_named():
    with pytest.raises(ValueError, match="model 'scripted': cannot call tools"):
        with_tools(ScriptedModel(answer=hashed_answer), TOOLS)


def test_a_hidden_model_is_refused():
    hidden = ScriptedModel(answer=hashed_answer)
    with pytest.raises(ValueError, match="in which no tools can be bound"):
        with_tools(RunnableLambda(lambda messages: hidden.invoke(messages)), TOOLS)

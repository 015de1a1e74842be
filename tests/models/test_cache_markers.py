"""Markers for prompt caches: who gets them, and what is sent."""

from typing import Any

import pytest
from fakes import ScriptedModel, hashed_answer
from langchain_core.messages import HumanMessage
from pydantic import Field
from toy_graph import calls_of, discovery

from costada.models.asking import MAX_MARKERS, needs_markers, with_markers
from costada.prompts.render import cacheable_parts
from costada.store.run_store import RunStore


class AnthropicStandIn(ScriptedModel):
    """Counts as Anthropic's and keeps the blocks that it was sent."""

    sent: list[list[Any]] = Field(default_factory=list)

    def _get_ls_params(self, stop: Any = None, **kwargs: Any) -> Any:
        return {"ls_provider": "anthropic", "ls_model_name": "scripted", "ls_model_type": "chat"}

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        self.sent.append([message.content for message in messages])
        plain = [*messages[:-1], HumanMessage(messages[-1].text)]
        return super()._generate(plain, *args, **kwargs)


def model(kind: type[ScriptedModel] = AnthropicStandIn) -> Any:
    return kind(answer=hashed_answer)


def marks(content: Any) -> list[bool]:
    return [block.get("cache_control") == {"type": "ephemeral"} for block in content]


def run(asked: Any, **settings: Any) -> RunStore:
    store = RunStore()
    discovery(asked, budget=0.03, store=store, **settings).invoke({})
    return store


def test_only_models_of_providers_that_ask_for_markers_get_them():
    assert needs_markers(model())
    assert not needs_markers(model(ScriptedModel))
    assert not needs_markers(model().with_fallbacks([model(ScriptedModel)]))
    assert needs_markers(model().with_retry())


def test_every_part_of_a_prompt_but_the_last_ends_in_a_marker():
    asked = model()
    run(asked)
    assert len(asked.sent) > 3
    for (system, content), prompt in zip(asked.sent, asked.prompts, strict=True):
        assert isinstance(system, str)
        assert "".join(block["text"] for block in content) == prompt
        assert [block["text"] for block in content] == list(cacheable_parts(prompt, MAX_MARKERS))
        assert marks(content) == [True] * (len(content) - 1) + [False]
    generated = [content for _, content in asked.sent if content[0]["text"].startswith("# Task")]
    assert len({content[0]["text"] for content in generated}) == 1


def test_the_journal_and_the_ledger_are_those_of_a_run_without_markers():
    def rows(store: RunStore) -> list[Any]:
        return [
            (call.prompt, call.answer, call.cost, call.request_hash) for call in calls_of(store)
        ]

    assert rows(run(model())) == rows(run(model(ScriptedModel)))


def test_a_hard_budget_holds_for_marked_prompts():
    asked = model()
    store = run(asked, budget_policy="hard")
    assert asked.sent
    assert sum(call.cost for call in calls_of(store)) <= 0.03


def test_the_order_of_the_paper_gets_no_markers():
    asked = model()
    run(asked, prompt_order="paper")
    assert all(isinstance(content, str) for sent in asked.sent for content in sent)


def test_a_message_that_further_requests_repeat_is_marked_at_its_end_too():
    message = HumanMessage("ab", additional_kwargs={"costada": {"kind": "generation"}})
    found = with_markers(message, ("a", "b"), is_repeated=True)
    assert marks(found.content) == [True, True]
    assert found.additional_kwargs == message.additional_kwargs
    with pytest.raises(ValueError, match="parts: got 2, expected the text of the message"):
        with_markers(message, ("a", "c"), is_repeated=False)


def test_a_program_with_headings_of_its_own_adds_no_part_beyond_the_fourth():
    names = ("Other programs", "Best program", "Population", "Parent strategy")
    text = "".join(f"\n# {name}\nx = 1\n" for name in names)
    parts = cacheable_parts(text, MAX_MARKERS)
    assert len(parts) == 4
    assert "".join(parts) == text

"""A call whose step is executed again is answered from the journal."""

from dataclasses import replace

import pytest
from bare_context import context_of
from fakes import ScriptedModel, hashed_answer, rewrite
from langchain_core.runnables import RunnableLambda

from costada.models.asking import ModelFailure
from costada.nodes.calls.asking import ask_model
from costada.prompts.render import Prompt
from costada.store.call_log import CallKey

KEY = CallKey("run", 3, "generation", 1)
PROMPT = Prompt("be brief", "improve it")


def test_a_call_is_made_once_however_often_its_step_is_executed():
    model = ScriptedModel(answer=lambda prompt: rewrite(0.4), prompts=[])
    context = context_of(model)
    first = ask_model(model, PROMPT, KEY, {}, context)
    again = ask_model(model, PROMPT, KEY, {}, context)
    assert first.text == again.text
    assert len(model.prompts) == 1
    assert len(list(context.store.call_log.calls("run"))) == 1


def test_a_failure_is_not_asked_for_again_either():
    model = ScriptedModel(answer=lambda prompt: " ", prompts=[])
    context = context_of(model)
    outcomes = [ask_model(model, PROMPT, KEY, {}, context) for _ in range(2)]
    assert isinstance(outcomes[0], ModelFailure)
    assert outcomes[0] == outcomes[1]
    assert len(model.prompts) == 1


def test_an_answer_that_was_stored_just_before_the_end_is_used():
    model = ScriptedModel(answer=hashed_answer, prompts=[])
    context = context_of(model)
    first = ask_model(model, PROMPT, KEY, {}, context)
    context.store._db.write("DELETE FROM costada_outcome", ())
    assert ask_model(model, PROMPT, KEY, {}, context).text == first.text
    assert len(model.prompts) == 1


def test_an_answer_that_something_else_would_have_changed_is_asked_for_again():
    model = ScriptedModel(answer=lambda prompt: rewrite(0.4), prompts=[])
    chain = model | RunnableLambda(lambda message: message)
    context = context_of(chain)
    ask_model(chain, PROMPT, KEY, {}, context)
    context.store._db.write("DELETE FROM costada_outcome", ())
    ask_model(chain, PROMPT, KEY, {}, context)
    assert len(model.prompts) == 2


def test_another_request_for_the_same_call_is_an_error():
    model = ScriptedModel(answer=hashed_answer, prompts=[])
    context = context_of(model)
    ask_model(model, PROMPT, KEY, {}, context)
    told = "generation 1 of iteration 3: the journal holds another .* continue with the settings"
    with pytest.raises(ValueError, match=told):
        ask_model(model, Prompt("be brief", "something else"), KEY, {}, context)


def test_another_request_at_an_old_checkpoint_says_how_to_make_a_branch():
    model = ScriptedModel(answer=hashed_answer, prompts=[])
    context = context_of(model)
    ask_model(model, PROMPT, KEY, {}, context)
    context.store.put_step("run", 4, {})
    told = (
        r"iteration 3: .* older than the run, which has been through iteration 4: .*`costada fork`"
        r" \(Python: costada\.runs\.fork\.fork_run\)"
    )
    with pytest.raises(ValueError, match=told):
        ask_model(model, Prompt("be brief", "something else"), KEY, {}, context)


@pytest.mark.parametrize("is_counted", [True, False])
def test_what_a_killed_process_may_have_lost_is_told_when_the_run_goes_on(caplog, is_counted):
    """0.064 dollars for 32,000 tokens of answer, and the prompt; the budget is 1 dollar."""
    model = ScriptedModel(answer=hashed_answer, prompts=[])
    context = context_of(model)
    if not is_counted:
        settings = context.settings.model_copy(update={"lost_calls": "ignore"})
        context = replace(context, settings=settings)
    ask_model(model, PROMPT, KEY, {}, context)
    context.store._db.write("DELETE FROM costada_outcome", ())
    context.store._db.write("UPDATE costada_call SET status = 'started', bound = '0.0645'", ())
    ask_model(model, PROMPT, KEY, {}, context)
    told = [record.getMessage() for record in caplog.records if record.name == "costada.money"]
    assert len(told) == is_counted
    for line in told:
        assert line.startswith("A request of iteration 3 was lost and counts as $0.064500 (6% of")
    assert len(model.prompts) == 2

import pytest
from fakes import ScriptedModel, hashed_answer, rewrite
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI
from needed_plugins import offline_model
from pydantic import Field, SecretStr

from costada.models.asking import RequestNotSent, with_limited_answers, with_tools
from costada.models.chat_models import chat_model
from costada.models.retries import with_retries
from costada.models.runnable_tree import returns_raw_answers, underlying_models
from costada.prompts.tools import TOOLS

MESSAGES = [HumanMessage("hello")]


class ListeningModel(ScriptedModel):
    """Notes the limit of each request."""

    max_tokens: int | None = None
    limits: list[object] = Field(default_factory=list)

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self.limits.append(kwargs.get("max_tokens", self.max_tokens))
        return super()._generate(messages, stop, run_manager, **kwargs)


def listener(**changes):
    return ListeningModel(answer=lambda _: rewrite(0.5), prompts=[], limits=[], **changes)


def at_most(cap):
    """Allow answers up to a limit, and no longer ones than the request allows itself."""
    return lambda asked: cap if asked.output_cap is None else min(cap, asked.output_cap)


def never(asked):
    raise RequestNotSent(f"{asked.output_cap} tokens")


@pytest.mark.parametrize(
    ("own", "bound", "cap", "expected"),
    [(None, None, 300, 300), (200, None, 300, 200), (None, 200, 300, 200), (900, 800, 300, 300)],
)
def test_the_lowest_of_all_limits_holds(own, bound, cap, expected):
    model = listener(max_tokens=own)
    wrapped = with_retries(model.bind(max_tokens=bound) if bound else model, 2, 0)
    with_limited_answers(wrapped, at_most(cap)).batch([MESSAGES])
    assert model.limits == [expected]


@pytest.mark.parametrize("compose", [
    lambda model: model,
    lambda model: model.bind(stop=["x"]),
    lambda model: with_retries(model, 3, 0),
    lambda model: model.with_fallbacks([listener()]),
    lambda model: RunnableLambda(lambda messages: messages) | model,
    lambda model: model.with_config(tags=["mine"]),
])  # fmt: skip
def test_the_limit_reaches_a_composed_model(compose):
    model = listener()
    with_limited_answers(compose(model), at_most(300)).batch([MESSAGES])
    assert model.limits == [300]


def test_a_request_without_permit_is_not_sent_and_not_repeated():
    model = listener(max_tokens=300)
    wrapped = with_limited_answers(with_retries(model, 3, 0), never)
    (outcome,) = wrapped.batch([MESSAGES], return_exceptions=True)
    assert (str(outcome), model.limits) == ("300 tokens", [])
    with pytest.raises(RequestNotSent):
        wrapped.batch([MESSAGES])


def test_a_fallback_has_its_turn_when_the_first_models_request_is_not_sent():
    dear, cheap = listener(), listener(max_tokens=50)

    def small_ones(asked):
        return asked.output_cap or never(asked)

    (answer,) = with_limited_answers(dear.with_fallbacks([cheap]), small_ones).batch([MESSAGES])
    assert (dear.limits, cheap.limits, answer.content) == ([], [50], rewrite(0.5))


def test_a_model_hidden_in_a_function_is_refused():
    model = listener()
    with pytest.raises(ValueError, match="got RunnableLambda, in which answers cannot be limited"):
        with_limited_answers(RunnableLambda(lambda messages: model.invoke(messages)), at_most(300))


def test_the_limit_is_asked_for_with_all_that_the_request_says():
    seen = []

    def listen(asked):
        seen.append(asked)
        return 300

    tools = [{"name": "x" * 100}]
    model = listener().bind(n=3, tools=tools, max_tokens=700)
    with_limited_answers(model, listen).batch([MESSAGES])
    (asked,) = seen
    assert (asked.model, asked.output_cap, asked.choices) == ("scripted", 700, 3)
    assert asked.input_bound == len("hello") + 32 + len('[{"name": ""}]') + 100


def test_a_limit_is_asked_for_again_before_each_repetition():
    limits = iter([300, 200, 100])

    class Unsteady(ListeningModel):
        def _generate(self, *args, **kwargs):
            super()._generate(*args, **kwargs)
            raise TimeoutError

    model = Unsteady(answer=lambda _: rewrite(0.5), prompts=[], limits=[])
    with_limited_answers(with_retries(model, 3, 0), lambda _: next(limits)).batch(
        [MESSAGES], return_exceptions=True
    )
    assert model.limits == [300, 200, 100]


@pytest.mark.parametrize(
    ("uses_responses", "name"), [(False, "max_completion_tokens"), (True, "max_output_tokens")]
)
def test_the_openai_client_sends_the_limit_in_both_of_its_protocols(*, uses_responses, name):
    """Bound under only one of its two names, the limit would lose to the model's own in one."""
    seen = {}

    class Client(ChatOpenAI):
        async def _agenerate(self, messages, stop=None, run_manager=None, **kwargs):
            seen.update(self._get_request_payload(messages, stop=stop, **kwargs))
            raise TimeoutError

    model = Client(
        model="gpt",
        api_key=SecretStr("no key"),
        max_tokens=32_000,
        use_responses_api=uses_responses,
    )
    with_limited_answers(model.bind(max_tokens=9000), at_most(300)).batch(
        [MESSAGES], return_exceptions=True
    )
    limits = {key: value for key, value in seen.items() if "max" in key}
    assert limits == {name: 300}


def test_a_retried_model_and_its_fallback_both_get_the_tools(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
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
    model = offline_model()
    assert with_tools(model, TOOLS) is not model
    assert model == offline_model()


def test_a_model_without_tools_is_named():
    with pytest.raises(ValueError, match="model 'scripted': cannot call tools"):
        with_tools(ScriptedModel(answer=hashed_answer), TOOLS)


def test_a_hidden_model_gets_no_tools():
    hidden = ScriptedModel(answer=hashed_answer)
    with pytest.raises(ValueError, match="in which no tools can be bound"):
        with_tools(RunnableLambda(lambda messages: hidden.invoke(messages)), TOOLS)

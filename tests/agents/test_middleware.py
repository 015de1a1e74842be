"""An ordinary agent under a purse: real agent, real client, a server that keeps its own bill."""

import asyncio
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from threading import Event, Lock

import pytest
from billing_server import BillingServer, Drip, Refusal, Reply, Silence
from fakes import ScriptedModel, hashed_answer
from impatience import SOON
from langchain.agents import create_agent
from langchain.agents.middleware import ModelFallbackMiddleware, wrap_model_call
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr

from costada.agents.middleware import BudgetMiddleware
from costada.models.errors import UnmeteredCall
from costada.models.event_loop import CallTimeout
from costada.models.providers import RetryPolicy
from costada.models.runnable_tree import FRAME_TOKENS
from costada.nodes.calls.bounds import MINIMAL_ANSWER
from costada.store.purse import Purse
from costada.values.usage import Price

pytestmark = pytest.mark.process

PRICE = Price("10", "30", "1")
QUESTION = {"messages": [HumanMessage("How is the weather?")]}
LOOK = Reply('{"city": "Rome"}', input_tokens=1000, output_tokens=500, tool="weather")
"""Costs 0.010 + 0.015 dollars."""


@tool
def weather(city):
    """Return the weather of a city."""
    return f"Sun in {city}."


@pytest.fixture
def server(provider):
    provider.default = LOOK
    return provider


def model_of(server, name="stand-in", **settings):
    return ChatOpenAI(model=name, base_url=server.url, api_key=SecretStr("none"), **settings)


def agent_of(server, purse, *, price=PRICE, more=(), response_format=None, tools=True, **settings):
    ours = ("other_prices", "lost_calls", "retry_policy")
    options = {key: settings.pop(key) for key in ours if key in settings}
    waits = {"retry_policy": RetryPolicy(retry_wait=1e-9), **options}
    budget = BudgetMiddleware(purse, price=price, **waits)
    return create_agent(
        model_of(server, **settings),
        [weather] if tools else [],
        middleware=[budget, *more],
        response_format=response_format,
    )


def billed(server):
    """Return the server's own bill at 10, 1 and 30 dollars a million."""
    total = server.total()
    fresh = total.input_tokens - total.cached_tokens
    return Decimal(fresh * 10 + total.cached_tokens + total.output_tokens * 30) / 1_000_000


def test_the_purse_holds_what_the_server_billed_when_the_agent_is_done(server):
    purse = Purse(1)
    server.script(
        LOOK,
        Reply("Sunny.", input_tokens=700, output_tokens=9, cached_tokens=600, reasoning_tokens=4),
    )
    said = agent_of(server, purse).invoke(QUESTION)["messages"]
    assert said[-1].content == "Sunny."
    assert purse.spent == billed(server) == Decimal("0.025") + Decimal("0.00187")
    first, last = purse.calls()
    assert (last.bound, last.facts["cached_tokens"], last.facts["reasoning_tokens"]) == (0, 600, 4)
    assert (first.facts["agent"], first.facts["model"]) == ("agent", "stand-in")


@pytest.mark.parametrize("is_async", [False, True])
def test_the_call_that_crosses_completes_and_then_the_agent_ends_politely(server, is_async):
    purse = Purse(0.06)
    agent = agent_of(server, purse)
    state = asyncio.run(agent.ainvoke(QUESTION)) if is_async else agent.invoke(QUESTION)
    last = state["messages"][-1]
    assert last.content == (
        "I stop here: my budget of $0.0600 does not pay for another answer"
        " (spent: $0.0750, left: $0.0000)."
    )
    assert (last.tool_calls, last.response_metadata) == ([], {"finish_reason": "budget"})
    assert len(server.bill) == 3
    assert purse.spent == billed(server) == Decimal("0.075")


def test_an_agent_whose_purse_is_empty_asks_no_model(server):
    purse = Purse(0.01)
    purse.put("somebody else", cost=0.01)
    said = agent_of(server, purse).invoke(QUESTION)["messages"]
    assert said[-1].response_metadata == {"finish_reason": "budget"}
    assert server.requests == []


@pytest.mark.parametrize("is_async", [False, True])
def test_under_a_hard_purse_answers_are_limited_and_the_bill_stays_within_it(server, is_async):
    purse = Purse(0.08, policy="hard")

    def as_long_as_allowed(body):
        tokens = min(700, body["max_completion_tokens"])
        return Reply('{"city": "Rome"}', input_tokens=300, output_tokens=tokens, tool="weather")

    server.default = as_long_as_allowed
    agent = agent_of(server, purse)
    state = asyncio.run(agent.ainvoke(QUESTION)) if is_async else agent.invoke(QUESTION)
    assert state["messages"][-1].response_metadata == {"finish_reason": "budget"}
    assert purse.spent == billed(server) <= Decimal("0.08")
    limits = [body["max_completion_tokens"] for body in server.requests]
    assert limits == sorted(limits, reverse=True)
    assert len(limits) >= 3
    assert limits[-1] >= MINIMAL_ANSWER
    assert purse.remaining < Decimal("0.02")


def test_an_answer_without_a_limit_that_may_cost_too_much_is_not_asked_for(caplog):
    class Unlimited(ScriptedModel):
        def bind_tools(self, tools, **kwargs):
            return self

    model = Unlimited(answer=hashed_answer)
    payer = BudgetMiddleware(Purse(0.1, policy="hard"), price=PRICE)
    state = create_agent(model, [weather], middleware=[payer]).invoke(QUESTION)
    # 32,000 tokens out at $30 a million, and at most some 5,000 in at $10
    assert re.fullmatch(
        r"I stop here: my budget of \$0\.1000 does not pay for another answer, which can cost up to"
        r" \$(0\.9[6-9]|1\.0)\d+ \(spent: \$0\.0000, left: \$0\.1000\)\.",
        state["messages"][-1].content,
    )
    assert model.prompts == caplog.messages == []


def test_a_hard_limit_is_what_is_left_after_the_prompt_at_its_longest(server):
    purse = Purse(0.03, policy="hard")
    server.default = Reply("done", input_tokens=10, output_tokens=10)
    agent_of(server, purse, tools=False).invoke(QUESTION)
    prompt = len("How is the weather?") + FRAME_TOKENS
    assert server.requests[0]["max_completion_tokens"] == (30_000 - prompt * 10) // 30


def test_an_own_limit_that_fits_is_left_as_it_is(server):
    server.default = Reply("done")
    agent_of(server, Purse(1, policy="hard"), max_tokens=99).invoke(QUESTION)
    assert [body["max_completion_tokens"] for body in server.requests] == [99]


class Report(BaseModel):
    """What the weather is like, in words that need a schema of some length."""

    sky: str
    wind: str


def test_what_the_agent_adds_to_a_request_unseen_counts_against_a_hard_purse_too(server):
    purse = Purse(0.03, policy="hard")
    server.default = Reply('{"sky": "blue", "wind": "none"}', output_tokens=100, tool="Report")
    agent = agent_of(server, purse, response_format=Report, tools=False)
    state = agent.invoke(QUESTION)
    assert state["structured_response"] == Report(sky="blue", wind="none")
    (body,) = server.requests
    assert MINIMAL_ANSWER < body["max_completion_tokens"] < 1000
    assert purse.spent == billed(server)


def test_an_agent_that_owes_a_structured_answer_ends_politely_too(server):
    purse = Purse(0.01, policy="hard")
    server.default = Reply("no structure at all", input_tokens=100, output_tokens=200)
    state = agent_of(server, purse, response_format=Report, tools=False).invoke(QUESTION)
    assert state["messages"][-1].response_metadata == {"finish_reason": "budget"}
    assert state.get("structured_response") is None
    assert purse.spent == billed(server) <= Decimal("0.01")


@pytest.mark.parametrize("is_async", [False, True])
def test_streamed_answers_are_charged_to_the_last_token(server, is_async):
    purse = Purse(1)
    server.default = Reply("It is sunny today", input_tokens=321, output_tokens=45)
    agent = agent_of(server, purse)

    async def collect():
        return [part async for part in agent.astream(QUESTION, stream_mode="messages")]

    parts = asyncio.run(collect()) if is_async else agent.stream(QUESTION, stream_mode="messages")
    assert "".join(message.content for message, _ in parts) == "It is sunny today"
    assert server.requests[0]["stream"] is True
    assert purse.spent == billed(server) == Decimal("0.00456")


@pytest.mark.parametrize("is_async", [False, True])
def test_retries_of_the_client_are_requests_of_their_own(server, is_async):
    purse = Purse(1)
    server.script(Refusal(429), Refusal(503), Reply("done", input_tokens=100, output_tokens=10))
    agent = agent_of(server, purse, max_retries=2)
    state = asyncio.run(agent.ainvoke(QUESTION)) if is_async else agent.invoke(QUESTION)
    assert state["messages"][-1].content == "done"
    assert [entry.cost > 0 for entry in purse.calls()] == [False, False, True]
    assert purse.spent == billed(server) == Decimal("0.0013")


@pytest.mark.parametrize(("lost_calls", "is_counted"), [("count", True), ("ignore", False)])
def test_a_request_that_timed_out_counts_at_its_bound(server, lost_calls, is_counted):
    purse = Purse(1)
    server.default = Silence(is_billed=True)
    agent = agent_of(
        server,
        purse,
        tools=False,
        lost_calls=lost_calls,
        timeout=SOON,
        max_retries=0,
        max_tokens=100,
    )
    with pytest.raises(Exception, match="timed out"):
        agent.invoke(QUESTION)
    prompt = len("How is the weather?") + FRAME_TOKENS
    bound = Decimal(prompt * 10 + 100 * 30) / 1_000_000
    assert purse.spent == (bound if is_counted else 0)
    assert "Timeout" in str(purse.calls()[0].facts["error"])


@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_whose_body_drips_ends_at_its_deadline_and_counts_at_its_bound(server, is_async):
    purse = Purse(1)
    server.default = Drip()
    agent = agent_of(server, purse, retry_policy=RetryPolicy(call_timeout=3), max_tokens=1000)
    with pytest.raises(CallTimeout, match="no complete answer within 3 seconds"):
        asyncio.run(agent.ainvoke(QUESTION)) if is_async else agent.invoke(QUESTION)
    assert len(server.requests) == 1
    assert purse.spent >= Decimal("0.03")


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    "refusal",
    [Refusal(429, code="insufficient_quota"), Refusal(429, headers={"Retry-After": "3600"})],
    ids=str,
)
def test_what_another_request_cannot_cure_soon_is_asked_once(server, refusal, is_async):
    server.default = refusal
    agent = agent_of(server, Purse(1))
    with pytest.raises(Exception, match="429"):
        asyncio.run(agent.ainvoke(QUESTION)) if is_async else agent.invoke(QUESTION)
    assert len(server.requests) == 1


def test_a_model_without_a_price_is_refused_before_the_first_call(server):
    with pytest.raises(ValueError, match="model 'stand-in' has no known price"):
        agent_of(server, Purse(1), price=None).invoke(QUESTION)
    assert server.requests == []


def test_a_fallback_is_paid_by_its_own_price_and_needs_one(server):
    server.script(Refusal(400), Reply("done", input_tokens=100, output_tokens=10))
    spare = ModelFallbackMiddleware(model_of(server, "spare"))
    purse = Purse(1)
    prices = {"spare": Price("1", "2")}
    agent_of(server, purse, more=[spare], other_prices=prices).invoke(QUESTION)
    assert purse.spent == Decimal("0.00012")
    server.script(Refusal(400))
    with pytest.raises(ValueError, match="model 'spare' has no known price"):
        agent_of(server, purse, more=[spare]).invoke(QUESTION)
    assert [body["model"] for body in server.requests] == ["stand-in", "spare", "stand-in"]


@pytest.mark.parametrize("is_async", [False, True])
def test_half_a_character_in_an_answer_does_not_stop_the_agents_next_request(server, is_async):
    purse = Purse(1.0)
    server.script(Reply(r'{"city": "Rome \ud800"}', 1000, 500, tool="weather"))
    server.default = Reply("Sun \ud83d.", input_tokens=1000, output_tokens=500)
    agent = agent_of(server, purse)
    found = asyncio.run(agent.ainvoke(QUESTION)) if is_async else agent.invoke(QUESTION)
    assert [str(message.content) for message in found["messages"][2:]] == [
        "Sun in Rome \N{REPLACEMENT CHARACTER}.",
        "Sun \N{REPLACEMENT CHARACTER}.",
    ]
    assert purse.spent == billed(server) == Decimal("0.05")


@wrap_model_call
def ask_another(request, handler):
    """Have the agent's model ask for another name, as a router does."""
    return handler(request.override(model_settings={**request.model_settings, "model": "dear"}))


@pytest.mark.parametrize("policy", ["hard", "crossing"])
def test_a_name_that_other_middleware_binds_is_paid_by_its_own_price_and_needs_one(server, policy):
    for is_first in (True, False):
        purse = Purse(1.0, policy=policy)
        budget = [BudgetMiddleware(purse, price=PRICE)]
        order = [ask_another, *budget] if is_first else [*budget, ask_another]
        with pytest.raises(ValueError, match="model 'dear' has no known price"):
            create_agent(model_of(server), middleware=order).invoke(QUESTION)
        assert (server.requests, purse.spent) == ([], 0)
    purse = Purse(1.0)
    dear = {"dear": Price("20", "60")}
    agent_of(server, purse, more=[ask_another], tools=False, other_prices=dear).invoke(QUESTION)
    assert purse.spent == Decimal("0.05")


def test_a_model_created_for_every_call_is_priced_like_the_first(server):
    purse = Purse(1)
    server.script(LOOK)
    server.default = Reply("done", input_tokens=100, output_tokens=10)

    @wrap_model_call
    def renew(request, handler):
        return handler(request.override(model=model_of(server)))

    budget = BudgetMiddleware(purse, price=PRICE)
    create_agent(model_of(server), [weather], middleware=[renew, budget]).invoke(QUESTION)
    assert len(server.bill) == 2
    assert purse.spent == billed(server)


def test_an_answer_without_token_counts_is_an_error_that_is_charged_at_its_bound(server):
    purse = Purse(1)
    server.default = Reply("done", reports_usage=False)
    with pytest.raises(UnmeteredCall, match="answered without token counts"):
        agent_of(server, purse, tools=False, max_tokens=100).invoke(QUESTION)
    assert purse.spent == Decimal((19 + FRAME_TOKENS) * 10 + 100 * 30) / 1_000_000


def test_two_agents_draw_from_one_purse(server):
    purse = Purse(0.1, policy="hard")
    server.default = Reply("done", input_tokens=100, output_tokens=100)
    for name, budget in (("planner", 0.04), ("writer", 0.06)):
        with purse.child(name, budget) as own:
            agent_of(server, own, max_tokens=500).invoke(QUESTION)
    assert purse.spent == billed(server) == Decimal("0.008")
    assert [entry.account for entry in purse.calls()] == ["purse/planner", "purse/writer"]
    assert purse.remaining == Decimal("0.092")


def test_arguments_are_checked():
    with pytest.raises(ValueError, match=r"purse: got 0.5, expected Purse\(BUDGET\)"):
        BudgetMiddleware(0.5)
    with pytest.raises(ValueError, match="lost_calls: got 'forget'"):
        BudgetMiddleware(Purse(1), lost_calls="forget")
    with pytest.raises(ValueError, match="lost_calls: got 'ignore' under a hard budget"):
        BudgetMiddleware(Purse(1, policy="hard"), lost_calls="ignore")


def test_of_two_in_one_agent_the_inner_one_pays_once(server):
    server.default = Reply("done", input_tokens=100, output_tokens=100)
    outer, inner = Purse(1), Purse(1)
    agent = create_agent(
        model_of(server),
        [],
        middleware=[
            BudgetMiddleware(outer, price=PRICE, name="outer"),
            BudgetMiddleware(inner, price=PRICE, name="inner"),
        ],
    )
    said = agent.invoke(QUESTION)["messages"][-1]
    assert isinstance(said, AIMessage)
    assert (outer.spent, inner.spent) == (0, billed(server))


def test_without_langchain_one_line_says_what_to_install():
    blocked = "import sys; sys.modules['langchain'] = None; import costada.agents.middleware"
    found = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True)
    line = 'ImportError: agents: needs LangChain, run `pip install "costada[agents]"`'
    assert found.stderr.splitlines()[-1] == line


@pytest.mark.parametrize("is_async", [False, True])
def test_agents_share_the_rate_limit_of_their_provider_and_lose_no_call(is_async):
    """It serves two at once, the first ones until a third comes; none of the clients retries."""
    now, lock, refused = [0], Lock(), Event()

    def answer(body):
        with lock:
            now[0] += 1
            is_refused = now[0] > 2
        if is_refused:
            refused.set()
        assert refused.wait(60)
        with lock:
            now[0] -= 1
        return Refusal(429, "too many") if is_refused else Reply("done")

    policy = RetryPolicy(retry_wait=0.01, longest_wait=0.1)
    with BillingServer(answer) as crowded:
        agents = [agent_of(crowded, Purse(1), retry_policy=policy, max_retries=0) for _ in range(8)]

        async def all_at_once():
            return await asyncio.gather(*(agent.ainvoke(QUESTION) for agent in agents))

        if is_async:
            states = asyncio.run(all_at_once())
        else:
            with ThreadPoolExecutor(8) as pool:
                states = list(pool.map(lambda agent: agent.invoke(QUESTION), agents))
        assert [state["messages"][-1].content for state in states] == ["done"] * 8
        assert len(crowded.requests) > len(crowded.bill) == 8

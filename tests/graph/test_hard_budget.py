"""A hard budget: whatever the prices, the answers and the transport, the bill stays within it."""

from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from statistics import mean

import pytest
from billing_server import BillingServer, Refusal, Reply, Silence
from fakes import IDEAS, hashed_answer, is_guide_prompt, rewrite, toy_problem
from impatience import impatient
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from needed_plugins import offline_model
from toy_graph import (
    THREAD,
    calls_of,
    client,
    discovery,
    events_of,
    rows_of,
    scripted,
    spent_by,
)

from costada.controller.methods import METHODS as KNOWN
from costada.models.chat_models import chat_model
from costada.nodes.calls.bounds import MESSAGE_TOKENS, MINIMAL_ANSWER
from costada.runs.discovery import discover
from costada.store.run_store import RunStore
from costada.values.usage import Price

METHODS = ["costada", "adaevolve", "uniform", "best-of-n", *({"evox"} & set(KNOWN))]
NUM_SEEDS = 10
MILLION = Decimal(1_000_000)


@dataclass
class Provider:
    """Answers at random lengths, honours the limit of an answer, fails at times."""

    seed: int
    failing: float = 0.1
    rng: Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = Random(f"provider {self.seed}")
        self.price = Price(f"{self.rng.uniform(0.1, 5):.3f}", f"{self.rng.uniform(0.2, 20):.3f}")
        self.budget = float(f"{self.rng.uniform(0.015, 0.06):.6f}")

    def __call__(self, body) -> Reply | Refusal:
        if self.rng.random() < self.failing:
            return Refusal(self.rng.choice((429, 503)))
        prompt = body["messages"][-1]["content"]
        size = sum(len(message["content"].encode()) for message in body["messages"])
        wanted = 50 + int(self.rng.expovariate(1 / 700))
        tokens = min(wanted, body["max_completion_tokens"])
        answer = IDEAS if is_guide_prompt(prompt) else hashed_answer(prompt)
        return Reply(
            answer if tokens == wanted else "cut off",
            input_tokens=self.rng.randint(size // 5, size + MESSAGE_TOKENS),
            output_tokens=tokens,
            finish_reason="stop" if tokens == wanted else "length",
        )

    def dollars(self, server: BillingServer) -> Decimal:
        total = server.total()
        cost_in = total.input_tokens * self.price.input_per_million
        return (cost_in + total.output_tokens * self.price.output_per_million) / MILLION


@pytest.fixture
def model(server: BillingServer):
    return client(server)


def run(server, model, provider, policy, *, method="costada"):
    server.bill.clear()
    server.requests.clear()
    server.default = provider
    store = RunStore()
    graph = discovery(
        model,
        budget=provider.budget,
        iterations=30,
        store=store,
        method=method,
        seed=provider.seed,
        price=provider.price,
        budget_policy=policy,
    )
    return graph.invoke({}), store


@pytest.mark.process
def test_no_seed_overshoots_and_the_bill_is_the_ledger(server, model) -> None:
    calls, bests, overshoots = {"hard": [], "crossing": []}, {"hard": [], "crossing": []}, []
    for seed in range(NUM_SEEDS):
        for policy in ("hard", "crossing") if seed % 2 else ("hard",):
            provider = Provider(seed)
            method = METHODS[seed % len(METHODS)]
            result, store = run(server, model, provider, policy, method=method)
            bill = provider.dollars(server)
            assert spent_by(store) == bill
            if policy == "hard":
                assert bill <= Decimal(str(provider.budget))
                assert result["spent"] <= provider.budget
                assert result["stop_reason"] in ("budget", "iterations")
            else:
                overshoots.append(max(0.0, float(bill) / provider.budget - 1))
            if seed % 2:
                calls[policy].append(len(server.bill))
                bests[policy].append(result["best_score"])
    assert max(overshoots) > 0
    print(
        f"\n{len(overshoots)} of {NUM_SEEDS} seeds under both policies: {mean(calls['hard']):.1f}"
        f" billed calls under hard and {mean(calls['crossing']):.1f} under crossing; best score"
        f" {mean(bests['hard']):.3f} and {mean(bests['crossing']):.3f}; overshoot of all"
        f" {NUM_SEEDS} seeds under hard 0, under crossing {mean(overshoots):.1%} of the budget on"
        f" average and at most {max(overshoots):.1%}"
    )


def hard(model, budget, *, iterations=1, **options):
    options["budget_policy"] = "hard"
    return discovery(model, budget=budget, iterations=iterations, **options)


def first_prompt_bound() -> int:
    model = scripted()
    hard(model, 1.0).invoke({})
    size = len(toy_problem().task.encode()) + len(model.prompts[0].encode())
    return size + MESSAGE_TOKENS


def dollars_for(answer_tokens: int) -> float:
    return (first_prompt_bound() + 2 * answer_tokens) / 1_000_000


def test_an_answer_may_be_as_long_as_the_rest_of_the_budget_pays_for(server, model) -> None:
    server.default = Reply(rewrite(0.5))
    hard(model, dollars_for(1000)).invoke({})
    hard(model, 1.0).invoke({})
    assert [body["max_completion_tokens"] for body in server.requests] == [1000, 32_000]
    assert all("max_tokens" not in body for body in server.requests)


def test_the_shortest_useful_answer_is_bought_and_a_shorter_one_is_not(server, model) -> None:
    server.default = Reply(rewrite(0.5))
    hard(model, dollars_for(MINIMAL_ANSWER)).invoke({})
    assert [body["max_completion_tokens"] for body in server.requests] == [MINIMAL_ANSWER]
    result = hard(model, dollars_for(MINIMAL_ANSWER - 1)).invoke({})
    assert len(server.requests) == 1
    assert (result["stop_reason"], result["iterations"], result["spent"]) == ("budget", 1, 0.0)


def test_a_model_with_shorter_answers_than_useful_ones_is_asked_all_the_same(server) -> None:
    server.default = Reply(rewrite(0.5))
    terse = chat_model("openai:terse", base_url=server.url, max_tokens=100)
    hard(terse, dollars_for(100)).invoke({})
    assert [body["max_completion_tokens"] for body in server.requests] == [100]


def test_the_step_that_can_not_be_paid_for_ends_like_any_other(server, model) -> None:
    store = RunStore()
    server.default = Reply(rewrite(0.5), input_tokens=100, output_tokens=900)
    result = hard(model, dollars_for(1000), store=store, iterations=9).invoke({})
    first, last = rows_of(store)
    assert (first["score"], first["step_cost"], first["failure"]) == (0.5, 0.0019, None)
    assert (last["score"], last["step_cost"], last["attempts"]) == (None, 0.0, 1)
    assert str(last["failure"]).startswith("not asked: it may cost $")
    assert (result["iterations"], result["stop_reason"]) == (2, "budget")
    assert result["best_score"] == 0.5


def test_a_retry_that_can_not_be_paid_for_is_not_made(server, model) -> None:
    store = RunStore()
    server.default = Reply("no program", input_tokens=100, output_tokens=900)
    result = hard(model, dollars_for(1000), store=store, iterations=9).invoke({})
    (row,) = rows_of(store)
    assert (row["attempts"], row["step_cost"], result["stop_reason"]) == (2, 0.0019, "budget")
    assert len(server.requests) == 1


def test_a_guide_that_can_not_be_paid_for_is_gone_without(server, model) -> None:
    """The guide is shown the evaluator's text, which makes its prompt the longest of all."""
    store = RunStore()
    server.default = Reply("no program", input_tokens=10, output_tokens=10)
    problem = toy_problem(evaluator_source="#" * 50_000)
    result = hard(model, 0.04, iterations=6, problem=problem, store=store).invoke({})
    roles = {call.role for call in calls_of(store)}
    events = events_of(store)
    assert any(event.startswith("guide_scheduled") for event in events)
    assert "backoff" in events
    assert (roles, result["iterations"]) == ({"generation", "retry"}, 6)


def test_a_refused_request_costs_nothing_and_is_sent_again(server, model) -> None:
    server.script(Refusal(429), Refusal(503))
    server.default = Reply(rewrite(0.5))
    result = hard(model, dollars_for(1000)).invoke({})
    assert [body["max_completion_tokens"] for body in server.requests] == [1000] * 3
    assert result["best_score"] == 0.5


def test_a_request_that_timed_out_counts_in_full_so_it_is_not_repeated_on_credit(server) -> None:
    """The first request may use the whole budget; unanswered, it has to be taken as billed."""
    store = RunStore()
    server.default = Silence(is_billed=True)
    model = impatient(client(server, max_attempts=3), server)
    budget = dollars_for(1000)
    result = hard(model, budget, store=store, iterations=9).invoke({})
    assert len(server.requests) == 1
    (call,) = calls_of(store)
    assert call.bound == Decimal(str(budget))
    assert (result["stop_reason"], result["spent"]) == ("failures", budget)


def test_as_many_timed_out_requests_are_repeated_as_can_be_paid_for(server) -> None:
    """The model's own limit of 500 tokens makes three of them affordable, and not a fourth."""
    server.default = Silence(is_billed=True)
    model = impatient(client(server, max_attempts=9, max_tokens=500), server)
    result = hard(model, 3.1 * dollars_for(500), iterations=9).invoke({})
    assert len(server.requests) == 3
    assert result["spent"] == pytest.approx(3 * dollars_for(500))
    assert result["stop_reason"] == "failures"


def test_each_of_a_model_and_its_fallback_is_limited_by_its_own_price(server) -> None:
    server.script(Refusal(400))
    server.default = Reply(rewrite(0.5))
    cheap = client(server, "cheap")
    dear = client(server, "dear")
    graph = hard(
        cheap.with_fallbacks([dear]), dollars_for(1000), other_prices={"dear": Price("1", "4")}
    )
    graph.invoke({})
    asked = [(body["model"], body["max_completion_tokens"]) for body in server.requests]
    assert asked == [("cheap", 1000), ("dear", 500)]


def test_a_model_in_which_answers_can_not_be_limited_is_refused_before_anything_is_sent() -> None:
    hidden = scripted()
    with pytest.raises(ValueError, match="answers cannot be limited"):
        hard(RunnableLambda(lambda messages: hidden.invoke(messages)), 1.0).invoke({})
    assert hidden.prompts == []


def test_a_call_that_was_made_is_not_paid_again_though_nothing_is_left_to_make_it(server, model):
    server.default = Reply(rewrite(0.5), input_tokens=100, output_tokens=950)
    graph = hard(model, dollars_for(1000), saver=InMemorySaver())
    graph.invoke({}, THREAD)
    before_call = next(s for s in graph.get_state_history(THREAD) if s.next == ("generate",))
    again = graph.invoke(None, before_call.config)
    assert len(server.requests) == 1
    assert (again["best_score"], again["spent"]) == (0.5, 0.002)


def test_a_hard_budget_refuses_to_ignore_lost_calls():
    with pytest.raises(ValueError, match="lost_calls: got 'ignore' under a hard budget"):
        discover(
            toy_problem(), offline_model(), budget=0.4, budget_policy="hard", lost_calls="ignore"
        )

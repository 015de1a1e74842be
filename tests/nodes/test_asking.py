"""What a call leaves on the ledger when it goes wrong."""

import pytest
from billing_server import Refusal, Reply, Silence
from fakes import ScriptedModel, hashed_answer, rewrite, toy_problem

from costada.controller.constants import Constants
from costada.evaluators.folders import FolderSettings, sort_values, verdict
from costada.graph.build import create_discovery_graph
from costada.models.chat_models import chat_model
from costada.nodes.settings import Settings
from costada.store.run_store import RunStore
from costada.values.evaluation import EVALUATOR_FAULT, Evaluation, failed
from costada.values.prices import Price


class Renamed(ScriptedModel):
    """A model whose name can change after it was priced."""

    name_now: str = "scripted"

    def _get_ls_params(self, stop=None, **kwargs):
        return {"ls_provider": "scripted", "ls_model_name": self.name_now, "ls_model_type": "chat"}


def graph_with(model, store, *, iterations=3, problem=None):
    settings = Settings(price=Price(1, 2), constants=Constants(max_iterations=iterations))
    return create_discovery_graph(
        problem or toy_problem(), model, budget=1.0, settings=settings, store=store
    )


def calls_of(store):
    return list(store.call_log.calls(store.run_ids()[-1]))


def test_a_request_to_a_model_without_a_price_never_leaves():
    store = RunStore()
    model = Renamed(answer=hashed_answer)
    graph = graph_with(model, store)
    model.name_now = "other"
    with pytest.raises(ValueError, match="model 'other' has no known price"):
        graph.invoke({})
    assert (model.prompts, calls_of(store)) == ([], [])


def client(server):
    return chat_model("openai:stand-in", base_url=server.url, retry_wait=0)


def test_a_call_carries_its_price_and_where_it_came_from(server):
    store = RunStore()
    graph_with(client(server), store, iterations=1).invoke({})
    (call,) = calls_of(store)
    assert (call.price_in, call.price_out, call.price_source) == ("1", "2", "given")
    assert (call.provider, call.provider_id, call.finish_reason) == ("openai", "answer-1", "stop")
    assert call.ended_at > 1.7e9


def test_a_model_that_refuses_the_very_first_request_ends_the_run(server):
    server.default = Refusal(400, "unknown parameter")
    with pytest.raises(ValueError, match=r"refused the request with status 400.*unknown parameter"):
        graph_with(client(server), RunStore()).invoke({})
    assert len(server.requests) == 1


def test_a_later_refusal_of_one_prompt_is_a_failed_attempt(server):
    server.script(Reply(rewrite(0.2)), Refusal(400, "content filter"), Reply(rewrite(0.4)))
    store = RunStore()
    result = graph_with(client(server), store, iterations=2).invoke({})
    assert result["best_score"] == 0.4
    assert [row["attempts"] for row in store.steps(store.run_ids()[0])] == [1, 2]


def test_cached_tokens_that_a_server_counts_apart_are_charged(server):
    server.default = Reply(rewrite(0.3), input_tokens=100, cached_tokens=400, output_tokens=10)
    store = RunStore()
    graph_with(client(server), store, iterations=1).invoke({})
    (call,) = calls_of(store)
    assert (call.usage.input_tokens, call.usage.cached_tokens) == (500, 400)


def fault_after(count):
    """An evaluator that judges `count` programs and is broken from then on."""
    judged = []

    def evaluate(code: str) -> Evaluation:
        judged.append(code)
        if len(judged) > count:
            return failed("disk gone", artifacts={EVALUATOR_FAULT: "disk gone"})
        return Evaluation(score=0.1, objective=0.1, is_valid=True)

    return evaluate


@pytest.mark.parametrize(("max_tokens", "is_told"), [(32_000, True), (1_000, False)])
def test_a_lost_request_that_takes_much_of_the_budget_is_told_with_what_helps(
    server, caplog, max_tokens, is_told
):
    """At 2 dollars per million, 32,000 tokens are 6.4 % of the budget; the prompt adds."""
    model = chat_model(
        "openai:stand-in", base_url=server.url, timeout=0.3, max_attempts=1, max_tokens=max_tokens
    )
    server.script(Reply(rewrite(0.2)), Silence(), Reply(rewrite(0.4)))
    store = RunStore()
    graph_with(model, store, iterations=2).invoke({})
    (lost,) = [call for call in calls_of(store) if call.bound]
    told = [record.getMessage() for record in caplog.records if record.name == "costada.money"]
    assert len(told) == is_told
    for line in told:
        assert line.startswith(f"A request of iteration 2 was lost and counts as ${lost.bound:.6f}")
        assert "(7% of the budget)" in line
        assert "--max-tokens" in line
        assert "--gateway" in line


NAN = float("nan")


@pytest.mark.parametrize("told", ["dict", "Evaluation"])
@pytest.mark.parametrize("is_broken_for_all", [True, False])
def test_a_later_score_that_is_no_number_is_rechecked_on_the_best_program(
    server, told, is_broken_for_all
):
    """Either from the third evaluation on, or for the one program that returns 0.2."""
    judged = []

    def score(value):
        judged.append(value)
        is_broken = len(judged) > 2 if is_broken_for_all else value == 0.2
        found = NAN if is_broken else value
        if told == "dict":
            return verdict(*sort_values({"combined_score": found}), FolderSettings())
        return Evaluation(score=found, objective=found, is_valid=True)

    problem = toy_problem(evaluate=None, score=score)
    server.script(*(Reply(rewrite(value)) for value in (0.3, 0.2, 0.4)))
    graph = graph_with(client(server), RunStore(), problem=problem, iterations=2)
    if is_broken_for_all:
        with pytest.raises(ValueError, match=r"fails on the best program, .*expected a finite"):
            graph.invoke({})
        assert (judged, len(server.requests)) == ([0.1, 0.3, 0.2, 0.3], 2)
    else:
        assert graph.invoke({})["best_score"] == 0.4
        assert judged == [0.1, 0.3, 0.2, 0.3, 0.4]


def test_an_evaluator_that_breaks_during_a_run_ends_it(server):
    graph = graph_with(client(server), RunStore(), problem=toy_problem(evaluate=fault_after(1)))
    with pytest.raises(ValueError, match=r"evaluator of 'toy': fails on the best program.*disk"):
        graph.invoke({})
    assert len(server.requests) == 1

"""A command as the generator that asks models: what it pays, what it may, what it waits for."""

import asyncio
import json
from collections import Counter
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import openai
import pytest
from billing_server import Refusal, Reply
from fakes import rewrite
from generator_commands import asking, python_command
from langgraph.checkpoint.memory import InMemorySaver
from needed_plugins import EVOX
from toy_graph import THREAD, billed, calls_of, client, discovery, rows_of, spent_by

from costada.models.menu import MenuModel
from costada.models.providers import RetryPolicy
from costada.store.run_store import RunStore
from costada.values.evaluation import GENERATOR_LOG
from costada.values.usage import Price

pytestmark = pytest.mark.process

ANSWER_COST = Decimal("0.00002")
"""10 input tokens at 1 dollar and 5 output tokens at 2 dollars per million."""

BRIEF = RetryPolicy(retry_wait=0.001, longest_wait=0.02, longest_pause=60)


def run_of(server, store, turns=1, *, command=None, iterations=1, **options):
    graph = discovery(
        options.pop("model", None) or client(server),
        store=store,
        iterations=iterations,
        generator=command or asking(turns),
        **{"retry_policy": BRIEF, **options},
    )
    return graph.invoke({})


def messages_of(call):
    return [each["content"] for each in json.loads(call.prompt)["messages"]]


def test_each_request_of_a_command_is_on_the_ledger_in_the_role_of_its_attempt(server):
    with RunStore() as store:
        server.script(Reply(rewrite(0.2)), Reply(rewrite(0.7)))
        result = run_of(server, store, turns=2)
        calls, (row,) = calls_of(store), rows_of(store)
        assert spent_by(store) == billed(server) == 2 * ANSWER_COST
    assert (result["best_score"], result["spent"]) == (0.7, 0.00004)
    assert [(each.role, each.attempt, each.model) for each in calls] == [
        ("generation", 1, "stand-in"),
        ("generation", 1, "stand-in"),
    ]
    assert [len(messages_of(each)) for each in calls] == [1, 3]
    assert "`candidate.py` of the working folder" in messages_of(calls[0])[0]
    assert (row["step_cost"], row["attempts"]) == (0.00004, 1)


def test_the_command_gets_a_token_and_the_provider_the_key(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")
    show = "print(os.environ['OPENAI_API_KEY'], os.environ['ANTHROPIC_API_KEY'], flush=True)"
    both = f"import os, subprocess, sys; {show}; sys.exit(subprocess.call(sys.argv[1:]))"
    with RunStore() as store:
        server.script(Reply(rewrite(0.7)))
        run_of(server, store, command=python_command(both) + " " + asking())
        log = store.candidates.get(store.run_ids()[-1], "1.1").artifacts[GENERATOR_LOG]
    assert server.authorizations == ["Bearer sk-real"]
    assert "sk-real" not in log
    token, other = log.splitlines()[0].split()
    assert token == other
    assert len(token) > 20


def test_the_token_is_worth_nothing_once_the_command_has_ended(server):
    show = "print(os.environ['OPENAI_BASE_URL'], os.environ['OPENAI_API_KEY'], flush=True)"
    both = f"import os, subprocess, sys; {show}; sys.exit(subprocess.call(sys.argv[1:]))"
    with RunStore() as store:
        server.script(Reply(rewrite(0.7)))
        run_of(server, store, command=python_command(both) + " " + asking())
        log = store.candidates.get(store.run_ids()[-1], "1.1").artifacts[GENERATOR_LOG]
    url, token = log.splitlines()[0].split()
    said = [{"role": "user", "content": "hi"}]
    with (
        openai.OpenAI(base_url=url, api_key=token, max_retries=0) as late,
        pytest.raises(openai.AuthenticationError),
    ):
        late.chat.completions.create(model="stand-in", messages=said)
    assert len(server.requests) == 1


def test_it_works_asynchronously(server):
    server.script(Reply(rewrite(0.2)), Reply(rewrite(0.7)))
    graph = discovery(client(server), iterations=1, generator=asking(2))
    assert asyncio.run(graph.ainvoke({}))["best_score"] == 0.7


def test_a_cancelled_run_kills_its_command_and_a_resumed_one_pays_nothing_twice(server, tmp_path):
    """The command hangs after its answers the first time."""
    mark, waiting = tmp_path / "mark", tmp_path / "waiting"
    hang = (
        "import os, subprocess, sys, time; from pathlib import Path\n"
        "code = subprocess.call(sys.argv[3:])\n"
        "if not Path(sys.argv[1]).exists():\n"
        "    Path(sys.argv[1]).touch(); Path(sys.argv[2]).write_text(str(os.getpid()))\n"
        "    time.sleep(600)\n"
        "sys.exit(code)"
    )
    command = f"{python_command(hang, str(mark), str(waiting))} {asking(2)}"
    server.default = Reply(rewrite(0.7))

    async def cancelled(graph):
        task = asyncio.create_task(graph.ainvoke({}, THREAD))
        while not (waiting.exists() and waiting.read_text()):
            await asyncio.sleep(0.05)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return await graph.ainvoke(None, THREAD)

    with RunStore() as store:
        graph = discovery(
            client(server), store=store, saver=InMemorySaver(), iterations=1, generator=command
        )
        result = asyncio.run(cancelled(graph))
        assert spent_by(store) == billed(server) == 2 * ANSWER_COST
    assert result["best_score"] == 0.7
    assert not Path(f"/proc/{waiting.read_text()}").exists()


def test_a_model_that_is_not_granted_is_refused_and_nothing_is_sent(server, tmp_path):
    with RunStore() as store:
        result = run_of(server, store, command=asking(model="gpt-5.4"), attempts=2)
        assert calls_of(store) == []
        (row,) = rows_of(store)
    assert server.requests == []
    assert (result["spent"], row["attempts"]) == (0.0, 2)
    assert "failed with exit status 3" in row["failure"]
    assert "got 'gpt-5.4', expected one of 'stand-in'" in row["failure"]


def test_retries_are_charged_to_the_step_in_their_own_role(server):
    with RunStore() as store:
        server.script(Reply("no program"), Reply(rewrite(0.4)))
        result = run_of(server, store)
        calls = [(each.role, each.attempt) for each in calls_of(store)]
        (row,) = rows_of(store)
    assert calls == [("generation", 1), ("retry", 2)]
    assert (result["best_score"], row["attempts"], row["step_cost"]) == (0.4, 2, 0.00004)
    assert "The files were left as they are." in server.requests[1]["messages"][0]["content"]


def test_a_step_that_has_cost_its_cap_asks_no_more_and_is_not_tried_again(server):
    """Two answers cost 0.00004, so the third would begin above a cap of 0.00003."""
    with RunStore() as store:
        server.default = Reply(rewrite(0.4))
        run_of(server, store, turns=9, step_cap=0.00003)
        (row,) = rows_of(store)
        assert spent_by(store) == billed(server) == 2 * ANSWER_COST
    assert row["attempts"] == 1
    assert "cut_short" in row["events"]
    assert "402" in row["failure"]


def test_once_the_budget_is_used_up_no_further_request_is_sent(server):
    with RunStore() as store:
        server.default = Reply(rewrite(0.4))
        result = run_of(server, store, turns=9, budget=0.00003, iterations=9)
        assert spent_by(store) == billed(server) == 2 * ANSWER_COST
    assert (result["stop_reason"], result["iterations"]) == ("budget", 1)


@pytest.mark.parametrize("parallel", [1, 4])
def test_a_hard_budget_holds_and_the_ledger_is_the_bill(server, parallel):
    def honest(body) -> Reply:
        size = sum(len(str(message).encode()) for message in body["messages"])
        number = len(server.requests)
        tokens = min(3000, body["max_completion_tokens"])
        text = rewrite(0.3 + 0.01 * number)
        return Reply(text, input_tokens=size // 3, output_tokens=tokens)

    with RunStore() as store:
        server.default = honest
        options = {"budget": 0.05, "budget_policy": "hard", "parallel": parallel}
        result = run_of(server, store, turns=2, iterations=50, **options)
        assert spent_by(store) == billed(server) <= Decimal("0.05")
    assert result["stop_reason"] == "budget"
    assert result["iterations"] > 1


def test_a_hard_budget_that_cannot_pay_for_a_first_request_ends_the_run(server):
    def whole(body) -> Reply:
        return Reply(rewrite(0.4), input_tokens=10, output_tokens=body["max_completion_tokens"])

    with RunStore() as store:
        server.default = whole
        result = run_of(server, store, budget=0.03, budget_policy="hard", iterations=9)
        rows = rows_of(store)
        assert spent_by(store) == billed(server) <= Decimal("0.03")
    assert (result["stop_reason"], len(server.requests)) == ("budget", 1)
    assert [row["score"] for row in rows] == [0.4, None]
    assert "out_of_money" in rows[1]["events"]


@pytest.mark.parametrize("failure", [Refusal(503, "down"), Refusal(429, "slow")])
def test_a_run_is_paused_while_the_provider_of_a_command_is_unavailable(server, caplog, failure):
    """The command fails with each outage and is run again; what was answered is not paid again."""
    with RunStore() as store:
        server.script(Reply(rewrite(0.2)), *[failure] * 40, Reply(rewrite(0.7)))
        result = run_of(server, store, turns=2)
        (row,) = rows_of(store)
        assert spent_by(store) == billed(server) == 2 * ANSWER_COST
    assert (result["best_score"], row["attempts"]) == (0.7, 1)
    assert "Paused: the provider does not answer" in caplog.text
    assert "answers again after" in caplog.text


def test_a_provider_that_refuses_the_key_ends_the_run(server):
    server.default = Refusal(401, "bad key")
    with RunStore() as store, pytest.raises(ValueError, match="bad key"):
        run_of(server, store)


def test_the_command_asks_the_model_that_the_router_has_chosen(server):
    models = [MenuModel(name, client(server, name), Price(1, 2)) for name in ("a", "b@low")]
    with RunStore() as store:
        server.default = lambda body: Reply(rewrite(0.01 * len(server.requests)))
        run_of(server, store, model=models, iterations=6, price=None)
        calls = calls_of(store)
        entries = [each.entry for each in calls if each.role != "guide"]
        steps = [name for row in rows_of(store) for name in row["models"]]
        assert spent_by(store) == billed(server) == len(calls) * ANSWER_COST
    assert entries == steps
    assert {*entries} == {"a", "b@low"}
    assert [body["model"] for body in server.requests] == [each.model for each in calls]


@pytest.mark.parametrize("method", ["adaevolve", EVOX])
def test_every_method_can_have_a_command_as_its_generator(server, method):
    with RunStore() as store:
        server.default = lambda body: Reply(rewrite(0.01 * len(server.requests)))
        result = run_of(server, store, iterations=3, method=method, max_failures=99)
        assert spent_by(store) == billed(server) >= 3 * ANSWER_COST
    assert result["iterations"] == 3


def test_several_commands_run_at_once(server):
    with RunStore() as store:
        server.default = lambda body: Reply(rewrite(0.01 * len(server.requests)))
        result = run_of(server, store, turns=2, iterations=8, parallel=4)
        rows = rows_of(store)
        calls = calls_of(store)
        assert spent_by(store) == billed(server) == len(calls) * ANSWER_COST
    assert result["iterations"] == 8
    assert sum(Decimal(str(row["step_cost"])) for row in rows) == len(calls) * ANSWER_COST
    asked = Counter((each.ticket, each.attempt) for each in calls if each.role != "guide")
    assert {*asked.values()} == {2}
    assert len(asked) >= 8
